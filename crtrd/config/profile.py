"""A profile: who a command runs as and in what environment, and defaults for policies. Text to values, no files.

A cron's own keys win over its profile, a profile over what the account has. All of it is read anew for each run.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from crtrd.config.resources import LIMITS, read_limit
from crtrd.errors import ConfigError
from crtrd.values import dataclass

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = "CRTR_"
OCTAL = re.compile(r"(0o)?[0-7]{1,4}")
NOT_DEFAULTS = frozenset({"name", "schedule", "command", "shell", "stdin", "targets", "profile", "user", "cwd", "env",
                          "umask", "timezone", "dst_gap", "dst_overlap", "jitter", "starts_at", "expires_at",
                          "max_runs", "exclude", "inherited", "pinned"})
"""Keys that are no policy, or that say when: a profile says them by keys of its own, or not at all."""


@dataclass(frozen=True, slots=True)
class Profile:
    """'' and None: not said here."""

    name: str
    path: str
    """Of the file that it was read from."""
    description: str = ""
    user: str = ""
    group: str = ""
    supplementary_groups: tuple[str, ...] = ()
    cwd: str = ""
    search_path: str = ""
    """PATH"""
    umask: int | None = None
    nice: int | None = None
    shell: str = ""
    env: tuple[tuple[str, str], ...] = ()
    env_files: tuple[str, ...] = ()
    limits: tuple[tuple[str, str], ...] = ()
    defaults: tuple[tuple[str, object], ...] = ()


def read_profile(table: Mapping[str, object], name: str, path: str) -> Profile:
    """Raises ConfigError that names file and key; a profile is taken whole or not at all."""
    fields: dict[str, Any] = {}
    for key, value in table.items():
        field, read = READERS.get(key, ("", None))
        if read is None:
            raise ConfigError(path, key if key.isprintable() else ascii(key), "there is no such key")
        try:
            fields[field] = read(value)
        except ValueError as error:
            raise ConfigError(path, key, str(error)) from error
    return Profile(name, path, **fields)


BLANKS = " \t\r"
BARE, SINGLE, DOUBLE = re.compile(r"(?:[^\\]|\\.)*"), re.compile("'([^']*)'"), re.compile(r'"((?:[^"\\]|\\.)*)"')


def parse_environment(text: str) -> list[tuple[str, str]]:
    """The assignments of an environment file as systemd reads one (EnvironmentFile= in systemd.exec(5)).

    One a line; empty lines and those that start with # or ; are skipped; a value may stand in quotes. No variable is
    substituted. What would go on in the next line, or after a quote, is refused. Raises ValueError with the number of
    the line.
    """
    found = []
    for number, raw in enumerate(text.split("\n"), 1):  # not splitlines, which ends lines at U+2028 and such too
        line = raw.strip(BLANKS)
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"line {number}: it is no NAME=VALUE")
        try:
            pair = name.rstrip(BLANKS), _unquoted(value.lstrip(BLANKS))
            check_variable(*pair)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
        found.append(pair)
    return found


def _unquoted(value: str) -> str:
    """In no quotes a backslash takes the meaning of what follows it, in double ones of four characters."""
    if value[:1] not in {"'", '"'}:
        if BARE.fullmatch(value) is None:
            raise ValueError("a backslash at its end would join the next line, which is not done here")
        return re.sub(r"\\(.)", r"\1", value)
    whole = SINGLE.fullmatch(value) if value[0] == "'" else DOUBLE.fullmatch(value)
    if whole is None:
        closed = (SINGLE if value[0] == "'" else DOUBLE).match(value)
        raise ValueError("something follows its quote" if closed else "the quote is not closed")
    return whole[1] if value[0] == "'" else re.sub(r'\\([\\"$`])', r"\1", whole[1])


def check_variable(name: str, value: object) -> None:
    """Raise ValueError unless both can stand in an environment."""
    if not VARIABLE.fullmatch(name):
        raise ValueError(f"{name if name.isprintable() else ascii(name)!r} is no variable name (letters, digits, _)")
    if name.startswith(RESERVED):
        raise ValueError(f"{name}: names that start with {RESERVED} are crtrd's own")
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name} must be a text")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("it must be a text that is not empty")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("it must be a list of texts")
    return tuple(_text(each) for each in value)


def _absolute(value: object) -> str:
    if not _text(value).startswith("/"):
        raise ValueError("it must be an absolute path")
    return str(value)


def _files(value: object) -> tuple[str, ...]:
    """A leading - stands for "if there is one", as in systemd.exec(5)."""
    files = _texts(value)
    for file in files:
        _absolute(file.removeprefix("-"))
    return files


def _umask(value: object) -> int:
    """In octal, as everybody writes it, whether as text or as number of TOML."""
    if isinstance(value, str) and OCTAL.fullmatch(value) and int(value.removeprefix("0o"), 8) <= 0o777:  # noqa: PLR2004
        return int(value.removeprefix("0o"), 8)
    raise ValueError('it must be an octal mode in quotes, such as "0027"')


def _nice(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not -20 <= value <= 19:  # noqa: PLR2004 - nice(2)
        raise ValueError("it must be a whole number from -20 to 19")
    return value


def _env(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise ValueError("it must be a table of texts")
    for name, each in value.items():
        check_variable(name, each)
    return tuple(value.items())


def _limits(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise ValueError("it must be a table of limits")
    found = []
    for name, each in value.items():
        if name not in LIMITS:
            raise ValueError(f"{name} is no limit; there are {', '.join(LIMITS)}")
        text = str(each) if isinstance(each, int) and not isinstance(each, bool) else _text(each)
        try:
            read_limit(name, text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        found.append((name, text))
    return tuple(found)


def _defaults(value: object) -> tuple[tuple[str, object], ...]:
    """Only the names are looked at here; the values are read as the cron's own are (config.reader)."""
    if not isinstance(value, Mapping):
        raise ValueError("it must be a table of a cron's policies")
    for name in value:
        if name in NOT_DEFAULTS:
            raise ValueError(f"{name} is no policy")
    return tuple(value.items())


READERS: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "description": ("description", _text), "user": ("user", _text), "group": ("group", _text),
    "supplementary_groups": ("supplementary_groups", _texts), "cwd": ("cwd", _absolute),
    "path": ("search_path", _text), "umask": ("umask", _umask), "nice": ("nice", _nice),
    "shell": ("shell", _absolute), "env": ("env", _env), "env_files": ("env_files", _files),
    "limits": ("limits", _limits), "defaults": ("defaults", _defaults),
}
