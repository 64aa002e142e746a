"""A ledger file that is none any more: recognised without writing to it, and set aside under a name that tells when.

Looked for at every start: an empty file, a foreign or cut one, a structure that SQLite refuses. Every page is read only
where the last life did not end in order (its write-ahead log is still there) and the file is not too large for that,
and where a life left a mark because SQLite called the file damaged.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from crtrd.loop.clock import Clock
from crtrd.schedule.spans import format_instant

MAGIC = b"SQLite format 3\0"
CORRUPT, NOT_A_DATABASE = 11, 26  # sqlite3.h; Python has them from 3.11 on as constants of other names
READ_WHOLE = 64 << 20
"""Bytes up to which the whole file is read: a tenth of a second."""
COMPANIONS = ("-wal", "-shm")
SUSPECT = ".suspect"
"""Ends the name of the mark that a life leaves beside a ledger that SQLite called damaged."""


def beside(path: Path, end: str) -> Path:
    """The file next to the ledger whose name has `end` added."""
    return path.with_name(path.name + end)


def damage_of(path: Path) -> str:
    """What is wrong with the file, '' where nothing is, or where there is none. Raises OSError."""
    if not path.exists():
        return ""
    size, log = path.stat().st_size, beside(path, "-wal")
    unclean = log.exists() and log.stat().st_size > 0
    if not size:
        return "" if unclean else "it is empty"
    with path.open("rb") as file:
        head = file.read(100)
    if not head.startswith(MAGIC):
        return "it is no SQLite file"
    page = int.from_bytes(head[16:18]) or 65536  # the value 1 stands for 65536, fileformat2.html
    cut = not unclean and int.from_bytes(head[28:32]) * (65536 if page == 1 else page) > size
    if cut:
        return "it is cut off"
    suspect = beside(path, SUSPECT).exists()
    check = "integrity_check(1)" if suspect else "quick_check(1)" if unclean and size <= READ_WHOLE else ""
    return _look_inside(path, check)


def _look_inside(path: Path, check: str) -> str:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as looking:
            looking.execute("SELECT count(*) FROM sqlite_master").fetchone()
            found = looking.execute(f"PRAGMA {check}").fetchone()[0] if check else "ok"
    except sqlite3.DatabaseError as error:
        return str(error) if is_damage(error) else ""  # anything else is told where it is opened
    return "" if found == "ok" else str(found)


def is_damage(error: BaseException) -> bool:
    """Whether SQLite says of the file that it is none of its own, or none any more."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in {CORRUPT, NOT_A_DATABASE}


def is_illegible(error: BaseException) -> bool:
    """Whether a text in the ledger is no UTF-8: Python's sqlite3 then refuses the whole answer."""
    return "Could not decode to UTF-8" in " ".join(str(part) for part in error.args)


def read_anything(connection: sqlite3.Connection) -> None:
    """From now on such a text is read as well as can be, and spoils its own row alone. Costs each text a call."""
    connection.text_factory = lambda data: data.decode("utf-8", "replace")


def set_aside(path: Path) -> Path:
    """Rename the file and what belongs to it; the new name. Raises OSError."""
    target = beside(path, f".damaged-{stamp()}")
    for end in COMPANIONS:
        if beside(path, end).exists():
            beside(path, end).rename(beside(target, end))
    path.rename(target)
    sync_folder(path)
    return target


def stamp() -> str:
    """The time for a file's name, to the second."""
    return format_instant(Clock().wall()).replace("-", "").replace(":", "").partition(".")[0].rstrip("Z") + "Z"


def sync_folder(path: Path) -> None:
    """Make the name of `path` durable. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
