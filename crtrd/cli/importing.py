"""`import`, `export`, `verify`: crons from crontab(5) files, and crons as files of their own.

An import is taken whole or not at all, unless `--partial` says otherwise.
"""

import argparse
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from crtrd import names
from crtrd.cli.looking import cron, definition, own
from crtrd.cli.naming import of_names
from crtrd.cli.preview import host_zone
from crtrd.cli.session import DONE, FAILED, USAGE, Failure, Session, contents, packed
from crtrd.cli.words import counted
from crtrd.config.cronfile import write_file
from crtrd.config.crontab import Refusal
from crtrd.config.imported import Imported, import_crontab
from crtrd.delivery.mta import sendmail
from crtrd.errors import ConfigError, ScheduleError

INSTANCE = object()
"""What a bare `--user` gives, as with `arm`: the user's own instance. `--user NAME` is whose crontab it is."""
SYSTEM_FILES, SYSTEM_CRONTAB = "cron.d", Path("/etc/crontab")
MOST_SHOWN = 20


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "verify":
        parser.add_argument("file", nargs="+", metavar="FILE", help="cron files, as in crons.d")
        return
    if verb == "export":
        parser.add_argument("name", nargs="*", metavar="NAME", help="crons, by name or id; none: all")
        parser.add_argument("--directory", metavar="DIR", help="write DIR/NAME.toml instead of standard output")
        return
    parser.add_argument("file", nargs="?", metavar="CRONTAB", help="a crontab, or a folder such as /etc/cron.d")
    parser.add_argument("--user", nargs="?", const=INSTANCE, dest="key_user", metavar="NAME",
                        help="whose crontab it is (the caller's); without a name: the user's own instance of crtrd")
    parser.add_argument("--system-format", action="store_true", help="with a user column, as /etc/crontab has")
    parser.add_argument("--dry-run", action="store_true", help="show the crons, arm nothing")
    parser.add_argument("--partial", action="store_true", help="take the other lines where some are refused")
    parser.add_argument("--verify", metavar="SPAN", help="compare every instant of old and new over SPAN, arm nothing")


def settle(options: argparse.Namespace) -> None:
    """`import --user FILE`: a bare `--user` before the file has taken it for a name."""
    if not hasattr(options, "key_user"):
        return
    if isinstance(options.key_user, str) and options.file is None:
        options.file, options.key_user = options.key_user, INSTANCE
    if options.key_user is INSTANCE:
        options.user, options.key_user = True, None


# import ----------------------------------------------------------------------------------------------------------


def take(session: Session) -> int:
    options = session.options
    if options.file is None:
        raise Failure("cannot import: give a crontab, or - for standard input", USAGE)
    found, refused = [], 0
    for path in _paths(Path(options.file)):
        for line in _read(session, path):
            if isinstance(line, Refusal):
                refused += 1
                where, what = (f"{path}:{line.number}", "this line") if line.number else (path, "it")
                session.complain(f"{where}: cannot import {what}: {line.reason}")
            else:
                found.append(line)
                _doubt(session, path, line)
    _warn_of_mail(session, found)
    if options.verify:
        return _compare(session, found) or (FAILED if refused and not options.partial else DONE)
    if options.dry_run:
        _show(session, found)
        return FAILED if refused and not options.partial else DONE
    if refused and not options.partial:
        lines = "a line was" if refused == 1 else f"{refused} lines were"
        raise Failure(f"cannot import {options.file}: {lines} refused, so nothing was armed (--partial takes the rest)")
    _arm(session, found)
    return DONE


def _doubt(session: Session, path: Path, line: Imported) -> None:
    """A user column that was read as the command's first word; a zone that Debian's cron knows nothing of."""
    first = line.entry.command.split(maxsplit=1)[0]
    where = f"{path}:{line.number}"
    if not line.entry.user and _account(first) and " " in line.entry.command.strip():
        session.complain(f"{where}: its command begins with {first}, an account: is --system-format missing?")
    if (zone := dict(line.entry.environment).get("CRON_TZ")) and zone != host_zone():
        session.complain(f"{where}: CRON_TZ={zone} is obeyed here, as by cronie; Debian's cron ignores it and has run "
                         f"this line in {host_zone()}")


def _warn_of_mail(session: Session, found: list[Imported]) -> None:
    """As under cron, output is mailed; without an MTA cron throws it away, and crtrd keeps it waiting."""
    mailed = sum(any(sink.startswith("mail:") for sink in each.definition.sinks) for each in found)
    if mailed and sendmail() is None:
        session.complain(f"there is no sendmail here: what {counted(mailed, 'cron')} would mail waits in the outbox "
                         "for a week (apt install default-mta, or MAILTO=\"\" above the lines)")


def _paths(path: Path) -> Iterator[Path]:
    """The file; of a folder every file that cron would read, by name."""
    if str(path) == "-":
        yield Path("/dev/stdin")
    elif path.is_dir():
        yield from sorted(each for each in path.iterdir() if not each.name.startswith("."))
    else:
        yield path


def _read(session: Session, path: Path) -> Iterator[Imported | Refusal]:
    options = session.options
    if (path.parent.name == SYSTEM_FILES or path.parent == Path(options.file)) and (why := _unread_by_cron(path)):
        yield Refusal(0, why)
        return
    text = contents(path).decode("utf-8", "surrogateescape")
    system = options.system_format or path == SYSTEM_CRONTAB or path.parent.name == SYSTEM_FILES
    system = system or path.parent == Path(options.file)
    user = options.key_user or pwd.getpwuid(os.getuid()).pw_name
    yield from import_crontab(
        text, origin=path.name if system else user, user=user, system=system, timezone=host_zone(), account=_account)


def _unread_by_cron(path: Path) -> str:
    """Why cron leaves out a file of /etc/cron.d (cron(8)), '' where it does not."""
    if not all(letter.isascii() and (letter.isalnum() or letter in "_-") for letter in path.name):
        return "cron does not read this file: its name has other characters than letters, digits, _ and -"
    try:
        status = path.stat()
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return "cron does not read this file: it is no plain file"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "cron does not read this file: others than its owner may write it"
    return ""


def _account(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _show(session: Session, found: list[Imported]) -> None:
    if session.out.json:
        session.out.dump([{"line": each.number, "name": each.name, **each.table} for each in found])
        return
    for index, each in enumerate(found):
        session.out.file(("\n" if index else "") + write_file(each.name, each.table).rstrip("\n"))


def _arm(session: Session, found: list[Imported]) -> None:
    """One after the other; where one is refused, those before it are taken back."""
    from crtrd.cli.client import Refused  # noqa: PLC0415  # jeepney, which no dry run should pay for

    armed: list[str] = []
    try:
        for each in found:
            session.client.call("Arm", "a{sv}", packed({"name": each.name, **each.table}))
            armed.append(each.name)
    except Refused as refusal:
        for name in armed:
            session.client.call("Cancel", "sa{sv}", name, packed({}))
        raise Failure(f"cannot import line {found[len(armed)].number}: {refusal}; nothing was armed") from refusal
    if session.out.json:
        session.out.dump([{"line": each.number, "name": each.name} for each in found])
        return
    if not found:
        session.out.note(f"There is no line to import in {session.options.file}.")
        return
    for each in found:
        session.out.note(f"line {each.number}: {each.name}")
    session.out.note(f"Armed {counted(len(found), 'cron')}. cron still has the crontab: "
                     "remove it there, or everything runs twice.")


def _compare(session: Session, found: list[Imported]) -> int:
    """Every instant of the old line and of the new cron, from now on; only what differs is printed."""
    from crtrd.config.comparison import compare  # noqa: PLC0415
    from crtrd.schedule.spans import format_instant, parse_span  # noqa: PLC0415

    try:
        span = parse_span(session.options.verify)
    except ScheduleError as error:
        raise Failure(f"cannot use --verify {session.options.verify}: {error.reason}", USAGE) from error
    differing, compared, lines = 0, 0, 0
    for each in found:
        result = compare(each, session.now, session.now + span)
        if result is None:
            session.out.note(f"line {each.number}: {each.name}: not compared, no clock decides {each.entry.schedule}")
            continue
        compared, lines = compared + result.instants, lines + 1
        lost = [f"only cron: {format_instant(instant)}" for instant in result.only_old]
        lost += [f"only crtrd: {format_instant(instant)}" for instant in result.only_new]
        differing += len(lost)
        for text in lost[:MOST_SHOWN]:
            session.out.line(f"line {each.number}: {each.name}: {text}")
        if len(lost) > MOST_SHOWN:
            session.out.line(f"line {each.number}: {each.name}: and {len(lost) - MOST_SHOWN} more")
    session.out.note(f"{compared} instants of {lines} lines compared, {differing or 'none'} differ.")
    return FAILED if differing else DONE


# export, verify --------------------------------------------------------------------------------------------------


def export(session: Session) -> int:
    """Definitions as files that read back to the same."""
    options = session.options
    everything = [] if options.name else session.everything("ListCrons", {})
    wanted = of_names(session) or sorted(str(view["name"]) for view in everything)
    views = [cron(session, name) for name in wanted]
    if session.out.json:
        session.out.dump([{"name": view["name"], **definition(view)} for view in views])
        return DONE
    for index, view in enumerate(views):
        name = str(view["name"])
        text = write_file(name, own(view))
        if options.directory is None:
            session.out.file(("\n" if index else "") + text.rstrip("\n"))
            continue
        path = Path(options.directory) / f"{name}.toml"
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise Failure(f"cannot write {path}: {error.strerror}") from error
        session.out.note(f"{name}: {path}")
    return DONE


def verify(session: Session) -> int:
    """Read cron files as the daemon would, and say what is wrong. Needs no daemon."""
    from crtrd.config.calendars import load_calendars  # noqa: PLC0415
    from crtrd.config.cronfiles import verify_file  # noqa: PLC0415
    from crtrd.core.timetable import use_host  # noqa: PLC0415

    calendars, faults = load_calendars(names.places(os.environ, user=session.options.user), session.now)
    use_host(calendars)
    for fault in faults:
        session.complain(str(fault))
    told: list[object] = []
    wrong = 0
    for file in session.options.file:
        found: dict[str, object] = {"file": file, "name": None, "error": None}
        try:
            found["name"] = verify_file(Path(file), host_zone()).name
            session.out.note(f"{file}: defines {found['name']}")
        except ConfigError as error:
            wrong += 1
            found["error"] = str(error)
            if not session.out.json:
                session.complain(str(error))
        told.append(found)
    if session.out.json:
        session.out.dump(told)
    return FAILED if wrong else DONE


VERBS = {"import": take, "export": export, "verify": verify}
