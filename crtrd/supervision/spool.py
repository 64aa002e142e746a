"""What a stream has said so far, kept where a crash of the daemon does not reach: a memfd in the descriptor store.

    [0, size)   the raw bytes, as long as size <= CAP
    size        the count of all bytes; beyond CAP the file only grows as a hole, so that a flood costs no memory
    position    up to here the lines have been handed out (the file position is shared with the stored duplicate)

The bytes go from the pipe into the file by splice(2), before anything else is done with them: there is no moment at
which they are in neither. Beyond CAP they are only counted, and the hash of a run that outlives a crash is unknown.
"""

import errno
import fcntl
import os

from crtrd.values import dataclass

CAP = 1 << 20
"""Bytes that are kept whole: as much as the journal gets of a run."""
MUTED = 1 << 40
"""A position: no line is handed out any more."""
TORN = fcntl.F_SEAL_SHRINK
"""Set on a spool that could not take everything: its bytes mean nothing any more, its size still does."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an earlier life left: `data` is None where not all of it is known."""

    head: bytes
    total: int
    data: bytes | None
    handed_out: int
    muted: bool


class Spool:
    """Owns `fd` until `close`; a duplicate may be kept elsewhere."""

    __slots__ = ("_torn", "fd", "size")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self._torn = bool(fcntl.fcntl(fd, fcntl.F_GET_SEALS) & TORN)

    @classmethod
    def make(cls, name: str) -> "Spool | None":
        """A new one, whose descriptor shows `name` (memfd_create(2)).

        None where there is no descriptor or memory for it, which costs nothing but the safety.
        """
        try:
            return cls(os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
        except OSError:
            return None

    @property
    def room(self) -> int:
        return 0 if self._torn else CAP - self.size

    def take(self, pipe: int, view: memoryview) -> int:
        """Move what lies in the pipe here and copy it into `view`; 0 at end of file. Raises BlockingIOError."""
        limit = min(len(view), self.room)
        try:
            count = os.splice(pipe, self.fd, limit, offset_dst=self.size, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            raise
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.ENOMEM, errno.EFBIG}:
                raise
            self.take_no_more()
            raise BlockingIOError from error  # nothing was taken; the next try goes past the spool
        os.preadv(self.fd, [view[:count]], self.size)
        self.size += count
        return count

    def take_no_more(self) -> None:
        """From now on bytes are only counted, and those that are here mean nothing."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, TORN)
        self._torn = True

    def count(self, more: int) -> None:
        """Bytes that are not kept."""
        self.size += more
        os.ftruncate(self.fd, self.size)

    def handed_out(self, position: int) -> None:
        os.lseek(self.fd, position, os.SEEK_SET)

    def told(self, head: int) -> Told:
        position = os.lseek(self.fd, 0, os.SEEK_CUR)
        muted = position >= MUTED
        if self._torn:
            return Told(b"", self.size, None, self.size, muted)
        if self.size > CAP:
            return Told(os.pread(self.fd, min(head, CAP), 0), self.size, None, self.size, muted)
        data = os.pread(self.fd, self.size, 0)
        return Told(data[:head], self.size, data, min(position, self.size), muted)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
