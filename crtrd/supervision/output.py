"""One stream of one run: its head, its hash, its count, and its lines for the journal. Bytes; nothing is decoded here.

The reader never waits and does a bounded piece of work at a time, so that a flood from one run leaves the loop to
others. The end of a run is not the end of its stream: a survivor may hold the pipe open for ever. So at the end what
lies in the pipe is taken (all that was written before the exit) and the pipe is closed. What was read is kept in a
spool (`spool.py`) for the case that the daemon dies.
"""

import fcntl
import hashlib
import os
import struct
import termios
from collections.abc import Callable

from crtrd.core.occurrence import Output
from crtrd.supervision.masking import Masking, masked
from crtrd.supervision.spool import MUTED, Spool

CHUNK = 256 * 1024
"""Bytes read and hashed in one turn of the loop: well under a millisecond."""
PIPE_SIZE = 1024 * 1024
TAIL = 1024
LONGEST_LINE = 48 * 1024
"""journald's own LineMax=: a longer line is cut here, so that a stream without newlines needs no memory."""

_buffer = bytearray(CHUNK)
_view = memoryview(_buffer)


class Stream:
    """Owns `fd`, the non-blocking read end of a pipe, and its spool until `close`.

    `lines` gets complete lines, without newline, and says whether some of them wait to be written.
    """

    __slots__ = (
        "_grown", "_hash", "_head", "_lines", "_partial", "_room", "_spool", "_tail", "_total", "_whole", "fd",
        "masking",
    )  # fmt: skip

    def __init__(self, fd: int, room: int, lines: Callable[[list[bytes]], object] | None) -> None:
        self.fd = fd
        self.masking: Masking | None = None
        self._room = room
        self._lines = lines
        self._head = bytearray()
        self._total = 0
        self._hash: hashlib._Hash | None = None
        self._whole = True
        self._partial = b""
        self._tail = b""
        self._grown = False
        self._spool: Spool | None = None

    @property
    def spool(self) -> int:
        """The spool's descriptor, -1 where there is none."""
        return self._spool.fd if self._spool is not None else -1

    def begin_spool(self, name: str) -> None:
        """Keep what is read in a second place, for another life; its descriptor is `spool`."""
        self._spool = Spool.make(name)

    def go_on(self, spool: int) -> None:
        """Take up what an earlier life has read, from its spool, which is ours now; lines not handed out come again."""
        self._spool = Spool(spool)
        told = self._spool.told(self._room)
        self._head, self._total = bytearray(told.head), told.total
        self._whole = told.data is not None
        if told.muted:
            self._lines = None
        if told.data:
            self._tail = told.data[-TAIL:]
            self._hash = hashlib.sha256(told.data)
            if self.masking is not None:
                self.masking.feed(told.data)
            if self._lines is not None:
                self._split(told.data[told.handed_out :])

    def read(self, limit: int = CHUNK) -> int | None:
        """Take up to `limit` bytes; 0 at end of file, None when nothing is there."""
        try:
            count = self._fetch(min(limit, CHUNK))
        except BlockingIOError:
            return None
        if count:
            self._take(_view[:count])
        return count

    def _fetch(self, limit: int) -> int:
        """Into the spool first, while it has room."""
        if self._spool is not None and self._spool.room > 0:
            return self._spool.take(self.fd, _view[:limit])
        count = os.readv(self.fd, [_view[:limit]])
        if self._spool is not None and count:
            self._spool.count(count)
        return count

    def _waiting(self) -> int:
        """Bytes that lie in the pipe (FIONREAD, pipe(7))."""
        count: int = struct.unpack("i", fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0"))[0]
        return count

    def drain(self) -> None:
        """Take what lies in the pipe now, and not what a survivor adds meanwhile."""
        if self.fd < 0:
            return
        left = self._waiting()
        while left > 0 and (count := self.read(left)):
            left -= count

    def mute(self) -> None:
        """Hand out no more lines, also not in a later life."""
        self._lines, self._partial = None, b""
        if self._spool is not None:
            self._spool.handed_out(MUTED)

    def detach(self) -> tuple[int, int]:
        """Give up (pipe, spool) as they are, -1 where there is none: the caller's now."""
        fds, self.fd, self._spool, self._partial = (self.fd, self.spool), -1, None, b""
        return fds

    def close(self) -> None:
        """Close the pipe and hand out a last line that has no newline. Safe to call twice."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self._lines is not None and self._partial:
            partial, self._partial = self._partial, b""
            self._hand_out([partial])
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def output(self) -> Output:
        if not self._whole:
            return Output(bytes(self._head), self._total, "")
        if self._hash is None:
            return Output()
        return masked(Output(bytes(self._head), self._total, self._hash.hexdigest()), self.masking)

    def last_line(self) -> bytes:
        """The last line that is not empty, of the last TAIL bytes."""
        lines = self._tail.split(b"\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), b"")

    def _take(self, data: memoryview) -> None:
        if self._hash is None:
            self._hash = hashlib.sha256()
        self._hash.update(data)
        if self.masking is not None:
            self.masking.feed(bytes(data))
        if len(self._head) < self._room and (self._whole or self._head):
            self._head += data[: self._room - len(self._head)]
        self._tail = (self._tail + data[-TAIL:])[-TAIL:]
        self._total += len(data)
        if not self._grown and len(data) >= 65536:  # noqa: PLR2004 - a full pipe of the default size
            self._grow()
        if self._lines is not None:
            self._split(bytes(data))

    def _grow(self) -> None:
        """A busy writer gets a bigger pipe: fewer switches. Beyond the user's share it is refused (pipe(7))."""
        self._grown = True
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            return

    def _split(self, data: bytes) -> None:
        lines = (self._partial + data).split(b"\n")
        self._partial = lines.pop()
        while len(self._partial) > LONGEST_LINE:
            lines.append(self._partial[:LONGEST_LINE])
            self._partial = self._partial[LONGEST_LINE:]
        if lines:
            self._hand_out(lines)

    def _hand_out(self, lines: list[bytes]) -> None:
        waits = self._lines(lines) if self._lines is not None else False
        if not waits and self._lines is not None and self._spool is not None:  # not muted meanwhile
            self._spool.handed_out(self._total - len(self._partial))
