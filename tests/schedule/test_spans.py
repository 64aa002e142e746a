"""Lengths of time and single instants as text."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtrd.errors import ScheduleError
from crtrd.schedule.spans import LONGEST, format_instant, format_span, parse_instant, parse_span
from crtrd.schedule.zone import END

SECOND = 1_000_000

SPANS = {
    "90s": 90 * SECOND, "1h 30min": 5400 * SECOND, "2d": 172_800 * SECOND, "500ms": 500_000, "90": 90 * SECOND,
    "1.5h": 5400 * SECOND, "5 10": 15 * SECOND, ".5s": 500_000, "1h30": 3630 * SECOND, "1us": 1, "1001us": 1001,
    "2 h": 7200 * SECOND, "1w": 604_800 * SECOND, "1M": 2_629_800 * SECOND, "1m": 60 * SECOND,
    "1y": 31_557_600 * SECOND,
    "55s500ms": 55_500_000, "300ms20s 5day": 432_020_300_000, "5µs": 5, "5μs": 5, "0.0005": 500, "0": 0, "1h  2m": 3720
    * SECOND, "48hr": 172_800 * SECOND, "1year 12month": 63_115_200 * SECOND, "3minutes": 180 * SECOND,
}  # fmt: skip


@pytest.mark.parametrize("text", SPANS)
def test_parse_span(text):
    assert parse_span(text) == SPANS[text]


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "s", "5 fortnights", "-5s", "1.s", "1..5s", "infinity", "1e3", "0x10", "\u0663s", "\uff11s", "5S",
        "1,5h", "1h-2m", "1000000y", "9" * 30, "1s" * 5000, "1h\0", ".", "5 5x", "1.5.5s",
    ],
)  # fmt: skip
def test_parse_span_refuses(text):
    with pytest.raises(ScheduleError):
        parse_span(text)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0"), (1, "1us"), (1001, "1.001ms"), (500_000, "500ms"), (SECOND, "1s"), (1_500_000, "1.5s"),
        (90 * SECOND, "1min 30s"), (5400 * SECOND, "1h 30min"), (14 * 86_400 * SECOND, "2w"),
        (400 * 86_400 * SECOND, "1y 1month 4d 7h 30min"), (60_000_001, "1min 1us"), (-SECOND, "-1s"),
    ],
)  # fmt: skip
def test_format_span(us, text):
    assert format_span(us) == text


@settings(deadline=None)
@given(st.integers(0, LONGEST))
def test_a_span_reads_back(us):
    assert parse_span(format_span(us)) == us


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("text", SPANS)
def test_systemd_reads_the_same(text):
    shown = subprocess.run(["systemd-analyze", "timespan", text], capture_output=True, text=True, check=True).stdout
    lines = dict(line.strip().split(": ", 1) for line in shown.splitlines() if ": " in line)
    assert int(lines["μs"]) == parse_span(text)
    if "." not in lines["Human"]:  # systemd prints the zeros of a fraction, this does not
        assert lines["Human"] == format_span(parse_span(text))


@pytest.mark.parametrize(
    ("text", "zone", "expected"),
    [
        ("2026-12-01T02:00Z", "Europe/Berlin", "2026-12-01T02:00:00Z"),
        ("2026-12-01T02:00:00z", "UTC", "2026-12-01T02:00:00Z"),
        ("2026-12-01 02:00 UTC", "Europe/Berlin", "2026-12-01T02:00:00Z"),
        ("2026-12-01T02:00+01:00", "UTC", "2026-12-01T01:00:00Z"),
        ("2026-12-01T02:00-0330", "UTC", "2026-12-01T05:30:00Z"),
        ("2026-12-01T02:00", "Europe/Berlin", "2026-12-01T01:00:00Z"),
        ("2026-12-01 02:00:30", "Asia/Kathmandu", "2026-11-30T20:15:30Z"),
        ("2026-12-01 02:00:30.25", "UTC", "2026-12-01T02:00:30.25Z"),
        ("2026-12-01", "America/New_York", "2026-12-01T05:00:00Z"),
        ("2024-02-29t00:00", "UTC", "2024-02-29T00:00:00Z"),
        ("1970-01-01T00:00Z", "UTC", "1970-01-01T00:00:00Z"),
        ("2400-12-31T23:59:59.999999Z", "UTC", "2400-12-31T23:59:59.999999Z"),
        # the gap and the overlap
        ("2019-03-10T02:30", "America/New_York", "2019-03-10T07:00:00Z"),
        ("2019-11-03T01:30", "America/New_York", "2019-11-03T05:30:00Z"),
        ("2011-12-30T12:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
    ],
)
def test_parse_instant(text, zone, expected):
    assert format_instant(parse_instant(text, zone)) == expected


def test_parse_instant_takes_the_choices():
    second = parse_instant("2019-11-03T01:30", "America/New_York", dst_overlap="second")
    assert format_instant(second) == "2019-11-03T06:30:00Z"
    with pytest.raises(ScheduleError) as caught:
        parse_instant("2019-03-10T02:30", "America/New_York", dst_gap="skip")
    assert caught.value.field == "at"


@pytest.mark.parametrize(
    "text",
    [
        "", "tomorrow", "2026-12-01T", "2026-12-01T2:00", "2026-13-01T02:00", "2026-02-30T02:00", "2026-12-01T24:00",
        "2026-12-01T02:60", "2026-12-01T02:00:60Z", "2026-12-01T02:00+25:00", "2026-12-01T02:00+01:60",
        "1969-12-31T23:59:59Z", "2401-01-01T00:00Z", "9999-12-31T23:59", "0000-01-01T00:00", "0001-01-01T00:00+23:00",
        "2026-12-01T02:00 Europe/Berlin", "\u0662026-12-01T02:00", "2" * 10_000, "2026-12-01T02:00Z junk",
        "1970-01-01T00:00+01:00",
    ],
)  # fmt: skip
def test_parse_instant_refuses(text):
    with pytest.raises(ScheduleError) as caught:
        parse_instant(text, "UTC")
    assert caught.value.field == "at"


@settings(deadline=None)
@given(st.integers(0, END - 1))
def test_an_instant_reads_back(us):
    assert parse_instant(format_instant(us), "Europe/Berlin") == us


def test_instants_without_fraction_have_none():
    assert format_instant(1_575_000_000_000_000) == "2019-11-29T04:00:00Z"
    assert format_instant(1_575_000_000_000_010) == "2019-11-29T04:00:00.00001Z"
