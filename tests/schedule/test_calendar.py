"""Calendar expressions: systemd itself is the oracle where it is installed, values by hand elsewhere."""

import shutil
import subprocess

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.spans import format_instant, parse_instant
from crtrd.schedule.spec import compile_schedule

START = "2026-01-01T00:00:00Z"
#: Taken by systemd as well; instants without fractions, none on a night of a change.
SHARED = (
    "Mon..Fri 02:00", "*:0/5", "Mon-Fri 3:00", "Mon,Wed..Fri", "*-*~1", "*-*~1..3", "*-02~03", "Mon *-05~07/1",
    "daily UTC", "semi-annually", "12-1", "*:5..5", "*:5/54", "Mon 12:00 Europe/Berlin", "*-*-1,15,20..25/2 0,12:00",
    "*-*-*", "Monday", "Mon..Wed,Fri *-*-1", "12:00 utc", "12:00 Asia/Kathmandu", "*-1,2 1:0", "Sat..Sun",
    "*-*-05..07/2", "*-*-1..31/31", "*:0..59/59", "*:0..59/60", "*:*:*", "Mon,", "1-1", "minutely", "hourly", "daily",
    "weekly", "monthly", "quarterly", "semiannually", "yearly", "annually", "biannually", "bi-annually", "WEEKLY",
    "weekly Asia/Tokyo", "*-*-* 02:00/15", "sun 1-1", "Sun *-02-29", "2027..2030/2-06-01 12:00", "27-3-1",
    "*-*~1..10/3", "*-02~28", "*-*-31", "*:*:0/7", "*:0,30:15..20", "8..17/3:30", "tue..thu,sun 23:59:59",
    "*-1..6/2-* 00:00", "fri *-*-13", "sat,sun,mon 09:00", "*-12-24..26 18:00", "00:00:59", "Wed *-*~1",
    "1,2,3:4,5,6:7,8,9", "*-*-1..7 00:00", "Monday,Tuesday *-*-* *:30",
)  # fmt: skip
REFUSED = (
    "", " ", "*/5:00", "*:*/5", "Fri..Mon", "mon, tue", "*-*~3..1", "10", "10:", "*-*-* 24:00", "*:5..3", "*:5/60",
    "*:5/55", "*-*-31/1", "*", "Mon Tue", "1,:00,:", "*:0-5", "Mon..", "Sun..Mon", "Mon:", "00:00:60",
    "00:00:59.9999999", "Mon..Fri..Sun", "Mon.Fri", "Mon,,Tue", "*:0/0", "*-0-1", "*-13-1", "*-*-0", "*-*-32", "*-*~29",
    "*:60", "-1:00", "1.5:00", "*-*-*-*", "12:00 12:00", "1-1 Mon", "daily daily", "\u0661-1", "foo", "12:00 Mon",
    "~1", "*~*-1", "1:2:3:4", "*-*-1..", "*-*-..5", "*-*-1...5", "1969-1-1", "2500-1-1", "*:*:0/61", "weekly 12:00",
)  # fmt: skip
NEVER = ("2-30", "*-2-30", "*-4,6,9,11-31", "Sun 2026-2-28")

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed, the hand-made values remain"
)


def ours(text, many, start=START):
    schedule = compile_schedule([f"calendar {text}"])
    found, at = [], parse_instant(start, "UTC")
    while len(found) < many and (at := schedule.next_after(at)) is not None:
        found.append(format_instant(at))
    return found


def systemd(text, many, start=START):
    base = start.replace("T", " ").replace("Z", " UTC")
    return subprocess.run(
        ["systemd-analyze", "calendar", f"--base-time={base}", f"--iterations={many}", text],
        capture_output=True, text=True, check=False, env={"TZ": "UTC", "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip


@needs_systemd
@pytest.mark.parametrize("text", SHARED)
def test_systemd_names_the_same_instants(text):
    shown = systemd(text, 12)
    assert shown.returncode == 0, shown.stderr
    found = []
    for line in shown.stdout.splitlines():
        label, _, value = line.strip().partition(": ")
        if label in {"Next elapse", "(in UTC)"} or label.startswith("Iter"):
            _, date, time, zone = value.split()
            assert zone == "UTC"
            found.append(f"{date}T{time}Z")
    assert len(found) >= 1
    assert ours(text, len(found)) == found


@needs_systemd
@pytest.mark.parametrize("text", REFUSED)
def test_systemd_refuses_the_same(text):
    assert systemd(text, 1).returncode != 0


@pytest.mark.parametrize("text", [*REFUSED, *NEVER])
def test_refused(text):
    with pytest.raises(ScheduleError) as caught:
        compile_schedule([f"calendar {text}"])
    assert caught.value.field in {"calendar", "timezone"}
    assert caught.value.text == f"calendar {text}".strip()


@pytest.mark.parametrize("text", SHARED)
def test_taken(text):
    assert ours(text, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mon..Fri 02:00", ["2026-01-01T02:00:00Z", "2026-01-02T02:00:00Z", "2026-01-05T02:00:00Z"]),
        ("*-*-* 02:00/15", ["2026-01-01T02:00:00Z", "2026-01-01T02:15:00Z", "2026-01-01T02:30:00Z"]),
        ("Mon *-05~07/1", ["2026-05-25T00:00:00Z", "2027-05-31T00:00:00Z", "2028-05-29T00:00:00Z"]),
        ("*-02~03", ["2026-02-26T00:00:00Z", "2027-02-26T00:00:00Z", "2028-02-27T00:00:00Z"]),
        ("*-*~1..10/3", ["2026-01-22T00:00:00Z", "2026-01-25T00:00:00Z", "2026-01-28T00:00:00Z"]),
        ("*:*:0/0.5", ["2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z", "2026-01-01T00:00:01.5Z"]),
        (
            "12:00:00.000001",
            ["2026-01-01T12:00:00.000001Z", "2026-01-02T12:00:00.000001Z", "2026-01-03T12:00:00.000001Z"],
        ),
        ("quarterly", ["2026-04-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-10-01T00:00:00Z"]),
        ("12:00 Asia/Kathmandu", ["2026-01-01T06:15:00Z", "2026-01-02T06:15:00Z", "2026-01-03T06:15:00Z"]),
        ("2300-1-1 Asia/Tokyo", ["2299-12-31T15:00:00Z"]),
    ],
)
def test_by_hand(text, expected):
    assert ours(text, 3) == expected


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        # fixed: once after the gap, once in the overlap; systemd itself loses the first of these
        ("02:30 Europe/Berlin", "2026-03-29T00:00:00Z", ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
        ("02:30 Europe/Berlin", "2026-10-24T23:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        # a star in the hour follows the clock
        ("*:30 Europe/Berlin", "2026-03-29T00:00:00Z", ["2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"]),
        ("*:30 Europe/Berlin", "2026-10-25T00:00:00Z", ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]),
        ("hourly Europe/Berlin", "2026-10-24T23:30:00Z", ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z"]),
        ("02:* Europe/Berlin", "2026-03-29T00:59:00Z", ["2026-03-30T00:00:00Z", "2026-03-30T00:01:00Z"]),
    ],
)
def test_nights_of_change(text, start, expected):
    assert ours(text, 2, start) == expected
