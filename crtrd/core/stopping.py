"""How occurrences are made to end before their time: those that wait settle at once, those that run are stopped.

A running occurrence that gives way carries the reason from then on (GIVING_WAY), so that none of its cells begins
any more, whichever of its runs ends last and whatever that run's own result is.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import SECOND, Cron
from crtrd.core.effects import Effect, PutCell, PutOccurrence, PutRun, StopRun
from crtrd.core.facts import Facts
from crtrd.core.occurrence import OPEN, Occurrence, Origin, Reason, Result, Run, Status, move

GRACE = 10 * SECOND  # where the cron, which would say it, is gone


def grace_of(cron: Cron | None) -> int:
    return cron.definition.grace if cron else GRACE


def settle_waiting(
    occurrence: Occurrence, to: Status, reason: Reason, detail: str, now: int, facts: Facts
) -> Iterator[Effect]:
    """Settle an occurrence without a live run, and its cells that have not ended."""
    row = move(occurrence, to, now, reason, detail)
    yield PutOccurrence(row)
    for cell in facts.cells(row.id):
        if cell.status in OPEN:
            yield PutCell(replace(cell, status=to))
    yield reports.settled(row)


def settle_paused(cron: Cron, now: int, facts: Facts) -> Iterator[Effect]:
    """What waits for its turn or for a retry when a pause begins falls into it, as the instants to come do.

    Not what somebody asked for beside the schedule, nor what came due at this moment, before the pause.
    """
    for occurrence in facts.open_occurrences(cron.id):
        asked = occurrence.origin is Origin.MANUAL
        if occurrence.status is not Status.PENDING or asked or occurrence.created_at >= now:
            continue
        begun = any(cell.attempts for cell in facts.cells(occurrence.id))
        to, what = (Status.CANCELED, "its retry") if begun else (Status.SKIPPED, "its turn")
        detail = f"{what} would have come in the pause: {cron.note or f'paused by {cron.paused_by}'}"
        yield from settle_waiting(occurrence, to, Reason.PAUSED, detail, now, facts)


def stop_runs(occurrence: Occurrence, runs: Sequence[Run], why: Result, cron: Cron | None) -> Iterator[Effect]:
    """Have the live `runs` of a running occurrence end; a stop already under way keeps its own cause."""
    yield PutOccurrence(replace(occurrence, reason=Reason(why)))
    for run in runs:
        if not run.stopping:
            yield PutRun(replace(run, stopping=why))
            yield StopRun(run.id, grace_of(cron))
