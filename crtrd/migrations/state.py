"""The registry of state migrations: changes of files on disk that somebody asks for, with `crtrctl migrate`.

Not the boot list: nothing of this happens by itself. A step plans what each file would become; whoever asked sees it
first if they like. A file is replaced whole or not at all, with its mode and owner.
"""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from crtrd.migrations import foreign_keys
from crtrd.names import Places
from crtrd.values import dataclass

LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """What one file is and would become; `left` is what a person has to look at."""

    path: Path
    old: str
    new: str
    changes: tuple[str, ...]
    left: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    id: str
    does: str
    plan: Callable[[Places], Iterator[Plan]]


def _foreign_keys(places: Places) -> Iterator[Plan]:
    for path in sorted((places.config / "crons.d").glob("**/*.toml")):
        text = _text(path)
        found = foreign_keys.rewrite(text) if text is not None else None
        if text is not None and found is not None:
            yield Plan(path, text, found.text, found.changes, found.left)


STEPS: tuple[Step, ...] = (
    Step("foreign-keys", "keys of Kubernetes and systemd in cron files to ours, comments kept", _foreign_keys),
)


def _text(path: Path) -> str | None:
    """None for what is no plain file of reasonable size, or no text: the daemon says what is wrong with those."""
    try:
        facts = path.lstat()
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > LARGEST:
            return None
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def apply(plan: Plan) -> None:
    """The file has its new text, durably, when this returns. Raises OSError, and then it has the old one."""
    draft = plan.path.with_name(f".{plan.path.name}.new")
    facts = plan.path.stat()
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(plan.new.encode())
            if os.geteuid() == 0:
                os.fchown(fd, facts.st_uid, facts.st_gid)
            os.fchmod(fd, stat.S_IMODE(facts.st_mode))
            file.flush()
            os.fsync(fd)
        os.replace(draft, plan.path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    folder = os.open(plan.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
