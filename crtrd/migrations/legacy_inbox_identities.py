"""Step `legacy-inbox-identities`: inboxes of earlier days get identities of 32 lowercase hex digits.

What is wrong with a line is decided in inbox_entry.py, with a cursor in inbox_cursor.py. Here is how files change so
that a crash at any moment loses nothing and doubles nothing, E being OWNER.jsonl.damaged and D the damaged lines:

    1  .OWNER.jsonl.damaged.new = E + D    written and synced
    2  .OWNER.jsonl.new = the good lines   written and synced, the folder too
    3  rename 1 over E                     D is safe; the folder is synced
    4  rename 2 over OWNER.jsonl           D is gone from there; the folder is synced

A `.OWNER.jsonl.new` without a `.OWNER.jsonl.damaged.new` tells that 3 was reached but not 4: D stands at the end of E
already. In all other cases the next run simply begins again.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from crtrd.migrations import inbox_cursor, inbox_entry
from crtrd.migrations.folder import Changes, Folder, Trouble, durable, open_folder
from crtrd.values import dataclass, field

LINES, CURSOR, DAMAGED = ".jsonl", ".cursor", ".damaged"


@dataclass()
class _Findings:
    """What is wrong with one file: repaired lines, damaged ones, and whether the last line lacks its end."""

    repaired: int = 0
    damaged: list[bytes] = field(default_factory=list)
    unended: bool = False

    def __bool__(self) -> bool:
        return bool(self.repaired or self.damaged or self.unended)


def repair(inbox: Path) -> Changes:
    """Repair every inbox of the folder. Raises Trouble when some could not be, ValueError or OSError for the folder."""
    changes = {"files": 0, "entries": 0, "damaged_lines": 0, "cursors": 0}
    reasons: dict[str, str] = {}
    with open_folder(inbox) as folder:
        if folder is not None:
            for owner in _owners(folder, LINES):
                with _noting(reasons, owner, inbox / (owner + LINES)):
                    _repair_lines(folder, owner, changes)
            for owner in _owners(folder, CURSOR):
                if owner not in reasons:  # a cursor points to an entry, which must be in order
                    with _noting(reasons, owner, inbox / (owner + CURSOR)):
                        _repair_cursor(folder, owner, changes)
    done: Changes = dict(changes)
    if reasons:
        raise Trouble(done, list(reasons.values()))
    return done


def _owners(folder: Folder, kind: str) -> list[str]:
    names = [name for name in folder.names() if name.endswith(kind) and not name.startswith(".")]
    return [name.removesuffix(kind) for name in names if folder.is_file(name)]


@contextlib.contextmanager
def _noting(reasons: dict[str, str], owner: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reasons[owner] = f"cannot repair {path}: {error.strerror or error}"


def _repair_lines(folder: Folder, owner: str, changes: dict[str, int]) -> None:
    name = owner + LINES
    findings = _look(folder, owner)
    aside = _already_aside(folder, name, findings.damaged)
    if not (findings and aside):
        _forget_attempt(folder, name)
    if not findings:
        return
    try:
        if findings.damaged and not aside:
            _prepare_aside(folder, name, findings.damaged)
        _prepare_lines(folder, owner)
        folder.sync()
    except OSError:
        if not aside:  # a full disk should at least get the space back
            _forget_attempt(folder, name)
        raise
    if findings.damaged and not aside:
        folder.rename(_new(name + DAMAGED), name + DAMAGED)
        folder.sync()
    folder.rename(_new(name), name)
    folder.sync()
    changes["files"] += 1
    changes["entries"] += findings.repaired
    changes["damaged_lines"] += len(findings.damaged)


def _look(folder: Folder, owner: str) -> _Findings:
    findings = _Findings()
    with folder.open(owner + LINES) as file:
        for number, line in enumerate(file):
            better = inbox_entry.repair(line, owner, number)
            if better is None:
                findings.damaged.append(line)
            else:
                findings.repaired += better is not line
                findings.unended = not line.endswith(b"\n")
    return findings


def _prepare_aside(folder: Folder, name: str, damaged: list[bytes]) -> None:
    with folder.open(name) as model:
        if not folder.exists(name + DAMAGED):
            with folder.create(_new(name + DAMAGED), like=model) as target:
                target.write(_ended(damaged))
                durable(target)
            return
    with folder.open(name + DAMAGED) as old, folder.create(_new(name + DAMAGED), like=old) as target:
        import shutil  # noqa: PLC0415 - 3 ms of each start, for what hardly any comes to

        shutil.copyfileobj(old, target)
        if not _ends_with(folder, name + DAMAGED, b"\n"):
            target.write(b"\n")
        target.write(_ended(damaged))
        durable(target)


def _prepare_lines(folder: Folder, owner: str) -> None:
    name = owner + LINES
    with folder.open(name) as source, folder.create(_new(name), like=source) as target:
        for number, line in enumerate(source):
            better = inbox_entry.repair(line, owner, number)
            if better is not None:
                # without its end the next entry would be appended to the same line
                target.write(better if better.endswith(b"\n") else better + b"\n")
        durable(target)


def _already_aside(folder: Folder, name: str, damaged: list[bytes]) -> bool:
    """Was an earlier run cut off after it had moved these lines aside and before they were gone from the inbox?"""
    interrupted = folder.exists(_new(name)) and not folder.exists(_new(name + DAMAGED))
    return interrupted and folder.exists(name + DAMAGED) and _ends_with(folder, name + DAMAGED, _ended(damaged))


def _ends_with(folder: Folder, name: str, tail: bytes) -> bool:
    """Also true for an empty file asked for a mere line break."""
    with folder.open(name) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - len(tail), 0))
        return file.read() == tail or (size == 0 and tail == b"\n")


def _forget_attempt(folder: Folder, name: str) -> None:
    """Half written, or of lines that are not there any more. The first one left alone would tell of step 3."""
    for leftover in (_new(name), _new(name + DAMAGED)):
        if folder.exists(leftover):
            folder.remove(leftover)
            folder.sync()


def _repair_cursor(folder: Folder, owner: str, changes: dict[str, int]) -> None:
    name = owner + CURSOR
    with folder.open(name) as file:
        old = file.read()
        try:
            new = inbox_cursor.repair(old.decode("ascii"), _entries(folder, owner)).encode("ascii", "strict")
        except UnicodeError:
            return  # not one of ours
        if new == old:
            _forget_attempt(folder, name)
            return
        with folder.create(_new(name), like=file) as target:
            target.write(new)
            durable(target)
    folder.rename(_new(name), name)
    folder.sync()
    changes["cursors"] += 1


def _entries(folder: Folder, owner: str) -> Iterator[inbox_cursor.Entry]:
    if not folder.is_file(owner + LINES):
        return
    with folder.open(owner + LINES) as file:
        for line in file:
            entry = inbox_entry.read(line)
            if entry is not None:
                yield entry


def _new(name: str) -> str:
    return f".{name}.new"


def _ended(lines: list[bytes]) -> bytes:
    return b"".join(line if line.endswith(b"\n") else line + b"\n" for line in lines)
