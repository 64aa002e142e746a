"""Nights on which a change of the clock changes something for a schedule: a gap or an overlap that its times meet.

Told for people who look at a schedule beforehand; what is due is decided in streams alone.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from crtrd.schedule.streams import Stream, WallClock
from crtrd.schedule.zone import Segment
from crtrd.values import dataclass

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive by nature


@dataclass(frozen=True, slots=True)
class Change:
    """One change of the clock at `instant`: the walls [first, last) are skipped, or shown twice."""

    instant: int
    gap: bool
    first: int
    last: int
    matches: int
    """How many of the schedule's times lie in that stretch."""
    runs: int
    """How often it is due for them."""

    def has(self, instant: int) -> bool:
        """Whether `instant` is due for one of these times."""
        length = 0 if self.gap else self.last - self.first
        return self.runs > 0 and self.instant - length <= instant <= self.instant + max(length - 1, 0)

    def __str__(self) -> str:
        first, last = (_EPOCH + timedelta(microseconds=wall) for wall in (self.first, self.last))
        one = self.matches == 1
        what = "a time" if one else f"{self.matches} times"
        runs = "runs" if one else "run"
        if not self.gap:
            each = "" if one else " each"
            how = {1: f"once{each}", 2: f"twice{each}"}.get(self.runs // self.matches, "not at all")
            ending = f"{runs} {how}"
        elif self.runs:
            ending = f"{runs} once{'' if one else ' together'}, right after"
        else:
            ending = f"{'is' if one else 'are'} left out"
        change = "skips {} to {}" if self.gap else "shows {} to {} twice"
        stretch = change.format(f"{first:%H:%M}", f"{last:%H:%M}")
        return f"{first:%a %Y-%m-%d}: the clock {stretch}; {what} due there {ending}"


def changes(parts: Sequence[Stream], start: int, end: int) -> list[Change]:
    """The changes in (start, end] that any of `parts` has to do with, ascending."""
    found = [change for part in parts if isinstance(part, WallClock) for change in _met(part, start, end)]
    return sorted(found, key=lambda change: change.instant)


def _met(part: WallClock, start: int, end: int) -> Iterator[Change]:
    for segment in part.zone.segments(start, end + 1):
        if start < segment.start <= end and segment.offset != segment.before:
            change = _gap(part, segment) if segment.offset > segment.before else _overlap(part, segment)
            if change.matches:
                yield change


def _gap(part: WallClock, segment: Segment) -> Change:
    first, last = segment.start + segment.before, segment.start + segment.offset
    runs = int(part.runs_after_gap(segment))
    return Change(segment.start, gap=True, first=first, last=last, matches=part.plan.count(first, last), runs=runs)


def _overlap(part: WallClock, segment: Segment) -> Change:
    first, last = segment.start + segment.offset, segment.start + segment.before
    runs = part.count(segment.start - (last - first) - 1, segment.start + (last - first) - 1)
    return Change(segment.start, gap=False, first=first, last=last, matches=part.plan.count(first, last), runs=runs)
