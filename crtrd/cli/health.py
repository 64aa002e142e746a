"""What `doctor` looks at in every instance: socket, files, configuration, store, clock, zones, mail."""

import os
import socket
import stat
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from crtrd.config.loader import host_zone, load_settings
from crtrd.delivery import mta
from crtrd.errors import ConfigError
from crtrd.names import Places
from crtrd.values import dataclass

TYPICAL_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
ANSWER_SECONDS = 10.0
FIRST_SANE_SECOND = 1_735_689_600  # 2025-01-01: before that a clock was never set


class Grade(StrEnum):
    GOOD = "good"
    NOTE = "note"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    grade: Grade
    text: str
    remedy: str = ""


def trigger_socket(places: Places) -> Iterator[Finding]:
    """There, for the right people only, and answered."""
    path, unit = places.socket, "systemctl --user" if places.user else "systemctl"
    anew = f"{unit} stop crtrd.socket; {unit} restart crtrd.service"  # which starts the socket first
    try:
        mode = path.stat().st_mode
    except OSError as error:
        yield Finding(Grade.FAULT, f"{path}: {error.strerror}", anew)
        return
    if stat.S_IMODE(mode) & 0o007:
        yield Finding(Grade.FAULT, f"{path} is open to everybody (mode {stat.S_IMODE(mode):04o})",
                      f"{anew}; look for SocketMode= in {unit} cat crtrd.socket")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: crtrd\r\n\r\n", socket.MSG_NOSIGNAL)
            answer = connection.recv(64)
        except PermissionError:
            yield Finding(Grade.NOTE, f"{path} is not for this user", "members of the group crtrd may connect")
        except OSError as error:
            yield Finding(Grade.FAULT, f"{path} is not answered: {error}", anew)
        else:
            good = answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 403"))
            yield (Finding(Grade.GOOD, f"{path} is answered") if good else
                   Finding(Grade.FAULT, f"{path} answers {answer[:32]!r}", f"{unit} status crtrd.service"))


def permissions(places: Places) -> Iterator[Finding]:
    """State is its owner's alone; configuration is written by its owner alone."""
    wrong = list(_open_state(places)) + list(_open_configuration(places))
    yield from wrong or [Finding(Grade.GOOD, f"{places.state} and {places.config} are closed to others")]


def _open_state(places: Places) -> Iterator[Finding]:
    for path, allowed in ((places.state, 0o700), (places.ledger, 0o600)):
        try:
            found = stat.S_IMODE(path.stat().st_mode)
        except OSError:
            continue
        if found & ~allowed & 0o777:
            yield Finding(Grade.FAULT, f"{path} has mode {found:04o}", f"chmod {allowed:04o} {path}")


def _open_configuration(places: Places) -> Iterator[Finding]:
    for path in (places.config, *places.config.rglob("*")):
        try:
            facts = path.lstat()
        except OSError:
            continue
        if not stat.S_ISLNK(facts.st_mode) and facts.st_mode & 0o022:
            yield Finding(Grade.FAULT, f"{path} can be written by others", f"chmod go-w {path}")
        if facts.st_uid not in {0, os.geteuid()}:
            yield Finding(Grade.FAULT, f"{path} belongs to uid {facts.st_uid}", f"chown root {path}")


def configuration(places: Places) -> Iterator[Finding]:
    try:
        load_settings(places)
    except ConfigError as error:
        yield Finding(Grade.FAULT, str(error), "correct the file, then crtrctl daemon-reload")
    else:
        yield Finding(Grade.GOOD, f"{places.config / 'crtrd.toml'} and its drop-ins can be read")


def cron_files(places: Places) -> Iterator[Finding]:
    """What the daemon says once, at a start or a reload, as long as it is so. Who runs a cron is not looked at."""
    from crtrd.config.calendars import load_calendars  # noqa: PLC0415 - for this check alone
    from crtrd.config.cronfiles import layers, load_crons  # noqa: PLC0415
    from crtrd.core.timetable import use_host  # noqa: PLC0415
    from crtrd.loop.clock import Clock  # noqa: PLC0415

    calendars, wrong = load_calendars(places, Clock().wall())
    use_host(calendars)
    found = load_crons(places, host_zone())
    for fault in (*wrong, *found.faults):
        if os.path.exists(fault.path) and not os.access(fault.path, os.R_OK):
            yield Finding(Grade.NOTE, f"{fault.path} is not for this user")
        else:
            yield Finding(Grade.FAULT, str(fault), "correct the file, then crtrctl daemon-reload")
    if not wrong and not found.faults:
        yield Finding(Grade.GOOD, f"what {layers(places)[0]} and the folders below it hold can be read")


def store(places: Places) -> Iterator[Finding]:
    """SQLite's own check of the ledger, read-only, and those set aside: crons armed by hand went with them."""
    yield from _sound(places)
    for path in sorted(places.state.glob(f"{places.ledger.name}.damaged-*Z")):
        yield Finding(Grade.FAULT, f"a damaged ledger was set aside as {path}: crons and history before it are not in "
                                   "the one in use",
                      f"sqlite3 {path} .recover may tell what was in it; arm what is missing, then move it away")


def _sound(places: Places) -> Iterator[Finding]:
    import sqlite3  # noqa: PLC0415 - for this check alone
    from contextlib import closing  # noqa: PLC0415

    if not os.access(places.ledger, os.R_OK):
        closed = places.state.is_dir() and not os.access(places.state, os.X_OK)
        there = closed or os.path.exists(places.ledger)
        yield Finding(Grade.NOTE, f"{places.ledger} " + ("is not for this user" if there else "is not there yet"))
        return
    try:
        with closing(sqlite3.connect(f"file:{places.ledger}?mode=ro", uri=True, timeout=ANSWER_SECONDS)) as ledger:
            said = [str(row[0]) for row in ledger.execute("PRAGMA quick_check")]
    except sqlite3.DatabaseError as error:
        said = [str(error)]
    if said != ["ok"]:
        unit = "systemctl --user" if places.user else "systemctl"
        yield Finding(Grade.FAULT, f"{places.ledger} is damaged: {said[0]}",
                      f"{unit} stop crtrd.socket crtrd.service; mv {places.ledger} {places.ledger}.damaged; "
                      f"{unit} start crtrd.socket crtrd.service; sqlite3 {places.ledger}.damaged .recover may tell "
                      "what was in it")
        return
    space = os.statvfs(places.state)
    if space.f_bavail * space.f_frsize < 50 << 20:
        yield Finding(Grade.FAULT, f"{places.state} has less than 50 MiB left",
                      "make room: nothing starts on a full disk")
    yield Finding(Grade.GOOD, f"{places.ledger} is sound, {places.ledger.stat().st_size >> 10} KiB")


def clock(_places: Places) -> Iterator[Finding]:
    """Set at all, and kept right by somebody."""
    import time  # noqa: PLC0415

    if time.time() < FIRST_SANE_SECOND:  # noqa: TID251 - this very clock is what is looked at
        yield Finding(Grade.FAULT, "the clock has never been set", "timedatectl set-time …, or set-ntp true")
        return
    kept = Path("/run/systemd/timesync/synchronized").exists() or any(
        Path(each).exists() for each in ("/run/chrony/chronyd.pid", "/run/chrony", "/run/ntpd.pid"))
    if kept:
        yield Finding(Grade.GOOD, "the clock is kept right")
    else:
        yield Finding(Grade.NOTE, "nothing is seen to keep the clock right", "timedatectl set-ntp true, or chrony")


def zones(_places: Places) -> Iterator[Finding]:
    for name in (*TYPICAL_ZONES, host_zone()):
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield Finding(Grade.FAULT, f"there is no data for the zone {name}",
                          "apt install --reinstall tzdata, or timedatectl set-timezone …")
            return
    yield Finding(Grade.GOOD, f"zone data is there, this host is in {host_zone()}")


def sendmail(_places: Places) -> Iterator[Finding]:
    if found := mta.sendmail():
        yield Finding(Grade.GOOD, f"{found} takes mail")
    else:
        yield Finding(Grade.NOTE, "no sendmail: the sink mail:ADDRESS cannot deliver", "apt install default-mta")
