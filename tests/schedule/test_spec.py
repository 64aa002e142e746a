"""Schedules as a whole: periods, fixed instants, merging, windows, exclusions, jitter, explanations."""

import time
from datetime import date
from itertools import pairwise

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.spans import format_instant, parse_instant
from crtrd.schedule.spec import Span, compile_schedule, is_fixed
from crtrd.schedule.zone import END

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def utc(text):
    return parse_instant(text, "UTC")


def instants(schedule, start, end):
    found, at = [], utc(start)
    while (at := schedule.next_after(at)) is not None and at <= utc(end):
        found.append(format_instant(at))
    return found


START = utc("2026-12-01T00:00:00Z")


def test_every_counts_from_the_anchor():
    anchor = utc("2026-12-01T10:07:13.25Z")
    schedule = compile_schedule(["every 15m"], anchor=anchor, timezone="Europe/Berlin")
    assert schedule.next_after(anchor) == anchor + 15 * MINUTE
    assert schedule.next_after(anchor + 15 * MINUTE - 1) == anchor + 15 * MINUTE
    assert schedule.next_after(anchor + 15 * MINUTE) == anchor + 30 * MINUTE
    assert schedule.next_after(0) == anchor + 15 * MINUTE
    assert schedule.latest_not_after(anchor) is None
    assert schedule.latest_not_after(anchor + 15 * MINUTE) == anchor + 15 * MINUTE
    # a year later the phase is still that of the anchor
    late = schedule.next_after(anchor + 365 * DAY + 1)
    assert (late - anchor) % (15 * MINUTE) == 0
    assert schedule.span(anchor, anchor + 365 * DAY).count == 365 * 24 * 4


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("every", "every"), ("every 0", "every"), ("every 999ms", "every"), ("every -5m", "every"),
        ("every 5x", "every"),
        ("every 15m after", "every"), ("every after end", "every"), ("every 15m before end", "every"),
        ("every infinity", "every"), ("at", "at"), ("at noon", "at"), ("at 2026-02-30", "at"), ("calendar", "calendar"),
        ("calendar 25:00", "calendar"), ("calendar 12:00 Mars/Base", "timezone"), ("@often", "schedule"),
    ],
)  # fmt: skip
def test_refused(text, field):
    with pytest.raises(ScheduleError) as caught:
        compile_schedule([text])
    assert caught.value.field == field
    assert caught.value.text == text


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dst_gap": "first"}, "dst_gap"), ({"dst_overlap": "skip"}, "dst_overlap"), ({"dst_gap": ""}, "dst_gap"),
        ({"jitter_us": -1}, "jitter"), ({"starts_at": 5, "expires_at": 5}, "expires_at"),
        ({"excludes": [(5, 4)]}, "exclude"), ({"exclude_dates": [(date(2026, 1, 2), date(2026, 1, 1))]}, "exclude"),
        ({"timezone": "Nowhere"}, "timezone"),
    ],
)  # fmt: skip
def test_refused_options(options, field):
    with pytest.raises(ScheduleError) as caught:
        compile_schedule(["@daily"], **options)
    assert caught.value.field == field


def test_too_many_schedules_are_refused():
    with pytest.raises(ScheduleError):
        compile_schedule(["@daily"] * 101)


def test_after_end_and_reboot_name_no_instants():
    schedule = compile_schedule(["every 15m after end", "every  10min  after end", "@reboot"])
    assert schedule.after_end_us == 10 * MINUTE
    assert schedule.on_boot
    assert schedule.next_after(0) is None
    assert schedule.latest_not_after(END) is None
    assert schedule.span(-1, END) == Span(0, ())
    assert not compile_schedule(["@daily"]).on_boot
    assert compile_schedule(["@daily"]).after_end_us is None


def test_no_schedule_at_all():
    schedule = compile_schedule([])
    assert schedule.texts == ()
    assert schedule.next_after(0) is None
    assert schedule.explain(START).reason == "not-scheduled"


def test_at_is_one_instant():
    schedule = compile_schedule(["at 2026-12-01T02:00"], timezone="Europe/Berlin")
    one = utc("2026-12-01T01:00:00Z")
    assert schedule.next_after(one - 1) == one
    assert schedule.next_after(one) is None
    assert schedule.latest_not_after(one) == one
    assert schedule.latest_not_after(one - 1) is None
    assert schedule.span(0, END).count == 1


@pytest.mark.parametrize(
    ("texts", "fixed"),
    [
        (["at 2026-12-01"], True), (["at 2026-12-01", "at 2027-01-01"], True), ([], False), (["@daily"], False),
        (["at 2026-12-01", "@daily"], False), (["every 1h"], False), (["@reboot"], False), ([""], False),
        (["AT 2026-12-01"], True), (["attic"], False),
    ],
)  # fmt: skip
def test_is_fixed(texts, fixed):
    assert is_fixed(texts) is fixed


def test_several_schedules_are_one_stream_without_doubles():
    texts = ["0 * * * *", "*/30 * * * *", "at 2026-12-01T01:00Z", "at 2026-12-01T01:10Z", "every 20m", "0 1 * * *"]
    schedule = compile_schedule(texts, anchor=START)
    expected = [f"2026-12-01T{time}:00Z" for time in ("00:20", "00:30", "00:40", "01:00", "01:10", "01:20", "01:30")]
    assert instants(schedule, "2026-12-01T00:00:00Z", "2026-12-01T01:30:00Z") == expected
    found = schedule.span(START, utc("2026-12-01T01:30:00Z"))
    assert [format_instant(n) for n in found.newest] == expected
    assert schedule.span(START, utc("2026-12-01T01:30:00Z"), keep=0) == Span(7, ())
    assert schedule.span(START, utc("2026-12-01T01:30:00Z"), keep=2).newest == found.newest[-2:]


@pytest.mark.parametrize(
    "texts",
    [
        ["* * * * *", "*/5 * * * *"], ["* * * * *", "every 1m"], ["every 90s", "every 1m"],
        ["0 * * * *", "0,30 9 * * *"],
        ["*/7 * * * *", "*/5 * * * *", "0 0 * * *"], ["every 7m", "*/7 * * * *", "calendar *:0/9"],
        ["calendar *:*:0/20", "* * * * *"], ["30 2 * * *", "30 2 * * 0", "*/30 2 * * *"],
        ["calendar 02:30 UTC", "30 2 * * *", "calendar *:30"], ["0 0 29 * 5", "0 0 * * 0", "0 0 28-30 * *"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns"])
def test_the_count_of_merged_schedules_is_exact(texts, zone):
    schedule = compile_schedule(texts, timezone=zone, anchor=START - 3 * DAY)
    start, end = utc("2027-03-27T00:00:00Z"), utc("2027-03-30T00:00:00Z")
    walked, at = 0, start
    while (at := schedule.next_after(at)) is not None and at <= end:
        walked += 1
    assert schedule.span(start, end, keep=0).count == walked > 0


def test_ten_years_of_merged_minutes_are_counted_in_bounded_time():
    schedule = compile_schedule(["* * * * *", "*/5 * * * *", "0 3 * * *"], timezone="Europe/Berlin")
    began = time.process_time()
    assert schedule.span(START, START + 3653 * DAY).count == 3653 * 24 * 60
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("texts", [["every 1m", "* * * * *"], ["every 61s", "* * * * *", "0 2 * * *"]])
def test_streams_that_cannot_meet_are_added_up(texts):
    """An anchor between two seconds never meets a clock: ten years of both are counted at once."""
    schedule = compile_schedule(texts, anchor=START + 123_457, timezone="Europe/Berlin")
    period = 61 * SECOND if "61s" in texts[0] else MINUTE
    began = time.process_time()
    found = schedule.span(START, START + 3653 * DAY)
    assert time.process_time() - began < 0.5
    assert found.count == 3653 * 24 * 60 + (3653 * DAY - 123_457) // period


def test_the_window():
    schedule = compile_schedule(["0 * * * *"], starts_at=START + HOUR, expires_at=START + 3 * HOUR)
    inside = [START + HOUR, START + 2 * HOUR]  # the start belongs to it, the end does not
    assert schedule.span(0, END) == Span(2, tuple(inside))
    assert schedule.next_after(0) == inside[0]
    assert schedule.next_after(inside[1]) is None
    assert schedule.latest_not_after(END) == inside[1]
    assert schedule.latest_not_after(inside[0] - 1) is None
    assert schedule.explain(START).reason == "outside-window"
    assert schedule.explain(START + 3 * HOUR).reason == "outside-window"
    assert schedule.explain(START + HOUR).due
    assert compile_schedule(["@hourly"], expires_at=0).next_after(-5) is None


def test_excluded_stretches():
    stretches = [(START + 5 * HOUR, START + 7 * HOUR), (START + 2 * HOUR, START + 3 * HOUR),
                 (START + 6 * HOUR, START + 8 * HOUR), (START + 9 * HOUR, START + 9 * HOUR)]  # fmt: skip
    schedule = compile_schedule(["0 * * * *"], excludes=stretches)
    hours = [n for n in range(1, 11) if n not in {2, 5, 6, 7}]
    assert schedule.span(START, START + 10 * HOUR) == Span(6, tuple(START + n * HOUR for n in hours))
    assert schedule.span(START, START + 10 * HOUR, keep=0).count == 6
    assert [n for n in range(1, 11) if schedule.explain(START + n * HOUR).reason == "excluded"] == [2, 5, 6, 7]
    assert schedule.next_after(START + 4 * HOUR) == START + 8 * HOUR
    assert schedule.latest_not_after(START + 8 * HOUR - 1) == START + 4 * HOUR


def test_everything_excluded():
    schedule = compile_schedule(["* * * * *"], excludes=[(-1, END)])
    assert schedule.next_after(0) is None
    assert schedule.latest_not_after(END) is None
    assert schedule.span(-1, END).count == 0


def test_excluded_dates_are_local_and_whole():
    berlin = compile_schedule(
        ["30 * * * *"], timezone="Europe/Berlin", exclude_dates=[(date(2026, 12, 24), date(2026, 12, 26))]
    )
    assert instants(berlin, "2026-12-23T21:45:00Z", "2026-12-26T23:30:00Z") == [
        "2026-12-23T22:30:00Z", "2026-12-26T23:30:00Z",
    ]  # fmt: skip
    assert berlin.explain(utc("2026-12-24T12:30:00Z")).reason == "excluded"


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", date(2026, 3, 29), 23), ("Europe/Berlin", date(2026, 10, 25), 25),
        ("America/Sao_Paulo", date(2018, 2, 17), 25), ("America/Santiago", date(2025, 9, 7), 23),
        ("Pacific/Apia", date(2011, 12, 30), 0), ("Pacific/Apia", date(2011, 12, 31), 24),
    ],
)  # fmt: skip
def test_a_date_of_a_night_of_change_is_excluded_whole(zone, day, hours):
    plain = compile_schedule(["0 * * * *"], timezone=zone)
    spared = compile_schedule(["0 * * * *"], timezone=zone, exclude_dates=[(day, day)])
    start = utc(f"{day}T00:00:00Z") - 3 * DAY
    assert plain.span(start, start + 6 * DAY).count - spared.span(start, start + 6 * DAY).count == hours
    assert all(spared.local(n).date() != day for n in spared.span(start, start + 6 * DAY, keep=200).newest)


def test_a_date_in_two_pieces_is_excluded_whole():
    """In St John's the clock went back at 00:01: the new day showed a minute, then the old day again."""
    schedule = compile_schedule(
        ["* * * * *"], timezone="America/St_Johns", exclude_dates=[(date(2010, 11, 7), date(2010, 11, 7))]
    )
    start = utc("2010-11-07T00:00:00Z")
    found = schedule.span(start, start + 6 * HOUR, keep=400).newest
    plain = compile_schedule(["* * * * *"], timezone="America/St_Johns").span(start, start + 6 * HOUR, keep=400).newest
    assert found == tuple(n for n in plain if schedule.local(n).date() == date(2010, 11, 6))
    assert len(found) > 150


@pytest.mark.parametrize("jitter", [1, 2, 7, SECOND, 10 * MINUTE, HOUR, 5 * HOUR, 400 * DAY])
@pytest.mark.parametrize("texts", [["0 * * * *"], ["*/10 * * * *", "every 7m", "at 2026-12-01T05:00Z"]])
def test_jitter_keeps_order_number_and_room(texts, jitter):
    plain = compile_schedule(texts, anchor=START)
    moved = compile_schedule(texts, anchor=START, jitter_us=jitter, salt="a")
    nominal = plain.span(START, START + 12 * HOUR, keep=500).newest
    found, at = [], START - 1
    while len(found) < len(nominal) + 2:
        at = moved.next_after(at)
        found.append(at)
    first = next(i for i, n in enumerate(found) if n >= nominal[0])
    for i, n in enumerate(nominal[:-1]):
        offset = found[first + i] - n
        assert 0 <= offset < min(jitter, nominal[i + 1] - n)
    assert all(a < b for a, b in pairwise(found))
    for until in (found[3], found[3] - 1, found[3] + 1, found[-1]):
        expected = [n for n in found if n <= until]
        assert moved.span(START - 1, until, keep=500) == Span(len(expected), tuple(expected))
        assert moved.span(START - 1, until, keep=0).count == len(expected)
        assert moved.latest_not_after(until) == expected[-1]


def test_jitter_spreads_and_stays_in_the_window():
    schedule = compile_schedule(
        ["0 0 * * *"], jitter_us=HOUR, salt="x", starts_at=START, expires_at=START + 200 * DAY + 1
    )
    found = schedule.span(0, END, keep=1000)
    assert found.count == 201
    offsets = [(n - START) % DAY for n in found.newest]
    assert max(offsets) < HOUR
    assert min(offsets[:-1]) < 5 * MINUTE < 55 * MINUTE < max(offsets)
    assert found.newest[-1] == START + 200 * DAY  # no room is left before the end


def test_explain_jitter():
    schedule = compile_schedule(["0 * * * *"], jitter_us=10 * MINUTE, salt="x")
    moved = schedule.next_after(START)
    told = schedule.explain(moved)
    assert (told.due, told.reason) == (True, "jitter")
    assert "2026-12-01T" in told.detail
    nominal = moved - moved % HOUR
    told = schedule.explain(nominal)
    assert (told.due, told.reason) == (False, "jitter")
    assert format_instant(moved) in told.detail


@pytest.mark.parametrize(
    ("text", "zone", "at", "options", "expected"),
    [
        ("0 2 * * *", "UTC", "2026-12-01T02:00:00Z", {}, (True, "")),
        ("0 2 * * *", "UTC", "2026-12-01T02:00:01Z", {}, (False, "not-scheduled")),
        ("30 2 * * *", "America/New_York", "2019-03-10T07:00:00Z", {}, (True, "gap")),
        ("30 2 * * *", "America/New_York", "2019-03-10T07:00:00Z", {"dst_gap": "skip"}, (False, "gap")),
        ("*/5 2 * * *", "America/New_York", "2019-03-10T07:00:00Z", {}, (False, "gap")),
        ("0 3 * * *", "America/New_York", "2019-03-10T07:00:00Z", {}, (True, "")),
        ("0 2-3 * * *", "America/New_York", "2019-03-10T07:00:00Z", {}, (True, "")),
        ("30 1 * * *", "America/New_York", "2019-11-03T05:30:00Z", {}, (True, "overlap")),
        ("30 1 * * *", "America/New_York", "2019-11-03T06:30:00Z", {}, (False, "overlap")),
        ("30 1 * * *", "America/New_York", "2019-11-03T05:30:00Z", {"dst_overlap": "second"}, (False, "overlap")),
        ("30 1 * * *", "America/New_York", "2019-11-03T06:30:00Z", {"dst_overlap": "second"}, (True, "overlap")),
        ("30 * * * *", "America/New_York", "2019-11-03T06:30:00Z", {}, (True, "overlap")),
        ("0 0 30 12 *", "Pacific/Apia", "2011-12-30T10:00:00Z", {}, (False, "gap")),
        ("0 0 30 12 *", "Pacific/Apia", "2011-12-30T10:00:00Z", {"dst_gap": "after"}, (True, "gap")),
        ("every 1h", "America/New_York", "2019-11-03T06:00:00Z", {}, (True, "")),
    ],
)
def test_explain(text, zone, at, options, expected):
    told = compile_schedule([text], timezone=zone, **options).explain(utc(at))
    assert (told.due, told.reason) == expected
    assert bool(told.detail) is bool(told.reason)


def test_explain_says_which_time_was_skipped():
    told = compile_schedule(["45 2 * * *"], timezone="Europe/Berlin").explain(utc("2026-03-29T01:00:00Z"))
    assert "2026-03-29 02:45" in told.detail


def test_local():
    schedule = compile_schedule(["@daily"], timezone="America/New_York")
    assert schedule.local(utc("2019-11-03T05:30:00Z")).isoformat() == "2019-11-03T01:30:00-04:00"
    assert schedule.local(utc("2019-11-03T06:30:00Z")).isoformat() == "2019-11-03T01:30:00-05:00"


@pytest.mark.parametrize("text", ["* * * * *", "@yearly", "every 1h", "calendar *:*:*", "0 0 29 2 *"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Africa/Monrovia"])
def test_the_ends_of_time(text, zone):
    schedule = compile_schedule([text], timezone=zone)
    for at in (END, END - 1, END + DAY, 10**20):
        following = schedule.next_after(at)
        assert following is None or at < following < END
        assert schedule.next_after(at if at >= END else END) is None
    last = schedule.latest_not_after(10**20)
    assert last < END
    assert schedule.next_after(last) is None
    first = schedule.next_after(-(10**20))
    assert first >= 0
    assert schedule.latest_not_after(first) == first
    assert schedule.latest_not_after(first - 1) is None
    assert schedule.latest_not_after(-(10**20)) is None
    assert schedule.span(10, 5) == Span(0, ())
    for at in (-(10**20), -1, END, 10**20):
        assert schedule.explain(at).reason == "not-scheduled"
    assert schedule.span(-(10**20), 10**20, keep=1).newest == (last,)
