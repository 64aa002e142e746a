"""Step `state-modes`: the state folder and what is in it are for the daemon's own user: 0700, files 0600.

Output of other people's commands stands in there. A folder that belongs to somebody else is refused and nothing in it
is touched; symlinks are not followed.
"""

import os
import stat
from pathlib import Path

from crtrd.migrations.folder import Changes, Trouble, open_folder, refuse_foreign

FOLDER, FILE = 0o700, 0o600


def repair(state: Path) -> Changes:
    """Raises ValueError or OSError for the state folder itself, Trouble when a part of it could not be done."""
    changes = {"folders": 0, "files": 0}
    reasons: list[str] = []
    with open_folder(state) as folder:
        if folder is not None:
            changes["folders"] += _set_mode(folder.fd, FOLDER)
            _repair_inside(folder.fd, state, changes, reasons)
    done: Changes = dict(changes)
    if reasons:
        raise Trouble(done, reasons)
    return done


def _repair_inside(folder: int, path: Path, changes: dict[str, int], reasons: list[str]) -> None:
    for name in sorted(os.listdir(folder)):
        try:
            # O_PATH reaches also what may not be read, and opens no FIFO (open(2))
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            continue
        try:
            found = os.fstat(fd)
            if stat.S_ISREG(found.st_mode):
                changes["files"] += _set_mode(fd, FILE)
            elif stat.S_ISDIR(found.st_mode):
                refuse_foreign(path / name, found)
                changes["folders"] += _set_mode(fd, FOLDER)
                inside = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
                try:
                    _repair_inside(inside, path / name, changes, reasons)
                finally:
                    os.close(inside)
        except OSError as error:
            reasons.append(f"cannot set the mode of {path / name}: {error.strerror or error}")
        except ValueError as error:
            reasons.append(str(error))
        finally:
            os.close(fd)


def _set_mode(fd: int, mode: int) -> bool:
    """True when the mode was another one. fchmod(2) refuses O_PATH descriptors, their name in /proc does not."""
    if stat.S_IMODE(os.fstat(fd).st_mode) == mode:
        return False
    os.chmod(f"/proc/self/fd/{fd}", mode)
    return True
