"""`arm` and `change`: flags from the one table of keys, or a file, into a definition for the daemon.

Texts go as the user wrote them; whether they mean something is the daemon's to say.
"""

import argparse
import os
import tomllib
from pathlib import Path

from crtrd.cli.looking import finished
from crtrd.cli.naming import waits_for
from crtrd.cli.session import DONE, USAGE, Failure, Session, contents, packed
from crtrd.cli.words import calendar_time, relative
from crtrd.config.keys import KEYS, Key, Kind

METAVARS = {
    Kind.TEXT: "TEXT", Kind.TEXTS: "TEXT", Kind.TABLE: "NAME=VALUE", Kind.NUMBER: "N", Kind.NUMBERS: "N",
    Kind.SPAN: "SPAN", Kind.INSTANT: "TIME", Kind.OCTAL: "MODE",
}
NEEDED = {"schedule", "targets"}
REPEATED = {Kind.TEXTS, Kind.TABLE, Kind.NUMBERS}
SUGAR = {
    "--cron": ("", "FIELDS", "five-field cron expression, or @daily and its kin"),
    "--every": ("every ", "SPAN", "again and again, phase kept over restarts"),
    "--at": ("at ", "TIME", "once"),
    "--calendar": ("calendar ", "SPEC", "systemd calendar, Mon..Fri 02:00"),
}
EMPTY = "it is empty; leave it out, or say what it is"
"""A script whose variable is empty must not arm what never runs, or runs as somebody else, where it meant one."""
INSTANCE = object()
"""What a bare `--user` gives: the user's own instance. `--user NAME` is the key of that name."""


class _Schedule(argparse.Action):
    """`--every 15m` is `--schedule 'every 15m'`."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        prefix = SUGAR[option or ""][0]
        text = str(values)
        if not text.strip():
            raise argparse.ArgumentError(self, EMPTY)
        written = text if text.startswith(prefix) else prefix + text
        namespace.key_schedule = [*(namespace.key_schedule or []), written]


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="the cron")
    if verb == "arm":
        parser.add_argument("--file", metavar="FILE", help="read the [cron] table of a TOML file, named as the cron")
    when = parser.add_argument_group("schedule, each may be repeated")
    for flag, (_, metavar, text) in SUGAR.items():
        when.add_argument(flag, action=_Schedule, metavar=metavar, help=text, dest="key_schedule")
    group = parser.add_argument_group("keys of the cron, crtrd.cron(5)")
    for key in KEYS:
        _add(group, key)


def _add(group: argparse._ArgumentGroup, key: Key) -> None:
    text = key.doc.replace("%", "%%")
    if key.choices:
        text += ": " + ", ".join(key.choices)
    metavar = METAVARS.get(key.kind, "WORD")
    dest = "key_" + key.name
    if key.name == "user":
        group.add_argument("--user", nargs="?", const=INSTANCE, dest=dest, metavar="NAME",
                           help=text + "; without a name: the user's own instance of crtrd")
    elif key.kind in REPEATED:
        group.add_argument(key.flag, action="append", dest=dest, metavar=metavar, help=text + "; repeated")
    else:
        group.add_argument(key.flag, dest=dest, metavar=metavar, help=text)


def settle(options: argparse.Namespace) -> None:
    """What a `--user` without a value of its own meant: `arm --user NAME -- …` names the cron, not an account."""
    if isinstance(options.key_user, str) and options.name is None and not getattr(options, "file", None):
        options.name, options.key_user = options.key_user, INSTANCE
    if options.key_user is INSTANCE:
        options.user, options.key_user = True, None


def arm(session: Session) -> int:
    options = session.options
    definition = from_file(options.file) if options.file else {}
    definition.update(_from_flags(options, fresh=True))
    if options.name:
        definition["name"] = options.name
    if not definition.get("name"):
        raise Failure("cannot arm a cron without a name: give NAME or --file", USAGE)
    if not definition.get("command") and not definition.get("shell"):
        raise Failure(f"cannot arm {definition['name']}: no command; write it after --, or use --shell", USAGE)
    _resolve(session, definition)
    cron_id, _ = session.client.call("Arm", "a{sv}", packed(definition))
    (instants,) = session.client.call("Next", "su", str(cron_id), 1)
    following = instants[0] if isinstance(instants, list) and instants else None
    if session.out.json:
        from crtrd.cli.render import as_json  # noqa: PLC0415

        session.out.dump(as_json({"id": cron_id, "name": definition["name"], "next": following}))
    else:
        session.out.note(f"Armed {definition['name']}, id {cron_id}.")
        session.out.note(f"Next: {_next(definition, following, session.now)}")
    return DONE


def change(session: Session) -> int:
    options = session.options
    changes = _from_flags(options, fresh=False)
    if not options.name:
        raise Failure("cannot change a cron without a name: give NAME", USAGE)
    if not changes:
        raise Failure(f"cannot change {options.name}: nothing to change was given", USAGE)
    _resolve(session, changes)
    session.client.call("Change", "sa{sv}", options.name, packed(changes))
    session.acted("\n".join(finished(session, [options.name])))
    return DONE


def _next(definition: dict[str, object], following: int | None, now: int) -> str:
    if following:
        return f"{calendar_time(following)}; {relative(following, now)}"
    return waits_for(definition.get("schedule"))


def _resolve(session: Session, definition: dict[str, object]) -> None:
    """Times that depend on the clock, as `--at 'tomorrow 07:00'`, become such that do not."""
    from crtrd.cli.moments import absolute  # noqa: PLC0415
    from crtrd.cli.preview import host_zone  # noqa: PLC0415

    def zone() -> str:
        return str(definition.get("timezone") or host_zone())

    for key in ("starts_at", "expires_at"):
        if isinstance(text := definition.get(key), str):
            definition[key] = absolute(text, zone, session.now)
    if isinstance(texts := definition.get("schedule"), list):
        definition["schedule"] = [
            "at " + absolute(text[3:], zone, session.now) if str(text).startswith("at ") else text for text in texts]


def _from_flags(options: argparse.Namespace, *, fresh: bool) -> dict[str, object]:
    found: dict[str, object] = {}
    for key in KEYS:
        given = getattr(options, "key_" + key.name)
        if given is not None:
            if fresh and given == "" and key.name != "stdin":
                raise Failure(f"cannot use {key.flag}: {EMPTY}", USAGE)
            found[key.name] = _value(key, given, fresh=fresh)
    if options.command is not None:
        found["command"] = options.command
    return found


def _value(key: Key, given: object, *, fresh: bool) -> object:
    """An empty text empties a list; a new cron refuses it for what it would then never do."""
    if key.kind in REPEATED and isinstance(given, list):
        given = [] if given == [""] and not (fresh and key.name in NEEDED) else given
        if key.kind is Kind.TABLE:
            return dict(_pair(key, text) for text in given)
        return [_number(text) for text in given] if key.kind is Kind.NUMBERS else given
    return _number(str(given)) if key.kind is Kind.NUMBER else given


def _number(text: str) -> int | str:
    """A whole number where it is one; the daemon says what is wrong with the rest."""
    try:
        return int(text)
    except ValueError:
        return text


def _pair(key: Key, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if equals:
        return name, value
    if key.name == "env" and name in os.environ:
        return name, os.environ[name]
    raise Failure(f"cannot use {key.flag} {text}: write NAME=VALUE", USAGE)


def from_file(file: str) -> dict[str, object]:
    """The [cron] table of a cron file, named after the file."""
    path = Path(file)
    try:
        content = tomllib.loads(contents(path).decode().removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Failure(f"cannot read {file}: {error}") from error
    table = content.get("cron")
    if not isinstance(table, dict) or len(content) > 1:
        raise Failure(f"cannot read {file}: it must hold one table, [cron], and nothing else")
    for key, value in table.items():
        if fault := _fault(value):
            raise Failure(f"cannot read {file}: {key}: {fault}")
    return {"name": path.name.removesuffix(".toml"), **{key: _from_toml(value) for key, value in table.items()}}


def _fault(value: object) -> str:
    """What the bus would quietly make a text of, and crons.d does not take."""
    if isinstance(value, dict):
        odd = next((name for name, inner in value.items() if not isinstance(inner, str)), None)
        return "" if odd is None else f"{odd} must be a text, in quotes"
    if isinstance(value, list) and {type(inner) for inner in map(_plain, value)} not in ({str}, {int}, set()):
        return "its elements must all be texts, in quotes, or all be whole numbers"
    return ""


def _from_toml(value: object) -> object:
    """TOML's dates have no type on the bus."""
    return [_plain(inner) for inner in value] if isinstance(value, list) else _plain(value)


def _plain(value: object) -> object:
    iso = getattr(value, "isoformat", None)
    return iso() if callable(iso) else value


VERBS = {"arm": arm, "change": change}

