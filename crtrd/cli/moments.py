"""Instants as people write them on a command line, against this host's clock: `now`, `tomorrow 07:00`, `+5m`,
`1h ago`, and whatever is absolute. What goes to the daemon is an instant."""

import re
from collections.abc import Callable
from datetime import timedelta

from crtrd.cli.session import USAGE, Failure
from crtrd.cli.words import SECOND, moment, rfc3339
from crtrd.errors import ScheduleError
from crtrd.schedule.spans import parse_instant, parse_span
from crtrd.schedule.zone import load_zone

WAYS = "a time is like 2026-12-01T02:00, 07:00, tomorrow 07:00, now, +5m or 1h ago"
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = re.compile(r"(?:(yesterday|today|tomorrow)\b\s*)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?)?")


def instant_of(text: str, zone: str, now: int, *, last: bool = False) -> int:
    """An instant that somebody wrote, local to `zone` where it says no other; `last`: to the end of its second."""
    try:
        found = relative_instant(text, zone, now)
        found = parse_instant(text, zone) if found is None else found
    except ScheduleError as error:
        why = f"timezone {zone!r}: {error.reason}" if error.field == "timezone" else error.reason
        raise Failure(f"cannot use {text!r} as a time: {why}\n({WAYS})", USAGE) from error
    return found + SECOND - 1 if last and not found % SECOND else found


def relative_instant(text: str, zone: str, now: int) -> int | None:
    """What a text means that depends on the clock; None for one that does not. Raises ScheduleError."""
    words = text.strip()
    if words == "now":
        return now
    if words.startswith(("+", "in ")):
        return now + parse_span(words.removeprefix("+").removeprefix("in "))
    if words.startswith("-") or words.endswith(" ago"):
        return now - parse_span(words.removeprefix("-").removesuffix(" ago"))
    found = _DAY.fullmatch(words)
    if found is None or not words:
        return None
    day = moment(now, load_zone(zone).tzinfo).date() + timedelta(days=_DAYS.get(found[1] or "today", 0))
    hour, _, rest = (found[2] or "00:00").partition(":")
    return parse_instant(f"{day.isoformat()}T{hour:0>2}:{rest}", zone)


def absolute(text: str, zone: Callable[[], str], now: int) -> str:
    """A text that depends on the clock as one that does not; any other as it is."""
    if not _depends(text):
        return text
    return rfc3339(instant_of(text, zone(), now))


def _depends(text: str) -> bool:
    words = text.strip()
    return words == "now" or words.endswith(" ago") or words.startswith(("+", "-", "in ")) or (
        bool(words) and _DAY.fullmatch(words) is not None)
