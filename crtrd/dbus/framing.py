"""Bytes in, messages out: cuts the stream of a bus connection into messages, one bad one at a time.

jeepney's own Parser gives up on the stream when one message cannot be parsed; here such a message, and one that is
too large to be worth parsing, becomes a `Damaged` with its header, so that its sender gets an error and nobody else
notices.
"""

import struct
from collections.abc import Iterator

from jeepney.low_level import Header, Message, calc_msg_size

from crtrd.values import dataclass

BODY_MOST = 1 << 20
"""Bytes of arguments that a call may carry. The largest legal definition is far below."""
_FIXED = 16
_HEADER_MOST = 1 << 17
# Descriptors that came along are left to the kernel to close (recv(2) without a control buffer): no call of ours takes
# one. They stand in values as None; newer buses put one into every answer about a caller.
_NO_FDS = (None,) * 253
_FAULTS = (ValueError, KeyError, IndexError, TypeError, AssertionError, RecursionError, struct.error)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A message whose body was not read. `header` is None where not even that could be."""

    header: Header | None
    reason: str
    too_large: bool = False
    body: tuple[object, ...] = ()


class BrokenStream(Exception):
    """What arrives is no message at all: the connection is of no use any more."""


class Framing:
    """Feed what was received; iterate over what it completes. Raises BrokenStream."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[Message | Damaged]:
        self._buffer += data
        while True:
            if self._skip:
                dropped = min(self._skip, len(self._buffer))
                del self._buffer[:dropped]
                self._skip -= dropped
            if self._skip or len(self._buffer) < _FIXED:
                return
            found = self._next()
            if found is None:
                return
            yield found

    def _next(self) -> Message | Damaged | None:
        header_size, size = self._sizes()
        if size - header_size > BODY_MOST:
            if len(self._buffer) < header_size:
                return None
            header = _header(bytes(self._buffer[:header_size]))
            del self._buffer[:header_size]
            self._skip = size - header_size
            return Damaged(header, f"more than {BODY_MOST} bytes of arguments", too_large=True)
        if len(self._buffer) < size:
            return None
        raw = bytes(self._buffer[:size])
        del self._buffer[:size]
        try:
            return Message.from_buffer(raw, fds=_NO_FDS)
        except _FAULTS as fault:
            return Damaged(_header(raw), f"{type(fault).__name__}: {fault}")

    def _sizes(self) -> tuple[int, int]:
        """Bytes of the header with its padding, and of the whole message."""
        start = bytes(self._buffer[:_FIXED])
        try:
            size = calc_msg_size(start)
        except _FAULTS as fault:
            message = f"the bus sent something that is no message: {start!r}"
            raise BrokenStream(message) from fault
        (body,) = struct.unpack("<I" if start[:1] == b"l" else ">I", start[4:8])
        if size - body > _HEADER_MOST:
            message = f"the bus sent a header of {size - body} bytes"
            raise BrokenStream(message)
        return size - body, size


def _header(raw: bytes) -> Header | None:
    try:
        return Header.from_buffer(raw)[0]
    except _FAULTS:
        return None
