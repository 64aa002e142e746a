"""From an untyped table (TOML, JSON, bus, command line) to typed fields of a Definition, key by key.

A whole table is accepted or refused with the name of the key at fault; nothing is stored here. What only the running
host knows (accounts, zone data in use) is checked where it is used.
"""

import re
import warnings
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from crtrd.config.keys import BY_NAME, Key, Kind
from crtrd.config.lengths import LONGEST, read_length
from crtrd.config.resources import check as check_resource
from crtrd.core.cron import (
    CatchUp,
    Definition,
    OnCrash,
    OnFailure,
    OnOutput,
    Overlap,
    Survivors,
)
from crtrd.core.sinks import parse as parse_sink
from crtrd.core.timetable import excluded_days, has_calendar, names_calendar
from crtrd.errors import ConfigError, ScheduleError
from crtrd.schedule.spans import parse_instant

NAME_RULE = "1 to 64 of A-Z a-z 0-9 . _ @ -, the first a letter or digit"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CARRIED_LIMIT = 128 * 1024  # bytes of arguments and environment together; execve(2) would take some more
LIST_LIMIT = 1000
TEXT_LIMIT = 64 * 1024
RESERVED = "CRTR_"
ENUMS: dict[str, type[Any]] = {
    "overlap": Overlap, "catch_up": CatchUp, "on_crash": OnCrash, "on_output": OnOutput, "on_failure": OnFailure,
    "survivors": Survivors,
}


def read_definition(table: Mapping[str, object], *, where: str, timezone: str) -> Definition:
    """The definition in `table` (which has `name` too). `timezone` is the host's. Raises ConfigError."""
    values = dict(table)
    name = read_name(values.pop("name", None), where)
    zone = values.get("timezone", timezone)
    fields = read_fields(values, where=where, timezone=zone if isinstance(zone, str) else timezone)
    fields.setdefault("timezone", timezone)
    definition = Definition(name=name, **fields)
    check_whole(definition, where)
    return definition


def read_changes(table: Mapping[str, object], old: Definition, *, where: str) -> dict[str, Any]:
    """Typed fields to change in `old`; `command` and `shell` take each other's place. Raises ConfigError."""
    if not table:
        raise ConfigError(where, "", "no key was given")
    zone = table.get("timezone", old.timezone)
    fields = read_fields(table, where=where, timezone=zone if isinstance(zone, str) else old.timezone)
    if "command" in fields and "shell" not in fields:
        fields["shell"] = None
    if "shell" in fields and "command" not in fields:
        fields["command"] = ()
    values = {name: getattr(old, name) for name in BY_NAME} | fields
    check_whole(Definition(name=old.name, **values), where)
    return fields


def read_name(value: object, where: str) -> str:
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ConfigError(where, "name", f"a name is {NAME_RULE}")
    return value


def read_fields(table: Mapping[str, object], *, where: str, timezone: str) -> dict[str, Any]:
    fields = {}
    for name, value in table.items():
        key = BY_NAME.get(name)
        if key is None:
            raise ConfigError(where, printable(name), "there is no such key")
        try:
            fields[name] = read_value(key, value, timezone)
        except ScheduleError as error:
            what = f"{error.where}: " if error.field == "timezone" else ""
            raise ConfigError(where, name, what + error.reason) from error
        except ValueError as error:
            raise ConfigError(where, name, str(error)) from error
    return fields


def printable(text: object) -> str:
    shown = str(text)[:80]
    return shown if shown.isprintable() else ascii(shown)


def read_value(key: Key, value: object, timezone: str) -> Any:  # noqa: ANN401, PLR0911 - a table of types
    """One value of one key; raises ValueError with a reason that follows the key's name."""
    match key.kind:
        case Kind.TEXT:
            return _text(value)
        case Kind.TEXTS:
            return tuple(_text(each) for each in _list(value))
        case Kind.TABLE:
            return _table(value)
        case Kind.NUMBER:
            return _number(value, key)
        case Kind.NUMBERS:
            return tuple(_number(each, key) for each in _list(value))
        case Kind.SPAN:
            return _span(value, key)
        case Kind.INSTANT:
            return _instant(value, timezone)
        case Kind.OCTAL:
            return _octal(value, key)
        case Kind.CHOICE:
            return _choice(value, key)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"it must be a text, not {_shape(value)}")
    if "\0" in value:
        raise ValueError("it contains a NUL character")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError("it is not valid UTF-8") from None
    if size > TEXT_LIMIT:
        raise ValueError(f"it has {size} bytes, at most {TEXT_LIMIT} are allowed")
    return value


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"it must be a list, not {_shape(value)}")
    if len(value) > LIST_LIMIT:
        raise ValueError(f"it has {len(value)} elements, at most {LIST_LIMIT} are allowed")
    return value


def _table(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise ValueError(f"it must be a table of texts, not {_shape(value)}")
    return tuple((_text(name), _text(each)) for name, each in value.items())


def _number(value: object, key: Key) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"it must be a whole number, not {_shape(value)}")
    return _in_range(value, key)


def _in_range(value: int, key: Key) -> int:
    if key.low is not None and value < key.low:
        raise ValueError(f"{value} is too small, at least {key.low} is wanted")
    high = key.high if key.high is not None else 1_000_000_000
    if key.kind is not Kind.SPAN and value > high:
        raise ValueError(f"{value} is too large, at most {high} is allowed")
    return value


def _span(value: object, key: Key) -> int:
    span = read_length(value)
    if span is None:
        raise ValueError(f"it must be a time span such as 90s or 1h 30min, not {_shape(value)}")
    if span > LONGEST:
        raise ValueError("it is longer than a hundred years")
    return _in_range(span, key)


def _instant(value: object, timezone: str) -> int:
    if isinstance(value, datetime):
        value = value.isoformat()
    if not isinstance(value, str):
        raise ValueError(f"it must be a time such as 2026-12-01T02:00Z, not {_shape(value)}")
    return parse_instant(value, timezone)


def _octal(value: object, key: Key) -> int:
    if isinstance(value, str) and re.fullmatch(r"(0o)?[0-7]{1,4}", value):
        return _in_range(int(value.removeprefix("0o"), 8), key)
    if isinstance(value, int) and not isinstance(value, bool):
        return _in_range(value, key)
    raise ValueError("it must be an octal mode such as 0022")


def _choice(value: object, key: Key) -> object:
    if not isinstance(value, str) or value not in key.choices:
        shown = printable(value) if isinstance(value, str) else _shape(value)
        raise ValueError(f"it must be one of {', '.join(key.choices)}, not {shown}")
    enum = ENUMS.get(key.name)
    return enum(value) if enum else value


def _shape(value: object) -> str:
    words = {bool: "true or false", str: "a text", int: "a whole number", float: "a number", list: "a list",
             tuple: "a list", dict: "a table", bytes: "bytes", type(None): "nothing"}
    return words.get(type(value), type(value).__name__)


def check_whole(definition: Definition, where: str) -> None:
    """Rules that need more than one value, or more than a type. Raises ConfigError naming the key."""
    for key, reason in _faults(definition):
        raise ConfigError(where, key, reason)


def _faults(definition: Definition) -> list[tuple[str, str]]:
    faults: list[tuple[str, str]] = []
    if bool(definition.command) == (definition.shell is not None):
        faults.append(("command", "exactly one of command and shell is wanted"))
    elif definition.command and not definition.command[0]:
        faults.append(("command", "its first element, the program, is empty"))
    elif definition.shell is not None and not definition.shell.strip():
        faults.append(("shell", "it is empty"))
    faults += _environment_faults(definition)
    if "" in definition.targets:
        faults.append(("targets", "one of them is empty"))
    if twice := next((each for each in definition.targets if definition.targets.count(each) > 1), ""):
        faults.append(("targets", f"{twice!r} is named more than once; each is one cell of an occurrence"))
    if definition.cwd and not definition.cwd.startswith("/"):
        faults.append(("cwd", "it must be an absolute path"))
    if not definition.success_exit_codes:
        faults.append(("success_exit_codes", "it is empty: no run could succeed"))
    if definition.held_exit_code in definition.success_exit_codes:
        faults.append(("held_exit_code", f"{definition.held_exit_code} is among success_exit_codes"))
    if definition.profile and not NAME.fullmatch(definition.profile):
        faults.append(("profile", f"a name is {NAME_RULE}"))
    faults += _list_faults(definition)
    return faults


def _environment_faults(definition: Definition) -> list[tuple[str, str]]:
    for name, _ in definition.env:
        if not VARIABLE.fullmatch(name):
            return [("env", f"{printable(name)!r} is not a variable name (letters, digits, _)")]
        if name.startswith(RESERVED):
            return [("env", f"{name}: names that start with {RESERVED} are crtrd's own")]
    words = (*definition.command, definition.shell or "", *definition.targets[:1])
    size = sum(len(word.encode()) + 1 for word in words)
    size += sum(len(name) + len(value.encode()) + 2 for name, value in definition.env)
    if size > CARRIED_LIMIT:
        return [("env", f"command and environment have {size} bytes, at most {CARRIED_LIMIT} are allowed")]
    return []


def _expression_fault(pattern: str) -> str:
    """Why a pattern cannot be used, '' where it can: as bytes, for that is what it is matched with.

    What later versions of Python will read otherwise (`[[:alpha:]]` is one) does not mean what it looks like.
    """
    with warnings.catch_warnings(record=True) as doubts:
        warnings.simplefilter("always")
        try:
            re.compile(pattern.encode("utf-8", "surrogateescape"))
        except (re.error, OverflowError, RecursionError, ValueError) as error:
            return str(error)
    return str(doubts[0].message).lower() if doubts else ""


def _list_faults(definition: Definition) -> list[tuple[str, str]]:
    faults: list[tuple[str, str]] = []
    for pattern in definition.change_ignore:
        if why := _expression_fault(pattern):
            faults.append(("change_ignore", f"{printable(pattern)!r} is not a regular expression: {why}"))
    for text in definition.exclude:
        try:
            if not names_calendar(text):
                excluded_days(text)
            elif not has_calendar(text):
                reason = f"there is no calendar {printable(text)!r}: no such .ics file in calendars.d was read"
                faults.append(("exclude", reason))
        except ValueError as error:
            faults.append(("exclude", f"{printable(text)!r} is no date or range of dates: {error}"))
    for sink in definition.sinks:
        try:
            parse_sink(sink)
        except ValueError as error:
            faults.append(("sinks", str(error)))
    for name, value in definition.resources:
        try:
            check_resource(name, value)
        except ValueError as error:
            faults.append(("resources", str(error)))
    return faults
