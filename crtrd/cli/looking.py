"""`list`, `status`, `show`, `cat`, `is-active`, `is-failed`: what is armed and how it stands. Changes nothing."""

import argparse
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from crtrd import names
from crtrd.cli.endings import ending, result_of, took
from crtrd.cli.fields import LIST_FIELDS, RUN_FIELDS, TIMES
from crtrd.cli.logs import last_lines
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, FAILED, NOT_ACTIVE, NOT_FOUND, Failure, Session, View
from crtrd.cli.words import calendar_time, harmless, relative, short
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
        case "status":
            parser.add_argument("name", nargs="*", metavar="NAME", help="crons, also f*; none: the daemon")
        case _:
            parser.add_argument("name", nargs="+", metavar="NAME", help="cron, by name, pattern or id")


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


def of_names(session: Session, wanted: Callable[[View], bool] = lambda _: True) -> list[str]:
    """The crons that are named; a pattern stands for all that match and are `wanted`, as with systemctl."""
    found: dict[str, None] = {}
    everything: list[View] | None = None
    for name in session.options.name:
        if not is_pattern(name):
            found[name] = None
            continue
        everything = session.everything("ListCrons", {}) if everything is None else everything
        hits = [str(view["name"]) for view in everything if fnmatchcase(str(view.get("name")), name) and wanted(view)]
        if not hits:
            raise Failure(f"cannot find a cron: nothing fits {name!r}", NOT_FOUND)
        found.update(dict.fromkeys(sorted(hits)))
    return list(found)


def is_pattern(name: str) -> bool:
    """No name has one of these characters."""
    return any(character in "*?[" for character in name)


def selected(views: list[View], names: list[str]) -> list[View]:
    """Those that are named or fit a pattern, in their order. A name that nothing has is refused."""
    known = {word for view in views for word in (view.get("name"), view.get("id"))}
    if missing := [name for name in names if not is_pattern(name) and name not in known]:
        raise Failure(f"cannot find cron {missing[0]!r}: no cron has that name or id", NOT_FOUND)
    return [view for view in views if any(_fits(view, name) for name in names)]


def _fits(view: View, name: str) -> bool:
    return name in {view.get("name"), view.get("id")} or fnmatchcase(str(view.get("name")), name)


def finished(session: Session, names: list[str]) -> list[str]:
    """What is to be said of those that have no instant ahead any more."""
    return [f"{name} is finished: no instant lies ahead." for name in names
            if cron(session, name).get("state") == "finished"]


def waits_for(schedule: object) -> str:
    """What a cron without a next instant waits for."""
    texts = [str(text).strip().lower() for text in schedule] if isinstance(schedule, list) else []
    if "@reboot" in texts:
        return "at the next boot"
    return "no instant ahead" if texts else "when triggered"


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
    session.out.table(header, rows, flexible=(4, 0, 3), total="crons")
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
    return str(view.get("name", "")), state, _upcoming(view, now), last, texts or "when triggered"


def _upcoming(view: View, now: int) -> str:
    upcoming = _instant(view.get("next"))
    if upcoming is None:
        boot = view.get("state") == "active" and waits_for(view.get("schedule")) == "at the next boot"
        return "at boot" if boot else "-"
    return relative(upcoming, now) if upcoming > now else "due"


def _instant(value: object) -> int | None:
    return value if isinstance(value, int) and value else None


def status(session: Session) -> int:
    if not session.options.name:
        return _daemon(session)
    shown: list[object] = []
    worst = DONE
    for index, name in enumerate(of_names(session)):
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
    out.line(f"{_dot(session, view)} {harmless(str(view.get('name')))} ({view.get('id')})")
    last = _last(view, runs, now)
    lines = [("State", _state(session, view)), *_plans(view, now), *_ways(definition(view))]
    if view.get("last_status"):
        lines.append(("Last", out.word(str(view["last_status"])) + harmless(last)))
    if view.get("failures"):
        lines.append(("Failures", f"{view['failures']} in a row"))
    for label, text in lines:
        out.line(f"{label:>10}: {text}")
    if runs:
        out.line()
        aimed = any(run.get("target") for run in runs)
        rows = [(short(run.get("id")), *([str(run.get("target"))] if aimed else []),
                 relative(_instant(run.get("started_at")), now), result_of(run), took(run)) for run in runs]
        out.table(("RUN", *(["TARGET"] if aimed else []), "STARTED", "RESULT", "TOOK"), rows, flexible=1)
    for index, said in enumerate(last_lines(session, str(view["id"]))):
        out.line(("\n" if index == 0 else "") + harmless(said))


def _plans(view: View, now: int) -> list[tuple[str, str]]:
    lines = []
    upcoming, skips, texts = _instant(view.get("next")), view.get("skips"), view.get("schedule")
    if upcoming:
        lines.append(("Next", f"{calendar_time(upcoming)}; {relative(upcoming, now) if upcoming > now else 'due'}"))
    elif view.get("state") == "active":
        lines.append(("Next", waits_for(texts)))
    if isinstance(skips, list) and skips:
        lines.append(("Skips", ", ".join(map(calendar_time, skips))))
    shown = ", ".join(map(str, texts)) if isinstance(texts, list) and texts else "when triggered"
    return [*lines, ("Schedule", harmless(f"{shown} ({view.get('timezone')})"))]


def _ways(keys: View) -> list[tuple[str, str]]:
    """The command, and what is not as by default."""
    lines = [("Command", _command(keys))]
    for key, label, usual in (("targets", "Targets", ()), ("user", "User", ""), ("profile", "Profile", ""),
                              ("cwd", "Folder", ""), ("overlap", "Overlap", "skip"), ("retries", "Retries", 0)):
        if keys.get(key) not in {None, usual} if not isinstance(keys.get(key), list) else keys[key]:
            lines.append((label, _flat(keys[key])))
    return [(label, harmless(text)) for label, text in lines]


def _last(view: View, runs: list[View], now: int) -> str:
    """When the last run that is over ended and, where it was no success, how."""
    over = next((run for run in runs if _instant(run.get("finished_at"))), None)
    if over is None:
        return ""
    how = "" if view.get("last_status") == "success" else f": {ending(over)}"
    return f"{how}; {relative(_instant(over.get('finished_at')), now)}"


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
    views = [cron(session, name) for name in of_names(session)]
    from crtrd.config.cronfile import write_file, written  # noqa: PLC0415  # tomllib and the schedule room, for this

    if session.out.json:
        session.out.dump([{"name": view.get("name"), **{
            key: written(BY_NAME[key].kind, value) for key, value in definition(view).items()}} for view in views])
        return DONE
    for index, view in enumerate(views):
        text = write_file(str(view.get("name")), own(view))
        session.out.line(("\n" if index else "") + text.rstrip("\n"))
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


VERBS = {"list": listing, "status": status, "show": show, "cat": cat, "is-active": is_active, "is-failed": is_failed}
