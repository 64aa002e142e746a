"""When plain cron would have started a line: cron(8)'s rule walked day by day, written apart from `schedule`.

It shares no code with it, so that `crtrctl import --verify` compares two independent answers. A fixed time in a gap
is due once right after it, one in an overlap once, at the first; a job whose minute or hour begins with `*` follows
the wall clock; so does every job where the clock moves by more than three hours.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

STANDS_FOR = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
WEEKDAYS = "sun mon tue wed thu fri sat".split()
CORRECTION = timedelta(hours=3)
MINUTE = timedelta(minutes=1)


def can_walk(schedule: str) -> bool:
    """Whether the clock alone decides: not for @reboot, nor for a random `~`."""
    return schedule != "@reboot" and "~" not in schedule


def firings(schedule: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """The moments in (start, end], UTC, ascending; start and end are aware."""
    info = ZoneInfo(zone)
    first, last = (moment.astimezone(info).date() for moment in (start, end))
    days = (first + timedelta(days=n) for n in range(-1, (last - first).days + 2))
    plan = _Plan(STANDS_FOR.get(schedule, schedule))
    found = {moment for day in days if plan.has(day) for moment in plan.moments(day, info)}
    return sorted(moment for moment in found if start < moment <= end)


class _Plan:
    """One expression, its fields spelled out as sets."""

    def __init__(self, expression: str) -> None:
        minute, hour, day, month, weekday = self._texts = expression.split()
        self.minutes = sorted(_values(minute, 0, 59))
        self.hours = sorted(_values(hour, 0, 23))
        self.days, self.months = _values(day, 1, 31), _values(month, 1, 12, MONTHS, 1)
        self.weekdays = {value % 7 for value in _values(weekday, 0, 7, WEEKDAYS)}
        self.follows = minute.startswith("*") or hour.startswith("*")
        self.both = day.startswith("*") or weekday.startswith("*")

    def has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (by_day and by_weekday) if self.both else (by_day or by_weekday)

    def moments(self, day: date, info: ZoneInfo) -> Iterator[datetime]:
        midnight = datetime.combine(day, time(), info)
        following = datetime.combine(day + timedelta(days=1), time(), info)
        if all(midnight.utcoffset() == each.replace(fold=fold).utcoffset()
               for each in (midnight, following) for fold in (0, 1)):
            begin = midnight.astimezone(UTC)
            for hour in self.hours:
                for minute in self.minutes:
                    yield begin + timedelta(minutes=60 * hour + minute)
            return
        for hour in self.hours:
            for minute in self.minutes:
                yield from self._on_a_change(datetime.combine(day, time(hour, minute), info))

    def _on_a_change(self, wall: datetime) -> Iterator[datetime]:
        early, late = sorted(wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        real = [each for each in dict.fromkeys((early, late))
                if each.astimezone(wall.tzinfo).replace(tzinfo=None, fold=0) == wall.replace(tzinfo=None, fold=0)]
        follows = self.follows or late - early > CORRECTION
        if real:
            yield from real if follows else real[:1]
        elif not follows:
            yield _jump(early, late, wall)


def _jump(early: datetime, late: datetime, wall: datetime) -> datetime:
    """The first minute after the clock jumped over `wall`: it lies in (early, late]."""
    before = early.astimezone(wall.tzinfo).utcoffset()
    moment = early
    while moment < late and moment.astimezone(wall.tzinfo).utcoffset() == before:
        moment += MINUTE
    return moment


def _values(text: str, low: int, high: int, names: list[str] | None = None, base: int = 0) -> set[int]:
    found: set[int] = set()
    for item in text.lower().split(","):
        span, _, step = item.partition("/")
        if span == "*":
            first, last = low, high
        else:
            one, dash, other = span.partition("-")
            first = _number(one, names, base)
            last = _number(other, names, base) if dash else first
        if last == 0 < first and high == 7:  # noqa: PLR2004 - fri-sun: Sunday ends the week
            last = 7
        found.update(range(first, last + 1, int(step or 1)))
    return found


def _number(text: str, names: list[str] | None, base: int) -> int:
    return names.index(text) + base if names and text in names else int(text)
