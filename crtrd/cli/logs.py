"""`logs`, and the last lines of `status`: what a run or a cron said, out of the journal by journalctl(1)."""

import argparse
import os

from crtrd.cli.session import FAILED, Failure, Session

HEX = frozenset("0123456789abcdef")
ID_START = 4
LAST_LINES = 10
JOURNALS = ("/var/log/journal", "/run/log/journal")
CLOSED = ("The system's journal is not for you: what runs say is missing here. Members of the group systemd-journal "
          "may read it (usermod -aG systemd-journal NAME); crtrctl run-info RUN shows the beginning of an output.")


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


def closed(folders: tuple[str, ...] = JOURNALS) -> bool:
    """Whether there is a system journal and this user may not read it, systemd-journald.service(8)."""
    try:
        with open("/etc/machine-id", encoding="ascii") as file:
            machine = file.read().strip()
    except OSError:
        return False
    found = [os.path.join(folder, machine, "system.journal") for folder in folders]
    return not any(os.access(path, os.R_OK) for path in found) and any(_hidden(path) for path in found)


def _hidden(path: str) -> bool:
    """There, or in a folder that this user may not look into."""
    try:
        os.stat(path)
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def logs(session: Session) -> int:
    import shutil  # noqa: PLC0415 - with all its compressors; `status` imports this module

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
    if not options.user and closed():
        session.complain(CLOSED)
        command.insert(1, "--quiet")  # which says the same in other words
    os.execv(program, command)  # noqa: S606 - it is the rest of this command


def last_lines(session: Session, cron_id: str) -> list[str]:
    """The newest lines of a cron, none where the journal has none or may not be read."""
    import shutil  # noqa: PLC0415 - for two verbs alone
    import subprocess  # noqa: PLC0415

    program = shutil.which("journalctl")
    if program is None:
        return []
    command = [program, *(["--user"] if session.options.user else []), "--no-pager", "--quiet", "--output=short",
               "--no-hostname", f"--lines={LAST_LINES}", f"CRTRD_CRON_ID={cron_id}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines()


VERBS = {"logs": logs}
