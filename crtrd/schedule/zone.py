"""Wall clocks: which offset a zone has at an instant, and which instants a wall time has.

Wall times are integers like instants: microseconds from 1970-01-01T00:00 on the zone's own clock.
A zone is cut into segments of constant offset, loaded a year at a time and only when asked for.
What a schedule does on the nights of a change is not here (streams), nor is any file path: the
only source is zoneinfo, so a zone that cannot be named inside its folders cannot be named here.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

from crtrd.errors import ScheduleError
from crtrd.values import dataclass

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

#: Nothing is ever due before the epoch or after the year 2400: one whole Gregorian cycle later.
LAST_YEAR = 2400
END = (datetime(LAST_YEAR + 1, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days * DAY

#: No zone is further than this from UTC, so a wall time lies within it of its instants.
REACH = 26 * HOUR

_CHUNK = 365 * DAY
#: No zone ever changed its offset twice within six days (a test holds this against every zone
#: that is installed), so two looks three days apart miss no change.
_LOOK = 3 * DAY
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+){0,3}", re.ASCII)
_LONGEST_NAME = 100
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Zulu"})
#: Links of the host (they say something else tomorrow) and a placeholder: not names of a zone.
_NOT_ZONES = frozenset({"localtime", "posixrules", "Factory"})


@dataclass(frozen=True, slots=True)
class Segment:
    """The instants [start, end) share `offset`; `before` and `after` are the neighbours' offsets.

    A segment also ends where the loaded year ends: there `after` equals `offset`.
    """

    start: int
    end: int
    offset: int
    before: int
    after: int


class Zone:
    """One time zone as segments. Immutable to its users; loads years on demand."""

    __slots__ = ("_chunks", "name", "tzinfo")

    def __init__(self, name: str, info: tzinfo) -> None:
        self.name = name
        self.tzinfo = info
        self._chunks: dict[int, tuple[list[int], list[Segment]]] = {}
        if name in _UTC_NAMES:
            first, last = -2, END // _CHUNK + 2
            whole = Segment(first * _CHUNK, last * _CHUNK, 0, 0, 0)
            self._chunks = dict.fromkeys(range(first, last), ([whole.start], [whole]))

    def at(self, instant: int) -> Segment:
        """Return the segment that holds `instant`."""
        index = instant // _CHUNK
        starts, segments = self._chunks.get(index) or self._load(index)
        if instant < starts[0]:  # between the nominal edge of the year and the real one
            starts, segments = self._chunks.get(index - 1) or self._load(index - 1)
        return segments[bisect_right(starts, instant) - 1]

    def offset_at(self, instant: int) -> int:
        """Return what must be added to `instant` to read the wall clock, in microseconds."""
        moment = (_EPOCH + timedelta(microseconds=instant)).astimezone(self.tzinfo)
        return (moment.utcoffset() or timedelta()) // timedelta(microseconds=1)

    def segments(self, start: int, end: int) -> list[Segment]:
        """Return every segment that meets [start, end), in order."""
        found = [self.at(start)]
        while found[-1].end < end:
            found.append(self.at(found[-1].end))
        return found

    def instants_of(self, wall: int) -> list[int]:
        """Return the instants at which the clock shows `wall`: none in a gap, two in an overlap."""
        near = self.segments(wall - REACH, wall + REACH)
        return [wall - s.offset for s in near if s.start <= wall - s.offset < s.end]

    def gap_over(self, wall: int) -> Segment | None:
        """Return the segment that begins right after the gap `wall` fell into, if it fell into one."""
        for segment in self.segments(wall - REACH, wall + REACH):
            if segment.start + segment.before <= wall < segment.start + segment.offset:
                return segment
        return None

    def local(self, instant: int) -> datetime:
        """Return `instant` as an aware datetime of this zone."""
        return (_EPOCH + timedelta(microseconds=instant)).astimezone(self.tzinfo)

    def _load(self, index: int) -> tuple[list[int], list[Segment]]:
        first, last = self._edge(index), self._edge(index + 1)
        changes = self._changes(first, last)
        edges = [first, *(at for at, _ in changes), last]
        offsets = [self.offset_at(first), *(offset for _, offset in changes)]
        around = [self.offset_at(first - 1), *offsets, self.offset_at(last)]
        segments = [
            Segment(edges[i], edges[i + 1], offset, around[i], around[i + 2]) for i, offset in enumerate(offsets)
        ]
        chunk = self._chunks[index] = (edges[:-1], segments)
        return chunk

    def _edge(self, index: int) -> int:
        """Return where a year begins: never in an overlap, which must lie within one segment."""
        nominal = index * _CHUNK
        near = 2 * DAY
        if self.offset_at(nominal - near) == self.offset_at(nominal + near):
            return nominal
        return nominal + 3 * DAY

    def _changes(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return (instant, new offset) of each change in (first, last)."""
        changes: list[tuple[int, int]] = []
        left, known = first, self.offset_at(first)
        while left < last - 1:
            right = min(left + _LOOK, last - 1)
            offset = self.offset_at(right)
            if offset != known:
                changes.append((self._bisect(left, right, known), offset))
                known = offset
            left = right
        return changes

    def _bisect(self, left: int, right: int, offset: int) -> int:
        """Return the first instant in (left, right] whose offset is not `offset`.

        Zone files keep whole seconds, so whole seconds are looked at.
        """
        low, high = left // SECOND, -(-right // SECOND)
        while high - low > 1:
            middle = (low + high) // 2
            if self.offset_at(middle * SECOND) == offset:
                low = middle
            else:
                high = middle
        return high * SECOND


_zones: dict[str, Zone] = {}


def load_zone(name: str, loader: Callable[[str], tzinfo] = ZoneInfo.no_cache) -> Zone:
    """Return the zone called `name`, kept until `forget_zones`. ScheduleError names `timezone`."""
    known = _zones.get(name)
    if known is not None:
        return known
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ScheduleError(name, "timezone", "not the name of a time zone", "timezone")
    if name in _NOT_ZONES:
        raise ScheduleError(name, "timezone", "does not name one zone; use a name like Europe/Berlin", "timezone")
    if name.startswith("right/"):
        raise ScheduleError(name, "timezone", "zones that count leap seconds are not supported", "timezone")
    try:
        # UTC needs no zone files, so that a host without any still has schedules
        zone = Zone(name, UTC if name == "UTC" else loader(name))
    except (KeyError, ValueError, OSError) as error:
        # zoneinfo raises KeyError's child for a name it has not, the others for what is no zone file
        raise ScheduleError(name, "timezone", "there is no such time zone here", "timezone") from error
    _zones[name] = zone
    return zone


def forget_zones() -> None:
    """Read zones anew from now on. Schedules that were compiled before keep what they know.

    To be called, and the schedules compiled again, when the zone files have changed.
    """
    _zones.clear()
