"""What is laid over the merged stream: the window, the exclusions, the jitter.

`Allowed` drops instants outside [starts, expires) and inside excluded stretches; `Jittered` moves
each that is left by an offset of its own. Both are streams themselves (see streams).
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date

from crtrd.schedule.streams import Stream
from crtrd.schedule.zone import DAY, END, REACH, Zone
from crtrd.values import dataclass

_ORDINAL = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Allowed:
    """The instants of `stream` in [starts, expires) and in none of the `excluded` [start, end).

    `excluded` is ascending and its stretches do not touch (see `join`).
    """

    stream: Stream
    starts: int
    expires: int
    excluded: tuple[tuple[int, int], ...]

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        instant = self.stream.next_after(max(after, self.starts - 1))
        while instant is not None and instant < self.expires:
            stretch = self.exclusion(instant)
            if stretch is None:
                return instant
            instant = self.stream.next_after(stretch[1] - 1)
        return None

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        instant = self.stream.last_upto(min(at, self.expires - 1))
        while instant is not None and instant >= self.starts:
            stretch = self.exclusion(instant)
            if stretch is None:
                return instant
            instant = self.stream.last_upto(stretch[0] - 1)
        return None

    def count(self, after: int, until: int) -> int:
        """See Stream."""
        return sum(self.stream.count(low, high) for low, high in self._open(after, until))

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        for low, high in self._open(after, until):
            yield from self.stream.listed(low, high)

    def first_open(self, at: int) -> int | None:
        """Return the first moment from `at` on, an instant of the stream or not, that is not dropped."""
        at = max(at, self.starts)
        stretch = self.exclusion(at)
        at = at if stretch is None else stretch[1]  # where another one cannot begin: stretches do not touch
        return at if at < self.expires else None

    def exclusion(self, instant: int) -> tuple[int, int] | None:
        """Return the excluded stretch that holds `instant`."""
        place = bisect_right(self.excluded, instant, key=lambda stretch: stretch[0])
        if place and instant < self.excluded[place - 1][1]:
            return self.excluded[place - 1]
        return None

    def _open(self, after: int, until: int) -> Iterator[tuple[int, int]]:
        """Yield the parts (low, high] of (after, until] that the window and exclusions leave."""
        low, high = max(after, self.starts - 1), min(until, self.expires - 1)
        first = bisect_right(self.excluded, low, key=lambda stretch: stretch[1])
        for start, end in self.excluded[first:]:
            if start > high:
                break
            if low < start - 1:
                yield low, start - 1
            low = max(low, end - 1)
        if low < high:
            yield low, high


@dataclass(frozen=True, slots=True)
class Jittered:
    """Each instant of `stream` moved by a hash of itself and `salt`, less than `jitter`.

    An instant never moves up to or past the next one, nor out of the window: the room for the
    offset is the smaller of `jitter` and the distance. So the order stays, no two meet, and the
    number of instants is that of the stream, give or take one at each end.
    """

    stream: Stream
    jitter: int
    salt: str
    expires: int

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        nominal = self.stream.last_upto(after)
        if nominal is not None:
            moved = self.moved(nominal)
            if moved > after:
                return moved
        nominal = self.stream.next_after(after)
        return None if nominal is None else self.moved(nominal)

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        nominal = self.stream.last_upto(at)
        if nominal is None:
            return None
        moved = self.moved(nominal)
        if moved <= at:
            return moved
        nominal = self.stream.last_upto(nominal - 1)
        return None if nominal is None else self.moved(nominal)

    def count(self, after: int, until: int) -> int:
        """See Stream."""
        if after >= until:
            return 0
        return self.stream.count(after, until) + self._pending(after) - self._pending(until)

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        instant = self.next_after(after)
        while instant is not None and instant <= until:
            yield instant
            instant = self.next_after(instant)

    def moved(self, nominal: int) -> int:
        """Return where `nominal`, an instant of the stream, has moved to."""
        following = self.stream.next_after(nominal)
        room = min(self.jitter, (self.expires if following is None else following) - nominal)
        digest = hashlib.blake2b(f"{self.salt}\0{nominal}".encode(), digest_size=8).digest()
        return nominal + int.from_bytes(digest, "big") % room

    def nominal(self, at: int) -> int | None:
        """Return the instant of the stream that moved to `at`."""
        nominal = self.stream.last_upto(at)
        return nominal if nominal is not None and self.moved(nominal) == at else None

    def _pending(self, at: int) -> int:
        """Return 1 if the last nominal instant until `at` moved beyond it."""
        nominal = self.stream.last_upto(at)
        return int(nominal is not None and self.moved(nominal) > at)


def join(stretches: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the same instants as ascending stretches [start, end) that do not touch."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(s for s in stretches if s[0] < s[1]):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return tuple(joined)


def stretches_of_dates(zone: Zone, first: date, last: date) -> list[tuple[int, int]]:
    """Return the stretches of instants whose local date is in [first, last]."""
    low = (first.toordinal() - _ORDINAL) * DAY
    high = (last.toordinal() - _ORDINAL + 1) * DAY
    low, high = max(low, -DAY), min(high, END + DAY)
    if low >= high:
        return []
    found = []
    for segment in zone.segments(low - REACH, high + REACH):
        start = max(segment.start, low - segment.offset)
        end = min(segment.end, high - segment.offset)
        if start < end:
            found.append((start, end))
    return found
