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
NULL = Path("/dev/null")


Read = Callable[[Mapping[str, object], str], tuple[Definition, str]]
"""(table with its name, path) -> the definition, and the account it means (see control.arming)."""


@dataclass(frozen=True, slots=True)
class FileCron:
    source: str
    definition: Definition
    account: str
    zoned: bool
    """The file names its time zone; otherwise the one stored when it was armed stays."""


@dataclass(frozen=True, slots=True)
class CronFiles:
    crons: tuple[FileCron, ...]
    faults: tuple[ConfigError, ...]
    kept: frozenset[str]
    """Names that faulty files stand for: nothing is removed for them."""
    whole: bool
    """False where a folder could not be looked into: then nothing is removed at all."""
    mark: str


def layers(places: Places) -> tuple[Path, ...]:
    """Strongest first."""
    return tuple(folder / FOLDER for folder in (places.config, *places.vendor))


def mark_of(places: Places, timezone: str) -> str:
    """A digest of what the folders hold, from file times and sizes alone: equal marks need no reading."""
    digest = hashlib.sha256(timezone.encode())
    for folder in (*layers(places), *(folder.with_name(PROFILES) for folder in layers(places))):
        for path in _files(folder):
            with suppress(OSError):
                _tell(digest, path, os.lstat(path))
    return digest.hexdigest()


def _tell(digest: "hashlib._Hash", path: str, status: os.stat_result) -> None:
    told = f"{path}\0{status.st_mtime_ns}\0{status.st_ctime_ns}\0{status.st_size}\0{status.st_ino}\n"
    digest.update(told.encode("utf-8", "surrogateescape"))
    if stat.S_ISLNK(status.st_mode):
        _tell(digest, os.path.realpath(path), os.stat(path))


def _files(folder: Path | str) -> Iterator[str]:
    """Cron files and drop-ins of one layer, by name; missing folders hold nothing."""
    try:
        found = sorted(entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError:
        return
    for name in found:
        path = os.path.join(folder, name)
        if name.endswith(SUFFIX):
            yield path
        elif name.endswith(EDITS):
            yield from (each for each in _files(path) if each.endswith(SUFFIX) and path == os.path.dirname(each))


def load_crons(places: Places, timezone: str, read: Read | None = None) -> CronFiles:
    """Read every layer. `timezone` is the host's. Never raises for what a file holds."""
    read = read or plain_reader(timezone)
    mark = mark_of(places, timezone)
    faults: list[ConfigError] = []
    mains: dict[str, Path] = {}
    edits: dict[str, dict[str, Path]] = {}
    whole = True
    for folder in reversed(layers(places)):
        if fault := _unreadable(folder):
            faults.append(fault)
            whole = False
        for path in map(Path, _files(folder)):
            if path.parent == folder:
                mains[path.name.removesuffix(SUFFIX)] = path
            else:
                edits.setdefault(path.parent.name.removesuffix(EDITS), {})[path.name] = path
    found: list[FileCron] = []
    kept: set[str] = set()
    for name, path in sorted(mains.items()):
        try:
            cron = _load(name, path, [edits[name][each] for each in sorted(edits.get(name, {}))], read)
        except ConfigError as error:
            faults.append(error)
            kept.add(name)
        else:
            found += [cron] if cron else []
    return CronFiles(tuple(found), tuple(faults), frozenset(kept), whole, mark)


def plain_reader(timezone: str) -> Read:
    """Reads what the file itself says: no profile, no account."""
    return lambda table, where: (read_definition(table, where=where, timezone=timezone), "")


def _unreadable(folder: Path) -> ConfigError | None:
    try:
        next(iter(folder.iterdir()), None)
    except FileNotFoundError:
        return None
    except OSError as error:
        return ConfigError(str(folder), "", error.strerror or str(error))
    return None


def _masks(path: Path) -> bool:
    try:
        status = path.stat()
        return (stat.S_ISREG(status.st_mode) and status.st_size == 0) or (path.is_symlink() and path.resolve() == NULL)
    except (OSError, RuntimeError):
        return False


def _load(name: str, path: Path, edits: list[Path], read: Read) -> FileCron | None:
    """The cron of one file with its drop-ins; None where it is masked. Raises ConfigError naming file and line."""
    if _masks(path):
        return None
    if not NAME.fullmatch(name):
        raise ConfigError(str(path), "", "its name without .toml is no name of a cron")
    text = read_text(path)
    table = read_table(text, str(path))
    texts = [(path, text, table)]
    for edit in edits:
        if not _masks(edit):
            text = read_text(edit)
            texts.append((edit, text, read_table(text, str(edit))))
            table = merge_edit(table, texts[-1][2])
    if "name" in table:
        raise ConfigError(located(str(path), text, "name"), "name", "the name of a cron is that of its file")
    try:
        definition, account = read({"name": name, **table}, str(path))
        compiled(definition, 0, name)
    except ConfigError as error:
        raise _placed(error, texts) from error
    except ScheduleError as error:
        key = error.field if error.field in BY_NAME else "schedule"
        told = error.reason if key == error.field else f"{error.text[:80]!r}: {error.field}: {error.reason}"
        raise _placed(ConfigError(str(path), key, told), texts) from error
    return FileCron(str(path), definition, account, "timezone" in table)


def _placed(error: ConfigError, texts: list[tuple[Path, str, dict[str, object]]]) -> ConfigError:
    """The same fault at the line that sets its key: in the last file that does."""
    for path, text, table in reversed(texts):
        if error.key in table:
            return ConfigError(located(str(path), text, error.key), error.key, error.reason)
    return error


def verify_file(path: Path, timezone: str) -> Definition:
    """Read one cron file as the daemon would, without drop-ins. Raises ConfigError."""
    cron = _load(path.name.removesuffix(SUFFIX), path, [], plain_reader(timezone))
    if cron is None:
        raise ConfigError(str(path), "", "it is empty, which masks a cron of that name")
    return cron.definition
