"""Typed reading of what callers pass: every value from outside goes through here. Refuses with INVALID_ARGUMENT."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from crtrd.config.keys import KEYS, Kind
from crtrd.config.reader import printable
from crtrd.core.cron import State
from crtrd.core.occurrence import Result, Status
from crtrd.errors import Code, RequestError
from crtrd.ledger.queries import Filter
from crtrd.schedule.spans import format_instant
from crtrd.schedule.zone import END

PAGE, PAGE_LIMIT = 200, 1000
LONGEST = 64 * 1024
MOMENTS = frozenset(key.name for key in KEYS if key.kind is Kind.INSTANT)
SIGNED = 1 << 63  # what SQLite can compare with


def refuse(message: str) -> RequestError:
    return RequestError(Code.INVALID_ARGUMENT, message)


def text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise refuse(f"cannot read {what}: it must be a text")
    if len(value) > LONGEST or (not value.isascii() and not _is_utf8(value)):
        raise refuse(f"cannot read {what}: it must be valid UTF-8 of at most {LONGEST} characters")
    return value


def _is_utf8(value: str) -> bool:
    """JSON can carry half a surrogate pair, which nothing below can store."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def instant(value: object, what: str) -> int:
    """Microseconds since the epoch, as far as schedules reach."""
    return number(value, what, 0, END - 1)


def number(value: object, what: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise refuse(f"cannot read {what}: it must be a whole number from {low} to {high}")
    return value


def flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise refuse(f"cannot read {what}: it must be true or false")
    return value


def table(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise refuse(f"cannot read {what}: it must be a table")
    return value


def keys(value: object, what: str) -> Mapping[str, Any]:
    """Keys of a cron. Its times may be written as texts, as in a file, or travel as every time does on the bus."""
    given = table(value, what)
    return {name: _moment(name, each) if name in MOMENTS else each for name, each in given.items()}


def _moment(name: str, value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if value == 0:
        raise refuse(f"cannot read {name}: 0 is never; leave it out")
    return format_instant(instant(value, name))


def options(value: object, what: str, allowed: Mapping[str, type]) -> dict[str, Any]:
    """A table whose keys are all known and whose values have the named type."""
    found = {}
    for key, each in table(value, what).items():
        if key not in allowed:
            raise refuse(f"cannot {what}: there is no option {printable(key)!r}")
        if not isinstance(each, allowed[key]) or (allowed[key] is int and isinstance(each, bool)):
            raise refuse(f"cannot {what}: option {key} must be of type {allowed[key].__name__}")
        if allowed[key] is str:
            text(each, key)
        elif allowed[key] is int:
            number(each, key, -SIGNED, SIGNED - 1)
        found[key] = each
    return found


def page(limit: object, cursor: object) -> tuple[int, int]:
    """(rows a page, serial after which it starts); limit 0 means the default."""
    size = number(limit, "limit") or PAGE
    start = text(cursor, "cursor")
    if start and not (start.isascii() and start.isdigit() and len(start) <= 18):  # noqa: PLR2004 - fits 63 bits
        raise refuse(f"cannot read cursor: {printable(start)!r} was not given by a list")
    return min(size, PAGE_LIMIT), int(start or 0)


def cron_filter(value: object) -> Filter:
    chosen = options(value, "list crons", {"state": str, "name": str})
    _check_words("list crons", chosen, {"state": State})
    return Filter(**chosen)


def _check_words(verb: str, chosen: Mapping[str, Any], known: Mapping[str, type[StrEnum]]) -> None:
    """A word that nothing can have is a slip of the pen; '' stands for any."""
    for key, words in known.items():
        if (given := chosen.get(key, "")) and given not in set(words):
            raise refuse(f"cannot {verb}: {key} must be one of {', '.join(words)}, not {printable(given)!r}")


def history_filter(value: object, verb: str, cron_id: str, words: Mapping[str, type]) -> Filter:
    """`cron` has been resolved to `cron_id`; the rest is narrowed by value."""
    chosen = options(value, verb, {"cron": str, "since": int, "until": int, **words})
    chosen.pop("cron", None)
    _check_words(verb, chosen, {"status": Status, "result": Result})
    return Filter(cron_id=cron_id, **chosen)
