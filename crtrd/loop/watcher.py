"""Tells of changes in folders: inotify(7) through libc, for Python has no module for it. One readable descriptor.

What changed is not told: whoever asks looks anew. Folders that are not there are left out.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

IN_CLOSE_WRITE, IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE, IN_DELETE_SELF = 0x8, 0x40, 0x80, 0x100, 0x200, 0x400
CHANGES = IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE | IN_DELETE_SELF
IN_ONLYDIR = 0x0100_0000


class Watcher:
    """Owns `fd`; close it with `close`. Without inotify (limits, no kernel support) it is never readable."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def add(self, folders: Iterable[Path]) -> None:
        """Watch these too; one that is watched already stays so."""
        for folder in folders if self.fd >= 0 else ():
            self._libc.inotify_add_watch(self.fd, os.fsencode(folder), CHANGES | IN_ONLYDIR)

    def drain(self) -> None:
        """Forget what was told so far."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.fd, 65536):
                pass

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
