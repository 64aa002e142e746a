"""Deliveries: a row of the outbox from its record to its end. What came of an attempt decides what is next.

    pending -> sending -> delivered
       ^          |-> pending    tried again: after its own wait (FAILED), or with its whole queue (DOWN)
       |          '-> dead       REFUSED, or older than it may get
       '- retry --'   dead -> pending on request; pending | dead -> discarded on request

A queue is one sink; it has one attempt at a time, in the order of the rows. Where the sink is DOWN the queue waits and
keeps its order. Where one message FAILED only that message waits, and those behind it go on: a poisonous one hurts
itself alone. The state `sending` is the lease of one daemon life: the next life takes it back at its start.
"""

from enum import StrEnum

from crtrd.core.cron import HOUR, SECOND
from crtrd.core.disposition import Kind
from crtrd.core.occurrence import derive_id
from crtrd.values import dataclass

FIRST_WAIT, LONGEST_WAIT = 5 * SECOND, HOUR
OLDEST = 7 * 24 * HOUR
"""What could not be delivered in this time is dead."""
OLDEST_PING = HOUR
"""A heartbeat says "now": later it says nothing any more."""
LONGEST_ASKED = 24 * HOUR
"""The most that a receiver's Retry-After may ask for."""
AT_ONCE = 8
"""Attempts under way at the same time that may wait for others, all queues together; local sinks need no place."""
LIVES = 3
"""How often an attempt may end with the daemon before its row waits like a failed one: it may be what kills it."""


class DeliveryState(StrEnum):
    PENDING = "pending"
    SENDING = "sending"
    DELIVERED = "delivered"
    DEAD = "dead"
    DISCARDED = "discarded"


class Outcome(StrEnum):
    """What came of one attempt."""

    TAKEN = "taken"
    FAILED = "failed"
    """This message was not taken this time."""
    DOWN = "down"
    """The sink takes no message at all now."""
    REFUSED = "refused"
    """This message will never be taken."""


@dataclass(frozen=True, slots=True)
class Delivery:
    id: str
    """The same in every attempt: receivers know by it what they have already."""
    cron_id: str
    cron_name: str
    owner: int
    """uid of the cron's owner: as whom commands and files are reached."""
    occurrence_id: str
    run_id: str
    target: str
    kind: Kind
    sink: str
    queue: str
    message: str
    """JSON; made once, so that every attempt sends the same bytes."""
    created_at: int
    next_attempt_at: int
    state: DeliveryState = DeliveryState.PENDING
    attempts: int = 0
    last_error: str = ""
    settled_at: int | None = None
    sha256: str = ""
    """Hash of the output that this one tells, where that is to be remembered."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A sink that is down: nothing of its queue is tried before `until`."""

    name: str
    until: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """What a sink has last been told of a cron's output."""

    cron_id: str
    target: str
    sink: str
    sha256: str
    head: bytes
    at: int


def wait(name: str, failures: int, asked: int = 0) -> int:
    """Microseconds before attempt `failures` + 1: doubled each time, spread by a hash, never less than `asked`."""
    plain = min(FIRST_WAIT << min(max(failures - 1, 0), 20), LONGEST_WAIT)
    spread = int(derive_id("wait", name, failures)[:8], 16) / 0xFFFFFFFF
    return max(int(plain * (0.8 + 0.4 * spread)), min(asked, LONGEST_ASKED))


def queue_of(sink: str, owner: int) -> str:
    """The queue of a sink of a cron of `owner`. An inbox has one queue, whoever writes into it."""
    if sink == "inbox" or sink.startswith("inbox:"):
        return f"inbox:{sink.partition(':')[2] or owner}"
    return f"{owner}:{sink}"


def oldest(delivery: Delivery) -> int:
    """How old it may get."""
    return OLDEST_PING if delivery.sink.startswith("heartbeat:") else OLDEST


class EscalationState(StrEnum):
    OPEN = "open"
    STARTED = "started"
    TOLD = "told"
    SPAWN_FAILED = "spawn-failed"


@dataclass(frozen=True, slots=True)
class Owner:
    """What this host says of an owner's account: its name, and its mail address; '' where there is none."""

    account: str = ""
    mail_to: str = ""


UNKNOWN = Owner()


@dataclass(frozen=True, slots=True)
class Escalation:
    id: str
    cron_id: str
    cron_name: str
    owner: int
    occurrence_id: str
    at: int
    summary: str
    brief: str
    state: EscalationState = EscalationState.OPEN
    error: str = ""
    look_at: int | None = None
    """When its unit, which was still at work, is looked at again."""
    boot_id: str = ""
    """The boot in which its unit was started."""
