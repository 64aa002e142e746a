"""`occurrences`, `runs`, `run-info`, `why`: what happened and why. Changes nothing."""

import argparse
import re
from collections.abc import Mapping, Sequence

from crtrd.cli.endings import left_out, result_of, took
from crtrd.cli.fields import OCCURRENCE_FIELDS, RUN_FIELDS
from crtrd.cli.looking import cron
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, USAGE, Failure, Session, View
from crtrd.cli.words import calendar_time, day_time, harmless, short
from crtrd.core.occurrence import Result, Status

DEFAULT_ROWS = 50
_ID = re.compile("[0-9a-f]{4,32}")


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "run-info":
        parser.add_argument("run", metavar="RUN", help="its id, or the beginning of it")
        parser.add_argument("--raw", action="store_true", help="output as it is, control characters too")
        return
    if verb == "why":
        parser.add_argument("name", metavar="NAME", help="cron, by name or id")
        parser.add_argument("instant", nargs="?", metavar="INSTANT",
                            help="past or future, local to the cron's zone; or the id of an occurrence")
        return
    few = "?" if verb == "runs" else None
    parser.add_argument("name", nargs=few, metavar="NAME", help="cron, by name or id")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help=f"at most so many ({DEFAULT_ROWS}; 0: all)")
    word, known = ("status", Status) if verb == "occurrences" else ("result", Result)
    words = [str(each) for each in known]
    parser.add_argument(f"--{word}", choices=words, metavar="WORD", help="only these: " + ", ".join(words))
    parser.add_argument("--since", metavar="TIME", help="not before this")
    parser.add_argument("--until", metavar="TIME", help="not after this")


def _rows(session: Session, member: str, word: str) -> list[View]:
    options = session.options
    criteria = {"cron": options.name, word: getattr(options, word)}
    if options.since or options.until:
        from crtrd.cli.moments import instant_of  # noqa: PLC0415
        from crtrd.cli.preview import host_zone  # noqa: PLC0415

        for bound in ("since", "until"):
            if text := getattr(options, bound):
                criteria[bound] = instant_of(text, host_zone(), session.now, last=bound == "until")
    if options.lines is not None and options.lines < 0:
        raise Failure(f"cannot show {options.lines} rows: write a number from 0 on, 0 for all", USAGE)
    if options.lines is None and session.out.json:
        most = None
    else:
        most = DEFAULT_ROWS if options.lines is None else options.lines or None
    return session.everything(member, criteria, most)


def occurrences(session: Session) -> int:
    views = _rows(session, "ListOccurrences", "status")
    if session.out.json:
        session.out.dump([as_json(view, OCCURRENCE_FIELDS) for view in views])
        return DONE
    rows = [(short(view.get("id")), day_time(_number(view, "instant")), str(view.get("origin", "")),
             str(view.get("status", "")), str(view.get("reason") or "-"), str(view.get("detail") or ""))
            for view in views]
    header = ("OCCURRENCE", "INSTANT", "ORIGIN", "STATUS", "REASON", "DETAIL")
    session.out.table(header, rows, flexible=5, total="occurrence")
    return DONE


def runs(session: Session) -> int:
    views = _rows(session, "ListRuns", "result")
    if session.out.json:
        session.out.dump([as_json(view, RUN_FIELDS) for view in views])
        return DONE
    aimed = any(view.get("target") for view in views)
    rows = [(short(view.get("id")), str(view.get("cron_name", "")), *([str(view.get("target"))] if aimed else []),
             day_time(_number(view, "started_at")), took(view), result_of(view)) for view in views]
    header = ("RUN", "CRON", *(["TARGET"] if aimed else []), "STARTED", "TOOK", "RESULT")
    session.out.table(header, rows, flexible=(1, 2) if aimed else 1, total="run")
    return DONE


def _number(view: Mapping[str, object], key: str) -> int | None:
    value = view.get(key)
    return value if isinstance(value, int) and value else None


def run_view(session: Session, run: str) -> View:
    """A run by its id or the beginning of it; of an occurrence the newest run."""
    from crtrd.cli.client import Refused  # noqa: PLC0415

    try:
        (view,) = session.client.call("GetRun", "s", run)
    except Refused as refusal:
        if refusal.name != "NoSuchRun":
            raise
        try:
            whole = str(occurrence_view(session, run).get("id"))
        except Refused:
            raise refusal from None
        runs = session.everything("ListRuns", {"occurrence_id": whole}, 1)
        if not runs:
            raise
        return runs[0]
    return view if isinstance(view, dict) else {}


def occurrence_view(session: Session, occurrence: str) -> View:
    (view,) = session.client.call("GetOccurrence", "s", occurrence)
    return view if isinstance(view, dict) else {}


def run_info(session: Session) -> int:
    view = run_view(session, session.options.run)
    if session.out.json:
        session.out.dump(as_json(view, RUN_FIELDS))
        return DONE
    out = session.out
    out.line(f"{harmless(str(view.get('cron_name')))} run {harmless(short(view.get('id')))}")
    for label, text in _facts(view):
        out.line(f"{label:>12}: {text if label != 'Result' else out.word(text)}")
    for name in ("stdout", "stderr"):
        _print_head(session, view, name)
    return DONE


def _facts(view: View) -> Sequence[tuple[str, str]]:
    facts = [("Occurrence", short(view.get("occurrence_id"))), ("Result", result_of(view))]
    if view.get("reason") and view["reason"] != result_of(view):
        facts.append(("Reason", str(view["reason"])))
    if view.get("target"):
        facts.append(("Target", str(view["target"])))
    trigger = f"{view.get('trigger')}, attempt {view.get('attempt')}"
    facts.append(("Trigger", trigger + (", out of band" if view.get("out_of_band") else "")))
    for label, key in (("Scheduled", "scheduled_at"), ("Started", "started_at"), ("Finished", "finished_at")):
        at = _number(view, key)
        if at is not None:
            facts.append((label, calendar_time(at)))
    facts.append(("Took", took(view)))
    if view.get("pid"):
        facts.append(("PID", str(view["pid"])))
    survivors = view.get("survivors")
    if isinstance(survivors, list) and survivors:
        facts.append(("Survivors", ", ".join(map(str, survivors))))
    return [(label, harmless(text)) for label, text in facts]


def _print_head(session: Session, view: View, name: str) -> None:
    head = view.get(f"{name}_head")
    if not isinstance(head, bytes) or not head:
        return
    session.out.line(f"\n{name}:")
    session.out.head(head if head.endswith(b"\n") else head + b"\n", raw=session.options.raw)
    if left := left_out(view, name, user=session.options.user):
        session.out.line(harmless(left))


def why(session: Session) -> int:
    """One instant, or one occurrence: what became of it, or what will."""
    out = session.out
    instant, view = _explained(session)
    if out.json:
        out.dump(as_json(view, ("source", "instant", "status", "due", "reason", "detail")))
        return DONE
    verdict = view.get("status") or ("due" if view.get("due") else "not due")
    text = f"{calendar_time(instant)}: {verdict}"
    for key, pattern in (("reason", " ({})"), ("detail", ": {}")):
        if view.get(key):
            text += pattern.format(view[key])
    out.line(harmless(text))
    return DONE


def _explained(session: Session) -> tuple[int, View]:
    name, text = session.options.name, session.options.instant
    wanted = name if text is None else text
    if _ID.fullmatch(wanted):
        view = occurrence_view(session, wanted)
        return _number(view, "instant") or 0, {"source": "ledger", **view}
    if text is None:
        raise Failure("cannot explain: which INSTANT of the cron, or which occurrence?", USAGE)
    from crtrd.cli.moments import instant_of  # noqa: PLC0415

    instant = instant_of(text, str(cron(session, name).get("timezone") or "UTC"), session.now)
    (found,) = session.client.call("Explain", "st", name, instant)
    return instant, found if isinstance(found, dict) else {}


VERBS = {"occurrences": occurrences, "runs": runs, "run-info": run_info, "why": why}
