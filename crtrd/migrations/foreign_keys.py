"""Keys that people know from elsewhere, in cron files: rewritten to ours where they stand, comments kept.

    concurrencyPolicy -> overlap       startingDeadlineSeconds -> start_within     suspend = false -> (nothing)
    Persistent -> catch_up             RandomizedDelaySec -> jitter                OnCalendar -> schedule

Text to text: the new text is taken only when it parses to exactly the table that is meant, so an odd spelling is
reported and left alone rather than guessed at.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping

from crtrd.values import dataclass

_TEXT = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
OVERLAP = {"Allow": "allow", "Forbid": "skip", "Replace": "replace"}


class Unclear(Exception):
    """A value that has no equal here; the text says why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The key of ours that one of theirs becomes, and how its value does. Key '': the line goes."""

    key: str
    turn: Callable[[object], object]


@dataclass(frozen=True, slots=True)
class Rewritten:
    """`changes` and `left` are words for people: what became what, and what had to be left."""

    text: str
    changes: tuple[str, ...]
    left: tuple[str, ...]


def _overlap(value: object) -> object:
    if not isinstance(value, str) or value not in OVERLAP:
        raise Unclear(f"it is one of {', '.join(OVERLAP)}")
    return OVERLAP[value]


def _span(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unclear("it is no time span")
    return f"{value}s" if isinstance(value, int) else value


def _suspended(value: object) -> object:
    if value is not False:
        raise Unclear("a file cannot pause its cron: crtrctl pause NAME, or mask the file by a link to /dev/null")
    return None


def _catch_up(value: object) -> object:
    if not isinstance(value, bool):
        raise Unclear("it is true or false")
    return "last" if value else "none"


def _schedule(value: object) -> object:
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Unclear("it is a calendar expression, or a list of them")
    return [f"calendar {text}" for text in texts]


RULES: Mapping[str, Rule] = {
    "concurrencyPolicy": Rule("overlap", _overlap), "startingDeadlineSeconds": Rule("start_within", _span),
    "suspend": Rule("", _suspended), "RandomizedDelaySec": Rule("jitter", _span),
    "Persistent": Rule("catch_up", _catch_up), "OnCalendar": Rule("schedule", _schedule),
}


def rewrite(text: str) -> Rewritten | None:
    """The text with our keys; None where there is nothing of theirs in it, or it is no TOML."""
    try:
        table = tomllib.loads(text).get("cron")
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    found = [key for key in RULES if isinstance(table, dict) and key in table]
    changes, left = [], []
    for key in found:
        try:
            text, said = _one(text, key)
        except Unclear as unclear:
            left.append(f"{key}: {unclear}")
        else:
            changes.append(said)
    return Rewritten(text, tuple(changes), tuple(left)) if found else None


def _one(text: str, key: str) -> tuple[str, str]:
    whole = tomllib.loads(text)
    table, rule = dict(whole["cron"]), RULES[key]
    value = rule.turn(table.pop(key))
    if rule.key and rule.key in table:
        raise Unclear(f"{rule.key} is there already")
    wanted = table | ({rule.key: value} if rule.key else {})
    said = f"{rule.key} = {_spelled(value)}" if rule.key else "nothing"
    for begin, end in _places(text, key):
        for line in _lines(rule, value, text[begin:end]):
            new = text[:begin] + line + text[end:]
            try:
                if tomllib.loads(new) == whole | {"cron": wanted}:
                    return new, f"{key} -> {said}"
            except tomllib.TOMLDecodeError:
                continue
    raise Unclear("it is spelled in a way that cannot be rewritten in its place")


def _lines(rule: Rule, value: object, old: str) -> list[str]:
    """What may take the old text's place, best first: within a list of several lines the comments stay."""
    if not rule.key:
        return ["# " + old]
    plain = f"{rule.key} = {_spelled(value)}"
    if "\n" not in old or rule.key != "schedule":
        return [plain]
    within = _TEXT.sub(lambda found: f'"calendar {found[1]}"', old.partition("=")[2])
    return [f"{rule.key} ={within}", plain]


def _places(text: str, key: str) -> list[tuple[int, int]]:
    """Where `KEY = VALUE` may stand: from each line that begins so, to each end that could be the value's."""
    found = []
    for start in re.finditer(rf"""^[ \t]*(["']?){key}\1[ \t]*=[ \t]*""", text, re.MULTILINE):
        begin = start.end() - len(start[0].lstrip(" \t"))
        ends = [match.start() + start.end() for match in re.finditer(r"[ \t]*(?:#|\r?\n|\Z)", text[start.end() :])]
        found += [(begin, end) for end in ends[:50]]
    return found


def _spelled(value: object) -> str:
    """JSON's strings and lists of strings are TOML's."""
    return json.dumps(value, ensure_ascii=False)
