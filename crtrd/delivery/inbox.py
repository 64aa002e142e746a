"""Sink `inbox[:OWNER]`: one JSON document a line in OWNER.jsonl, synced; OWNER.cursor names the last one read.

An entry's id is the delivery's, 32 hex digits. An attempt that may not be the first looks whether the entry is there
already, so that an id is never there twice, whatever was killed when. The reader takes whole lines only and refuses
to guess at damaged ones: the boot list sets those aside.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from crtrd.core.sinks import OWNER
from crtrd.values import dataclass

IDENTITY = re.compile(r"[0-9a-f]{32}", re.ASCII)
CHUNK = 1 << 20


class InboxError(Exception):
    """A sentence for whoever asked."""


@dataclass(frozen=True, slots=True)
class Page:
    entries: list[dict[str, object]]
    onward: str
    """Id after which the next page begins, '' at the end."""


def append(folder: Path, owner: str, name: str, message: str, *, first: bool) -> None:
    """Durable at return; once only, however often it is called. `first`: nobody can have tried before. OSError."""
    line = message.encode("utf-8") + b"\n"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{owner}.jsonl"
    fresh = not path.exists()
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not first and _holds(fd, name):
            os.fsync(fd)
            return
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line  # what stands there is damaged already, ours is not to be
        _write(fd, line, size)
        os.fsync(fd)
    finally:
        os.close(fd)
    if fresh:
        _sync(folder)


def _write(fd: int, line: bytes, size: int) -> None:
    """The whole line or nothing: a full disk must not leave half an entry."""
    try:
        written = os.write(fd, line)
        while written < len(line):
            written += os.write(fd, line[written:])
    except OSError:
        os.ftruncate(fd, size)
        raise


def _holds(fd: int, name: str) -> bool:
    mark = f'"id":"{name}"'.encode("ascii")
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        before = b""
        while data := file.read(CHUNK):
            if mark in before + data:
                return True
            before = data[-len(mark):]
    return False


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def read(folder: Path, owner: str, after: str | None, limit: int) -> Page:
    """Entries after the id `after`; None: after the stored cursor, '': from the first. Raises InboxError."""
    _check(owner)
    start = cursor(folder, owner) if after is None else after
    found: list[dict[str, object]] = []
    begun = not start
    for entry in _entries(folder, owner):
        if begun and len(found) == limit:
            return Page(found, str(found[-1]["id"]) if found else start)
        if begun:
            found.append(entry)
        begun = begun or entry["id"] == start
    if not begun:
        raise InboxError(f"cannot read inbox {owner}: it has no entry {start}")
    return Page(found, "")


def _entries(folder: Path, owner: str) -> Iterator[dict[str, object]]:
    path = folder / f"{owner}.jsonl"
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return  # still being written
                if line.strip():
                    yield _entry(line, owner, number)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InboxError(f"cannot read inbox {owner}: {error.strerror}") from error


def _entry(line: bytes, owner: str, number: int) -> dict[str, object]:
    try:
        entry = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or not IDENTITY.fullmatch(entry["id"]):
        raise InboxError(f"cannot read inbox {owner}: line {number} is damaged; the next start sets it aside")
    return entry


def cursor(folder: Path, owner: str) -> str:
    """The id of the last entry that was acknowledged, '' for none."""
    try:
        text = (folder / f"{owner}.cursor").read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InboxError(f"cannot read the cursor of inbox {owner}: {error}") from error
    if text and not IDENTITY.fullmatch(text):
        raise InboxError(f"cannot read the cursor of inbox {owner}: it is no id; the next start repairs it")
    return text


def acknowledge(folder: Path, owner: str, name: str) -> None:
    """Everything up to the entry `name` has been read; '' stands for the last entry there is. Durable at return."""
    _check(owner)
    last = ""
    for entry in _entries(folder, owner):
        last = str(entry["id"])
        if last == name:
            break
    else:
        if name:
            raise InboxError(f"cannot acknowledge entry {name} of inbox {owner}: it has no such entry")
    if not last:
        return
    draft, path = folder / f".{owner}.cursor.new", folder / f"{owner}.cursor"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(last.encode("ascii") + b"\n")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    _sync(folder)


def _check(owner: str) -> None:
    if not OWNER.fullmatch(owner):
        raise InboxError("cannot find the inbox: an owner is 1 to 64 of A-Z a-z 0-9 . _ @ -")
