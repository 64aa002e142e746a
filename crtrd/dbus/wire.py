"""Messages as bytes, quickly: what jeepney's `serialise` does, by functions that are made once for each signature.

jeepney looks at every signature anew and joins a new string for every value; with it the signals of a run cost more
than all else that a run costs. Same bytes, same refusals (a test compares them). Parsing stays jeepney's.
"""

import re
import struct
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jeepney import HeaderFields, MessageType
from jeepney.low_level import Message, SizeLimitError

from crtrd.values import dataclass

if TYPE_CHECKING:
    from array import array

ARRAY_MOST = 1 << 26
WORD = 64
"""Characters of a text that is remembered as it is spelled: field names, ids and words come again and again."""
FIXED = {"y": "B", "n": "h", "q": "H", "b": "I", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "h": "I"}
SIZES = {"y": 1, "n": 2, "q": 2, "b": 4, "i": 4, "u": 4, "x": 8, "t": 8, "d": 8, "h": 4, "s": 4, "o": 4, "a": 4,
         "g": 1, "v": 1, "(": 8, "{": 8}
"""To what multiple of bytes a type is aligned."""
FIELD_KINDS = {1: "o", 2: "s", 3: "s", 4: "s", 5: "u", 6: "s", 7: "s", 8: "g", 9: "u"}
"""Types of the header's fields, by jeepney's HeaderFields."""
PATH = re.compile("/|(/[A-Za-z0-9_]+)+")
_length = struct.Struct("<I")
_start = struct.Struct("<cBBBIII")
_PADS = tuple(bytes(count) for count in range(8))

Put = Callable[[bytearray, Any, "array[int] | None"], None]
"""Appends a value to a message body, aligned; descriptors go into the array."""


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal of ours, before it has a serial number."""

    path: str
    interface: str
    member: str
    signature: str
    body: tuple[object, ...]

    def serialise(self, serial: int) -> bytes:
        """Raises what a value that cannot be spelled raises (`answer.TRANSLATION_FAULTS`)."""
        body = bytearray()
        _values(self.signature)(body, self.body, None)
        fields = bytearray()
        _field(fields, HeaderFields.path, self.path)
        fields += _PADS[-len(fields) % 8]
        fields += _rest_of_header(self.interface, self.member, self.signature)
        return _joined(MessageType.signal, 0, body, serial, fields)


def serialise(message: Message, serial: int, fds: "array[int]") -> bytes:
    """As `message.serialise`; only the body is spelled here."""
    header = message.header
    body = bytearray()
    if HeaderFields.signature in header.fields:
        _values(header.fields[HeaderFields.signature])(body, message.body, fds)
    if fds:
        header.fields[HeaderFields.unix_fds] = len(fds)
    fields = bytearray()
    for code, value in sorted(header.fields.items()):
        _field(fields, code, value)
    return _joined(header.message_type, header.flags, body, serial, fields)


def _joined(kind: MessageType, flags: int, body: bytearray, serial: int, fields: bytearray) -> bytes:
    head = _start.pack(b"l", kind.value, flags, 1, len(body), serial, len(fields))
    return b"".join((head, fields, _PADS[-len(fields) % 8], body))


def _field(fields: bytearray, code: int, value: object) -> None:
    kind = FIELD_KINDS[code]
    fields += _PADS[-len(fields) % 8]
    fields += b"%c\x01%b\0" % (code, kind.encode())
    _one(kind)(fields, value, None)


@lru_cache(maxsize=256)
def _rest_of_header(interface: str, member: str, signature: str) -> bytes:
    rest = bytearray()
    _field(rest, HeaderFields.interface, interface)
    _field(rest, HeaderFields.member, member)
    _field(rest, HeaderFields.signature, signature)
    return bytes(rest)


def _text(buffer: bytearray, value: object, fds: object = None) -> None:
    if not isinstance(value, str):
        message = f"expected text, not {value!r}"
        raise TypeError(message)
    buffer += _PADS[-len(buffer) % 4]
    buffer += _spelled(value) if len(value) <= WORD else _spell(value)


def _spell(value: str) -> bytes:
    data = value.encode()
    return b"%b%b\0" % (_length.pack(len(data)), data)


_spelled = lru_cache(maxsize=1024)(_spell)


def _path(buffer: bytearray, value: object, fds: object = None) -> None:
    if not isinstance(value, str):
        message = f"expected a path, not {value!r}"
        raise TypeError(message)
    _check_path(value)
    _text(buffer, value, fds)


@lru_cache(maxsize=256)
def _check_path(value: str) -> None:
    if not PATH.fullmatch(value):
        message = f"{value!r} is no object path"
        raise ValueError(message)


def _signature(buffer: bytearray, value: str, fds: object) -> None:
    data = value.encode()
    buffer.append(len(data))
    buffer += data
    buffer.append(0)


def _variant(buffer: bytearray, value: tuple[str, object], fds: "array[int] | None") -> None:
    signature, content = value
    _signature(buffer, signature, None)
    _one(signature)(buffer, content, fds)


def _descriptor(buffer: bytearray, value: int, fds: "array[int] | None") -> None:
    if fds is None:
        message = "descriptors cannot be sent here"
        raise TypeError(message)
    fds.append(value)
    buffer += _PADS[-len(buffer) % 4]
    buffer += _length.pack(len(fds) - 1)


def _fixed(kind: str) -> Put:
    size, pack = SIZES[kind], struct.Struct("<" + FIXED[kind]).pack

    def put(buffer: bytearray, value: object, fds: object) -> None:
        buffer += _PADS[-len(buffer) % size]
        buffer += pack(value)

    return put


def _array(inner: str) -> Put:
    put_each, step = _one(inner), SIZES[inner[0]]

    def put(buffer: bytearray, value: object, fds: "array[int] | None") -> None:
        if isinstance(value, dict) and inner[0] == "{":
            value = list(value.items())
        elif isinstance(value, Growing) and value.inner == inner:
            value = bytes(value.data)
        elif not (isinstance(value, list) or (inner == "y" and isinstance(value, bytes))):
            message = f"expected a list, not {value!r}"
            raise TypeError(message)
        buffer += _PADS[-len(buffer) % 4]
        place = len(buffer)
        buffer += b"\0\0\0\0"
        buffer += _PADS[-len(buffer) % step]
        begin = len(buffer)
        if isinstance(value, bytes):
            buffer += value
        else:
            for each in value:
                put_each(buffer, each, fds)
        if len(buffer) - begin > ARRAY_MOST:
            message = "an array is larger than 64 MiB"
            raise SizeLimitError(message)
        _length.pack_into(buffer, place, len(buffer) - begin)

    return put


class Growing:
    """A dictionary that is spelled bit by bit, and then travels as a value of the signature it was made for.

    Where it stands in a message, its first entry lies at a multiple of eight, as it does here.
    """

    def __init__(self, signature: str) -> None:
        self.inner, self.data = signature[1:], bytearray()
        self._put = _one(self.inner)

    def add(self, values: dict[Any, Any]) -> None:
        """Raises what a value that cannot be spelled raises; what came before it is then in `data`."""
        for each in values.items():
            self._put(self.data, each, None)


def _struct(inner: str) -> Put:
    put_all = _values(inner)

    def put(buffer: bytearray, value: tuple[object, ...], fds: "array[int] | None") -> None:
        buffer += _PADS[-len(buffer) % 8]
        put_all(buffer, value, fds)

    return put


SIMPLE: dict[str, Put] = {"s": _text, "o": _path, "g": _signature, "v": _variant, "h": _descriptor}


@lru_cache(maxsize=256)
def _one(signature: str) -> Put:
    """For a signature of one complete type."""
    kind = signature[:1]
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind in FIXED:
        return _fixed(kind)
    if kind == "a":
        return _array(signature[1:])
    if kind in {"(", "{"}:
        return _struct(signature[1:-1])
    message = f"{signature!r} is no signature"
    raise ValueError(message)


@lru_cache(maxsize=256)
def _values(signature: str) -> Put:
    """For any number of types in a row, and as many values."""
    parts = tuple(map(_one, _split(signature)))

    def put(buffer: bytearray, values: Any, fds: "array[int] | None") -> None:  # noqa: ANN401 - as it came
        if not isinstance(values, tuple) or len(values) != len(parts):
            message = f"{values!r} does not travel as {signature!r}"
            raise TypeError(message)
        for put_one, value in zip(parts, values, strict=True):
            put_one(buffer, value, fds)

    return put


def _split(signature: str) -> Iterator[str]:
    """The complete types that stand in a row."""
    begin = depth = 0
    for index, kind in enumerate(signature):
        depth += (kind in "({") - (kind in ")}")
        if depth == 0 and kind != "a":
            yield signature[begin : index + 1]
            begin = index + 1
