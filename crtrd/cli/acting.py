"""`cancel`, `pause`, `skip`, `backfill`, `poke`, `run` and their kin: asks the daemon for something to be done."""

import argparse
import os
import signal
import sys

from crtrd.cli.fields import RUN_FIELDS
from crtrd.cli.looking import cron
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, FAILED, USAGE, Failure, Session, View, instant_of, packed
from crtrd.cli.words import harmless

POLL_SECONDS = 3.0
"""How long `run --wait` trusts in signals before it looks itself: a bus that was restarted sends none."""
SIGNALLED = 128


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    match verb:
        case "kill":
            parser.add_argument("run", nargs="+", metavar="RUN", help="id of a live run")
            parser.add_argument("-s", "--signal", default="TERM", metavar="SIGNAL", help="name or number (TERM)")
            return
        case "rerun":
            parser.add_argument("occurrence", metavar="OCCURRENCE", help="id of a settled occurrence")
            return
        case "cancel" | "pause" | "resume" | "poke":
            parser.add_argument("name", nargs="+", metavar="NAME", help="cron, by name or id")
        case _:
            parser.add_argument("name", metavar="NAME", help="cron, by name or id")
    match verb:
        case "cancel":
            parser.add_argument("--kill", action="store_true", help="stop its live runs too")
        case "pause":
            parser.add_argument("--note", default="", metavar="TEXT", help="why, for whoever looks")
        case "skip":
            parser.add_argument("instant", nargs="?", metavar="INSTANT", help="the one to leave out (the next)")
        case "run":
            parser.add_argument("--wait", action="store_true", help="wait for the end, exit with its status")
            parser.add_argument("--target", default="", metavar="TARGET", help="this target only")
            parser.add_argument("--overlap", default="", metavar="WORD", help="overlap policy for this one")
        case "backfill":
            parser.add_argument("start", metavar="FROM", help="the first instant, or a time before it")
            parser.add_argument("end", metavar="TO", help="the last one, or a time after it")
            parser.add_argument("--dry-run", action="store_true", help="only say how many it would be")
        case "trigger":
            parser.add_argument("--at", metavar="TIME", help="the scheduled instant at or before this")
            parser.add_argument("--key", metavar="KEY", help="idempotency key")
            parser.add_argument("--label", metavar="TEXT", help="text to find it by")
            parser.add_argument("--source", metavar="TEXT", help="who asks")
            parser.add_argument("--overlap", metavar="WORD", help="overlap policy for this one")
        case _:
            pass


def cancel(session: Session) -> int:
    """A command that cancels its own cron says which run it is, so that it may still finish and deliver."""
    given: dict[str, object] = {"kill": session.options.kill}
    if own := os.environ.get("CRTR_RUN_ID"):
        given["run"] = own
    for name in session.options.name:
        session.client.call("Cancel", "sa{sv}", name, packed(given))
    return DONE


def pause(session: Session) -> int:
    for name in session.options.name:
        session.client.call("Pause", "ss", name, session.options.note)
    return DONE


def resume(session: Session) -> int:
    for name in session.options.name:
        session.client.call("Resume", "s", name)
    return DONE


def skip(session: Session) -> int:
    name, text = session.options.name, session.options.instant
    instant = instant_of(text, str(cron(session, name).get("timezone") or "UTC")) if text else 0
    session.client.call("Skip", "st", name, instant)
    return DONE


def backfill(session: Session) -> int:
    """Occurrences for the instants of the schedule in [FROM, TO] that nothing has served."""
    options = session.options
    zone = str(cron(session, options.name).get("timezone") or "UTC")
    start, end = instant_of(options.start, zone), instant_of(options.end, zone)
    given = packed({"dry_run": options.dry_run})
    (count,) = session.client.call("Backfill", "stta{sv}", options.name, start, end, given)
    if session.out.json:
        session.out.dump({"occurrences": count, "dry_run": options.dry_run})
    else:
        plural = "" if count == 1 else "s"
        verb = "Would make" if options.dry_run else "Made"
        session.out.note(f"{verb} {count} occurrence{plural} of {options.name}.")
    return DONE


def poke(session: Session) -> int:
    total = 0
    for name in session.options.name:
        (count,) = session.client.call("Poke", "s", name)
        total += count if isinstance(count, int) else 0
    if session.out.json:
        session.out.dump({"poked": total})
    else:
        session.out.note(f"Poked {total} held occurrence{'' if total == 1 else 's'}.")
    return DONE


def kill(session: Session) -> int:
    number = _signal(session.options.signal)
    for run in session.options.run:
        session.client.call("Kill", "si", run, number)
    return DONE


def _signal(text: str) -> int:
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except (KeyError, ValueError) as error:
        raise Failure(f"cannot send signal {text!r}: no such signal", USAGE) from error


def trigger(session: Session) -> int:
    options = session.options
    given = {key: getattr(options, key) for key in ("at", "key", "label", "source", "overlap")}
    disposition, occurrence, status = session.client.call("Trigger", "sa{sv}", options.name, packed(given))
    if session.out.json:
        session.out.dump({"disposition": disposition, "occurrence_id": occurrence or None, "status": status or None})
    else:
        session.out.line(f"{disposition} {occurrence} {status}".rstrip())
    return FAILED if disposition == "rejected" else DONE


def rerun(session: Session) -> int:
    (occurrence,) = session.client.call("Rerun", "s", session.options.occurrence)
    if session.out.json:
        session.out.dump({"occurrence_id": occurrence or None})
    else:
        session.out.note(f"Accepted occurrence {occurrence}: what {session.options.occurrence} has left undone.")
    return DONE


def run(session: Session) -> int:
    options, client = session.options, session.client
    if options.wait:
        client.subscribe()  # before the run exists, so that its end cannot be missed
    given: dict[str, object] = {"target": options.target, "overlap": options.overlap}
    occurrence, paths = client.call("Run", "sa{sv}", options.name, packed(given))
    runs = [str(path).rpartition("/")[2] for path in paths] if isinstance(paths, list) else []
    if options.wait:
        return _wait(session, str(occurrence), runs)
    if session.out.json:
        session.out.dump({"occurrence_id": occurrence or None, "runs": runs})
    elif runs:
        session.out.note(f"Started {options.name}: run {', '.join(runs)}")
    else:
        session.out.note(f"Not started: {options.name} {_why(_occurrence(session, str(occurrence)))}")
    return DONE if runs else FAILED


def _occurrence(session: Session, occurrence: str) -> View:
    near = session.everything("ListOccurrences", {"cron": session.options.name}, 100)
    return next((view for view in near if view.get("id") == occurrence), {})


def _why(occurrence: View) -> str:
    words = f"is {occurrence.get('status') or 'nowhere'}"
    return f"{words} ({occurrence['reason']})" if occurrence.get("reason") else words


def _wait(session: Session, occurrence: str, runs: list[str]) -> int:
    """Until the occurrence is settled, or its command said "not now". Signals wake; the ledger decides."""
    found = _ended(session, occurrence)
    while found is None:
        for member, body in session.client.signals(POLL_SECONDS):
            if member == "OccurrenceSettled" and occurrence in body:
                break
            if member == "RunSettled" and body[-1] == "held" and set(runs) & set(map(str, body)):
                break
        found = _ended(session, occurrence)
    if session.out.json:
        session.out.dump([as_json(view, RUN_FIELDS) for view in found])
        return _status(found)
    for view in found:
        for name in ("stdout", "stderr"):
            head = view.get(f"{name}_head")
            if isinstance(head, bytes):
                session.out.head(head, to_error=name == "stderr")
    return _status(found)


def _ended(session: Session, occurrence: str) -> list[View] | None:
    """The last run of each cell once the occurrence is over or held; None while it goes on."""
    mine = _occurrence(session, occurrence)
    if mine.get("status") in {"pending", "running"}:
        return None
    last: dict[str, View] = {}
    for view in session.everything("ListRuns", {"occurrence_id": occurrence}):
        target = str(view.get("target"))
        if _attempt(view) >= _attempt(last.get(target, {})):
            last[target] = view
    if not last:
        raise Failure(f"cannot run {session.options.name}: the occurrence {_why(mine)}")
    return list(last.values())


def _attempt(view: View) -> int:
    attempt = view.get("attempt")
    return attempt if isinstance(attempt, int) else 0


def _status(found: list[View]) -> int:
    """The command's own exit status; of several cells the first that is not 0."""
    for view in found:
        code, number = view.get("exit_code"), view.get("signal")
        if isinstance(code, int) and code:
            return code
        if isinstance(number, int) and number and not isinstance(code, int):
            return SIGNALLED + number
        if view.get("result") not in {"success", None} and not isinstance(code, int):
            text = f"cannot run {view.get('cron_name')}: {view.get('result')}: {view.get('reason') or 'no exit status'}"
            print("crtrctl: " + harmless(text), file=sys.stderr)
            return FAILED
    return DONE


VERBS = {"cancel": cancel, "pause": pause, "resume": resume, "skip": skip, "poke": poke, "kill": kill, "rerun": rerun,
         "trigger": trigger, "run": run, "backfill": backfill}
