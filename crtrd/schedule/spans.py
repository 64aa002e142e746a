"""Texts for lengths of time and for single instants: systemd time spans and RFC 3339.

Everything is microseconds. What repeats is elsewhere (cronfields, calendar, streams).
"""

import re
from datetime import datetime, timedelta

from crtrd.errors import ScheduleError
from crtrd.schedule.zone import DAY, END, HOUR, MINUTE, SECOND, load_zone

MILLISECOND = 1000
WEEK = 7 * DAY
#: systemd.time(7): a year has 365.25 days and a month is a twelfth of it.
YEAR = 31_557_600 * SECOND
MONTH = YEAR // 12
#: Longer spans are slips of the pen, and would carry instants out of every range.
LONGEST = 1000 * YEAR

_UNITS: dict[str, int] = {
    **dict.fromkeys(("us", "usec", "µs", "μs"), 1),
    **dict.fromkeys(("ms", "msec"), MILLISECOND),
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), WEEK),
    **dict.fromkeys(("M", "month", "months"), MONTH),
    **dict.fromkeys(("y", "year", "years"), YEAR),
}
_PRINTED = (
    (YEAR, "y"),
    (MONTH, "month"),
    (WEEK, "w"),
    (DAY, "d"),
    (HOUR, "h"),
    (MINUTE, "min"),
)
_PART = re.compile(r"\s*([0-9]{1,19})?(?:\.([0-9]{1,19})(?![.0-9]))?\s*([A-Za-zµμ]{0,8})\s*", re.ASCII)
_LONGEST_TEXT = 200
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(?: ?(?:([Zz]|UTC)|([+-])([0-9]{2}):?([0-9]{2})))?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive by nature


def parse_span(text: str) -> int:
    """Return the microseconds of a systemd time span; a number without a unit is seconds."""
    if not text.strip():
        raise ScheduleError(text, "span", "a length of time is missing")
    if len(text) > _LONGEST_TEXT:
        raise ScheduleError(text, "span", "the text is too long")
    total, place = 0, 0
    while place < len(text):
        part = _PART.match(text, place)
        if part is None or (not part[1] and not part[2]) or part[3] not in _UNITS:
            raise ScheduleError(text, "span", "not a length of time like '90s' or '1h 30min'")
        unit = _UNITS[part[3]]
        fraction = part[2] or ""
        total += int(part[1] or 0) * unit
        if fraction:
            total += int(fraction) * unit // 10 ** len(fraction)
        place = part.end()
    if total > LONGEST:
        raise ScheduleError(text, "span", "longer than a thousand years")
    return total


def format_span(us: int) -> str:
    """Return `us` as systemd writes a time span, e.g. "1h 30min"; fractions without their zeros."""
    if us == 0:
        return "0"
    sign, rest = ("-", -us) if us < 0 else ("", us)
    words: list[str] = []
    for unit, name in _PRINTED:
        number, rest = divmod(rest, unit)
        if number:
            words.append(f"{number}{name}")
    if rest >= SECOND:
        words.append(_decimal(rest, SECOND) + "s")
    elif rest >= MILLISECOND:
        words.append(_decimal(rest, MILLISECOND) + "ms")
    elif rest:
        words.append(f"{rest}us")
    return sign + " ".join(words)


def _decimal(value: int, unit: int) -> str:
    whole, part = divmod(value, unit)
    if not part:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{part:0{digits}d}".rstrip("0")


def parse_wall(text: str) -> tuple[int, int | None]:
    """Return the wall time in `text` and the offset it names, if any, in microseconds."""
    found = _INSTANT.fullmatch(text.strip()) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise ScheduleError(text, "at", "not a time like 2026-12-01T02:00, with Z or +01:00 or without")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    hour, minute, second = int(found[4] or 0), int(found[5] or 0), int(found[6] or 0)
    try:
        moment = datetime(year, month, day, hour, minute, second)  # noqa: DTZ001
    except ValueError as error:
        raise ScheduleError(text, "at", str(error)) from error
    micros = int((found[7] or "0")[:6].ljust(6, "0"))
    wall = (moment - _EPOCH) // timedelta(microseconds=1) + micros
    if found[8]:
        return wall, 0
    if not found[9]:
        return wall, None
    hours, minutes = int(found[10]), int(found[11])
    if hours > 23 or minutes > 59:  # noqa: PLR2004 - a clock's own numbers
        raise ScheduleError(text, "at", "the offset is not one of a clock")
    offset = hours * HOUR + minutes * MINUTE
    return wall, -offset if found[9] == "-" else offset


def parse_instant(text: str, timezone: str, *, dst_gap: str = "auto", dst_overlap: str = "auto") -> int:
    """Return the instant that `text` names; without an offset it is local to `timezone`.

    A local time that the clock skips is the instant right after the gap, unless `dst_gap` is
    `skip`: then it is refused. One that the clock shows twice is the first, or the `second`.
    """
    wall, offset = parse_wall(text)
    if offset is not None:
        instant = wall - offset
    elif not 0 <= wall < END:
        instant = -1
    else:
        instant = _local_instant(text, wall, timezone, dst_gap, dst_overlap)
    if not 0 <= instant < END:
        raise ScheduleError(text, "at", "not between the years 1970 and 2400")
    return instant


def _local_instant(text: str, wall: int, timezone: str, dst_gap: str, dst_overlap: str) -> int:
    zone = load_zone(timezone)
    instants = zone.instants_of(wall)
    if instants:
        return instants[-1] if dst_overlap == "second" else instants[0]
    after = zone.gap_over(wall)
    if after is None or dst_gap == "skip":
        raise ScheduleError(text, "at", f"the clocks of {timezone} skip this time")
    return after.start


def format_instant(us: int) -> str:
    """Return RFC 3339 in UTC with `Z`; the fraction only where it is not zero. Years 1 to 9999."""
    moment = _EPOCH + timedelta(microseconds=us)
    whole = moment.isoformat(timespec="seconds")[:19]
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{whole}{fraction}Z"
