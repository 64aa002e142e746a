"""What becomes of a new occurrence while others of its cron are open: the overlap policies as one table.

             nothing open   open, place left        open, no place left
    skip     start          skipped/overlap         skipped/overlap
    queue    start          wait                    skipped/queue-full
    replace  start          stop the open, wait     -
    allow    start          start                   skipped/overlap

A held occurrence counts as open. "Wait" is a pending row: it starts when the ledger shows its cron free.
"""

from enum import StrEnum

from crtrd.core.cron import Definition, Overlap
from crtrd.core.occurrence import Line, Reason, short
from crtrd.values import dataclass


class Turn(StrEnum):
    TAKE = "take"
    """Take a place in the queue of startable ones (which may be at once)."""
    SKIP = "skip"
    REPLACE = "replace"


@dataclass(frozen=True, slots=True)
class Verdict:
    turn: Turn
    reason: Reason = Reason.NONE
    detail: str = ""


def policy(definition: Definition, named: str) -> Overlap:
    """The caller's policy where one was named, else the cron's."""
    return Overlap(named) if named else definition.overlap


def judge(definition: Definition, named: str, others: Line) -> Verdict:  # noqa: PLR0911 - a table
    """`others`: the open occurrences of the same cron."""
    if not others.count:
        return Verdict(Turn.TAKE)
    match policy(definition, named):
        case Overlap.SKIP:
            return Verdict(Turn.SKIP, Reason.OVERLAP, f"occurrence {short(others.oldest)} is {others.status}")
        case Overlap.QUEUE:
            # where none has begun, the first is not queued behind anything: it waits for capacity
            waiting = others.pending if others.begun else others.pending - 1
            if waiting >= definition.queue_limit:
                return Verdict(Turn.SKIP, Reason.QUEUE_FULL, f"{waiting} waiting, queue_limit {definition.queue_limit}")
            return Verdict(Turn.TAKE)
        case Overlap.REPLACE:
            return Verdict(Turn.REPLACE)
        case Overlap.ALLOW:
            if definition.parallel is not None and others.count >= definition.parallel:
                return Verdict(Turn.SKIP, Reason.OVERLAP, f"{others.count} open, parallel {definition.parallel}")
            return Verdict(Turn.TAKE)
