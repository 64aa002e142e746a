"""What is to be done: the only output of the core. Imperatives, in two kinds.

*Records* go to the ledger and are committed first, the whole batch in one transaction. *Acts* are carried out by the
executor only after that commit (I1, I7).
"""

from collections.abc import Mapping

from crtrd.core.cron import Cron, Departed
from crtrd.core.delivery import Delivery, Escalation, Queue, Told
from crtrd.core.occurrence import Cell, Key, Occurrence, Run
from crtrd.errors import Code
from crtrd.values import dataclass, field


@dataclass(frozen=True, slots=True)
class PutCron:
    cron: Cron


@dataclass(frozen=True, slots=True)
class DropCron:
    """`owner`: whose own it was, and with it what is remembered of it."""

    cron_id: str
    name: str
    owner: int | None


@dataclass(frozen=True, slots=True)
class PutDeparted:
    """What a canceled cron leaves behind for its live runs."""

    departed: Departed


@dataclass(frozen=True, slots=True)
class DropDeparted:
    cron_id: str


@dataclass(frozen=True, slots=True)
class PutOccurrence:
    occurrence: Occurrence


@dataclass(frozen=True, slots=True)
class PutCell:
    cell: Cell


@dataclass(frozen=True, slots=True)
class PutRun:
    run: Run


@dataclass(frozen=True, slots=True)
class TakeLease:
    """Claim the occurrence for this daemon life; the ledger gives the lease its owner, its end and the next fence."""

    occurrence_id: str


@dataclass(frozen=True, slots=True)
class DropLease:
    occurrence_id: str


@dataclass(frozen=True, slots=True)
class PutDelivery:
    """A row of the outbox. `fresh`: one of the same id, whatever became of it, stays as it is."""

    delivery: Delivery
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class PutQueue:
    """That a sink is down, or (no failures) that it is not."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class PutTold:
    told: Told


@dataclass(frozen=True, slots=True)
class Remember:
    """One fact about the host that the next life is to find: see `core.files`, `core.host`."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class PutEscalation:
    escalation: Escalation


@dataclass(frozen=True, slots=True)
class PutKey:
    key: Key


Record = (
    PutCron | DropCron | PutDeparted | DropDeparted | PutOccurrence | PutCell | PutRun | TakeLease | DropLease
    | PutDelivery | PutQueue | PutTold | Remember | PutEscalation | PutKey
)


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the child of `run`, held at the gate."""

    run: Run
    cron: Cron


@dataclass(frozen=True, slots=True)
class OpenGate:
    run_id: str
    timeout: int


@dataclass(frozen=True, slots=True)
class CloseGate:
    """The held child is not wanted any more: it ends without executing anything."""

    run_id: str


@dataclass(frozen=True, slots=True)
class StopRun:
    """SIGTERM and SIGCONT to the group, SIGKILL after `grace` microseconds."""

    run_id: str
    grace: int


@dataclass(frozen=True, slots=True)
class SignalRun:
    run_id: str
    signal: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Make one attempt; DeliveryEnded tells what came of it."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Escalate:
    """Have somebody told; EscalationEnded or EscalationTold says how that went."""

    escalation_id: str


@dataclass(frozen=True, slots=True)
class LookAfter:
    """See how the escalation's unit fares; EscalationEnded says so, where that can be told."""

    escalation_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    ticket: int
    value: object


@dataclass(frozen=True, slots=True)
class Refuse:
    ticket: int
    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Announce:
    """One event for the journal, the bus and `crtrctl monitor`. `kind` and `fields` are CONTRACT §8."""

    kind: str
    message: str
    fields: Mapping[str, str | int] = field(default_factory=dict)
    priority: int = 6


Act = Spawn | OpenGate | CloseGate | StopRun | SignalRun | Deliver | Escalate | LookAfter | Answer | Refuse | Announce
Effect = Record | Act
