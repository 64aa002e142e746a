"""One line of an inbox, pure: what is wrong with its identities, and the line as it should be.

A line is edited in place, not written anew: spacing, spelling of numbers and escapes, unknown keys and their order
stay as they are. Files are the business of legacy_inbox_identities.py.
"""

import json
import re
from collections.abc import Callable, Iterator

from crtrd.core.occurrence import derive_id
from crtrd.values import dataclass

OPERATION = "operation"
_NEEDED = ("id", "operation_id")
"""Ids that may not be null or empty. Of these only `id` may not be absent: not every entry belongs to an operation."""
_UUID = re.compile(
    r"(?:urn:uuid:)?(\{)?([0-9a-f]{8})(-?)([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{4})\3([0-9a-f]{12})(?(1)\})",
    re.IGNORECASE | re.ASCII,
)
_IDENTITY = re.compile(r"[0-9a-f]{32}", re.ASCII)
_Derive = Callable[[str], str]
_SPACE = re.compile(r"[ \t\n\r]*")


class Number(str):
    """A JSON number as it is spelled: none is too long or too precise."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number)


@dataclass(frozen=True, slots=True)
class _Member:
    """One key of an object and where its value stands in the text."""

    key: str
    value: object
    start: int
    end: int


def read(line: bytes) -> dict[str, object] | None:
    """The entry, or None for a line that holds none: damaged, or blank."""
    try:
        entry = _DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def repair(line: bytes, owner: str, number: int) -> bytes | None:
    """The line with proper identities, the same object where nothing is wrong; None when it is damaged.

    An id that is missing is derived from what the line says and where it stands: the same one whenever the same file is
    repaired again, another one for a line of equal content.
    """
    if not line.strip():
        return line
    entry = read(line)
    if entry is None:
        return None
    operation = entry.get(OPERATION)
    if "id" in entry and _all_in_order(entry) and (not isinstance(operation, dict) or _all_in_order(operation)):
        return line
    text = line.decode("utf-8")
    start = text.index("{")
    edits = list(_edits(text, start, lambda key: derive_id("inbox", owner, number, key, text)))
    if "id" not in entry:
        comma = ", " if entry else ""
        edits.append((start + 1, start + 1, f'"id": "{derive_id("inbox", owner, number, "id", text)}"{comma}'))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text.encode("utf-8")


def identity(text: str) -> str | None:
    """32 lowercase hex digits for any spelling of a UUID; None for what is none, also for what is in order."""
    text = text.strip()
    found = None if in_order(text) else _UUID.fullmatch(text)
    return "".join(found.group(2, 4, 5, 6, 7)).lower() if found else None


def in_order(text: str) -> bool:
    return _IDENTITY.fullmatch(text) is not None


def _all_in_order(entry: dict[str, object]) -> bool:
    return all(_wrong(key, value) is None for key, value in entry.items())


def _wrong(key: str, value: object) -> str | None:
    """What an id should be instead: '' for one that is to be derived, None where nothing is wrong."""
    if key in _NEEDED and value in (None, ""):
        return ""
    if isinstance(value, str) and (key == "id" or key.endswith("_id")):
        return identity(value)
    return None


def _edits(text: str, start: int, derive: _Derive, within: str = "") -> Iterator[tuple[int, int, str]]:
    for member in _members(text, start):
        new = _wrong(member.key, member.value)
        if new is not None:
            yield member.start, member.end, f'"{new or derive(within + member.key)}"'
        elif member.key == OPERATION and not within and isinstance(member.value, dict):
            yield from _edits(text, member.start, derive, f"{OPERATION}.")


def _members(text: str, start: int) -> Iterator[_Member]:
    """The members of the object that begins at `start`; the text is known to be JSON."""
    at = _skip(text, start + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        begin = _skip(text, _skip(text, at) + 1)
        value, end = _DECODER.raw_decode(text, begin)
        yield _Member(key, value, begin, end)
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
