"""`backfill`: occurrences on request for instants of the schedule that have passed.

One for each instant in [FROM, TO] that nothing has served or is about to serve; they queue behind each other whatever
the cron's overlap policy is. Bounded: a longer list is refused whole.
"""

from collections.abc import Iterator

from crtrd.core.cron import Cron, State
from crtrd.core.effects import Answer, Effect, PutCell, PutOccurrence
from crtrd.core.events import BackfillRequested
from crtrd.core.facts import Facts
from crtrd.core.occurrence import OPEN, Cell, Occurrence, Origin, Status, occurrence_id
from crtrd.core.reports import occurrence_event
from crtrd.core.requests import named
from crtrd.core.timetable import fault, timetable
from crtrd.errors import Code, RequestError
from crtrd.schedule.spans import format_instant

MOST = 1000
"""Instants that one request may name: all of them wait in one queue."""
SERVED = OPEN | {Status.SUCCESS, Status.PARTIAL}


def backfill(event: BackfillRequested, facts: Facts) -> Iterator[Effect]:
    cron = named(event.cron, facts)
    instants = [each for each in _asked(cron, event) if not _served(cron, each, facts)]
    for instant in () if event.dry_run else instants:
        yield from _occurrence(cron, instant, event.at)
    yield Answer(event.ticket, tuple(instants))


def _asked(cron: Cron, event: BackfillRequested) -> tuple[int, ...]:
    what = f"cannot backfill {cron.name!r}"
    if why := fault(cron):
        raise RequestError(Code.INVALID_STATE, f"{what}: {why}")
    if cron.state is State.PAUSED:
        raise RequestError(Code.INVALID_STATE, f"{what}: it is paused")
    if event.end < event.start:
        raise RequestError(Code.INVALID_ARGUMENT, f"{what}: TO is before FROM")
    if event.end > event.at:
        raise RequestError(Code.INVALID_ARGUMENT, f"{what}: TO lies in the future")
    span = timetable(cron).span(event.start - 1, event.end, MOST)
    if span.count > MOST:
        message = f"{what}: {span.count} instants lie between FROM and TO, at most {MOST} can be asked for at once"
        raise RequestError(Code.LIMIT_EXCEEDED, message)
    return span.newest


def _served(cron: Cron, instant: int, facts: Facts) -> bool:
    """Whether a backfill has asked for it before, or its own occurrence ran or is about to."""
    if facts.occurrence(occurrence_id(cron.id, Origin.BACKFILL, instant, "")) is not None:
        return True
    regular = facts.occurrence(occurrence_id(cron.id, Origin.SCHEDULE, instant, ""))
    return regular is not None and regular.status in SERVED


def _occurrence(cron: Cron, instant: int, now: int) -> Iterator[Effect]:
    new = Occurrence(
        id=occurrence_id(cron.id, Origin.BACKFILL, instant, ""), cron_id=cron.id, cron_name=cron.name,
        origin=Origin.BACKFILL, instant=instant, key="", status=Status.PENDING, created_at=now, due_at=now,
        overlap="queue")
    yield PutOccurrence(new)
    for place, target in enumerate(cron.definition.targets or ("",)):
        yield PutCell(Cell(new.id, target, Status.PENDING, due_at=now, place=place))
    yield occurrence_event("accepted", new, f"occurrence of {format_instant(instant)} is made up for")
