"""`logs`, and the last lines of `status`: what a run or a cron said, out of the journal by journalctl(1)."""

import argparse
import os
import shutil

from crtrd.cli.session import FAILED, Failure, Session

HEX = frozenset("0123456789abcdef")
ID_START = 4
LAST_LINES = 10


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("what", metavar="RUN|NAME", help=f"{verb} of a run by id, or of a cron by name or id")
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what comes")
    parser.add_argument("-n", "--lines", metavar="N", help="the last so many lines")
    parser.add_argument("-o", "--output", metavar="FORMAT", help="as journalctl's, cat for the bare output")
    parser.add_argument("--since", metavar="TIME", help="not before this")
    parser.add_argument("--until", metavar="TIME", help="not after this")


def match_of(session: Session, what: str) -> str:
    """The journal field that selects a run or cron. A canceled cron is still found by its name."""
    from crtrd.cli.client import Refused  # noqa: PLC0415 - the manual pages are made without a bus library

    if len(what) >= ID_START and set(what) <= HEX:
        try:
            (view,) = session.client.call("GetRun", "s", what)
            if isinstance(view, dict):
                return f"CRTRD_RUN_ID={view['id']}"
        except Refused as refusal:
            if refusal.name != "NoSuchRun":
                raise
    try:
        (path,) = session.client.call("GetCron", "s", what)
    except Refused as refusal:
        if refusal.name != "NoSuchCron":
            raise
        views = session.everything("ListRuns", {"cron": what}, 1)
        return f"CRTRD_CRON_ID={views[0]['cron_id']}" if views else f"CRTRD_CRON={what}"
    return f"CRTRD_CRON_ID={str(path).rpartition('/')[2]}"


def logs(session: Session) -> int:
    options = session.options
    program = shutil.which("journalctl")
    if program is None:
        raise Failure("cannot show logs: there is no journalctl", FAILED)
    command = [program, *(["--user"] if options.user else []), *(["--quiet"] if options.quiet else [])]
    command += ["--follow"] if options.follow else []
    command += ["--no-pager"] if options.no_pager or options.follow else []
    for flag in ("lines", "output", "since", "until"):
        value = getattr(options, flag)
        command += [f"--{flag}={value}"] if value else []
    if session.out.json:
        command.append("--output=" + ("json" if session.out.json_mode == "short" else "json-pretty"))
    command.append(match_of(session, options.what))
    os.execv(program, command)  # noqa: S606 - it is the rest of this command


def last_lines(session: Session, cron_id: str) -> list[str]:
    """The newest lines of a cron, none where the journal has none or may not be read."""
    import subprocess  # noqa: PLC0415 - for two verbs alone

    program = shutil.which("journalctl")
    if program is None:
        return []
    command = [program, *(["--user"] if session.options.user else []), "--no-pager", "--quiet", "--output=short",
               f"--lines={LAST_LINES}", f"CRTRD_CRON_ID={cron_id}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()


VERBS = {"logs": logs}
