"""Whether the daemon may leave, from the ledger alone (I8). A probe that failed is not idleness."""

from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Owed:
    """What the ledger says is still to be done."""

    live: int
    """Runs that are starting or running."""
    due: int
    """Pending occurrences that are due now."""
    next_wake: int | None
    """The earliest instant, retry, delivery or look ahead; None: nothing is planned."""
    deliveries: int = 0
    """Queues of the outbox with something due, attempts under way, and escalations to be begun."""


def may_leave(owed: Owed | None, now: int, grace: int) -> bool:
    """True when nothing is owed before `now + grace`: leaving for less would cost more than staying."""
    if owed is None or owed.live or owed.due or owed.deliveries:
        return False
    return owed.next_wake is None or owed.next_wake > now + grace
