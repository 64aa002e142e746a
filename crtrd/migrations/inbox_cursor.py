"""A cursor says up to which entry an inbox has been read. Pure: from the old spellings to an entry's id.

Old cursors hold a UUID or a time in any form of ISO 8601; one without an offset is UTC.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from crtrd.migrations.inbox_entry import Number, identity, in_order

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME_KEYS = ("at", "created_at")
_MICROSECONDS_FROM, _MILLISECONDS_FROM = 10**14, 10**11
"""A plain number is told by its size: all three units name years between 1973 and 5138 in disjoint ranges."""

Entry = dict[str, object]


def repair(text: str, entries: Iterable[Entry]) -> str:
    """The cursor as it should be; unchanged where it is in order or cannot be understood."""
    word = text.strip()
    if in_order(word):
        return text
    new = identity(word)
    if new is None and (boundary := moment(word)) is not None:
        new = at_boundary(boundary, entries)
    return text if new is None else text.replace(word, new)


def at_boundary(boundary: int, entries: Iterable[Entry]) -> str:
    """The id of the last entry at or before `boundary`; '' when there is none: nothing has been read yet.

    It ends at the first entry that is later. Should the clock have been set back, entries behind that one are shown a
    second time: better than one that is never shown.
    """
    last = ""
    for entry in entries:
        at = next((found for key in _TIME_KEYS if (found := moment(entry.get(key))) is not None), None)
        if at is not None and at > boundary:
            break
        name = entry.get("id")
        if at is not None and isinstance(name, str):
            last = name
    return last


def moment(value: object) -> int | None:
    """Microseconds since the epoch, or None."""
    if isinstance(value, Number):
        return _of_number(value)
    # ISO 8601 has no form of digits alone but the date; datetime would find a time in many a number
    if not isinstance(value, str) or (value.isdecimal() and len(value) != len("YYYYMMDD")):
        return None
    try:
        # RFC 3339 allows small letters, datetime does not
        found = datetime.fromisoformat(value.strip().upper())
        aware = found if found.tzinfo else found.replace(tzinfo=UTC)
        return (aware - EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        return None


def _of_number(text: Number) -> int | None:
    number = float(text)
    if not 0 <= number < 2**63:
        return None
    if number >= _MICROSECONDS_FROM:
        return int(text) if text.isdecimal() else int(number)
    return int(number * (1000 if number >= _MILLISECONDS_FROM else 1_000_000))
