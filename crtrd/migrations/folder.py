"""One folder under repair: opened once, and everything in it reached through that descriptor. Never follows a symlink.

A folder that belongs to somebody else is refused: whoever owns it could exchange its files under our hands.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

Changes = dict[str, str | int]


class Trouble(Exception):
    """A step could do only a part of its work: `changes` is that part, the text says what is left and why."""

    def __init__(self, changes: Changes, reasons: list[str]) -> None:
        super().__init__("; ".join(reasons))
        self.changes = changes


class Folder:
    """Owns its descriptor; use `open_folder`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd

    def names(self) -> list[str]:
        return sorted(os.listdir(self.fd))

    def exists(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def is_file(self, name: str) -> bool:
        """A regular file, not a symlink to one."""
        try:
            return stat.S_ISREG(os.stat(name, dir_fd=self.fd, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def open(self, name: str) -> BinaryIO:
        # O_NONBLOCK: should it have become a FIFO since, the open must not hang
        return os.fdopen(self._open(name, os.O_RDONLY | os.O_NONBLOCK), "rb")

    def create(self, name: str, like: BinaryIO) -> BinaryIO:
        """An empty file with the mode and owner of `like`."""
        fd = self._open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        model, made = os.fstat(like.fileno()), os.fstat(fd)
        try:
            if (model.st_uid, model.st_gid) != (made.st_uid, made.st_gid):
                os.fchown(fd, model.st_uid, model.st_gid)
            os.fchmod(fd, stat.S_IMODE(model.st_mode))
        except OSError:
            os.close(fd)
            raise
        return os.fdopen(fd, "wb")

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self.fd)

    def sync(self) -> None:
        """Make the names durable: what was created, renamed and removed up to here (fsync(2))."""
        os.fsync(self.fd)

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self.fd)


@contextlib.contextmanager
def open_folder(path: Path) -> Iterator[Folder | None]:
    """The folder, or None where there is none. Raises OSError for a symlink, ValueError for somebody else's folder."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        refuse_foreign(path, os.fstat(fd))
        yield Folder(path, fd)
    finally:
        os.close(fd)


def refuse_foreign(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        message = f"cannot use {path}: it belongs to user {found.st_uid}, not to {os.geteuid()}"
        raise ValueError(message)


def durable(file: BinaryIO) -> None:
    """Return when what was written is on the disk."""
    file.flush()
    os.fsync(file.fileno())
