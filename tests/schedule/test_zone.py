"""Zones: every change of every installed zone is found, and only zones can be named."""

import struct
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import resources
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, ZoneInfoNotFoundError, available_timezones

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.spec import compile_schedule
from crtrd.schedule.zone import DAY, END, HOUR, SECOND, Zone, forget_zones, load_zone

ZONES = sorted(name for name in available_timezones() if not name.startswith(("posix", "right")))


@pytest.fixture(autouse=True)
def fresh_zones():
    forget_zones()
    yield
    forget_zones()


def zone_file(name):
    for folder in TZPATH:
        if (Path(folder) / name).is_file():
            return (Path(folder) / name).read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def changes_in_file(name):
    """Read (second, old offset, new offset) of the 64-bit block of a TZif file (RFC 8536)."""
    data = zone_file(name)

    def header(place):
        return struct.unpack(">6l", data[place + 20 : place + 44])

    isut, isstd, leap, times, types, chars = header(0)
    place = 44 + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, _, times, types, _ = header(place)
    place += 44
    seconds = struct.unpack(f">{times}q", data[place : place + 8 * times])
    indices = data[place + 8 * times : place + 9 * times]
    kinds = place + 9 * times
    offsets = [struct.unpack(">l", data[kinds + 6 * i : kinds + 6 * i + 4])[0] for i in range(types)]
    found, known = [], offsets[0]  # what holds before the first time of the file
    for second, index in zip(seconds, indices, strict=True):
        if offsets[index] != known:
            found.append((second, known, offsets[index]))
        known = offsets[index]
    return [change for change in found if change[0] > 0]


@pytest.mark.parametrize("letter", sorted({name[0] for name in ZONES}))
def test_every_change_in_every_zone_file_is_found_to_the_second(letter):
    seen = set()
    for name in (zone for zone in ZONES if zone.startswith(letter)):
        data = zone_file(name)
        if data in seen or name in {"localtime", "posixrules", "Factory"}:
            continue
        seen.add(data)
        changes = changes_in_file(name)
        last = changes[-1][0] + 1 if changes else 1
        segments = Zone(name, ZoneInfo(name)).segments(0, last * SECOND)
        found = [(s.start // SECOND, s.before // SECOND, s.offset // SECOND) for s in segments if s.before != s.offset]
        assert found == changes, name


def test_changes_after_the_last_of_the_file_follow_its_rule():
    zone = load_zone("Europe/Berlin")
    start = int(datetime(2150, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    found = [s.start for s in zone.segments(start, start + 365 * DAY) if s.before != s.offset]
    expected = [datetime(2150, 3, 29, 1, tzinfo=UTC), datetime(2150, 10, 25, 1, tzinfo=UTC)]
    assert found == [int(moment.timestamp()) * SECOND for moment in expected]


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "Antarctica/Troll", "America/St_Johns"])
def test_segments_are_whole_and_their_edges_never_lie_in_an_overlap(name):
    zone = Zone(name, ZoneInfo(name))
    at = -10 * DAY
    while at < END:
        segment = zone.at(at)
        assert segment.start <= at < segment.end
        assert segment.before == zone.offset_at(segment.start - 1)
        assert segment.after == zone.offset_at(segment.end)
        if segment.before > segment.offset:
            assert segment.end - segment.start > segment.before - segment.offset
        if segment.after < segment.offset:
            assert segment.end - segment.start > segment.offset - segment.after
        assert zone.at(segment.end - 1) == segment
        at = segment.end


class Wandering(tzinfo):
    """Some hours back at an instant of choice: any change, on any edge of a loaded year."""

    def __init__(self, change, hours=1):
        self.change = change
        self.back = timedelta(hours=hours)

    def utcoffset(self, moment):
        local = moment.replace(tzinfo=UTC)
        early = local < self.change + (timedelta(0) if moment.fold else self.back)
        return self.back if early else timedelta(0)

    def dst(self, moment):
        return timedelta(0)

    def fromutc(self, moment):
        instant = moment.replace(tzinfo=UTC)
        if instant < self.change:
            return moment + self.back
        return moment.replace(fold=int(instant < self.change + self.back))


@pytest.mark.parametrize("minutes_off", [-90, -60, -59, -30, -1, 0, 1, 30, 59, 60, 90, 2880, 4320])
def test_an_overlap_at_the_edge_of_a_loaded_year(minutes_off):
    """Years are loaded apart; an overlap that met their edge once ran its second pass too."""
    edge = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=365 * 40)
    change = edge + timedelta(minutes=minutes_off)
    load_zone("Test/Edge", lambda _: Wandering(change))
    at = int(change.timestamp()) * SECOND
    first = (change + timedelta(minutes=30)).strftime("%M %H * * *")  # shown twice: half an hour around
    once = compile_schedule([first], timezone="Test/Edge")
    twice = compile_schedule([first], timezone="Test/Edge", dst_overlap="both")
    second = compile_schedule([first], timezone="Test/Edge", dst_overlap="second")
    early, late = at - HOUR // 2, at + HOUR // 2
    found = {n: n.span(at - 3 * HOUR, at + 3 * HOUR).newest for n in (once, twice, second)}
    assert list(found.values()) == [(early,), (early, late), (late,)]
    assert [n.span(at - 3 * HOUR, at + 3 * HOUR, keep=0).count for n in found] == [1, 2, 1]


@pytest.mark.parametrize(("hours", "runs"), [(1, 1), (3, 1), (4, 2), (23, 2)])
def test_the_clock_set_back_by_more_than_three_hours_is_a_correction(hours, runs):
    """No zone did that since 1970, so this one is made up: cron(8) uses the new time at once."""
    change = datetime(2026, 6, 15, 12, tzinfo=UTC)
    load_zone("Test/Edge", lambda _: Wandering(change, hours))
    at = int(change.timestamp()) * SECOND
    schedule = compile_schedule(["30 12 15 6 *"], timezone="Test/Edge")
    assert schedule.span(at - 30 * HOUR, at + 30 * HOUR).count == runs
    first = compile_schedule(["30 12 15 6 *"], timezone="Test/Edge", dst_overlap="first")
    assert first.span(at - 30 * HOUR, at + 30 * HOUR).count == 1


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "/etc/localtime", "/usr/share/zoneinfo/UTC", "../UTC", "Europe/../UTC", "Europe/./Berlin", ".",
        "Europe", "Europe/", "/UTC", "Europe//Berlin", "Europe/Atlantis", "Mars/Base", "zone.tab", "tzdata.zi",
        "leapseconds", "posixrules", "localtime", "right/UTC", "UTC\0", "UTC\n", "Euro\u0440e/Berlin", "x" * 10_000,
        "a/b/c/d/e/f", "CET-1CEST", "file:UTC", "~/UTC", "$TZ", "europe\\berlin",
    ],
)  # fmt: skip
def test_what_is_not_a_zone_is_refused(name):
    with pytest.raises(ScheduleError) as caught:
        compile_schedule(["0 0 * * *"], timezone=name)
    assert caught.value.field == "timezone"


def test_a_name_that_vanished_and_came_back():
    """A host without zone files, then with them: refused by name, and well again once they are back."""

    def gone(name):
        raise ZoneInfoNotFoundError(name)

    with pytest.raises(ScheduleError) as caught:
        load_zone("Europe/Berlin", gone)
    assert caught.value.field == "timezone"
    assert load_zone("Europe/Berlin").name == "Europe/Berlin"


def test_zone_data_that_changed_is_seen_after_forgetting():
    load_zone("Test/Moving", lambda _: ZoneInfo("Europe/London"))
    old = compile_schedule(["0 12 * * *"], timezone="Test/Moving")
    forget_zones()
    load_zone("Test/Moving", lambda _: ZoneInfo("Europe/Berlin"))
    new = compile_schedule(["0 12 * * *"], timezone="Test/Moving")
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
    assert old.next_after(start) - new.next_after(start) == HOUR


def test_utc_needs_no_zone_files():
    def none(_):
        raise AssertionError

    assert load_zone("UTC", none).at(0).offset == 0
