"""`next` and `calendar`: the instants to come. `calendar` calculates here and needs no daemon."""

import argparse
import os
from datetime import tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from crtrd.cli.looking import cron
from crtrd.cli.naming import waits_for
from crtrd.cli.session import DONE, FAILED, USAGE, Failure, Session
from crtrd.cli.words import moment, relative, rfc3339
from crtrd.errors import ScheduleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crtrd.schedule.nights import Change

MOST, MOST_NIGHTS = 1000, 20
FIELDS = 5
_ZONE_FOLDER = "/usr/share/zoneinfo/"


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "next":
        parser.add_argument("name", metavar="NAME", help="cron, by name or id")
    else:
        parser.add_argument("schedule", nargs="+", metavar="SCHEDULE", help="as in the key `schedule`")
        parser.add_argument("--timezone", metavar="ZONE", help="IANA name (the host's)")
        parser.add_argument("--from", dest="start", metavar="TIME", help="instants after this (now)")
    parser.add_argument("-n", "--lines", type=int, default=10, metavar="N", help="how many (10)")


def following(session: Session) -> int:
    options = session.options
    view = cron(session, options.name)
    zone = _zone(str(view.get("timezone") or "UTC"))
    (instants,) = session.client.call("Next", "su", options.name, _count(session))
    found = [each for each in instants if isinstance(each, int)] if isinstance(instants, list) else []
    if not found and not session.out.json:
        waits = waits_for(view.get("schedule"), skipped=bool(view.get("skips")))
        session.out.note(f"Next: {waits}." if view.get("state") == "active" else "No instants ahead.")
        return DONE
    return _show(session, found, zone, ahead=True)


def calendar(session: Session) -> int:
    from crtrd.cli.moments import instant_of  # noqa: PLC0415
    from crtrd.schedule.spec import compile_schedule  # noqa: PLC0415  # a dozen modules, for this verb alone

    options = session.options
    options.schedule = list(map(_guessed, _whole(options.schedule)))
    name = options.timezone or host_zone()
    start = instant_of(options.start, name, session.now) if options.start else session.now
    try:
        schedule = compile_schedule(options.schedule, timezone=name, anchor=start - start % 1_000_000)
    except ScheduleError as error:
        raise Failure(str(error)) from error
    found: list[int] = []
    instant = schedule.next_after(start)
    while instant is not None and len(found) < _count(session):
        found.append(instant)
        instant = schedule.next_after(instant)
    for said, text in ((schedule.on_boot, "@reboot"), (schedule.after_end_us, "after end")):
        if said:
            session.out.note(f"Not shown: {text}, which no clock can tell beforehand.")
    if instant is None and not found and not schedule.on_boot and not schedule.after_end_us:
        raise Failure(f"cannot find an instant of {', '.join(options.schedule)} after {rfc3339(start)}", FAILED)
    nights = schedule.changes(start, found[-1]) if found else []
    _show(session, found, _zone(name), nights)
    for night in dict.fromkeys(map(str, nights[:MOST_NIGHTS])):
        session.out.note(night)
    return DONE


def _guessed(text: str) -> str:
    """A systemd calendar without the word `calendar`, which no other kind of schedule looks like."""
    from crtrd.schedule.calendar import parse_calendar  # noqa: PLC0415
    from crtrd.schedule.cronfields import parse_cron  # noqa: PLC0415

    first = text.split(maxsplit=1)[:1]
    if first in (["at"], ["every"], ["calendar"]) or text.startswith("@"):
        return text
    try:
        parse_cron(text, "")
    except ScheduleError:
        try:
            parse_calendar(text)
        except ScheduleError:
            return text
        return f"calendar {text}"
    return text


def _whole(schedule: list[str]) -> list[str]:
    """The fields of an expression that was not quoted, which are no schedules each. Raises Failure."""
    expression = " ".join(schedule)
    if len(schedule) == FIELDS and not any(" " in text or text.startswith("@") for text in schedule):
        raise Failure(f"cannot use five schedules {expression!r}: quote the expression, crtrctl calendar "
                      f"'{expression}'", USAGE)
    return schedule


def _count(session: Session) -> int:
    count: int = session.options.lines
    if not 0 <= count <= MOST:
        raise Failure(f"cannot show {count} instants: from 0 to {MOST}", USAGE)
    return count


def host_zone() -> str:
    """The IANA name of the host's zone by localtime(5): TZ, or where /etc/localtime points; UTC failing that."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if named and not named.startswith("/"):
        return named
    target = os.path.realpath("/etc/localtime")
    return target.removeprefix(_ZONE_FOLDER) if target.startswith(_ZONE_FOLDER) else "UTC"


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError
        raise Failure(f"cannot use timezone {name!r}: no such zone") from error


def _show(
    session: Session, instants: list[int], zone: tzinfo, nights: "Sequence[Change]" = (), *, ahead: bool = False
) -> int:
    """A line for each; nights on which the clock changes something for them are marked.

    `ahead`: they are a cron's, so that one of the past is about to be served.
    """
    local = [moment(instant, zone) for instant in instants]
    parts = 1 if nights else 2  # so that all of a night fits into 80 columns
    if session.out.json:
        session.out.dump([
            {"instant": rfc3339(instant), "local": here.isoformat()}
            for instant, here in zip(instants, local, strict=True)
        ])
        return DONE
    rows = [
        (here.strftime("%a %Y-%m-%d %H:%M:%S %Z ") + here.isoformat()[-6:],
         rfc3339(instant), "due" if ahead and instant <= session.now else relative(instant, session.now, parts=parts),
         *_mark(instant, nights))
        for instant, here in zip(instants, local, strict=True)
    ]
    header = ("LOCAL", "UTC", "LEFT", "CHANGE")
    session.out.table(header if nights else header[:-1], rows, flexible=0)
    return DONE


def _mark(instant: int, nights: "Sequence[Change]") -> tuple[str, ...]:
    if not nights:
        return ()
    return (next(("gap" if night.gap else "overlap" for night in nights if night.has(instant)), ""),)


VERBS = {"next": following, "calendar": calendar}
