"""Journal entries as bytes: the native protocol's serialization, pure. Sending is journal.py's work.

https://systemd.io/JOURNAL_NATIVE_PROTOCOL/: `NAME=value` lines, or for a value that holds a line break
`NAME`, line break, its length as 64 bit little endian, the value, line break.
"""

import re
import struct
from collections.abc import Iterable
from functools import lru_cache

_NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

Field = tuple[str, bytes]


def serialize(fields: Iterable[Field]) -> bytes:
    """One entry, or a part of one: serialized parts of one entry may be joined."""
    return b"".join(_field(name, value) for name, value in fields)


def to_bytes(value: str | int) -> bytes:
    """UTF-8; bytes that Python carries as surrogates (file names) become those bytes again."""
    text = str(value)
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")


@lru_cache(maxsize=256)
def _key(name: str) -> bytes:
    if not _NAME.fullmatch(name):
        # journald drops such a field without a word (systemd.journal-fields(7)), and `_` is reserved for its own
        message = f"cannot write journal field {name!r}: not A-Z, 0-9 and _ with a letter first, at most 64"
        raise ValueError(message)
    return name.encode("ascii")


def _field(name: str, value: bytes) -> bytes:
    key = _key(name)
    if _NOT_TEXT.search(value):
        return b"%b\n%b%b\n" % (key, struct.pack("<Q", len(value)), value)
    return b"%b=%b\n" % (key, value)
