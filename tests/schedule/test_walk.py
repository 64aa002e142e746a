"""Every transition of thirty zones from 2000 to 2037, against the minute walk."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from crtrd.schedule.spec import compile_schedule
from tests.schedule.walk import days_of_change, due, minutes

ZONES = (
    "Africa/Cairo", "Africa/Casablanca", "Africa/Windhoek", "America/Asuncion", "America/Caracas",
    "America/Chicago", "America/Havana", "America/New_York", "America/Nuuk", "America/Santiago",
    "America/Sao_Paulo", "America/St_Johns", "Antarctica/Casey", "Antarctica/Troll", "Asia/Amman", "Asia/Beirut",
    "Asia/Gaza", "Asia/Ulaanbaatar", "Asia/Pyongyang", "Asia/Tehran", "Atlantic/Azores", "Australia/Lord_Howe",
    "Australia/Sydney", "Europe/Berlin", "Europe/Dublin", "Europe/Istanbul", "Europe/London", "Pacific/Apia",
    "Pacific/Chatham", "America/Port-au-Prince",
)  # fmt: skip
POOL = (
    "30 2 * * *", "0 0 * * *", "30 0 * * *", "30 1 * * *", "0 1-4 * * *", "15,45 0-3 * * *", "59 23 * * *",
    "0,30 2 * * *", "* * * * *", "*/15 * * * *", "0 * * * *", "0 */2 * * *", "0 0-22/2 * * *", "*/5 2 * * *",
    "*/20 0-3 * * *", "10 2 * * 0", "10 0 * * 6,0", "5 23 * * 5", "0 3 1-7 * 0", "0 2 */7 * 0", "17 0-23/3 * * *",
    "0-29/7 1,2,23 * * *", "1 0 30,31 12 *", "0 12 * * *", "45 1 1-31 * *", "0-59/30 * * * *", "0 0 1,15 * 6",
)  # fmt: skip
GAPS = ("auto", "auto", "skip", "after")
OVERLAPS = ("auto", "auto", "first", "second", "both")


def test_there_are_thirty_zones():
    assert len(set(ZONES)) == 30


@pytest.mark.parametrize("zone", ZONES)
def test_every_minute_around_every_transition(zone):
    chance = Random(zone)
    compared = 0
    for number, day in enumerate(days_of_change(zone, 2000, 2037)):
        start, end = day - timedelta(hours=3), day + timedelta(hours=27)
        walked = list(minutes(zone, start, end))
        expressions = [POOL[number % len(POOL)], chance.choice(POOL)]
        for expression in expressions:
            gap, overlap = chance.choice(GAPS), chance.choice(OVERLAPS)
            schedule = compile_schedule([expression], timezone=zone, dst_gap=gap, dst_overlap=overlap)
            expected = due(expression, walked, gap, overlap)
            told = f"{expression} {zone} {day:%F} gap={gap} overlap={overlap}"
            assert forward(schedule, walked) == expected, told
            assert backward(schedule, walked) == expected, told
            found = schedule.span(walked[0].instant - 1, walked[-1].instant, keep=1)
            assert found.count == len(expected), told
            compared += len(expected)
    assert compared > 0


@pytest.mark.parametrize("overlap", ["auto", "first", "second", "both"])
@pytest.mark.parametrize("text", ["30 2 25 10 *", "15 2 25 10 *", "*/20 2 25 10 *", "0 3 25 10 *"])
def test_a_yearly_job_is_found_from_every_minute_of_the_repeated_hour(text, overlap):
    """The next and the last instant may be a year away, or minutes away in the other pass."""
    start = datetime(2026, 10, 24, 20, tzinfo=UTC)
    walked = list(minutes("Europe/Berlin", start, start + timedelta(hours=10)))
    expected = due(text, walked, overlap=overlap)
    schedule = compile_schedule([text], timezone="Europe/Berlin", dst_overlap=overlap)
    assert expected
    for minute in walked:
        now = minute.instant
        later = [n for n in expected if n > now]
        earlier = [n for n in expected if n <= now]
        following, latest = schedule.next_after(now), schedule.latest_not_after(now)
        assert following == later[0] if later else following > walked[-1].instant
        assert latest == earlier[-1] if earlier else latest < walked[0].instant


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll"])
@pytest.mark.parametrize("overlap", ["auto", "second", "both"])
def test_a_yearly_job_on_a_night_of_change_is_found_from_far_away(zone, overlap):
    """From months before and after, in either offset: the way there leads over other changes."""
    for day in days_of_change(zone, 2026, 2027):
        walked = list(minutes(zone, day - timedelta(hours=2), day + timedelta(hours=26)))
        night = next(m.wall for m in walked if m.skipped or m.place == "second")
        for hour, minute in ((1, 30), (2, 0), (2, 30), (3, 0), (3, 30)):
            text = f"{minute} {hour} {night.day} {night.month} *"
            expected = due(text, walked, overlap=overlap)
            schedule = compile_schedule([text], timezone=zone, dst_overlap=overlap)
            assert expected
            for days in (5, 20, 45, 100, 160, 200, 250, 300, 330, 355):
                far = timedelta(days=days) // timedelta(microseconds=1)
                assert schedule.next_after(expected[0] - far) == expected[0], f"{text} {zone} {days} days before"
                assert schedule.latest_not_after(expected[-1] + far) == expected[-1], f"{text} {zone} {days} days after"


@pytest.mark.parametrize(
    "zone", ["America/Nuuk", "Europe/Dublin", "Africa/Cairo", "Australia/Lord_Howe", "America/Havana"])
@pytest.mark.parametrize("year", [2038, 2099, 2200])
def test_changes_beyond_what_zone_files_list(zone, year):
    """Past 2037 the rule at the end of the file holds; clocks of 32 bits ended there."""
    for day in days_of_change(zone, year, year):
        walked = list(minutes(zone, day - timedelta(hours=3), day + timedelta(hours=27)))
        for expression in ("30 0-3,22,23 * * *", "0 0 * * *", "*/20 * * * *", "15 1 29-31 * 5,6,0"):
            schedule = compile_schedule([expression], timezone=zone)
            expected = due(expression, walked)
            assert forward(schedule, walked) == expected, f"{expression} {zone} {day:%F}"
            assert backward(schedule, walked) == expected, f"{expression} {zone} {day:%F}"


def forward(schedule, walked):
    found, at = [], walked[0].instant - 1
    while (at := schedule.next_after(at)) is not None and at <= walked[-1].instant:
        found.append(at)
    return found


def backward(schedule, walked):
    found, at = [], walked[-1].instant + 1
    while (at := schedule.latest_not_after(at - 1)) is not None and at >= walked[0].instant:
        found.append(at)
    return found[::-1]


def test_the_walk_itself_knows_the_night_of_the_jump():
    """The oracle is held to two nights that were written down by hand."""
    day = days_of_change("Europe/Berlin", 2018, 2018)[0]
    walked = list(minutes("Europe/Berlin", day, day + timedelta(hours=3)))
    one = 1521939600_000000  # 2018-03-25T01:00:00Z
    assert due("30 2 * * *", walked) == [one]
    assert due("*/5 2 * * *", walked) == []
    assert due("30 2 * * *", walked, gap="skip") == []
    autumn = days_of_change("Europe/Berlin", 2017, 2017)[1]
    again = list(minutes("Europe/Berlin", autumn, autumn + timedelta(hours=3)))
    half = 1509237000_000000  # 2017-10-29T00:30:00Z
    assert due("30 2 * * *", again) == [half]
    assert due("30 2 * * *", again, overlap="second") == [half + 3600_000000]
    assert due("30 * * * *", again) == [half, half + 3600_000000, half + 7200_000000]
