"""The instants of a crontab line by plain cron's rule beside those of the cron made of it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from crtrd.config.imported import Imported
from crtrd.config.plaincron import can_walk, firings
from crtrd.core.timetable import compiled
from crtrd.values import dataclass

MOST = 10_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    instants: int
    """How many instants the old line has."""
    only_old: tuple[int, ...]
    only_new: tuple[int, ...]


def compare(line: Imported, start: int, end: int) -> Comparison | None:
    """Over (start, end], microseconds. None where no clock decides. Delays are left out."""
    if not can_walk(line.entry.schedule):
        return None
    definition = replace(line.definition, jitter=0)
    moments = firings(line.entry.schedule, definition.timezone, _moment(start), _moment(end))
    old = {(moment - _EPOCH) // _MICROSECOND for moment in moments}
    new = set(compiled(definition, 0, line.name).span(start, end, MOST).newest)
    return Comparison(len(old), tuple(sorted(old - new)), tuple(sorted(new - old)))


def _moment(instant: int) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)
