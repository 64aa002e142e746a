"""`cancel`, `pause`, `skip`, `backfill`, `poke`, `trigger` and their kin: asks the daemon for something to be done."""

import argparse
import os
import signal
from collections.abc import Callable

from crtrd.cli.looking import cron, finished
from crtrd.cli.naming import of_names, waits_for
from crtrd.cli.session import DONE, FAILED, USAGE, Failure, Session, packed
from crtrd.cli.words import calendar_time, counted, short


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    match verb:
        case "kill":
            parser.add_argument("run", nargs="+", metavar="RUN", help="id of a live run, or its beginning")
            parser.add_argument("-s", "--signal", default="TERM", metavar="SIGNAL", help="name or number (TERM)")
            return
        case "rerun":
            parser.add_argument("occurrence", metavar="OCCURRENCE", help="id of a settled one, or its beginning")
            return
        case "cancel" | "pause" | "resume" | "poke":
            parser.add_argument("name", nargs="+", metavar="NAME", help="cron, by name, pattern or id")
        case _:
            parser.add_argument("name", metavar="NAME", help="cron, by name or id")
    match verb:
        case "cancel":
            parser.add_argument("--kill", action="store_true", help="stop its live runs too")
        case "pause":
            parser.add_argument("--note", default="", metavar="TEXT", help="why, for whoever looks")
        case "skip":
            parser.add_argument("instant", nargs="?", metavar="INSTANT", help="the one to leave out (the next)")
            parser.add_argument("--undo", action="store_true", help="leave it in after all; without INSTANT: all")
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


def _each(session: Session, wanted: list[str], act: Callable[[str], object]) -> None:
    """Do it for each; one that is refused keeps no other from it, and the last refusal is raised in the end."""
    from crtrd.cli.client import Refused  # noqa: PLC0415

    refused: list[Refused] = []
    for name in wanted:
        try:
            act(name)
        except Refused as refusal:
            refused.append(refusal)
    for earlier in refused[:-1]:
        session.complain(f"crtrctl: {earlier}")
    if refused:
        raise refused[-1]


def cancel(session: Session) -> int:
    """A command that cancels its own cron says which run it is, so that it may still finish and deliver."""
    given: dict[str, object] = {"kill": session.options.kill}
    if own := os.environ.get("CRTR_RUN_ID"):
        given["run"] = own
    _each(session, of_names(session), lambda name: session.client.call("Cancel", "sa{sv}", name, packed(given)))
    session.acted()
    return DONE


def pause(session: Session) -> int:
    names = of_names(session, lambda view: view.get("state") != "finished")
    _each(session, names, lambda name: session.client.call("Pause", "ss", name, session.options.note))
    session.acted()
    return DONE


def resume(session: Session) -> int:
    """A cron that has no instant ahead any more is finished by it, which is said."""
    names = of_names(session, lambda view: view.get("state") == "paused")
    _each(session, names, lambda name: session.client.call("Resume", "s", name))
    session.acted("\n".join(finished(session, names)))
    return DONE


def skip(session: Session) -> int:
    """Without INSTANT the next one, which is asked for first so that it can be said which one it was."""
    name, client = session.options.name, session.client
    instant = _instant(session, session.options.instant) if session.options.instant else 0
    if session.options.undo:
        client.call("Unskip", "st", name, instant)
        session.acted(f"{name}: next is {_upcoming(session)}")
        return DONE
    instant = instant or _next(session) or 0
    client.call("Skip", "st", name, instant)
    session.acted(f"{name}: will skip {calendar_time(instant)}; next is {_upcoming(session)}")
    return DONE


def _next(session: Session) -> int | None:
    (instants,) = session.client.call("Next", "su", session.options.name, 1)
    return int(instants[0]) if isinstance(instants, list) and instants else None


def _upcoming(session: Session) -> str:
    if instant := _next(session):
        return calendar_time(instant)
    view = cron(session, session.options.name)
    return waits_for(view.get("schedule"), skipped=bool(view.get("skips")))


def _instant(session: Session, text: str, *, last: bool = False) -> int:
    """What somebody wrote, local to the cron's zone."""
    from crtrd.cli.moments import instant_of  # noqa: PLC0415  # the schedule room, for two verbs

    zone = str(cron(session, session.options.name).get("timezone") or "UTC")
    return instant_of(text, zone, session.now, last=last)


def backfill(session: Session) -> int:
    """Occurrences for the instants of the schedule in [FROM, TO] that nothing has served."""
    options = session.options
    start, end = _instant(session, options.start), _instant(session, options.end, last=True)
    given = packed({"dry_run": options.dry_run})
    (count,) = session.client.call("Backfill", "stta{sv}", options.name, start, end, given)
    if session.out.json:
        session.out.dump({"occurrences": count, "dry_run": options.dry_run})
    else:
        verb = "Would make" if options.dry_run else "Made"
        session.out.note(f"{verb} {counted(int(str(count)), 'occurrence')} of {options.name}.")
    return DONE


def poke(session: Session) -> int:
    total = 0
    for name in of_names(session):
        (count,) = session.client.call("Poke", "s", name)
        total += count if isinstance(count, int) else 0
    if session.out.json:
        session.out.dump({"poked": total})
    else:
        session.out.note(f"Poked {counted(total, 'held occurrence')}.")
    return DONE


def kill(session: Session) -> int:
    number = _signal(session.options.signal)
    _each(session, session.options.run, lambda run: session.client.call("Kill", "si", run, number))
    session.acted()
    return DONE


def _signal(text: str) -> int:
    try:
        return signal.Signals(int(text)) if text.isdigit() else signal.Signals["SIG" + text.upper().removeprefix("SIG")]
    except (KeyError, ValueError) as error:
        raise Failure(f"cannot send signal {text!r}: no such signal", USAGE) from error


def trigger(session: Session) -> int:
    options = session.options
    given = {key: getattr(options, key) for key in ("at", "key", "label", "source", "overlap")}
    if options.at:
        given["at"] = _absolute(session, options.at)
    disposition, occurrence, status = session.client.call("Trigger", "sa{sv}", options.name, packed(given))
    if session.out.json:
        session.out.dump({"disposition": disposition, "occurrence_id": occurrence or None, "status": status or None})
    else:
        session.out.line(f"{disposition} {short(occurrence)} {status}".rstrip())
    return FAILED if disposition == "rejected" else DONE


def _absolute(session: Session, text: str) -> str:
    """What depends on the clock as a time that does not; the rest is the daemon's to read."""
    from crtrd.cli.moments import absolute  # noqa: PLC0415

    return absolute(text, lambda: str(cron(session, session.options.name).get("timezone") or "UTC"), session.now)


def rerun(session: Session) -> int:
    (occurrence,) = session.client.call("Rerun", "s", session.options.occurrence)
    if session.out.json:
        session.out.dump({"occurrence_id": occurrence or None})
    else:
        wanted = short(session.options.occurrence)
        session.out.note(f"Accepted occurrence {short(occurrence)}: what {wanted} has left undone.")
    return DONE


VERBS = {"cancel": cancel, "pause": pause, "resume": resume, "skip": skip, "poke": poke, "kill": kill, "rerun": rerun,
         "trigger": trigger, "backfill": backfill}
