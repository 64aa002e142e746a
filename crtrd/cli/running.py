"""`run`: an occurrence now, and with `--wait` its end: the output's head, how it ended, the command's exit status."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from crtrd.cli.endings import ending, left_out, named, rest_of_stream, unheard
from crtrd.cli.fields import RUN_FIELDS
from crtrd.cli.render import as_json
from crtrd.cli.session import DONE, FAILED, Failure, Session, View, packed
from crtrd.cli.words import short

T = TypeVar("T")
POLL_SECONDS = 3.0
"""How long `run --wait` trusts in signals before it looks itself: a bus that was restarted sends none."""
PAUSE_SECONDS, RETURN_SECONDS = 0.1, 30.0
SIGNALLED = 128


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("name", metavar="NAME", help=f"cron to {verb}, by name or id")
    parser.add_argument("--wait", action="store_true", help="wait for the end, exit with its status")
    parser.add_argument("--target", type=_filled, metavar="TARGET", help="this target only")
    parser.add_argument("--overlap", type=_filled, metavar="WORD", help="for this one: skip, queue, replace, allow")


def _filled(text: str) -> str:
    """A script whose variable is empty must not run all targets where it meant one."""
    if not text:
        message = "it is empty; leave it out, or say what it is"
        raise argparse.ArgumentTypeError(message)
    return text


def run(session: Session) -> int:
    options, client = session.options, session.client
    if options.wait:
        client.subscribe()  # before the run exists, so that its end cannot be missed
    given: dict[str, object] = {"target": options.target or "", "overlap": options.overlap or ""}
    occurrence, paths = client.call("Run", "sa{sv}", options.name, packed(given))
    runs = [str(path).rpartition("/")[2] for path in paths] if isinstance(paths, list) else []
    if options.wait:
        return _wait(session, str(occurrence), runs)
    mine = {} if runs else _occurrence(session, str(occurrence))
    queued = mine.get("status") == "pending"
    if session.out.json:
        session.out.dump({"occurrence_id": occurrence or None, "runs": runs})
    elif runs:
        session.out.note(f"Started {options.name}: run {', '.join(map(short, runs))}")
    elif queued:
        session.out.note(f"Queued {options.name}, occurrence {short(occurrence)}: {mine.get('detail') or 'it waits'}")
    else:
        session.complain(f"Not started: {options.name} {_why(mine)}")
    return DONE if runs or queued else FAILED


def _occurrence(session: Session, occurrence: str) -> View:
    (view,) = session.client.call("GetOccurrence", "s", occurrence)
    return view if isinstance(view, dict) else {}


def _tell_what_for(session: Session, occurrence: View) -> None:
    """Nothing has started: whoever waits for it, perhaps for long, is told what it waits for."""
    if occurrence.get("status") == "pending" and occurrence.get("detail") and not session.out.quiet:
        session.complain(f"Queued {session.options.name}: {occurrence['detail']}")


def _why(occurrence: View) -> str:
    words = f"is {occurrence.get('status') or 'nowhere'}"
    words += f" ({occurrence['reason']})" if occurrence.get("reason") else ""
    return f"{words}: {occurrence['detail']}" if occurrence.get("detail") else words


def _wait(session: Session, occurrence: str, runs: list[str]) -> int:
    if not runs:
        _tell_what_for(session, _occurrence(session, occurrence))
    try:
        heard = _stream(session, runs[0]) if len(runs) == 1 else None
        found = _await(session, occurrence, runs)
    except KeyboardInterrupt:
        what = f"run-info {short(runs[0])}" if runs else f"why {short(occurrence)}"
        session.complain(f"{session.options.name} goes on; look with: crtrctl {what}")
        raise
    if session.out.json:
        session.out.dump([as_json(view, RUN_FIELDS) for view in found])
        return _status(found)
    for view in found:
        if heard is None or view.get("id") != runs[0]:
            _print_output(session, view)
        else:
            late = unheard(view, heard)
            session.out.head(late)
            if left := rest_of_stream(view, heard + len(late), user=session.options.user):
                session.complain(left)
        if not session.out.quiet and view.get("result") != "success":
            session.complain(f"crtrctl: {named(view)} {ending(view)}")
    return _status(found)


def _stream(session: Session, run: str) -> int | None:
    """On a terminal: print what the run says while it says it, until its end.

    How many bytes those were; None where that cannot be.
    """
    if session.out.json or not session.out.tty:
        return None
    heard, life = 0, _life(session)
    fd = _output_of(session, run)
    if fd is None:
        return None
    while fd is not None:
        with open(fd, "rb", buffering=0) as output:
            while data := output.read(1 << 16):
                session.out.head(data)
                heard += len(data)
        before, life, fd = life, "", None
        if not _over(session, run) and (life := _life(session)) != before:
            fd = _patiently(session, lambda: _output_of(session, run))  # a life died, and the next goes on with the run
    return heard


def _life(session: Session) -> str:
    return _patiently(session, lambda: session.client.life())  # noqa: PLW0108 - the client may be another by then


def _output_of(session: Session, run: str) -> int | None:
    """None where it may not be read, or there is no run any more."""
    from crtrd.cli.client import Refused  # noqa: PLC0415 - the manual pages are made without a bus library

    try:
        return session.client.open_output(run)
    except Refused:
        return None


def _over(session: Session, run: str) -> bool:
    (view,) = _patiently(session, lambda: session.client.call("GetRun", "s", run))
    return not isinstance(view, dict) or bool(view.get("result"))


def _await(session: Session, occurrence: str, runs: list[str]) -> list[View]:
    """Until the occurrence is settled, or its command said "not now". Signals wake; the ledger decides."""
    while (found := _patiently(session, lambda: _ended(session, occurrence))) is None:
        _patiently(session, lambda: _listen(session, occurrence, runs))
    return found


def _listen(session: Session, occurrence: str, runs: list[str]) -> None:
    for member, body in session.client.signals(POLL_SECONDS):
        if member == "OccurrenceSettled" and occurrence in body:
            return
        if member == "RunSettled" and body[-1] == "held" and set(runs) & set(map(str, body)):
            return


def _patiently(session: Session, ask: Callable[[], T]) -> T:
    """The answer of a daemon that may be between two lives, or behind a bus that is."""
    from crtrd.cli.client import Unreachable  # noqa: PLC0415 - as above

    for _ in range(int(RETURN_SECONDS / PAUSE_SECONDS)):
        try:
            return ask()
        except Unreachable:
            time.sleep(PAUSE_SECONDS)  # noqa: TID251 - nothing tells when it has come back
            session.reconnect()
    return ask()


def _print_output(session: Session, view: View) -> None:
    for name in ("stdout", "stderr"):
        head = view.get(f"{name}_head")
        if isinstance(head, bytes):
            session.out.head(head, to_error=name == "stderr")
    sys.stdout.flush()
    for name in ("stdout", "stderr"):
        if left := left_out(view, name, user=session.options.user):
            session.complain(f"{name}: {left}")


def _ended(session: Session, occurrence: str) -> list[View] | None:
    """The last run of each cell once the occurrence is over or held; None while it goes on."""
    mine = _occurrence(session, occurrence)
    if mine.get("status") in {"pending", "running"}:
        return None
    last: dict[str, View] = {}
    for view in reversed(session.everything("ListRuns", {"occurrence_id": occurrence})):  # cells in their order
        target = str(view.get("target"))
        if _attempt(view) >= _attempt(last.get(target, {})):
            last[target] = view
    if not last:
        raise Failure(f"cannot run {session.options.name}: the occurrence {_why(mine)}")
    return list(last.values())


def _attempt(view: View) -> int:
    attempt = view.get("attempt")
    return attempt if isinstance(attempt, int) else 0


def _status(found: Sequence[View]) -> int:
    """The command's own exit status; of several cells the first that is not 0."""
    for view in found:
        code, number = view.get("exit_code"), view.get("signal")
        if isinstance(code, int) and code:
            return code
        if isinstance(number, int) and number and not isinstance(code, int):
            return SIGNALLED + number
        if view.get("result") not in {"success", None} and not isinstance(code, int):
            return FAILED
    return DONE


VERBS = {"run": run}
