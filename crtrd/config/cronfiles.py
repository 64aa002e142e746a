"""Crons as files: which files define which crons, over all layers, with masks and drop-in edits.

    /etc/crtrd/crons.d/NAME.toml   over   /run/crtrd/crons.d   over   /usr/lib/crtrd/crons.d
    NAME.toml.d/*.toml in every layer, by file name, laid over NAME.toml

A file that is empty, or a link to /dev/null, masks those of its name below. A fault is one file's: every other file
is taken, and the cron of a faulty one is named in `kept`, for its last good definition goes on.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from crtrd.config.cronfile import located, merge_edit, read_table
from crtrd.config.keys import BY_NAME
from crtrd.config.loader import read_text
from crtrd.config.reader import NAME, read_definition
from crtrd.core.cron import Definition
from crtrd.core.timetable import compiled
from crtrd.errors import ConfigError, ScheduleError
from crtrd.names import Places
from crtrd.values import dataclass

FOLDER, SUFFIX, EDITS = "crons.d", ".toml", ".toml.d"
PROFILES = "profiles.d"  # whose defaults are part of what a cron file says
PORTION = 500
"""Files whose crons become one transaction: few enough that nobody waits long for the ledger, many for a commit."""
LOOKS, LOADS = 1000, 10
"""Files after which a look at them, or their reading, may be interrupted: some milliseconds each."""


Read = Callable[[Mapping[str, object], str, str], tuple[Definition, str]]
"""(table with its name, path, the host's zone) -> the definition, and the account it means (see control.arming)."""


@dataclass(frozen=True, slots=True)
class FileCron:
    source: str
    definition: Definition
    account: str
    zoned: bool
    """The file names its time zone; otherwise the one stored when it was armed stays."""


@dataclass(frozen=True, slots=True)
class CronFiles:
    """What was read of the names later than `after` up to `upto` ('': from the first, to the last)."""

    crons: tuple[FileCron, ...]
    faults: tuple[ConfigError, ...]
    kept: frozenset[str]
    """Names that faulty files stand for: nothing is removed for them."""
    whole: bool
    """False where a folder could not be looked into: then nothing is removed at all."""
    mark: str
    after: str = ""
    upto: str = ""


def layers(places: Places) -> tuple[Path, ...]:
    """Strongest first."""
    return tuple(folder / FOLDER for folder in (places.config, *places.vendor))


def mark_of(places: Places, timezone: str) -> str:
    """A digest of what the folders hold, from file times and sizes alone: equal marks need no reading."""
    return next(mark for mark in marking(places, timezone) if mark is not None)


def marking(places: Places, timezone: str) -> Iterator[str | None]:
    """The same in small steps: a hundred thousand files take a while. Yields None after some, the mark at the end.

    The digests of the files are added up, so that neither their order matters nor all of them are held.
    """
    total = int.from_bytes(_digest(timezone.encode()))
    for folder in (*layers(places), *(folder.with_name(PROFILES) for folder in layers(places))):
        for number, path in enumerate(_files(folder), 1):
            with suppress(OSError):
                total += _told(path, os.lstat(path))
            if number % LOOKS == 0:
                yield None
    yield _digest(str(total).encode()).hex()


def _told(path: str, status: os.stat_result) -> int:
    told = f"{path}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\0{status.st_size}\0{status.st_ino}\n"
    total = int.from_bytes(_digest(told.encode("utf-8", "surrogateescape")))
    if stat.S_ISLNK(status.st_mode):
        total += _told(os.path.realpath(path), os.stat(path))
    return total


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _files(folder: Path | str) -> Iterator[str]:
    """Cron files and drop-ins of one layer, in no order; missing folders hold nothing."""
    try:
        entries = os.scandir(folder)
    except OSError:
        return
    with entries:
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if name.endswith(SUFFIX):
                yield entry.path
            elif name.endswith(EDITS):
                path = entry.path
                yield from (each for each in _files(path) if each.endswith(SUFFIX) and path == os.path.dirname(each))


def load_crons(places: Places, timezone: str, read: Read | None = None) -> CronFiles:
    """Read every layer, all at once. `timezone` is the host's. Never raises for what a file holds."""
    found = [each for each in loading(places, timezone, read) if each is not None]
    return CronFiles(
        tuple(cron for each in found for cron in each.crons), tuple(fault for each in found for fault in each.faults),
        frozenset[str]().union(*(each.kept for each in found)), found[-1].whole, found[-1].mark)


def loading(places: Places, timezone: str, read: Read | None = None) -> Iterator[CronFiles | None]:
    """The same in small steps. Yields None after a few files, and by name what `PORTION` of them hold, at least once.

    The mark is that of the last one: until it was taken in, not all was.
    """
    read = read or _read_plainly
    mark = ""
    for step in marking(places, timezone):
        mark = step or ""
        yield None
    listing = _Listing()
    for folder in reversed(layers(places)):
        yield from listing.look_into(folder)
    names = sorted(listing.mains)
    after = ""
    for first in range(0, max(len(names), 1), PORTION):
        last = first + PORTION >= len(names)
        portion = _Portion(names[first : first + PORTION])
        for number, name in enumerate(portion.names, 1):
            portion.take(name, listing, read, timezone)
            if number % LOADS == 0:
                yield None
        faults = (*listing.faults, *portion.faults) if last else tuple(portion.faults)
        upto = "" if last else portion.names[-1]
        kept = frozenset(portion.kept)
        yield CronFiles(tuple(portion.found), faults, kept, listing.whole, mark if last else "", after, upto)
        after = upto


class _Listing:
    """Which files there are: for each name the strongest, and its drop-ins by their names."""

    def __init__(self) -> None:
        self.mains: dict[str, str] = {}
        """The folder of each name."""
        self.edits: dict[str, dict[str, str]] = {}
        self.faults: list[ConfigError] = []
        self.whole = True

    def look_into(self, folder: Path) -> Iterator[None]:
        if fault := _unreadable(folder):
            self.faults.append(fault)
            self.whole = False
        top = str(folder)
        for number, path in enumerate(_files(folder), 1):
            above, _, name = path.rpartition("/")
            if above != top:
                self.edits.setdefault(os.path.basename(above).removesuffix(EDITS), {})[name] = path
            elif NAME.fullmatch(name.removesuffix(SUFFIX)):
                self.mains[name.removesuffix(SUFFIX)] = top
            elif not _masks(path):
                self.faults.append(ConfigError(path, "", "its name without .toml is no name of a cron"))
            if number % LOOKS == 0:
                yield None

    def path_of(self, name: str) -> str:
        return f"{self.mains[name]}/{name}{SUFFIX}"

    def edits_of(self, name: str) -> list[str]:
        found = self.edits.get(name, {})
        return [found[each] for each in sorted(found)]


class _Portion:
    """What some of the names turn out to be."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.found: list[FileCron] = []
        self.faults: list[ConfigError] = []
        self.kept: list[str] = []

    def take(self, name: str, listing: _Listing, read: Read, timezone: str) -> None:
        try:
            cron = _load(name, listing.path_of(name), listing.edits_of(name), read, timezone)
        except ConfigError as error:
            self.faults.append(error)
            self.kept.append(name)
        else:
            self.found += [cron] if cron else []


def _read_plainly(table: Mapping[str, object], where: str, timezone: str) -> tuple[Definition, str]:
    """What the file itself says: no profile, no account."""
    return read_definition(table, where=where, timezone=timezone), ""


def _unreadable(folder: Path) -> ConfigError | None:
    try:
        next(iter(folder.iterdir()), None)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ConfigError(str(folder), "", error.strerror or str(error))
    return None


def _masks(path: str) -> bool:
    """An empty file, or a link to one or to /dev/null."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(path)
            if stat.S_ISCHR(status.st_mode):
                return os.path.realpath(path) == os.devnull
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def _load(name: str, path: str, edits: list[str], read: Read, timezone: str) -> FileCron | None:
    """The cron of one file with its drop-ins; None where it is masked. Raises ConfigError naming file and line."""
    if _masks(path):
        return None
    if not NAME.fullmatch(name):
        raise ConfigError(path, "", "its name without .toml is no name of a cron")
    text = read_text(path)
    table = read_table(text, path)
    texts = [(path, text, table)]
    for edit in edits:
        if not _masks(edit):
            text = read_text(edit)
            texts.append((edit, text, read_table(text, edit)))
            table = merge_edit(table, texts[-1][2])
    if "name" in table:
        raise ConfigError(located(path, text, "name"), "name", "the name of a cron is that of its file")
    try:
        definition, account = read({"name": name, **table}, path, timezone)
        compiled(definition, 0, name)
    except ConfigError as error:
        raise _placed(error, texts) from error
    except ScheduleError as error:
        key = error.field if error.field in BY_NAME else "schedule"
        told = error.reason if key == error.field else f"{error.text[:80]!r}: {error.field}: {error.reason}"
        raise _placed(ConfigError(path, key, told), texts) from error
    return FileCron(path, definition, account, "timezone" in table)


def _placed(error: ConfigError, texts: list[tuple[str, str, dict[str, object]]]) -> ConfigError:
    """The same fault at the line that sets its key: in the last file that does."""
    for path, text, table in reversed(texts):
        if error.key in table:
            return ConfigError(located(path, text, error.key), error.key, error.reason)
    return error


def verify_file(path: Path, timezone: str) -> Definition:
    """Read one cron file as the daemon would, without drop-ins. Raises ConfigError."""
    cron = _load(path.name.removesuffix(SUFFIX), str(path), [], _read_plainly, timezone)
    if cron is None:
        raise ConfigError(str(path), "", "it is empty, which masks a cron of that name")
    return cron.definition
