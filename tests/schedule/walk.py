"""The oracle: which minutes a cron expression is due, found by walking every minute of a stretch.

Written from cron(8) and crontab(5) alone and sharing nothing with the code under test: it reads the
local time of each minute from zoneinfo, matches five numbers, and knows nothing of transitions.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

ZERO = timedelta(0)
MINUTE = timedelta(minutes=1)
THREE_HOURS = timedelta(hours=3)
LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


class Minute(NamedTuple):
    """One minute as the wall clock shows it."""

    instant: int
    wall: datetime
    skipped: tuple[datetime, ...]  # the walls that the clock jumped over right before it
    place: str  # "only", or "first" or "second" of two equal walls
    shift: timedelta  # by how much the clock moved, where skipped or place say that it did


def minutes(zone: str, start: datetime, end: datetime) -> Iterator[Minute]:
    """Yield every minute of [start, end), both UTC."""
    info = ZoneInfo(zone)
    now, instant = start, int(start.timestamp()) * 1_000_000
    before = (now - MINUTE).astimezone(info).replace(tzinfo=None, fold=0)
    while now < end:
        local = now.astimezone(info)
        wall = local.replace(tzinfo=None, fold=0)
        step = wall - before
        skipped, shift, place = (), ZERO, "only"
        if step > MINUTE:
            shift = step - MINUTE
            skipped = tuple(wall - MINUTE * n for n in range(shift // MINUTE, 0, -1))
        early, late = info.utcoffset(wall), info.utcoffset(wall.replace(fold=1))
        if early != late:
            place, shift = ("second" if local.fold else "first"), early - late
        yield Minute(instant, wall, skipped, place, shift)
        before, now, instant = wall, now + MINUTE, instant + 60_000_000


@cache
def members(text: str, index: int) -> frozenset[int]:
    """Return the values of one field of numbers, ranges, steps and stars."""
    low, high = LIMITS[index]
    found = set()
    for item in text.split(","):
        base, _, step = item.partition("/")
        first, last = (low, high) if base == "*" else (int(base.split("-")[0]), int(base.split("-")[-1]))
        found |= set(range(first, last + 1, int(step or 1)))
    if index == 4 and 7 in found:
        found.add(0)
    return frozenset(found)


@cache
def fields(expression: str) -> tuple[tuple[frozenset[int], ...], bool]:
    """Return the values of the five fields, and whether the day fields are joined by AND."""
    texts = expression.split()
    both = texts[2].startswith("*") or texts[4].startswith("*")
    return tuple(members(text, i) for i, text in enumerate(texts)), both


def matches(expression: str, wall: datetime) -> bool:
    """Say whether the five fields match `wall`."""
    (minute, hour, day, month, weekday), both = fields(expression)
    if wall.minute not in minute or wall.hour not in hour or wall.month not in month:
        return False
    by_day, by_weekday = wall.day in day, wall.isoweekday() % 7 in weekday
    return (by_day and by_weekday) if both else (by_day or by_weekday)


def due(expression: str, walked: list[Minute], gap: str = "auto", overlap: str = "auto") -> list[int]:
    """Return the instants of `walked` at which `expression` is due."""
    texts = expression.split()
    wildcard = texts[0].startswith("*") or texts[1].startswith("*")
    found = []
    for minute in walked:
        automatic = not wildcard and minute.shift <= THREE_HOURS
        made_up = gap == "after" or (gap == "auto" and automatic)
        chosen = overlap if overlap != "auto" else ("first" if automatic else "both")
        plain = matches(expression, minute.wall) and (minute.place in {"only", chosen} or chosen == "both")
        if plain or (made_up and any(matches(expression, wall) for wall in minute.skipped)):
            found.append(minute.instant)
    return found


def days_of_change(zone: str, first_year: int, last_year: int) -> list[datetime]:
    """Return the UTC midnights within whose next 24 hours the zone's offset changes."""
    info = ZoneInfo(zone)
    day, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    found = []
    offset = day.astimezone(info).utcoffset()
    while day < end:
        following = (day + timedelta(days=1)).astimezone(info).utcoffset()
        if following != offset:
            found.append(day)
        day, offset = day + timedelta(days=1), following
    return found
