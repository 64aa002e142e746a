"""`status`: the daemon, or crons with their plans, their last runs and what those said. Changes nothing."""

import argparse
from collections.abc import Mapping

from crtrd import names
from crtrd.cli.endings import ending, result_of, took
from crtrd.cli.fields import LIST_FIELDS, RUN_FIELDS
from crtrd.cli.logs import last_lines
from crtrd.cli.looking import FAILURES, cron, definition, flat, instant, snake
from crtrd.cli.naming import of_names, waits_for
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, NOT_ACTIVE, Session, View
from crtrd.cli.words import calendar_time, harmless, relative, short


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"{verb} of these, by name, f* or id; none: the daemon")


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
        session.out.dump(as_json({**{snake(key): value for key, value in values.items()}, **times}))
        return DONE
    out, now = session.out, session.now
    out.line(f"{out.paint('●', '32')} crtrd {harmless(str(values.get('Version', '')))}")
    held = values.get("HeldCount", 0)
    wake, started = instant(values.get("NextWakeUSec")), instant(values.get("StartedUSec"))
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
        out.line(out.fold(f"{label:>10}: {text}", indent=12))
    if runs:
        out.line()
        aimed = any(run.get("target") for run in runs)
        rows = [(short(run.get("id")), *([str(run.get("target"))] if aimed else []),
                 relative(instant(run.get("started_at")), now), result_of(run), took(run)) for run in runs]
        out.table(("RUN", *(["TARGET"] if aimed else []), "STARTED", "RESULT", "TOOK"), rows, flexible=1)
    for index, said in enumerate(last_lines(session, str(view["id"]))):
        out.line(("\n" if index == 0 else "") + out.fold(harmless(said)))


def _plans(view: View, now: int) -> list[tuple[str, str]]:
    lines = []
    upcoming, skips, texts = instant(view.get("next")), view.get("skips"), view.get("schedule")
    if upcoming:
        lines.append(("Next", f"{calendar_time(upcoming)}; {relative(upcoming, now) if upcoming > now else 'due'}"))
    elif view.get("state") == "active" and (waits := waits_for(texts, skipped=bool(skips))) and not (
            skips and waits == "no instant ahead"):
        lines.append(("Next", waits))
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
            lines.append((label, flat(keys[key])))
    return [(label, harmless(text)) for label, text in lines]


def _last(view: View, runs: list[View], now: int) -> str:
    """When the last run that is over ended and, where it was no success, how."""
    over = next((run for run in runs if instant(run.get("finished_at"))), None)
    if over is None:
        return ""
    how = "" if view.get("last_status") == "success" else f": {ending(over)}"
    return f"{how}; {relative(instant(over.get('finished_at')), now)}"


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


VERBS = {"status": status}
