"""Sources of instants: fixed ones, periods, and plans on the clock of a zone.

Every stream answers the same three questions: the next instant after one, the last one not after
one, how many in (after, until]. Here alone is decided what a plan means in a night of a change:

- in a gap the clock jumps from wall time G to H: matches in [G, H) are either lost (`skip`) or run
  once, together, at the instant of the jump (`after`);
- in an overlap the walls [H, G) come twice: matches run at the `first`, the `second` or `both`;
- `auto` is cron(8): a fixed time runs `after` and `first`, a wildcard follows the wall clock
  (`skip`, `both`), and so does everything where the clock moves by more than three hours.

Several streams become one in merged; windows, exclusions and jitter are laid over it in window.
"""

from bisect import bisect_right
from collections.abc import Iterator
from enum import StrEnum
from typing import Protocol

from crtrd.schedule.days import Plan, Plans
from crtrd.schedule.zone import DAY, END, HOUR, Segment, Zone
from crtrd.values import dataclass

#: cron(8): a change of the clock of more than three hours is a correction.
CORRECTION = 3 * HOUR
#: From here on it pays to look up the segment of a far match instead of walking to it; must be
#: more than a zone's reach on both sides of a change.
_FAR = 6 * DAY


class Gap(StrEnum):
    """What becomes of a time that the clock skips."""

    AUTO = "auto"
    SKIP = "skip"
    AFTER = "after"


class Overlap(StrEnum):
    """Which of the two instants of a repeated time count."""

    AUTO = "auto"
    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Stream(Protocol):
    """A strictly increasing sequence of instants within [0, END)."""

    def next_after(self, after: int) -> int | None:
        """Return the first instant > `after`."""

    def last_upto(self, at: int) -> int | None:
        """Return the last instant <= `at`."""

    def count(self, after: int, until: int) -> int:
        """Return how many instants lie in (after, until]."""

    def listed(self, after: int, until: int) -> Iterator[int]:
        """Yield the instants in (after, until]."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Instants that were given one by one, ascending."""

    instants: tuple[int, ...]

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        place = bisect_right(self.instants, after)
        return self.instants[place] if place < len(self.instants) else None

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        place = bisect_right(self.instants, at)
        return self.instants[place - 1] if place else None

    def count(self, after: int, until: int) -> int:
        """See Stream."""
        return max(0, bisect_right(self.instants, until) - bisect_right(self.instants, after))

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        first, last = bisect_right(self.instants, after), bisect_right(self.instants, until)
        yield from self.instants[first:last]


@dataclass(frozen=True, slots=True)
class Periodic:
    """anchor + k * period for k >= 1."""

    anchor: int
    period: int

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        turns = max(1, (max(after, -1) - self.anchor) // self.period + 1)
        instant = self.anchor + turns * self.period
        return instant if instant < END else None

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        turns = (min(at, END - 1) - self.anchor) // self.period
        instant = self.anchor + turns * self.period
        return instant if turns >= 1 and instant >= 0 else None

    def count(self, after: int, until: int) -> int:
        """See Stream."""
        return max(0, self._turns(min(until, END - 1)) - self._turns(max(after, -1)))

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        first = self.next_after(after)
        if first is not None:
            yield from range(first, min(until, END - 1) + 1, self.period)

    def _turns(self, at: int) -> int:
        return max(0, (at - self.anchor) // self.period)


@dataclass(frozen=True, slots=True)
class WallClock:
    """A plan on the clock of a zone. `wildcard` is what `auto` asks for (see the module)."""

    plan: Plan | Plans
    zone: Zone
    wildcard: bool
    gap: Gap
    overlap: Overlap

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        start = max(after + 1, 0)
        if start >= END:
            return None
        segment = self.zone.at(start)
        low, high = self.walls(segment)
        wall = self.plan.first_from(max(start + segment.offset, low))
        if wall is not None and wall < high:
            instant = wall - segment.offset
            return instant if instant < END else None
        # The first step goes to the neighbour whatever was found: an overlap there may turn the
        # clock back behind walls that were passed already.
        segment = self.zone.at(segment.end)
        while segment.start < END:
            if self.runs_after_gap(segment):
                return segment.start
            low, high = self.walls(segment)
            wall = self.plan.first_from(low)
            if wall is None:
                return None
            if wall < high:
                instant = wall - segment.offset
                return instant if instant < END else None
            segment = self.zone.at(max(segment.end, wall - segment.offset - _FAR))
        return None

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        last = min(at, END - 1)
        if last < 0:
            return None
        segment = self.zone.at(last)
        low, high = self.walls(segment)
        wall = self.plan.last_upto(min(last + segment.offset, high - 1))
        back = segment.start - 1  # the first step goes to the neighbour, as in next_after
        while True:
            if wall is not None and wall >= low:
                instant = wall - segment.offset
                return instant if instant >= 0 else None
            if self.runs_after_gap(segment):
                return segment.start if segment.start >= 0 else None
            if back < 0:
                return None
            segment = self.zone.at(back)
            low, high = self.walls(segment)
            wall = self.plan.last_upto(high - 1)
            if wall is None:
                return None
            back = min(segment.start - 1, wall - segment.offset + _FAR)

    def count(self, after: int, until: int) -> int:
        """See Stream."""
        total = 0
        for segment, start, end in self._pieces(after, until):
            total += self.plan.count(start, end)
            if after < segment.start and self.runs_after_gap(segment):
                # what the clock shows right after the gap may be due by itself: still one instant
                total += not self.plan.has(segment.start + segment.offset)
        return total

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        for segment, start, end in self._pieces(after, until):
            offset = segment.offset
            if after < segment.start and self.runs_after_gap(segment) and not self.plan.has(segment.start + offset):
                yield segment.start
            yield from (wall - offset for wall in self.plan.listed(start, end))

    def walls(self, segment: Segment) -> tuple[int, int]:
        """Return the walls [low, high) of `segment` at which matches count: all but repeated ones."""
        offset = segment.offset
        low, high = segment.start + offset, segment.end + offset
        if segment.before > offset and self._pass(segment.before - offset) is Overlap.FIRST:
            low = segment.start + segment.before
        if segment.after < offset and self._pass(offset - segment.after) is Overlap.SECOND:
            high = segment.end + segment.after
        return low, high

    def lost_wall(self, segment: Segment) -> int | None:
        """Return the first match in the gap right before `segment`, if there is one."""
        if segment.offset <= segment.before:
            return None
        wall = self.plan.first_from(segment.start + segment.before)
        return wall if wall is not None and wall < segment.start + segment.offset else None

    def runs_after_gap(self, segment: Segment) -> bool:
        """Say whether matches in the gap right before `segment` run at its start."""
        if segment.offset <= segment.before or self.gap is Gap.SKIP:
            return False
        if self.gap is Gap.AUTO:
            shift = segment.offset - segment.before
            if self.wildcard or shift > CORRECTION:
                return False
        return self.lost_wall(segment) is not None

    def _pass(self, shift: int) -> Overlap:
        if self.overlap is not Overlap.AUTO:
            return self.overlap
        return Overlap.BOTH if self.wildcard or shift > CORRECTION else Overlap.FIRST

    def _pieces(self, after: int, until: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield each segment that meets (after, until] with the walls [start, end) that count."""
        start, end = max(after + 1, 0), min(until + 1, END)
        if start >= end:
            return
        segment = self.zone.at(start)
        while True:
            low, high = self.walls(segment)
            offset = segment.offset
            yield segment, max(low, start + offset), min(high, end + offset)
            if segment.end >= end:
                return
            segment = self.zone.at(segment.end)
