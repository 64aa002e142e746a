"""What a pattern matches on a clock that never changes: days (`Days`) times of day (`Times`).

A `Plan` is their product. All three answer by arithmetic over bit masks: the next match, the last
one, how many. Days count from 1970-01-01; a plan speaks wall time (see zone). Which instants the
matches become, and what happens in a night of a change, is decided in streams.
"""

from bisect import bisect_left
from collections.abc import Iterator
from datetime import date
from functools import cached_property, lru_cache

from crtrd.schedule.zone import DAY, HOUR, LAST_YEAR, MINUTE
from crtrd.values import dataclass

FIRST_YEAR = 1969  # west of Greenwich the epoch falls on its last evening
_ORDINAL = date(1970, 1, 1).toordinal()
_DECEMBER = 12
_LENGTHS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
#: Six copies of a week's seven bits cover a month from any first weekday.
_SIX_WEEKS = sum(1 << (7 * week) for week in range(6))
ALL_MONTHS = 0b1_1111_1111_1110
ALL_WEEKDAYS = 0b111_1111
ALL_DAYS = (1 << 31) - 1


def month_length(year: int, month: int) -> int:
    """Return how many days a month of the Gregorian calendar has."""
    if month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0):  # noqa: PLR2004
        return 29
    return _LENGTHS[month]


@dataclass(frozen=True, slots=True)
class Days:
    """A set of days: months (bit 1 = January), days of the month, weekdays, perhaps years.

    `by_length` holds the days of the month (bit 0 = the 1st) for months of 28, 29, 30 and 31 days,
    since they may be counted from the end. `either` joins them with the weekdays by OR, else AND.
    `weeks` repeats the weekdays (bit 0 = Sunday) six times; `years` has bit 0 = 1970.
    """

    months: int
    by_length: tuple[int, int, int, int]
    weeks: int
    either: bool
    years: int | None = None

    def bits(self, year: int, month: int) -> int:
        """Return the matching days of one month, bit 0 = the 1st."""
        if not self.months >> month & 1:
            return 0
        if self.years is not None and (year < 1970 or not self.years >> (year - 1970) & 1):  # noqa: PLR2004
            return 0
        length = month_length(year, month)
        listed = self.by_length[length - 28]
        weekly = self.weeks >> (date(year, month, 1).isoweekday() % 7)
        matching = listed | weekly if self.either else listed & weekly
        return matching & ((1 << length) - 1)

    def has(self, day: int) -> bool:
        """Say whether `day` matches."""
        moment = date.fromordinal(day + _ORDINAL)
        return bool(self.bits(moment.year, moment.month) >> (moment.day - 1) & 1)

    def first_from(self, day: int) -> int | None:
        """Return the first matching day that is not before `day`."""
        moment = date.fromordinal(day + _ORDINAL)
        year, month = moment.year, moment.month
        if year > LAST_YEAR:
            return None
        bits = self.bits(year, month) >> (moment.day - 1)
        if bits:
            return day + (bits & -bits).bit_length() - 1
        while True:
            year, month = (year, month + 1) if month < _DECEMBER else (year + 1, 1)
            if year > LAST_YEAR:
                return None
            bits = self.bits(year, month)
            if bits:
                return date(year, month, 1).toordinal() - _ORDINAL + (bits & -bits).bit_length() - 1

    def last_upto(self, day: int) -> int | None:
        """Return the last matching day that is not after `day`."""
        moment = date.fromordinal(day + _ORDINAL)
        year, month = moment.year, moment.month
        if year < FIRST_YEAR:
            return None
        bits = self.bits(year, month) & ((1 << moment.day) - 1)
        while not bits:
            year, month = (year, month - 1) if month > 1 else (year - 1, _DECEMBER)
            if year < FIRST_YEAR:
                return None
            bits = self.bits(year, month)
        return date(year, month, 1).toordinal() - _ORDINAL + bits.bit_length() - 1

    def count(self, start: int, end: int) -> int:
        """Return how many days in [start, end) match."""
        return sum(bits.bit_count() for _, bits in self.months_between(start, end))

    def listed(self, start: int, end: int) -> Iterator[int]:
        """Yield the matching days in [start, end)."""
        for first, month in self.months_between(start, end):
            bits = month
            while bits:
                yield first + (bits & -bits).bit_length() - 1
                bits &= bits - 1

    def months_between(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield (its first day, matching days within [start, end)) of each month that is touched."""
        day = start
        while day < end:
            moment = date.fromordinal(day + _ORDINAL)
            if moment.year > LAST_YEAR:
                return
            first = day - moment.day + 1
            bits = self.bits(moment.year, moment.month) >> (moment.day - 1) << (moment.day - 1)
            following = first + month_length(moment.year, moment.month)
            if following > end:
                bits &= (1 << (end - first)) - 1
            yield first, bits
            day = following


@dataclass(frozen=True)
class Times:
    """The times of day hours x minutes x microseconds of the minute, each ascending, none empty."""

    hours: tuple[int, ...]
    minutes: tuple[int, ...]
    micros: tuple[int, ...]

    @cached_property
    def size(self) -> int:
        """How many times a matching day has."""
        return len(self.hours) * self._per_hour

    @cached_property
    def first(self) -> int:
        """The earliest time of a matching day."""
        return self.nth(0)

    @cached_property
    def _per_hour(self) -> int:
        return len(self.minutes) * len(self.micros)

    def rank(self, time: int) -> int:
        """Return how many of the times lie before `time`."""
        hour, rest = divmod(time, HOUR)
        hours, minutes, micros = self.hours, self.minutes, self.micros
        i = bisect_left(hours, hour)
        if i == len(hours) or hours[i] != hour:
            return i * self._per_hour
        minute, micro = divmod(rest, MINUTE)
        j = bisect_left(minutes, minute)
        if j == len(minutes) or minutes[j] != minute:
            return i * self._per_hour + j * len(micros)
        return i * self._per_hour + j * len(micros) + bisect_left(micros, micro)

    def nth(self, index: int) -> int:
        """Return the time that has `index` times before it."""
        i, rest = divmod(index, self._per_hour)
        j, k = divmod(rest, len(self.micros))
        return self.hours[i] * HOUR + self.minutes[j] * MINUTE + self.micros[k]

    def listed(self) -> Iterator[int]:
        """Yield every time of a matching day."""
        for hour in self.hours:
            for minute in self.minutes:
                start = hour * HOUR + minute * MINUTE
                for micro in self.micros:
                    yield start + micro


@dataclass(frozen=True, slots=True)
class Plan:
    """Every time of `times` on every day of `days`, in wall time."""

    days: Days
    times: Times

    def has(self, wall: int) -> bool:
        """Say whether `wall` matches."""
        return self.first_from(wall) == wall

    def first_from(self, wall: int) -> int | None:
        """Return the first match that is not before `wall`."""
        day, time = divmod(wall, DAY)
        following = self.days.first_from(day)
        if following == day:
            rank = self.times.rank(time)
            if rank < self.times.size:
                return day * DAY + self.times.nth(rank)
            following = self.days.first_from(day + 1)
        return None if following is None else following * DAY + self.times.first

    def last_upto(self, wall: int) -> int | None:
        """Return the last match that is not after `wall`."""
        day, time = divmod(wall, DAY)
        leading = self.days.last_upto(day)
        if leading == day:
            rank = self.times.rank(time + 1)
            if rank:
                return day * DAY + self.times.nth(rank - 1)
            leading = self.days.last_upto(day - 1)
        return None if leading is None else leading * DAY + self.times.nth(self.times.size - 1)

    def count(self, start: int, end: int) -> int:
        """Return how many matches lie in [start, end)."""
        if end <= start:
            return 0
        first, early = divmod(start, DAY)
        last, late = divmod(end, DAY)
        total = self.days.count(first, last) * self.times.size
        if self.days.has(first):
            total -= self.times.rank(early)
        if self.days.has(last):
            total += self.times.rank(late)
        return total

    def listed(self, start: int, end: int) -> Iterator[int]:
        """Yield the matches in [start, end)."""
        every = tuple(self.times.listed())
        for day in self.days.listed(start // DAY, -(-end // DAY)):
            midnight = day * DAY
            if start <= midnight and midnight + DAY <= end:
                yield from (midnight + time for time in every)
            else:
                yield from (midnight + time for time in every if start <= midnight + time < end)


@dataclass(frozen=True, slots=True)
class Plans:
    """What any of several plans matches. Answers as one Plan does."""

    plans: tuple[Plan, ...]

    def has(self, wall: int) -> bool:
        """Say whether `wall` matches."""
        return any(plan.has(wall) for plan in self.plans)

    def first_from(self, wall: int) -> int | None:
        """Return the first match that is not before `wall`."""
        found = [n for n in (plan.first_from(wall) for plan in self.plans) if n is not None]
        return min(found, default=None)

    def last_upto(self, wall: int) -> int | None:
        """Return the last match that is not after `wall`."""
        found = [n for n in (plan.last_upto(wall) for plan in self.plans) if n is not None]
        return max(found, default=None)

    def count(self, start: int, end: int) -> int:
        """Return how many matches lie in [start, end): days by kind, only broken days one by one."""
        first, last = -(-start // DAY), end // DAY
        if first >= last:
            return len(self._gathered(start, end))
        return (
            len(self._gathered(start, first * DAY))
            + self._count_days(first, last)
            + len(self._gathered(last * DAY, end))
        )

    def listed(self, start: int, end: int) -> Iterator[int]:
        """Yield the matches in [start, end)."""
        yield from sorted(self._gathered(start, end))

    def _gathered(self, start: int, end: int) -> set[int]:
        return {wall for plan in self.plans for wall in plan.listed(start, end)}

    def _count_days(self, first: int, last: int) -> int:
        """Sort the days of each month by which plans they match, and count each kind at once."""
        total = 0
        for months in zip(*(plan.days.months_between(first, last) for plan in self.plans), strict=True):
            kinds: list[tuple[int, tuple[Times, ...]]] = [(ALL_DAYS, ())]
            for plan, (_, bits) in zip(self.plans, months, strict=True):
                split = [(days & bits, (*times, plan.times)) for days, times in kinds]
                split += [(days & ~bits, times) for days, times in kinds]
                kinds = [kind for kind in split if kind[0]]
            total += sum(days.bit_count() * _size_of_union(times) for days, times in kinds)
        return total


@lru_cache(maxsize=256)
def _size_of_union(times: tuple[Times, ...]) -> int:
    return len({time for each in times for time in each.listed()})


@lru_cache(maxsize=512)
def times_of(hours: int, minutes: int, micros: tuple[int, ...] = (0,)) -> Times:
    """Return the times of day of two bit masks."""
    return Times(members(hours), members(minutes), micros)


def repeat_weekdays(weekdays: int) -> int:
    """Return the seven bits of a week (bit 0 = Sunday) repeated for a month."""
    return weekdays * _SIX_WEEKS


def members(mask: int) -> tuple[int, ...]:
    """Return which bits of `mask` are set, ascending."""
    return tuple(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
