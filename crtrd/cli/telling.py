"""`inbox`, `outbox`, `escalations`: what was told to whom, what could not be told yet, what needs a person."""

import argparse
import os
import pwd

from crtrd.cli.fields import ESCALATION_FIELDS, OUTBOX_FIELDS
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, USAGE, Failure, Session, View
from crtrd.cli.words import day_time, harmless, relative

PAGE = 200
FIRST = "-"
POLL_SECONDS = 3.0


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    match verb:
        case "inbox":
            parser.add_argument("owner", nargs="?", metavar="OWNER", help="whose (yours)")
            parser.add_argument("--all", action="store_true", help="also what was acknowledged")
            parser.add_argument("--ack", action="store_true", help="acknowledge what is shown")
            parser.add_argument("-f", "--follow", action="store_true", help="wait for more")
        case "outbox":
            parser.add_argument("action", nargs="?", choices=("retry", "discard"), help="do this to one")
            parser.add_argument("delivery", nargs="?", metavar="ID", help="id of a delivery, or its beginning")
            parser.add_argument("--state", metavar="WORD", help="only these")
        case _:
            parser.add_argument("--deliver", metavar="ID", help="send this one to its owner")


def inbox(session: Session) -> int:
    options = session.options
    owner = options.owner or pwd.getpwuid(os.getuid()).pw_name
    if options.follow:
        session.client.subscribe()
    cursor = _show(session, owner, FIRST if options.all else "")
    while options.follow:
        for member, _ in session.client.signals(POLL_SECONDS):
            if member == "Event":
                break
        cursor = _show(session, owner, cursor) or cursor
    return DONE


def _show(session: Session, owner: str, cursor: str) -> str:
    """Print what comes after the cursor; returns the id of the last entry shown."""
    shown: list[object] = []
    last = ""
    while True:
        entries, onward = session.client.call("ReadInbox", "ssu", owner, cursor, PAGE)
        views: list[View] = entries if isinstance(entries, list) else []
        for entry in views:
            last = str(entry.get("id"))
            if session.out.json:
                shown.append(entry)
            else:
                session.out.line(session.out.paint(harmless(f"{entry.get('at')} {entry.get('subject')}"), "1"))
                text = str(entry.get("text", "")).removeprefix(f"{entry.get('subject')}\n").lstrip("\n")
                session.out.line(harmless(text, keep="\n\t"))
        if not onward:
            break
        cursor = str(onward)
    if session.out.json and (shown or not session.options.follow):
        session.out.dump(shown)
    elif not last and not session.options.follow:
        session.out.note("Nothing new.")
    if session.options.ack and last:
        session.client.call("AckInbox", "ss", owner, last)
    return last


def outbox(session: Session) -> int:
    options = session.options
    if options.action:
        if not options.delivery:
            raise Failure(f"cannot {options.action}: which delivery?", USAGE)
        session.client.call("RetryDelivery" if options.action == "retry" else "DiscardDelivery", "s", options.delivery)
        session.acted()
        return DONE
    views = session.everything("ListOutbox", {"state": options.state})
    if session.out.json:
        session.out.dump([as_json(view, OUTBOX_FIELDS) for view in views])
        return DONE
    rows = [(str(view.get("id"))[:12], str(view.get("cron_name")), str(view.get("sink")), str(view.get("state")),
             str(view.get("attempts", 0)), _ahead(view, session.now), str(view.get("last_error") or ""))
            for view in views]
    header = ("ID", "CRON", "SINK", "STATE", "TRIED", "NEXT", "ERROR")
    session.out.table(header, rows, flexible=(6, 2, 1), total="delivery", right="TRIED")
    return DONE


def _ahead(view: View, now: int) -> str:
    at = view.get("next_attempt_at")
    return relative(max(at, now), now, parts=1) if isinstance(at, int) else "-"


def _moment(view: View, key: str) -> str:
    value = view.get(key)
    return day_time(value if isinstance(value, int) else None)


def escalations(session: Session) -> int:
    if session.options.deliver:
        session.client.call("DeliverEscalation", "s", session.options.deliver)
        session.acted()
        return DONE
    views = session.everything("ListEscalations", {})
    if session.out.json:
        session.out.dump([as_json(view, ESCALATION_FIELDS) for view in views])
        return DONE
    rows = [(str(view.get("id"))[:12], _moment(view, "at"), str(view.get("cron_name")), str(view.get("state")),
             str(view.get("summary"))) for view in views]
    session.out.table(("ID", "AT", "CRON", "STATE", "SUMMARY"), rows, flexible=4, total="escalation")
    return DONE


VERBS = {"inbox": inbox, "outbox": outbox, "escalations": escalations}
