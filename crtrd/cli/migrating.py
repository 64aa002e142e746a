"""`migrate`: state migrations of files on disk, seen first with --dry-run. Needs no daemon."""

import argparse
import os
import sys
from collections.abc import Iterator

from crtrd import names
from crtrd.cli.session import DONE, FAILED, Failure, Session
from crtrd.cli.words import harmless
from crtrd.migrations.state import STEPS, Plan, Step, apply


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("--list", action="store_true", help=f"show what there is to {verb}, change nothing")
    parser.add_argument("--dry-run", action="store_true", help="show the changes, make none")


def migrate(session: Session) -> int:
    places = names.places(os.environ, user=session.options.user)
    if session.options.list:
        return _list(session, places)
    looking = bool(session.options.dry_run)
    done, shown = 0, []
    for step, plan in _plans(places):
        if plan.changes and not looking:
            _apply(plan)
        done += len(plan.changes)
        shown.append({"migration": step.id, "path": str(plan.path), "changes": list(plan.changes),
                      "left": list(plan.left), "applied": bool(plan.changes) and not looking})
        if not session.out.json:
            _print(session, plan, looking=looking)
    if session.out.json:
        session.out.dump(shown)
    elif not looking:
        session.out.note(f"{done} changed; crtrctl daemon-reload makes them count." if done else "Nothing to migrate.")
    return FAILED if any(entry["left"] for entry in shown) else DONE


def _plans(places: names.Places) -> Iterator[tuple[Step, Plan]]:
    for step in STEPS:
        for plan in step.plan(places):
            yield step, plan


def _apply(plan: Plan) -> None:
    try:
        apply(plan)
    except OSError as error:
        raise Failure(f"cannot migrate {plan.path}: {error.strerror}; it is as it was", FAILED) from error


def _print(session: Session, plan: Plan, *, looking: bool) -> None:
    if looking:
        from difflib import unified_diff  # noqa: PLC0415 - for this alone

        lines = unified_diff(plan.old.splitlines(), plan.new.splitlines(), str(plan.path), str(plan.path), lineterm="")
        for line in lines:
            session.out.line(harmless(line))
    else:
        for change in plan.changes:
            session.out.line(harmless(f"{plan.path}: {change}"))
    for left in plan.left:
        print("crtrctl: " + harmless(f"{plan.path}: left as it is: {left}"), file=sys.stderr)


def _list(session: Session, places: names.Places) -> int:
    rows = [(step.id, str(sum(bool(plan.changes) for plan in step.plan(places))), step.does) for step in STEPS]
    if session.out.json:
        session.out.dump([{"migration": name, "files": int(count), "does": does} for name, count, does in rows])
    else:
        session.out.table(("MIGRATION", "FILES", "DOES"), rows, flexible=2)
    return DONE


VERBS = {"migrate": migrate}
