"""`list`, `status`, `show`, `cat`, `is-active`, `is-failed`: what is armed and how it stands. Changes nothing."""

import argparse
from collections.abc import Callable, Mapping

from crtrd import names
from crtrd.cli.fields import LIST_FIELDS, RUN_FIELDS, TIMES
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, FAILED, NOT_ACTIVE, Session, View
from crtrd.cli.words import calendar_time, harmless, relative, span
from crtrd.config.keys import BY_NAME, KEYS

EMPTY_IS_NONE = frozenset({"last_status", "last_run", "next"})
SHOWN_ALWAYS = frozenset({"timeout", "grace", "overlap"})
"""Keys that a view has also where they stand at their built-in value."""
FAILURES = frozenset({"failed", "abandoned", "unobserved", "partial"})


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    match verb:
        case "list":
            parser.add_argument("--state", metavar="STATE", help="only crons that are active, paused or finished")
            parser.add_argument("name", nargs="*", metavar="NAME", help="only these")
        case "status":
            parser.add_argument("name", nargs="*", metavar="NAME", help="crons; none: the daemon")
        case _:
            parser.add_argument("name", nargs="+", metavar="NAME", help="cron, by name or id")


def cron(session: Session, name: str) -> View:
    """One cron with its definition, as a view."""
    (path,) = session.client.call("GetCron", "s", name)
    view = {_snake(key): value for key, value in session.client.properties(str(path), names.CRON_INTERFACE).items()}
    return {key: None if key in EMPTY_IS_NONE and not value else value for key, value in view.items()}


def _snake(name: str) -> str:
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


def listing(session: Session) -> int:
    options = session.options
    views = session.everything("ListCrons", {"state": options.state})
    if options.name:
        views = [view for view in views if {view.get("name"), view.get("id")} & set(options.name)]
    views.sort(key=lambda view: str(view.get("name")))
    if session.out.json:
        session.out.dump([as_json(view, LIST_FIELDS) for view in views])
        return DONE
    rows = [_row(view, session.now) for view in views]
    header = ("NAME", "STATE", "NEXT", "LAST", "SCHEDULE")
    session.out.table(header, rows, flexible=4, total="crons")
    return DONE


def _row(view: View, now: int) -> tuple[str, ...]:
    state = str(view.get("state", ""))
    if view.get("held"):
        state += f", {view['held']} held"
    schedule = view.get("schedule")
    texts = ", ".join(map(str, schedule)) if isinstance(schedule, list) else ""
    last = str(view.get("last_status") or "-")
    if at := _instant(view.get("last_at")):
        last += f" {relative(at, now)}"
    return str(view.get("name", "")), state, relative(_instant(view.get("next")), now), last, texts or "when triggered"


def _instant(value: object) -> int | None:
    return value if isinstance(value, int) and value else None


def status(session: Session) -> int:
    if not session.options.name:
        return _daemon(session)
    shown: list[object] = []
    worst = DONE
    for index, name in enumerate(session.options.name):
        view = cron(session, name)
        worst = max(worst, DONE if view.get("state") == "active" else NOT_ACTIVE)
        runs = session.everything("ListRuns", {"cron": str(view["id"])}, most=5)
        if session.out.json:
            shown.append({**as_json(view, LIST_FIELDS), "runs": [as_json(run, RUN_FIELDS) for run in runs]})
            continue
        if index:
            session.out.line()
        _print_cron(session, view, runs)
    if session.out.json:
        session.out.dump(shown)
    return worst


def _daemon(session: Session) -> int:
    values = session.client.properties(names.BUS_PATH, names.MANAGER_INTERFACE)
    if session.out.json:
        times = {"next_wake": values.pop("NextWakeUSec", 0), "started": values.pop("StartedUSec", 0)}
        session.out.dump(as_json({**{_snake(key): value for key, value in values.items()}, **times}))
        return DONE
    out, now = session.out, session.now
    out.line(f"{out.paint('●', '32')} crtrd {harmless(str(values.get('Version', '')))}")
    held = values.get("HeldCount", 0)
    wake, started = _instant(values.get("NextWakeUSec")), _instant(values.get("StartedUSec"))
    for label, text in (
        ("State", out.word(str(values.get("State", "")))),
        ("Since", f"{calendar_time(started)}; {relative(started, now)}" if started else "-"),
        ("Crons", f"{values.get('CronCount', 0)} armed, {values.get('ActiveCount', 0)} running, {held} held"),
        ("Outbox", f"{values.get('OutboxPending', 0)} pending"),
        ("Wake-up", f"{calendar_time(wake)}; {relative(wake, now)}" if wake else "nothing is due"),
    ):
        out.line(f"{label:>10}: {text}")
    return DONE


def _print_cron(session: Session, view: View, runs: list[View]) -> None:
    out, now = session.out, session.now
    keys = definition(view)
    out.line(f"{_dot(session, view)} {harmless(str(view.get('name')))} ({view.get('id')})")
    upcoming = _instant(view.get("next"))
    lines = [("State", _state(session, view))]
    if upcoming:
        lines.append(("Next", f"{calendar_time(upcoming)}; {relative(upcoming, now)}"))
    schedule = keys.get("schedule")
    texts = ", ".join(map(str, schedule)) if isinstance(schedule, list) else "when triggered"
    lines.append(("Schedule", harmless(f"{texts} ({view.get('timezone')})")))
    lines.append(("Command", harmless(_command(keys))))
    if view.get("last_status"):
        lines.append(("Last", out.word(str(view["last_status"]))))
    if view.get("failures"):
        lines.append(("Failures", f"{view['failures']} in a row"))
    for label, text in lines:
        out.line(f"{label:>10}: {text}")
    if runs:
        out.line()
        rows = [(str(run.get("id", ""))[:12], relative(_instant(run.get("started_at")), now), result_of(run),
                 took(run)) for run in runs]
        out.table(("RUN", "STARTED", "RESULT", "TOOK"), rows, flexible=2)


def _dot(session: Session, view: View) -> str:
    failed = view.get("last_status") in FAILURES
    state = "failed" if failed else str(view.get("state"))
    return session.out.paint("●", {"failed": "31", "active": "32", "paused": "33"}.get(state, ""))


def _state(session: Session, view: View) -> str:
    text = session.out.word(str(view.get("state")))
    if view.get("paused_by"):
        text += f" by {harmless(str(view['paused_by']))}"
    if view.get("note"):
        text += f": {harmless(str(view['note']))}"
    return f"{text}, {view['held']} held" if view.get("held") else text


def _command(keys: Mapping[str, object]) -> str:
    from shlex import join  # noqa: PLC0415

    command = keys.get("command")
    return str(keys["shell"]) if keys.get("shell") else join(map(str, command)) if isinstance(command, list) else "-"


def result_of(run: Mapping[str, object]) -> str:
    """The result of a run with its number: `exit-code 1`."""
    result = str(run.get("result") or "running")
    number = run.get("exit_code") if result == "exit-code" else run.get("signal") if result == "signal" else None
    return f"{result} {number}" if number is not None else result


def took(run: Mapping[str, object]) -> str:
    duration = run.get("duration_us")
    return span(duration) if isinstance(duration, int) and run.get("finished_at") else "-"


def show(session: Session) -> int:
    """Every property as `Key=value`, systemctl's way."""
    views = [cron(session, name) for name in session.options.name]
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
    if isinstance(value, int) and not isinstance(value, bool):
        if key in TIMES:
            return calendar_time(value) if value else ""
        if key in BY_NAME:
            from crtrd.config.cronfile import written  # noqa: PLC0415

            value = written(BY_NAME[key].kind, value)
    return _flat(value)


def _flat(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case list():
            return " ".join(map(_flat, value))
        case Mapping():
            return " ".join(f"{key}={_flat(inner)}" for key, inner in value.items())
        case _:
            return str(value)


def cat(session: Session) -> int:
    """The definition as a file that `arm --file` takes."""
    views = [cron(session, name) for name in session.options.name]
    if session.out.json:
        session.out.dump([{"name": view.get("name"), **definition(view)} for view in views])
        return DONE
    from crtrd.config.cronfile import write_file  # noqa: PLC0415  # tomllib and the schedule room, for this verb alone

    for index, view in enumerate(views):
        text = write_file(str(view.get("name")), own(view))
        session.out.line(("\n" if index else "") + text.rstrip("\n"))
    return DONE


def _judge(session: Session, good: Callable[[View], bool], word: Callable[[View], str], otherwise: int) -> int:
    answers = [cron(session, name) for name in session.options.name]
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
    return "failed" if broken else str(view.get("state"))


def is_failed(session: Session) -> int:
    return _judge(session, lambda view: _health(view) == "failed", _health, FAILED)


VERBS = {"list": listing, "status": status, "show": show, "cat": cat, "is-active": is_active, "is-failed": is_failed}
