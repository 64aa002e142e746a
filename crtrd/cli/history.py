"""`occurrences`, `runs`, `run-info`, `why`: what happened and why. Changes nothing."""

import argparse
from collections.abc import Mapping, Sequence

from crtrd.cli.fields import OCCURRENCE_FIELDS, RUN_FIELDS
from crtrd.cli.looking import cron, result_of, took
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, Session, View, instant_of
from crtrd.cli.words import calendar_time, day_time, harmless

DEFAULT_ROWS = 50


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "run-info":
        parser.add_argument("run", metavar="RUN", help="id of the run")
        return
    if verb == "why":
        parser.add_argument("name", metavar="NAME", help="cron, by name or id")
        parser.add_argument("instant", metavar="INSTANT", help="past or future, local to the cron's zone")
        return
    few = "?" if verb == "runs" else None
    parser.add_argument("name", nargs=few, metavar="NAME", help="cron, by name or id")
    parser.add_argument("-n", "--lines", type=int, metavar="N", help=f"at most so many ({DEFAULT_ROWS}; 0: all)")
    parser.add_argument("--status" if verb == "occurrences" else "--result", metavar="WORD", help="only these")
    parser.add_argument("--since", metavar="TIME", help="not before this")
    parser.add_argument("--until", metavar="TIME", help="not after this")


def _rows(session: Session, member: str, word: str) -> list[View]:
    options = session.options
    criteria = {"cron": options.name, word: getattr(options, word)}
    if options.since or options.until:
        from crtrd.cli.preview import host_zone  # noqa: PLC0415

        for bound in ("since", "until"):
            text = getattr(options, bound)
            criteria[bound] = instant_of(text, host_zone()) if text else None
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
    rows = [(str(view.get("id", ""))[:12], day_time(_number(view, "instant")), str(view.get("origin", "")),
             str(view.get("status", "")), str(view.get("reason") or "-"), str(view.get("detail") or ""))
            for view in views]
    session.out.table(("OCCURRENCE", "INSTANT", "ORIGIN", "STATUS", "REASON", "DETAIL"), rows, flexible=5,
                      total="occurrences")
    return DONE


def runs(session: Session) -> int:
    views = _rows(session, "ListRuns", "result")
    if session.out.json:
        session.out.dump([as_json(view, RUN_FIELDS) for view in views])
        return DONE
    rows = [(str(view.get("id", ""))[:12], str(view.get("cron_name", "")), day_time(_number(view, "started_at")),
             took(view), result_of(view)) for view in views]
    session.out.table(("RUN", "CRON", "STARTED", "TOOK", "RESULT"), rows, flexible=1, total="runs")
    return DONE


def _number(view: Mapping[str, object], key: str) -> int | None:
    value = view.get(key)
    return value if isinstance(value, int) and value else None


def run_view(session: Session, run: str) -> View:
    (view,) = session.client.call("GetRun", "s", run)
    return view if isinstance(view, dict) else {}


def run_info(session: Session) -> int:
    view = run_view(session, session.options.run)
    if session.out.json:
        session.out.dump(as_json(view, RUN_FIELDS))
        return DONE
    out = session.out
    out.line(f"{harmless(str(view.get('cron_name')))} run {harmless(str(view.get('id')))}")
    for label, text in _facts(view):
        out.line(f"{label:>12}: {text if label != 'Result' else out.word(text)}")
    for name in ("stdout", "stderr"):
        _print_head(session, view, name)
    return DONE


def _facts(view: View) -> Sequence[tuple[str, str]]:
    facts = [("Occurrence", str(view.get("occurrence_id"))), ("Result", result_of(view))]
    if view.get("reason"):
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
    more = f", the first of {view.get(name + '_bytes')} bytes" if view.get(f"{name}_truncated") else ""
    session.out.line(f"\n{name}{more}:")
    session.out.head(head if head.endswith(b"\n") else head + b"\n")


def why(session: Session) -> int:
    """One instant: what became of it, or what will."""
    options, out = session.options, session.out
    zone = str(cron(session, options.name).get("timezone") or "UTC")
    instant = instant_of(options.instant, zone)
    (view,) = session.client.call("Explain", "st", options.name, instant)
    view = view if isinstance(view, dict) else {}
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


VERBS = {"occurrences": occurrences, "runs": runs, "run-info": run_info, "why": why}
