"""Whether the open ledger still lies in its place, and what becomes of its content when it does not.

SQLite goes on writing into a file that was removed, renamed or replaced, and what is written then is gone with the
process; a log that stays behind beside another file is worse than none (sqlite.org/howtocorrupt.html, sections 1.4
and 2.4). So each transaction looks, which costs two calls of stat(2), and the content is saved while it is still open.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from crtrd.errors import LedgerSpoiled
from crtrd.ledger.damage import COMPANIONS, beside, stamp, sync_folder

Identity = tuple[int, int]


class Place:
    """Of one open file. `note` once it is open; then `look` before each writing, and `save` where that raises."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = beside(path, "-wal")
        self._ours: dict[Path, Identity | None] = {}

    def note(self) -> None:
        """Remember which files are open."""
        files = (self._path, *(beside(self._path, end) for end in COMPANIONS))
        self._ours = {path: _identity(_stat(path)) for path in files}

    def look(self) -> int:
        """The size of the log in bytes. Raises LedgerSpoiled where ledger or log are not those that are open."""
        self._look_at(self._path)
        log = self._look_at(self._log)
        return log.st_size if log else 0

    def _look_at(self, path: Path) -> os.stat_result | None:
        found = _stat(path)
        if _identity(found) != self._ours[path]:
            became = "replaced" if found else "removed"
            raise LedgerSpoiled(f"ledger {self._path} was spoiled: {path.name} was {became} while in use")
        return found

    def save(self, connection: sqlite3.Connection) -> str:
        """Write what `connection` sees to where the next life finds it, or beside a file that took its place.

        Returns what was done, for people. The saved file is durable and whole. Raises OSError, sqlite3.Error.
        """
        new = beside(self._path, ".new")
        new.unlink(missing_ok=True)
        os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(new)) as target:
            connection.backup(target)
        for path, identity in self._ours.items():
            if path != self._path and _identity(_stat(path)) == identity:
                path.unlink()  # all of it is in the copy, and it must not meet another ledger
        foreign = _identity(_stat(self._path)) not in {None, self._ours[self._path]}
        final = beside(self._path, f".replaced-{stamp()}") if foreign else self._path
        new.rename(final)
        sync_folder(final)
        return f"what it held is in {final}" if foreign else "what it held was put back"


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _identity(found: os.stat_result | None) -> Identity | None:
    return (found.st_dev, found.st_ino) if found else None
