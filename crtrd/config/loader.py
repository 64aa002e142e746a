"""The door to files of this room: reads crtrd.toml with its drop-ins, the text of any other file, the host's zone.

What crons.d holds is `cronfiles`' matter, which looks into folders and reads through here.
"""

import contextlib
import errno
import json
import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path

from crtrd.config import toml
from crtrd.config.profile import Profile, parse_environment, read_profile
from crtrd.config.resources import Host
from crtrd.config.settings import Settings, merge
from crtrd.errors import ConfigError
from crtrd.names import Places

SIZE_LIMIT = 1 << 20
LAST_GOOD = "settings.json"
ZONE_FOLDERS = ("/usr/share/zoneinfo/", "/usr/lib/zoneinfo/", "/etc/zoneinfo/")


def load_settings(places: Places) -> Settings:
    """crtrd.toml, then crtrd.toml.d/*.toml by name. A missing file is no fault. Raises ConfigError."""
    settings, tables = Settings(), {}
    for path in _settings_files(places):
        table = read_toml(path)
        if table is not None:
            settings = merge(settings, table, str(path))
            tables[str(path)] = table
    _remember(places, tables)
    return settings


def load_last_good(places: Places) -> tuple[Settings, list[ConfigError]]:
    """The same with each file at fault replaced by what it said when it was last good; and the faults."""
    settings, faults, good = Settings(), [], _remembered(places)
    for path in _settings_files(places):
        try:
            table = read_toml(path)
            settings = merge(settings, table or {}, str(path))
        except ConfigError as error:
            faults.append(error)
            with contextlib.suppress(ConfigError):  # of an older crtrd, perhaps
                settings = merge(settings, good.get(str(path), {}), str(path))
    return settings, faults


def _settings_files(places: Places) -> list[Path]:
    return [places.config / "crtrd.toml", *sorted((places.config / "crtrd.toml.d").glob("*.toml"))]


def _remember(places: Places, tables: dict[str, dict[str, object]]) -> None:
    """Keep what the files said, for a life that finds one of them broken. Not durable: a loss costs the defaults."""
    text = json.dumps(tables, sort_keys=True, default=str)
    kept = places.state / LAST_GOOD
    with contextlib.suppress(OSError):
        places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if kept.exists() and kept.read_text(encoding="utf-8") == text:
            return
        draft = kept.with_name(kept.name + ".tmp")
        draft.write_text(text, encoding="utf-8")
        draft.replace(kept)


def _remembered(places: Places) -> dict[str, dict[str, object]]:
    try:
        tables = json.loads((places.state / LAST_GOOD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(tables, dict):
        return {}
    return {path: table for path, table in tables.items() if isinstance(table, dict)}


def read_toml(path: Path) -> dict[str, object] | None:
    """The tables of a TOML file, None where there is no such file. Raises ConfigError."""
    if not os.path.lexists(path):
        return None
    try:
        return toml.parse(read_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(str(path), "", str(error)) from error


READ_SIZE = 65536
"""Most files are far smaller than the limit, for which a buffer would be made each time."""


def read_bytes(path: Path | str) -> bytes:
    """The whole of a plain file of reasonable size; never waits for a pipe. Raises ConfigError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "it is not a plain file"
                raise ConfigError(str(path), "", why)
            data = b""
            while len(data) <= SIZE_LIMIT and (part := os.read(fd, READ_SIZE)):
                data += part
        finally:
            os.close(fd)
    except OSError as error:
        raise ConfigError(str(path), "", error.strerror or str(error)) from error
    if len(data) > SIZE_LIMIT:
        raise ConfigError(str(path), "", f"it is larger than {SIZE_LIMIT} bytes")
    return data


def plain(data: bytes) -> str:
    """The text of a file, without the byte order mark that some editors put before it. Raises UnicodeDecodeError."""
    return data.decode().removeprefix("\ufeff")


def read_text(path: Path | str) -> str:
    """The same as text. Raises ConfigError."""
    try:
        return plain(read_bytes(path))
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", str(error)) from error


def load_profile(places: Places, name: str) -> Profile | None:
    """The profile of that name in the strongest layer that has one; None where none has, or /dev/null masks it.

    Raises ConfigError where it cannot be read or is invalid: a weaker layer is no way out.
    """
    for folder in (places.config, *places.vendor):
        path = folder / "profiles.d" / f"{name}.toml"
        if os.path.lexists(path):
            if os.path.realpath(path) == os.devnull:
                return None
            table = read_toml(path)
            if table is None:
                raise ConfigError(str(path), "", "it is a link to nowhere")
            return read_profile(table, name, str(path))
    return None


def load_environment(files: Iterable[str]) -> list[tuple[str, str]]:
    """What the environment files assign, later ones last; one with a leading - may be missing. Raises ConfigError."""
    found: list[tuple[str, str]] = []
    for file in files:
        path = Path(file.removeprefix("-"))
        if file.startswith("-") and not path.exists():
            continue
        try:
            text = _text_of(path)
        except OSError as error:
            raise ConfigError(str(path), "", error.strerror or str(error)) from error
        try:
            found += parse_environment(text)
        except ValueError as error:
            raise ConfigError(str(path), "", str(error)) from error
    return found


def _text_of(path: Path) -> str:
    """Raises OSError, also for what is no plain file of reasonable size, and ConfigError for what is no text."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ConfigError(str(path), "", "it is no plain file")
        data = file.read(SIZE_LIMIT + 1)
    if len(data) > SIZE_LIMIT:
        raise ConfigError(str(path), "", f"it is larger than {SIZE_LIMIT} bytes")
    try:
        return plain(data)
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "", str(error)) from error


def host() -> Host:
    """Memory and tasks that this host can have, of which shares are counted."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    tasks = min(_kernel_number("pid_max"), _kernel_number("threads-max"))
    return Host(memory, tasks)


def _kernel_number(name: str) -> int:
    try:
        return int(Path("/proc/sys/kernel", name).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 1 << 22  # PID_MAX_LIMIT, proc_sys_kernel(5)


def host_zone(localtime: Path = Path("/etc/localtime"), timezone: Path = Path("/etc/timezone")) -> str:
    """The IANA name of the host's zone: the link /etc/localtime (localtime(5)), else /etc/timezone, else UTC."""
    try:
        target = os.path.normpath(localtime.parent / localtime.readlink())
    except OSError:
        target = ""
    for folder in ZONE_FOLDERS:
        if target.startswith(folder):
            return target.removeprefix(folder)
    try:
        return timezone.read_text(encoding="ascii").strip() or "UTC"
    except (OSError, UnicodeDecodeError):
        return "UTC"
