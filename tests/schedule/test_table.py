"""The table of known nights, row by row, and the reported failures about time with their exact values."""

import csv
import time
from itertools import islice, pairwise
from pathlib import Path

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.spans import format_instant, parse_instant
from crtrd.schedule.spec import compile_schedule

TABLE = Path(__file__).parent.parent / "data" / "schedules.tsv"
MINUTE = 60_000_000


def rows():
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def utc(text):
    return parse_instant(text, "UTC")


def after(schedule, start, many=5):
    def run():
        at = utc(start)
        while (at := schedule.next_after(at)) is not None:
            yield format_instant(at)

    return list(islice(run(), many))


def between(schedule, start, end):
    return [text for text in after(schedule, start, 10_000) if text <= end]


def test_the_table_is_there():
    assert len(rows()) >= 26


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["id"])
def test_row(row):
    if row["expected_next_5_utc"] == "NEVER":
        with pytest.raises(ScheduleError) as caught:
            compile_schedule([row["expression"]], timezone=row["zone"])
        assert caught.value.field == "day of month"
        return
    schedule = compile_schedule([row["expression"]], timezone=row["zone"])
    expected = row["expected_next_5_utc"].split(",")
    assert after(schedule, row["from_utc_exclusive"]) == expected
    instants = [utc(text) for text in expected]
    for earlier, later in pairwise(instants):
        assert schedule.latest_not_after(later - 1) == earlier
    found = schedule.span(utc(row["from_utc_exclusive"]), instants[-1])
    assert found.count == 5
    assert list(found.newest) == instants
    assert all(schedule.explain(instant).due for instant in instants)


@pytest.mark.parametrize(
    ("text", "zone", "start", "end", "expected"),
    [
        # C01: the gap, run once, at its end
        ("30 2 * * *", "America/New_York", "2019-03-10T06:58:00Z", "2019-03-11T12:00:00Z",
         ["2019-03-10T07:00:00Z", "2019-03-11T06:30:00Z"]),
        ("0 2 * * *", "America/New_York", "2020-03-08T06:58:00Z", "2020-03-09T12:00:00Z",
         ["2020-03-08T07:00:00Z", "2020-03-09T06:00:00Z"]),
        # C02: the repeated hour, once, and not again when asked between the two
        ("30 1 * * *", "America/New_York", "2019-11-03T05:25:00Z", "2019-11-04T07:00:00Z",
         ["2019-11-03T05:30:00Z", "2019-11-04T06:30:00Z"]),
        ("30 1 * * *", "America/New_York", "2019-11-03T06:10:00Z", "2019-11-04T07:00:00Z", ["2019-11-04T06:30:00Z"]),
        # C03: asked in the second pass
        ("50 1 * * *", "America/New_York", "2019-11-03T06:10:00Z", "2019-11-04T07:00:00Z", ["2019-11-04T06:50:00Z"]),
        # C04: the hourly job goes on through the repeated hour
        ("0 * * * *", "Europe/London", "2025-10-25T23:55:00Z", "2025-10-26T02:05:00Z",
         ["2025-10-26T00:00:00Z", "2025-10-26T01:00:00Z", "2025-10-26T02:00:00Z"]),
        ("0 0-22/2 * * *", "Europe/Berlin", "2017-10-28T22:30:00Z", "2017-10-29T02:00:00Z", ["2017-10-29T00:00:00Z"]),
        # C08: half an hour, two hours, a day
        ("15 2 * * *", "Australia/Lord_Howe", "2025-10-04T12:00:00Z", "2025-10-05T12:00:00Z",
         ["2025-10-04T15:30:00Z"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2025-04-05T12:00:00Z", "2025-04-06T12:00:00Z",
         ["2025-04-05T14:45:00Z"]),
        ("30 2 * * *", "Antarctica/Troll", "2025-03-29T12:00:00Z", "2025-03-30T12:00:00Z", ["2025-03-30T01:00:00Z"]),
        ("0 0 30 12 *", "Pacific/Apia", "2010-12-29T00:00:00Z", "2012-12-30T00:00:00Z",
         ["2010-12-30T10:00:00Z", "2012-12-29T10:00:00Z"]),
        # C09: leap days and the day after
        ("0 0 29 2 *", "UTC", "2024-12-13T00:00:00Z", "2044-03-01T00:00:00Z",
         [f"{year}-02-29T00:00:00Z" for year in (2028, 2032, 2036, 2040, 2044)]),
        ("0 9 29 2 *", "UTC", "2016-02-29T09:00:00Z", "2020-03-01T00:00:00Z", ["2020-02-29T09:00:00Z"]),
        ("0 * * * 1-5", "America/Chicago", "2016-02-29T17:00:00Z", "2016-02-29T18:30:00Z", ["2016-02-29T18:00:00Z"]),
        # C13: nothing depends on what was asked before, also after a clock that ran ahead
        ("*/5 * * * *", "UTC", "2026-12-01T10:02:00Z", "2026-12-01T10:05:00Z", ["2026-12-01T10:05:00Z"]),
        # C18: the edited schedule speaks of the future only
        ("35 6 * * *", "UTC", "2026-12-01T10:37:00Z", "2026-12-02T07:00:00Z", ["2026-12-02T06:35:00Z"]),
    ],
)  # fmt: skip
def test_case(text, zone, start, end, expected):
    assert between(compile_schedule([text], timezone=zone), start, end) == expected


def test_c03_next_is_later_for_every_pair_of_minutes_in_the_repeated_hour():
    """The same 60 x 60 pairs of which a library got 1770 wrong."""
    start = utc("2019-11-03T05:00:00Z")
    for minute in range(60):
        schedule = compile_schedule([f"{minute} 1 * * *"], timezone="America/New_York")
        first, following = start + minute * MINUTE, utc("2019-11-04T06:00:00Z") + minute * MINUTE
        for asked in range(120):
            now = start + asked * MINUTE
            assert schedule.next_after(now) == (first if now < first else following)


def test_c04_minutely_runs_sixty_times_in_the_repeated_hour():
    schedule = compile_schedule(["* * * * *"], timezone="Europe/London")
    found = between(schedule, "2025-10-26T00:59:59Z", "2025-10-26T01:59:59Z")
    assert len(found) == 60
    assert (found[0], found[-1]) == ("2025-10-26T01:00:00Z", "2025-10-26T01:59:00Z")


@pytest.mark.parametrize("text", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *", "* * 31 11 *", "0 0 31 2 */2"])
def test_c10_never_is_refused_at_once(text):
    began = time.process_time()
    with pytest.raises(ScheduleError) as caught:
        compile_schedule([text])
    assert time.process_time() - began < 0.2
    assert caught.value.field == "day of month"


def test_c10_a_list_with_one_possible_month_is_accepted():
    schedule = compile_schedule(["0 0 31 4,5 *"])
    assert after(schedule, "2029-03-26T09:22:30Z", 1) == ["2029-05-31T00:00:00Z"]


def test_c16_five_million_missed_minutes_are_counted_at_once():
    schedule = compile_schedule(["* * * * *"])
    start = utc("2026-12-01T00:00:00Z")
    assert schedule.span(start, start + 101 * MINUTE).count == 101
    for zone in ("UTC", "Europe/Berlin"):
        schedule = compile_schedule(["* * * * *"], timezone=zone)
        began = time.process_time()
        found = schedule.span(start, start + 5_259_487 * MINUTE, keep=100)
        assert time.process_time() - began < 0.5
        assert found.count == 5_259_487
        assert found.newest == tuple(start + (5_259_487 - 99 + n) * MINUTE for n in range(100))


def test_c19_the_jitter_of_an_instant_is_always_the_same():
    ten_minutes = 10 * MINUTE
    first = compile_schedule(["0 * * * *"], salt="job", jitter_us=ten_minutes)
    again = compile_schedule(["0 * * * *"], salt="job", jitter_us=ten_minutes)
    other = compile_schedule(["0 * * * *"], salt="other", jitter_us=ten_minutes)
    start = utc("2026-12-01T00:30:00Z")
    one, two, three = (schedule.next_after(start) for schedule in (first, again, other))
    assert one == two != three
    assert 0 <= one - utc("2026-12-01T01:00:00Z") < ten_minutes
    # asked every minute, as by a daemon that is started anew every minute: the answer stays
    asked = {first.next_after(start + n * MINUTE) for n in range(30)}
    assert asked == {one}
