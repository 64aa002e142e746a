"""A cron as the text of a TOML file: one table, [cron], whose keys are those of `keys`; the file's name is the cron's.

Reading gives an untyped table for `reader`; writing gives a text that reads back to the same definition. Opens nothing.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, datetime, time

from crtrd.config import toml
from crtrd.config.keys import KEYS, Kind
from crtrd.errors import ConfigError
from crtrd.schedule.spans import format_instant, format_span

MERGED = frozenset(key.name for key in KEYS if key.kind is Kind.TABLE)
EXCLUSIVE = {"command": "shell", "shell": "command"}
_TEXT = r'"[ -!#-\[\]-~]*"'
_PLAIN = re.compile(rf"\[cron\]\n(?:[a-z_]+ = (?:{_TEXT}|\[(?:{_TEXT}(?:, {_TEXT})*)?\]|[0-9]{{1,9}}|true|false)\n)*")
"""Of what TOML and JSON spell alike, the least that files are written in: printable ASCII without escapes."""
_LINE_AT = re.compile(r"\(at line (\d+), column \d+\)")


def read_table(text: str, path: str) -> dict[str, object]:
    """The [cron] table of a file. Raises ConfigError whose path names the line too."""
    plain = _read_plain(text)
    if plain is not None:
        return plain
    try:
        content = toml.parse(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        found = _LINE_AT.search(str(error))
        line = found[1] if found else len(text.rstrip("\n").split("\n"))  # tomllib: "at end of document"
        reason = _LINE_AT.sub("", str(error)).strip() or "it is nested too deep"
        raise ConfigError(f"{path}:{line}", "", reason) from error
    for name in content:
        if name != "cron":
            raise ConfigError(located(path, text, name), name, "a cron file has one table, [cron], and nothing else")
    table = content.get("cron")
    if not isinstance(table, dict):
        raise ConfigError(path, "", "there is no table [cron] in it")
    return {name: _without_dates(value) for name, value in table.items()}


def _read_plain(text: str) -> dict[str, object] | None:
    """Most files are [cron] and keys with plain texts, lists of them, and numbers: those are read five times as
    quickly. None for any other, which is tomllib's to read or to refuse."""
    if not _PLAIN.fullmatch(text):
        return None
    lines = text.splitlines()[1:]
    try:
        table = {key: json.loads(value) for key, _, value in (line.partition(" = ") for line in lines)}
    except ValueError:  # a number with leading zeros, which TOML refuses too
        return None
    return table if len(table) == len(lines) else None


def located(path: str, text: str, key: str) -> str:
    """`PATH:LINE` of the line that sets `key`, the path alone where none does."""
    pattern = re.compile(rf"""\s*(?:\[+\s*(?:cron\s*\.\s*)?)?["']?{re.escape(key)}["']?\s*[\]=.]""")
    for number, line in enumerate(text.split("\n"), 1):
        if pattern.match(line):
            return f"{path}:{number}"
    return path


def merge_edit(table: Mapping[str, object], edit: Mapping[str, object]) -> dict[str, object]:
    """`table` with a drop-in on top: a key takes the place of the old one, tables are merged name by name."""
    merged = dict(table)
    for name, value in edit.items():
        old = merged.get(name)
        if name in MERGED and isinstance(value, Mapping) and isinstance(old, Mapping):
            value = {**old, **value}  # noqa: PLW2901 - the merged value
        if name in EXCLUSIVE:
            merged.pop(EXCLUSIVE[name], None)
        merged[name] = value
    return merged


def _without_dates(value: object) -> object:
    """TOML's own dates and times are written out: the keys take texts."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, list):
        return [_without_dates(each) for each in value]
    return value


def write_file(name: str, values: Mapping[str, object]) -> str:
    """The file of a cron. `values` are its keys as they travel: spans and instants as microseconds."""
    lines = [f"# {name}.toml", "[cron]"]
    for key in KEYS:
        if key.name in values:
            lines.append(f"{key.name} = {_toml(written(key.kind, values[key.name]))}")
    return "\n".join(lines) + "\n"


def written(kind: Kind, value: object) -> object:
    """What travels as a number and is written as a text."""
    if isinstance(value, int) and not isinstance(value, bool):
        if kind is Kind.SPAN:
            return format_span(value)
        if kind is Kind.INSTANT:
            return format_instant(value)
        if kind is Kind.OCTAL:
            return f"{value:04o}"
    return value


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case Mapping():
            inner = ", ".join(f"{_toml_text(str(key))} = {_toml(each)}" for key, each in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            return _toml_text(str(value))


def _toml_text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's. What steers a terminal or cannot be seen is spelled out too."""
    written = json.dumps(text, ensure_ascii=False)
    if written.isprintable():
        return written
    return "".join(letter if letter.isprintable() else _escape(ord(letter)) for letter in written)


def _escape(number: int) -> str:
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"  # noqa: PLR2004 - four digits
