"""systemd's calendar expressions, as systemd.time(7) describes them and its parser takes them.

A text becomes a `CalendarPlan`: what it matches on a plain clock, whether it is a wildcard in the
sense of cron(8), and the zone it names, if any. Beyond systemd: years up to 2400. Short of it: no
`@SECONDS` (that is `at`), and an expression that can never match is refused.
"""

import re
from collections.abc import Mapping

from crtrd.errors import ScheduleError
from crtrd.schedule.days import ALL_DAYS, ALL_MONTHS, ALL_WEEKDAYS, Days, Plan, repeat_weekdays, times_of
from crtrd.schedule.zone import LAST_YEAR, MINUTE, SECOND
from crtrd.values import dataclass

_SHORTHANDS: Mapping[str, str] = {
    "minutely": "*-*-* *:*:00",
    "hourly": "*-*-* *:00:00",
    "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00",
    "monthly": "*-*-01 00:00:00",
    "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
    "semi-annually": "*-01,07-01 00:00:00",
    "biannually": "*-01,07-01 00:00:00",
    "bi-annually": "*-01,07-01 00:00:00",
    "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00",
}
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_DAY_NUMBERS = {n: i for i, day in enumerate(_WEEKDAYS) for n in (day, day[:3])}
_FIRST_YEAR = 1970
_CENTURY_TURN = 70  # two-digit years: 70-99 are 19xx, 00-69 are 20xx
_CENTURY = 100
#: More instants than this in one minute are refused; the list of them is kept in memory.
_MOST_SECONDS = 1000
#: systemd's own limit: every month has as many days from its end.
_LAST_FROM_END = 28
_DATE = re.compile(r"(?:(?P<year>[^-~]+)-)?(?P<month>[^-~]+)(?P<sign>[-~])(?P<day>[^-~]+)")
_WHOLE = re.compile(r"(?P<start>[0-9]{1,9})(?:\.\.(?P<stop>[0-9]{1,9}))?(?:/(?P<step>[0-9]{1,9}))?")
_SECONDS = re.compile(
    r"(?P<start>[0-9]{1,9}(?:\.[0-9]{1,6})?)(?:\.\.(?P<stop>[0-9]{1,9}(?:\.[0-9]{1,6})?))?"
    r"(?:/(?P<step>[0-9]{1,9}(?:\.[0-9]{1,6})?))?"
)


@dataclass(frozen=True, slots=True)
class CalendarPlan:
    """A compiled expression. `wildcard`: its hour or minute starts with `*`. `zone`: named in it."""

    plan: Plan
    wildcard: bool
    zone: str | None


def parse_calendar(text: str) -> CalendarPlan:
    """Compile a calendar expression. ScheduleError's field is `calendar`."""
    try:
        return _parse(text)
    except ValueError as error:
        raise ScheduleError(text, "calendar", str(error)) from None


def _parse(text: str) -> CalendarPlan:
    words = text.split()
    zone = None
    if len(words) > 1 and words[-1][0].isalpha():
        zone = "UTC" if words[-1].lower() == "utc" else words[-1]
        words.pop()
    if len(words) == 1 and words[0].lower() in _SHORTHANDS:
        words = _SHORTHANDS[words[0].lower()].split()
    weekdays, date, time = _split(words)
    days = _days(weekdays, date)
    if days.first_from(0) is None:
        raise ValueError("no year has such a day: it is never due")
    hours, minutes, micros, wildcard = _times(time)
    return CalendarPlan(Plan(days, times_of(hours, minutes, micros)), wildcard, zone)


def _split(words: list[str]) -> tuple[str, str, str]:
    """Return the weekdays, date and time among `words`, which come in this order, each optional."""
    rest = list(words)
    weekdays = rest.pop(0) if rest and rest[0][0].isalpha() else ""
    date = rest.pop(0) if rest and ":" not in rest[0] else ""
    time = rest.pop(0) if rest and ":" in rest[0] else ""
    if rest or not words:
        raise ValueError(f"{' '.join(rest)!r} is not understood" if rest else "it is empty")
    return weekdays, date, time


def _days(weekdays: str, date: str) -> Days:
    week = repeat_weekdays(_parse_weekdays(weekdays) if weekdays else ALL_WEEKDAYS)
    if not date:
        return Days(ALL_MONTHS, (ALL_DAYS,) * 4, week, either=False)
    found = _DATE.fullmatch(date)
    if found is None:
        raise ValueError(f"{date!r} is not a date like *-*-01 or 12-24")
    years = None
    if found["year"] is not None and found["year"] != "*":
        listed = _numbers("year", found["year"], 0, LAST_YEAR, wide=True)
        years = sum({1 << (year - _FIRST_YEAR) for year in listed})
    months = ALL_MONTHS
    if found["month"] != "*":
        months = sum({1 << month for month in _numbers("month", found["month"], 1, 12)})
    return Days(months, _month_days(found["day"], found["sign"] == "~"), week, False, years)  # noqa: FBT003


def _month_days(text: str, from_end: bool) -> tuple[int, int, int, int]:  # noqa: FBT001
    """Return the days of the month as bits for months of 28, 29, 30 and 31 days."""
    if text == "*":
        return (ALL_DAYS,) * 4
    if not from_end:
        mask = sum({1 << (day - 1) for day in _numbers("day", text, 1, 31)})
        return (mask,) * 4
    places = [place for item in _items(text) for place in _from_end(item)]
    masks = [sum({1 << (length - place) for place in places}) for length in (28, 29, 30, 31)]
    return masks[0], masks[1], masks[2], masks[3]


def _from_end(item: str) -> range:
    """Return which last days of the month `item` names, 1 = the last one.

    Steps go forward in the calendar: ~07/1 is the last seven days, ~1..10/3 the 10th last, the 7th
    last and so on.
    """
    start, stop, step = _component("day", item, 1, _LAST_FROM_END)
    if stop is not None:
        return range(stop, start - 1, -step)
    if step and start - step < 1:
        raise ValueError(f"day: the step of {item!r} leaves the month at once")
    return range(start, 0, -step) if step else range(start, start + 1)


def _times(text: str) -> tuple[int, int, tuple[int, ...], bool]:
    """Return hours and minutes as bits, the microseconds of the minute, and whether it is a wildcard."""
    if not text:
        return 1, 1, (0,), False
    parts = text.split(":")
    if not 2 <= len(parts) <= 3:  # noqa: PLR2004
        raise ValueError(f"{text!r} is not a time like 02:00 or *:0/15")
    hours = (1 << 24) - 1
    if parts[0] != "*":
        hours = sum({1 << hour for hour in _numbers("hour", parts[0], 0, 23)})
    minutes = (1 << 60) - 1
    if parts[1] != "*":
        minutes = sum({1 << minute for minute in _numbers("minute", parts[1], 0, 59)})
    micros = _micros(parts[2]) if len(parts) > 2 else (0,)  # noqa: PLR2004
    return hours, minutes, micros, parts[0].startswith("*") or parts[1].startswith("*")


def _micros(text: str) -> tuple[int, ...]:
    if text == "*":
        return tuple(range(0, MINUTE, SECOND))
    values: set[int] = set()
    for item in _items(text):
        component = _component("second", item, 0, MINUTE - 1, pattern=_SECONDS, scale=SECOND)
        chosen = _chosen(component, MINUTE - 1)
        if len(values) + len(chosen) > _MOST_SECONDS:
            raise ValueError(f"second: more than {_MOST_SECONDS} instants in a minute")
        values.update(chosen)
    return tuple(sorted(values))


def _numbers(name: str, text: str, low: int, high: int, *, wide: bool = False) -> set[int]:
    values: set[int] = set()
    for item in _items(text):
        start, stop, step = _component(name, item, low, high)
        if wide:
            start, stop = _full_year(start), None if stop is None else _full_year(stop)
            if start < _FIRST_YEAR or (stop is not None and stop < start):
                raise ValueError(f"year: {item!r} is not between 1970 and {LAST_YEAR}")
        values.update(_chosen((start, stop, step), high))
    return values


def _items(text: str) -> list[str]:
    items = text.split(",")
    return items[:-1] if len(items) > 1 and not items[-1] else items  # systemd forgives "1,"


def _chosen(component: tuple[int, int | None, int], high: int) -> range:
    start, stop, step = component
    if not step:
        return range(start, start + 1)
    if stop is None and start + step > high:
        raise ValueError(f"the step after {start} leaves the range at once")
    return range(start, (high if stop is None else stop) + 1, step)


def _component(
    name: str, item: str, low: int, high: int, *, pattern: re.Pattern[str] = _WHOLE, scale: int = 1
) -> tuple[int, int | None, int]:
    """Return (start, stop, step) of one item; step 0 and stop None for a single value."""
    found = pattern.fullmatch(item)
    if found is None:
        raise ValueError(f"{name}: {item[:20]!r} is not a number, range or repetition")
    start = _scaled(found["start"], scale)
    stop = _scaled(found["stop"], scale) if found["stop"] else None
    step = _scaled(found["step"], scale) if found["step"] else 0 if stop is None else scale
    if not low <= start <= high or (stop is not None and not low <= stop <= high):
        raise ValueError(f"{name}: {item!r} is not in range")
    if stop is not None and stop < start:
        raise ValueError(f"{name}: {item!r} runs backwards")
    if found["step"] and not step:
        raise ValueError(f"{name}: {item!r} has a step of zero")
    return start, stop, step


def _scaled(text: str, scale: int) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * scale + (int(fraction.ljust(6, "0")) if fraction else 0)


def _full_year(year: int) -> int:
    if year < _CENTURY_TURN:
        return year + 2000
    return year + 1900 if year < _CENTURY else year


def _parse_weekdays(text: str) -> int:
    """Return weekdays as bits, bit 0 = Sunday. Ranges run from Monday to Sunday and never back."""
    mask = 0
    for item in _items(text.lower()):
        first, dots, last = item.partition("..")
        if not dots:
            first, dots, last = item.partition("-")
        start = _DAY_NUMBERS.get(first)
        stop = _DAY_NUMBERS.get(last) if dots else start
        if start is None or stop is None:
            raise ValueError(f"weekday: {item[:20]!r} is not a day or range of days")
        if stop < start:
            raise ValueError(f"weekday: {item!r} runs backwards (the week begins on Monday)")
        for day in range(start, stop + 1):
            mask |= 1 << (day + 1) % 7
    return mask
