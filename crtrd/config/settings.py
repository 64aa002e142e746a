"""crtrd.toml: the daemon's own settings as one table, and their reading. A file is taken whole or refused whole."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from crtrd.config.lengths import LONGEST, SECOND, read_length
from crtrd.core.sinks import ADDRESS
from crtrd.errors import ConfigError, ScheduleError
from crtrd.values import dataclass

LARGEST, DIGITS = 1 << 50, 15
SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class ClockMode(StrEnum):
    SYSTEMD = "systemd"
    """Arm crtrd-wake.timer and leave when idle."""
    INTERNAL = "internal"
    """Stay."""
    EXTERNAL = "external"
    """No schedule of its own, only triggers; leave when idle."""


@dataclass(frozen=True, slots=True)
class Retention:
    success: int = 30 * 86400 * SECOND
    failure: int = 365 * 86400 * SECOND
    runs_per_cron: int = 1000


@dataclass(frozen=True, slots=True)
class Settings:
    clock: ClockMode = ClockMode.SYSTEMD
    idle_grace: int = 30 * SECOND
    max_lifetime: int = 3 * 3600 * SECOND
    max_runs_at_once: int = 32
    pools: tuple[tuple[str, int], ...] = ()
    lease_ttl: int = 60 * SECOND
    output_head: int = 4096
    journal_limit: int = 1 << 20
    retention: Retention = Retention()
    mail_from: str = ""
    metrics_textfile: str = ""
    ledger: str = "sqlite"


class Below(ValueError):
    """A key within a table is at fault."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def merge(settings: Settings, table: Mapping[str, object], path: str) -> Settings:
    """`settings` with what one file says on top. Raises ConfigError naming file and key."""
    changes = {}
    for key, value in table.items():
        reader = READERS.get(key)
        if reader is None:
            raise ConfigError(path, key, "there is no such key")
        try:
            changes[key] = reader(value)
        except Below as error:
            raise ConfigError(path, f"{key}.{error.key}", str(error)) from error
        except ScheduleError as error:
            raise ConfigError(path, key, error.reason) from error
        except ValueError as error:
            raise ConfigError(path, key, str(error)) from error
    return replace(settings, **changes)


def _span(low: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        span = read_length(value)
        if span is None:
            raise ValueError("it must be a time span such as 30s")
        if not low <= span <= LONGEST:
            raise ValueError("it is too short" if span < low else "it is longer than a hundred years")
        return span
    return read


def _count(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"it must be a whole number from {low} to {high}")
        return value
    return read


def _size(value: object) -> int:
    size = value if isinstance(value, int) and not isinstance(value, bool) else -1
    if isinstance(value, str):
        number, unit = (value[:-1], value[-1].upper()) if value[-1:].isalpha() else (value, "")
        if number.isascii() and number.isdigit() and len(number) <= DIGITS and unit in SIZES:
            size = int(number) * SIZES[unit]
    if not 0 <= size <= LARGEST:
        raise ValueError("it must be a size such as 1M")
    return size


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("it must be a text")
    return value


def _sender(value: object) -> str:
    """What stands in the From of every mail: with anything else in it none could be sent."""
    text = _text(value)
    _, opened, address = text.rpartition("<")
    if text and not (text.isprintable() and ADDRESS.fullmatch(address.removesuffix(">") if opened else text)
                     and bool(opened) == text.endswith(">")):
        raise ValueError("it must be a mail address such as crtrd@example.com, or Name <crtrd@example.com>")
    return text


def _clock(value: object) -> ClockMode:
    if not isinstance(value, str) or value not in set(ClockMode):
        raise ValueError(f"it must be one of {', '.join(ClockMode)}")
    return ClockMode(value)


def _ledger(value: object) -> str:
    if value != "sqlite":
        raise ValueError("only sqlite is supported")
    return "sqlite"


def _pools(value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        raise ValueError("it must be a table of NAME = limit")
    count = _count(1, 100_000)
    return tuple((_text(name), _below(name, count, limit)) for name, limit in value.items())


def _below(key: str, read: Callable[[object], int], value: object) -> int:
    try:
        return read(value)
    except ScheduleError as error:
        raise Below(key, error.reason) from error
    except ValueError as error:
        raise Below(key, str(error)) from error


def _retention(value: object) -> Retention:
    if not isinstance(value, Mapping):
        raise ValueError("it must be a table with success, failure and runs_per_cron")
    readers: dict[str, Callable[[object], Any]] = {
        "success": _span(0), "failure": _span(0), "runs_per_cron": _count(1, 1_000_000_000),
    }
    if unknown := sorted(value.keys() - readers.keys()):
        raise Below(unknown[0], "there is no such key")
    return replace(Retention(), **{name: _below(name, readers[name], each) for name, each in value.items()})


READERS: dict[str, Callable[[object], Any]] = {
    "clock": _clock, "idle_grace": _span(0), "max_lifetime": _span(SECOND), "max_runs_at_once": _count(1, 100_000),
    "pools": _pools, "lease_ttl": _span(SECOND), "output_head": _count(0, 1 << 20), "journal_limit": _size,
    "retention": _retention, "mail_from": _sender, "metrics_textfile": _text, "ledger": _ledger,
}
