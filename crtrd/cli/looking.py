"""`list`, `show`, `cat`, `is-active`, `is-failed`: what is armed and how it stands. Changes nothing."""

import argparse
from collections.abc import Callable, Mapping

from crtrd import names
from crtrd.cli.fields import LIST_FIELDS, TIMES
from crtrd.cli.naming import of_names, selected, waits_for
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, FAILED, NOT_ACTIVE, Session, View
from crtrd.cli.words import calendar_time, harmless, relative
from crtrd.config.keys import BY_NAME, KEYS

EMPTY_IS_NONE = frozenset({"last_status", "last_run", "next"})
SHOWN_ALWAYS = frozenset({"timeout", "grace", "overlap"})
"""Keys that a view has also where they stand at their built-in value."""
STATES = ("active", "paused", "finished")
FAILURES = frozenset({"failed", "abandoned", "unobserved", "partial"})


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    match verb:
        case "list":
            parser.add_argument("--state", choices=STATES, metavar="STATE", help=", ".join(STATES))
            parser.add_argument("name", nargs="*", metavar="NAME", help="only these; a pattern as f* too")
        case _:
            parser.add_argument("name", nargs="+", metavar="NAME", help="cron, by name, pattern or id")


def cron(session: Session, name: str) -> View:
    """One cron with its definition, as a view."""
    (path,) = session.client.call("GetCron", "s", name)
    view = {snake(key): value for key, value in session.client.properties(str(path), names.CRON_INTERFACE).items()}
    return {key: None if key in EMPTY_IS_NONE and not value else value for key, value in view.items()}


def snake(name: str) -> str:
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name).lstrip("_")


def definition(view: Mapping[str, object]) -> View:
    """The keys that the cron was armed with, in the order of the table."""
    given = view.get("definition")
    told = given if isinstance(given, Mapping) else {}
    table = {**view, **told}
    return {
        key.name: table[key.name] for key in KEYS
        if key.name in told or table.get(key.name) not in (None, "", [], {})
    }


def own(view: Mapping[str, object]) -> View:
    """The keys that the cron says itself: neither its profile's nor built in, unless it was given them by name."""
    from crtrd.core.cron import Definition  # noqa: PLC0415  # for the verbs that write files alone

    told = view.get("definition")
    hidden, pinned = (told.get(word) or () if isinstance(told, Mapping) else () for word in ("inherited", "pinned"))
    built_in = Definition("")
    return {
        key: value for key, value in definition(view).items()
        if key not in hidden and (key in pinned or key not in SHOWN_ALWAYS or value != getattr(built_in, key))
    }


def finished(session: Session, names: list[str]) -> list[str]:
    """What is to be said of those that have no instant ahead any more."""
    return [f"{name} is finished: no instant lies ahead." for name in names
            if cron(session, name).get("state") == "finished"]


def listing(session: Session) -> int:
    options = session.options
    views = session.everything("ListCrons", {})
    if options.name:
        views = selected(views, options.name)
    views = [view for view in views if options.state in {None, view.get("state")}]
    views.sort(key=lambda view: str(view.get("name")))
    if session.out.json:
        session.out.dump([as_json(view, LIST_FIELDS) for view in views])
        return DONE
    rows = [_row(view, session.now) for view in views]
    header = ("NAME", "STATE", "NEXT", "LAST", "SCHEDULE")
    session.out.table(header, rows, flexible=(4, 0, 3), total="cron")
    return DONE


def _row(view: View, now: int) -> tuple[str, ...]:
    state = str(view.get("state", ""))
    if view.get("held"):
        state += f", {view['held']} held"
    schedule = view.get("schedule")
    texts = ", ".join(map(str, schedule)) if isinstance(schedule, list) else ""
    last = str(view.get("last_status") or "-")
    if at := instant(view.get("last_at")):
        last += f" {relative(at, now)}"
    return str(view.get("name", "")), state, _upcoming(view, now), last, texts or "when triggered"


def _upcoming(view: View, now: int) -> str:
    upcoming = instant(view.get("next"))
    if upcoming is None:
        waits = waits_for(view.get("schedule")) if view.get("state") == "active" else ""
        return "at boot" if waits == "at the next boot" else "after end" if " after " in waits else "-"
    return relative(upcoming, now) if upcoming > now else "due"


def instant(value: object) -> int | None:
    return value if isinstance(value, int) and value else None


def show(session: Session) -> int:
    """Every property as `Key=value`, systemctl's way."""
    views = [cron(session, name) for name in of_names(session)]
    flat = [{**view, **definition(view)} for view in views]
    if session.out.json:
        session.out.dump([as_json({k: v for k, v in view.items() if k != "definition"}, LIST_FIELDS) for view in flat])
        return DONE
    for index, view in enumerate(flat):
        if index:
            session.out.line()
        for key, value in view.items():
            if key != "definition":
                session.out.line(f"{key}={harmless(_shown(key, value))}")
    return DONE


def _shown(key: str, value: object) -> str:
    if key in TIMES and isinstance(value, list):
        return ", ".join(calendar_time(each) for each in value)
    if isinstance(value, int) and not isinstance(value, bool):
        if key in TIMES:
            return calendar_time(value) if value else ""
        if key in BY_NAME:
            from crtrd.config.cronfile import written  # noqa: PLC0415

            value = written(BY_NAME[key].kind, value)
    return flat(value)


def flat(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(map(flat, value))
        case Mapping():
            return " ".join(f"{key}={flat(inner)}" for key, inner in value.items())
        case _:
            return str(value)


def cat(session: Session) -> int:
    """The definition as a file that `arm --file` takes."""
    views = [cron(session, name) for name in of_names(session)]
    from crtrd.config.cronfile import write_file, written  # noqa: PLC0415  # tomllib and the schedule room, for this

    if session.out.json:
        session.out.dump([{"name": view.get("name"), **{
            key: written(BY_NAME[key].kind, value) for key, value in definition(view).items()}} for view in views])
        return DONE
    for index, view in enumerate(views):
        text = write_file(str(view.get("name")), own(view))
        session.out.file(("\n" if index else "") + text.rstrip("\n"))
    return DONE


def _judge(session: Session, good: Callable[[View], bool], word: Callable[[View], str], otherwise: int) -> int:
    answers = [cron(session, name) for name in of_names(session)]
    if session.out.json:
        session.out.dump([{"name": view.get("name"), "state": word(view)} for view in answers])
    elif not session.out.quiet:
        for view in answers:
            session.out.line(harmless(word(view)))
    return DONE if any(map(good, answers)) else otherwise


def is_active(session: Session) -> int:
    return _judge(session, lambda view: view.get("state") == "active", lambda view: str(view.get("state")), NOT_ACTIVE)


def _health(view: View) -> str:
    broken = view.get("paused_by") in {"failure", "crash"} or view.get("last_status") in FAILURES
    if not broken:
        return str(view.get("state"))
    return "partial" if view.get("last_status") == "partial" else "failed"


def is_failed(session: Session) -> int:
    return _judge(session, lambda view: _health(view) in {"failed", "partial"}, _health, FAILED)


VERBS = {"list": listing, "show": show, "cat": cat, "is-active": is_active, "is-failed": is_failed}
