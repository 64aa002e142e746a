"""The only module of this room that opens files: crtrd.toml with its drop-ins, cron files, the host's zone."""

import os
import tomllib
from pathlib import Path

from crtrd.config.settings import Settings, merge
from crtrd.errors import ConfigError
from crtrd.names import Places

SIZE_LIMIT = 1 << 20
ZONE_FOLDERS = ("/usr/share/zoneinfo/", "/usr/lib/zoneinfo/", "/etc/zoneinfo/")


def load_settings(places: Places) -> Settings:
    """crtrd.toml, then crtrd.toml.d/*.toml by name. A missing file is no fault. Raises ConfigError."""
    settings = Settings()
    files = [places.config / "crtrd.toml", *sorted((places.config / "crtrd.toml.d").glob("*.toml"))]
    for path in files:
        table = read_toml(path)
        if table is not None:
            settings = merge(settings, table, str(path))
    return settings


def read_toml(path: Path) -> dict[str, object] | None:
    """The tables of a TOML file, None where there is no such file. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(str(path), "", error.strerror or str(error)) from error
    if len(data) > SIZE_LIMIT:
        raise ConfigError(str(path), "", f"it is larger than {SIZE_LIMIT} bytes")
    try:
        return tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(str(path), "", str(error)) from error


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
