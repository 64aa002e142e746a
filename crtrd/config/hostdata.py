"""What the host has that schedules depend on: its zone files and the calendars. Finds and compares, reads no zone.

Zone files are read by zoneinfo, in its own folders; here is only seen whether they are still the same.
"""

import hashlib
import os
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

from crtrd import __version__
from crtrd.config.calendars import calendar_files
from crtrd.names import Places

UNUSED = frozenset({"posix", "right"})
"""Copies of the whole tree that no cron can name."""


def zone_folders() -> list[Path]:
    """Every folder that holds zone files."""
    return [Path(folder) for folder, _, _ in _walk()]


def _walk() -> Iterator[tuple[str, list[str], list[str]]]:
    for root in zoneinfo.TZPATH:
        for folder, below, files in os.walk(root):
            below[:] = sorted(name for name in below if name not in UNUSED)
            yield folder, below, files


def host_mark(places: Places) -> str:
    """A digest of the times and sizes of zone files and calendars: equal marks mean equal instants."""
    digest = hashlib.sha256(__version__.encode())
    for folder, _, files in _walk():
        for name in sorted(files):
            _tell(digest, os.path.join(folder, name))
    for path in calendar_files(places).values():
        _tell(digest, str(path))
    return digest.hexdigest()


def _tell(digest: "hashlib._Hash", path: str) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return
    digest.update(os.fsencode(f"{path}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\0{status.st_size}\0{status.st_ino}\n"))
