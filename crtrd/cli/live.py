"""`monitor`: events as they happen, until interrupted or the bus goes."""

import argparse
import sys
import time
from fnmatch import fnmatchcase

from crtrd.cli.naming import selected
from crtrd.cli.session import DONE, Session
from crtrd.cli.words import harmless, moment, rfc3339


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("name", nargs="*", metavar="NAME", help=f"{verb} these crons only")
    parser.add_argument("--kind", metavar="PREFIX", default="", help="only events whose kind begins so, as cron.run")


def monitor(session: Session) -> int:
    """Every event is printed as it arrives; with --json one object a line."""
    session.client.subscribe()
    if session.options.name:
        known = session.everything("ListCrons", {})
        for view in selected(known, session.options.name):  # by which its events may be named
            session.options.name += [str(view.get("name")), str(view.get("id"))]
    session.out.note("Waiting for events; end with Ctrl-C.")
    sys.stdout.flush()
    for member, body in session.client.signals(None):
        match member, body:
            case ("Event", (str() as kind, str() as message, dict() as fields)) if _wanted(session, kind, fields):
                _print(session, kind, message, fields)
                sys.stdout.flush()
            case _:
                pass
    return DONE


def _wanted(session: Session, kind: str, fields: dict[str, object]) -> bool:
    names = session.options.name
    words = {str(fields.get("CRTRD_CRON")), str(fields.get("CRTRD_CRON_ID"))}
    mine = not names or any(fnmatchcase(word, name) for word in words for name in names)
    return bool(mine) and kind.startswith(session.options.kind)


def _print(session: Session, kind: str, message: str, fields: dict[str, object]) -> None:
    at = time.time_ns() // 1000  # noqa: TID251  # the moment of printing; the event's own is in the journal
    if session.out.json:
        session.out.dump({"at": rfc3339(at), "event": kind, "message": message, **fields})
        return
    clock = moment(at, None).strftime("%H:%M:%S")
    session.out.line(f"{clock} {session.out.paint(kind, '2')} {harmless(message)}")


VERBS = {"monitor": monitor}
