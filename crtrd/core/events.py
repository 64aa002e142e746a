"""What has happened: the only input of the core. Past participles; each carries its own wall-clock time `at`.

Requests carry a `ticket`, an opaque number by which the engine finds the caller again. Fresh ids come in with the
event too: the core itself reads no clock and no random source (I3).
"""

from collections.abc import Mapping

from crtrd.core.cron import Definition
from crtrd.core.delivery import UNKNOWN, Outcome, Owner
from crtrd.core.occurrence import Identity, Origin, Output
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class WokeUp:
    """Time has passed: instants, retries and expiries may be due."""

    at: int


@dataclass(frozen=True, slots=True)
class ClockSet:
    """The wall clock was set; `at` is the new time."""

    at: int


@dataclass(frozen=True, slots=True)
class DaemonStarted:
    at: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class ProfileFollowed:
    """A profile was read for a run, and its defaults are not what they were: typed fields of the definition."""

    at: int
    cron_id: str
    changes: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class RunHeld:
    """The child exists and waits at the gate."""

    at: int
    run_id: str
    identity: Identity
    cgroup: str


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """No command was executed. `stage` and `errno` as in errors.LaunchError; a shortage is ours, not the cron's."""

    at: int
    run_id: str
    stage: str
    errno: int
    message: str
    shortage: bool


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process group ended, as seen by supervision. Both numbers None: nobody saw it end (unobserved)."""

    exit_code: int | None
    signal: int | None
    oom: bool
    duration: int | None
    stdout: Output
    stderr: Output
    survivors: tuple[str, ...] = ()
    """What outlived the leader, as "pid (name)"."""
    hits: tuple[str, ...] = ()
    """Resources whose limit was met, by the names of `resources`."""
    last_line: bytes = b""
    """The last line of standard error, however much there was of it."""


@dataclass(frozen=True, slots=True)
class RunEnded:
    at: int
    run_id: str
    ending: Ending


@dataclass(frozen=True, slots=True)
class RunWedged:
    """Killed and not dead within supervision's patience (uninterruptible); `ending` has its output so far."""

    at: int
    run_id: str
    ending: Ending


@dataclass(frozen=True, slots=True)
class RunLost:
    """Recovery: the ledger calls this run live, the world has no such process (`executed` False: never released)."""

    at: int
    run_id: str
    executed: bool


@dataclass(frozen=True, slots=True)
class TimeoutReached:
    at: int
    run_id: str


@dataclass(frozen=True, slots=True)
class StopBegun:
    """The daemon is to end with its runs (systemctl stop): every live run is interrupted, nothing new starts."""

    at: int


@dataclass(frozen=True, slots=True)
class ArmRequested:
    at: int
    ticket: int
    caller: int
    cron_id: str
    definition: Definition
    account: str = ""
    """Whom it is to run as, `uid name`; '' where nobody looked."""


@dataclass(frozen=True, slots=True)
class ChangeRequested:
    at: int
    ticket: int
    caller: int
    cron: str
    changes: Mapping[str, object]
    """Already typed fields of Definition that the caller named."""
    account: str | None = None
    """None: whom it runs as has not been changed."""


@dataclass(frozen=True, slots=True)
class CancelRequested:
    at: int
    ticket: int
    caller: int
    cron: str
    kill: bool
    run_id: str = ""
    """The run whose command asks, as far as that was verified; '' for everybody else."""


@dataclass(frozen=True, slots=True)
class PauseRequested:
    at: int
    ticket: int
    caller: int
    cron: str
    note: str


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    at: int
    ticket: int
    caller: int
    cron: str


@dataclass(frozen=True, slots=True)
class SkipRequested:
    at: int
    ticket: int
    caller: int
    cron: str
    instant: int
    """0: the next one."""
    undo: bool = False
    """Take the request back; 0: every one."""


@dataclass(frozen=True, slots=True)
class PokeRequested:
    at: int
    ticket: int
    caller: int
    cron: str


@dataclass(frozen=True, slots=True)
class DispatchRequested:
    """Somebody asks for an occurrence now: `run` (manual, out of band), `trigger`, `backfill` (one per instant)."""

    at: int
    ticket: int
    caller: int
    cron: str
    origin: Origin
    key: str
    instant: int
    target: str = ""
    label: str = ""
    overlap: str = ""


@dataclass(frozen=True, slots=True)
class RerunRequested:
    """Somebody asks for what a settled occurrence has left undone. `key` is fresh."""

    at: int
    ticket: int
    caller: int
    occurrence_id: str
    key: str


@dataclass(frozen=True, slots=True)
class BackfillRequested:
    """One occurrence for each instant of the schedule in [start, end] that has none yet."""

    at: int
    ticket: int
    caller: int
    cron: str
    start: int
    end: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class CronFile:
    """One cron file as it was read. `cron_id` is fresh, for a cron that is not known yet."""

    source: str
    definition: Definition
    zoned: bool
    """It names its time zone."""
    cron_id: str
    account: str = ""


@dataclass(frozen=True, slots=True)
class CronFilesRead:
    """Cron files of every layer were read: those of the names later than `after` up to `upto`, by name.

    '' are the first and the last name. `ticket` is None where nobody waits for the answer.
    """

    at: int
    ticket: int | None
    caller: int
    files: tuple[CronFile, ...]
    kept: frozenset[str]
    """Names of faulty files: their crons go on as they are."""
    whole: bool
    """False: some folder could not be read, so that nothing may be taken for removed."""
    mark: str
    """To be remembered with the last ones."""
    after: str = ""
    upto: str = ""


@dataclass(frozen=True, slots=True)
class HostChanged:
    """Zone files or calendars are not what they were: every schedule may mean other instants now.

    One event is about some of the crons, of the names later than `after`; the answer is the last of these, '' where
    no more follow.
    """

    at: int
    mark: str
    """To be remembered when the last ones are planned."""
    ticket: int | None = None
    after: str = ""


@dataclass(frozen=True, slots=True)
class KillRequested:
    at: int
    ticket: int
    caller: int
    run_id: str
    signal: int


@dataclass(frozen=True, slots=True)
class DeliveryEnded:
    """One attempt is over. `retry_after`, microseconds: what the sink asked for, 0 where it asked for nothing."""

    at: int
    delivery_id: str
    attempt: int
    outcome: Outcome
    error: str = ""
    retry_after: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryRetryRequested:
    at: int
    ticket: int
    caller: int
    delivery: str


@dataclass(frozen=True, slots=True)
class DeliveryDiscardRequested:
    at: int
    ticket: int
    caller: int
    delivery: str


@dataclass(frozen=True, slots=True)
class EscalationEnded:
    """What is seen of the escalation's unit. `error`: it could not be started, or has failed, and why."""

    at: int
    escalation_id: str
    error: str = ""
    owner: Owner = UNKNOWN
    at_work: bool = False
    """It has begun and not ended yet."""


@dataclass(frozen=True, slots=True)
class EscalationTold:
    """Do the default."""

    at: int
    ticket: int | None
    caller: int
    escalation_id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class TriggerRequested:
    """`fresh` is an id that nobody has used."""

    at: int
    ticket: int
    caller: int
    cron: str
    fresh: str
    when: int | None = None
    key: str = ""
    label: str = ""
    source: str = ""
    overlap: str = ""


Telling = (
    DeliveryEnded | DeliveryRetryRequested | DeliveryDiscardRequested | EscalationEnded | EscalationTold
)
Deciding = (
    WokeUp | ClockSet | DaemonStarted | ProfileFollowed | RunHeld | LaunchFailed | RunEnded | RunWedged
    | RunLost | TimeoutReached | StopBegun
    | ArmRequested | ChangeRequested | CancelRequested | PauseRequested | ResumeRequested | SkipRequested
    | PokeRequested | DispatchRequested | RerunRequested | KillRequested | TriggerRequested
    | BackfillRequested | CronFilesRead | HostChanged
)
Event = Deciding | Telling
