"""Zone files and calendars that change, vanish and come back under armed crons; on real files of the test's own."""

import shutil
import sys
import zoneinfo
from datetime import date
from pathlib import Path

import pytest

from crtrd import names
from crtrd.config.calendars import load_calendars, read_calendar
from crtrd.config.hostdata import host_mark
from crtrd.config.loader import host_zone
from crtrd.config.reader import read_definition
from crtrd.core import events, host
from crtrd.core.effects import Announce, Answer
from crtrd.core.timetable import Calendar, use_host
from crtrd.errors import Code, ConfigError
from tests.core.world import D, H, M, at

SYSTEM_ZONES = Path("/usr/share/zoneinfo")


@pytest.fixture
def zones(tmp_path):
    """A zone folder of the test's own: Test/Land is what the test puts there, and no package can supply it."""
    folder = tmp_path / "zones"
    (folder / "Test").mkdir(parents=True)
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([str(folder), *before])
    yield Zones(folder / "Test" / "Land")
    zoneinfo.reset_tzpath(before)
    use_host({})


class Zones:
    def __init__(self, file):
        self.file = file

    def be(self, name):
        draft = self.file.with_name("draft")
        shutil.copyfile(SYSTEM_ZONES / name, draft)
        draft.replace(self.file)

    def vanish(self):
        self.file.unlink()


@pytest.fixture(autouse=True)
def fresh():
    yield
    use_host({})


def changed(world, calendars=None):
    """What the daemon does when it finds that the host's files are not the same."""
    use_host(calendars or {})
    return world.do(events.HostChanged(world.now, "mark"))


# zones -----------------------------------------------------------------------------------------------------------


def test_many_crons_are_planned_anew_some_at_a_time(zones, world, monkeypatch):
    monkeypatch.setattr(host, "PORTION", 2)
    zones.be("Europe/Berlin")
    for name in ("a", "b", "c", "d", "e"):
        world.arm(name, schedule=("0 12 * * *",), timezone="Test/Land")
    world.arm("asked")
    world.arm("c-2", schedule=("0 12 * * *",), timezone="UTC")
    zones.be("Europe/Helsinki")
    use_host({})
    after, lasts, moved = "", [], []
    while not lasts or after:
        acts = world.do(events.HostChanged(world.now, "mark", 1, after))
        (after,) = [act.value for act in acts if isinstance(act, Answer)]
        lasts.append(after)
        moved.append(len([act for act in acts if isinstance(act, Announce)]))
        assert world.session.recall(host.MARK) == (None if after else "mark")
    assert lasts == ["b", "c-2", "e", ""]
    assert moved == [2, 1, 2, 0]
    assert {world.cron(name).next_at for name in "abcde"} == {at("2026-12-02T10:00Z")}


def test_a_changed_zone_moves_next(world, zones):
    zones.be("Europe/Berlin")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    assert world.cron().next_at == at("2026-12-01T11:00Z")
    zones.be("Asia/Tokyo")
    changed(world)
    assert world.cron().next_at == at("2026-12-02T03:00Z")
    assert world.rows() == []
    assert world.said[-1].kind == "cron.changed"
    assert changed(world) == []


def test_a_changed_zone_finds_no_phantoms(world, zones):
    """Noon ran under the old data; under the new data it would have been an hour later, which nobody owed."""
    zones.be("Europe/Berlin")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    world.now = at("2026-12-01T11:00Z")
    world.wake()
    world.end_all()
    zones.be("UTC")
    world.now = at("2026-12-01T15:00Z")
    changed(world)
    assert world.cron().next_at == at("2026-12-02T12:00Z")
    world.now = at("2026-12-02T12:00Z")
    world.wake()
    assert [row.status for row in world.rows()] == ["success", "running"]


def test_what_is_due_under_the_new_data_is_served(world, zones):
    zones.be("UTC")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    zones.be("Europe/Berlin")
    world.now = at("2026-12-01T11:30Z")
    changed(world)
    assert world.cron().next_at == at("2026-12-02T11:00Z"), "11:00Z was not promised to anybody before"
    zones.be("Asia/Tokyo")
    world.now = at("2026-12-02T11:00Z")
    changed(world)
    assert world.rows() == []


def test_a_cron_whose_zone_vanishes_is_parked_and_goes_on_by_itself(world, zones):
    zones.be("Europe/Berlin")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    world.arm("other", schedule=("0 12 * * *",))
    zones.vanish()
    changed(world)
    cron = world.cron()
    assert (cron.state, cron.paused_by, cron.next_at) == ("paused", "failure", None)
    assert "Test/Land" in cron.note
    assert world.refused(world.resume) is Code.INVALID_STATE
    assert world.cron("other").next_at == at("2026-12-01T12:00Z")
    changed(world)
    assert world.cron() == cron
    world.now += 3 * D
    zones.be("Europe/Berlin")
    acts = changed(world)
    assert acts
    cron = world.cron()
    assert (cron.state, cron.paused_by, cron.note) == ("active", "", "")
    assert cron.next_at == at("2026-12-04T11:00Z")
    assert [(row.status, row.reason) for row in world.rows()] == [
        ("missed", "downtime"), ("missed", "downtime"), ("running", "")]


def test_a_zone_that_vanished_while_crtrd_slept(world, zones):
    zones.be("Europe/Berlin")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    zones.vanish()
    use_host({})
    world.now = at("2026-12-01T11:00Z")
    world.restart()
    assert world.cron().state == "paused"
    zones.be("Europe/Berlin")
    changed(world)
    assert [row.status for row in world.rows()] == ["running"]


def test_what_a_user_paused_stays_paused(world, zones):
    zones.be("Europe/Berlin")
    world.arm(schedule=("0 12 * * *",), timezone="Test/Land")
    world.pause(note="mine")
    zones.vanish()
    changed(world)
    zones.be("Europe/Berlin")
    changed(world)
    assert (world.cron().paused_by, world.cron().note) == ("user", "mine")


@pytest.mark.parametrize("name", [
    "../../etc/passwd", "/etc/localtime", "/usr/share/zoneinfo/UTC", "Europe/../../passwd", "", "Europe/Atlantis",
    "posixrules", "localtime", "right/UTC", "Europe/Berlin\n", "Europe/Berlin\0", "tzdata.zi", "zone.tab", "Ünder",
    "Europe", ".", "a" * 5000,
])
def test_zone_names_outside_the_folders_are_refused(world, name):
    assert world.refused(world.arm, schedule=("@daily",), timezone=name) is Code.INVALID_DEFINITION


def test_the_host_zone_is_stored_when_armed(tmp_path):
    link = tmp_path / "localtime"
    link.symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    armed = read_definition({"name": "a", "command": ["x"]}, where="", timezone=host_zone(link))
    link.unlink()
    link.symlink_to("/usr/share/zoneinfo/Asia/Tokyo")
    assert host_zone(link) == "Asia/Tokyo"
    assert armed.timezone == "Europe/Berlin"
    link.unlink()
    link.symlink_to("/etc/passwd")
    assert host_zone(link, tmp_path / "none") == "UTC"


def test_the_mark_tells_when_to_look(tmp_path, zones):
    places = names.Places(tmp_path / "etc", (), tmp_path, tmp_path, user=False, home=None)
    zones.be("UTC")
    marks = [host_mark(places)]
    assert host_mark(places) == marks[0]
    zones.be("Asia/Tokyo")
    marks.append(host_mark(places))
    zones.vanish()
    marks.append(host_mark(places))
    calendar = places.config / "calendars.d" / "x.ics"
    calendar.parent.mkdir(parents=True)
    calendar.write_text("x")
    marks.append(host_mark(places))
    assert len(set(marks)) == 4


# calendars -------------------------------------------------------------------------------------------------------

ICS = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//crtrd//tests//EN
{}
END:VCALENDAR
"""
EVENT = """BEGIN:VEVENT
UID:{}
DTSTAMP:20260101T000000Z
{}
END:VEVENT"""


def ics(*events):
    blocks = (EVENT.format(number, lines) for number, lines in enumerate(events))
    return ICS.format("\n".join(blocks)).replace("\n", "\r\n")


def read(tmp_path, *events):
    path = tmp_path / "x.ics"
    path.write_text(ics(*events))
    return read_calendar(path, at("2026-12-01"))


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("DTSTART;VALUE=DATE:20261224\nDTEND;VALUE=DATE:20261227",
         Calendar(dates=((date(2026, 12, 24), date(2026, 12, 26)),))),
        ("DTSTART;VALUE=DATE:20261224", Calendar(dates=((date(2026, 12, 24),) * 2,))),
        ("DTSTART:20261224T100000Z\nDTEND:20261224T120000Z",
         Calendar(stretches=((at("2026-12-24T10:00Z"), at("2026-12-24T12:00Z")),))),
        ("DTSTART:20261224T100000Z\nDURATION:PT90M",
         Calendar(stretches=((at("2026-12-24T10:00Z"), at("2026-12-24T11:30Z")),))),
        ("DTSTART;TZID=Europe/Berlin:20261224T100000\nDTEND;TZID=Europe/Berlin:20261224T120000",
         Calendar(stretches=((at("2026-12-24T09:00Z"), at("2026-12-24T11:00Z")),))),
        ("DTSTART:20261224T100000\nDTEND:20261224T120000",
         Calendar(local=(("2026-12-24T10:00:00", "2026-12-24T12:00:00"),))),
        ("DTSTART;VALUE=DATE:20261224\nTRANSP:TRANSPARENT", Calendar(dates=((date(2026, 12, 24),) * 2,))),
        ("DTSTART;VALUE=DATE:20261224\nSTATUS:CANCELLED", Calendar()),
    ],
)
def test_events(tmp_path, event, expected):
    assert read(tmp_path, event) == expected


def test_recurring_events_with_exceptions(tmp_path):
    found = read(tmp_path, "DTSTART;VALUE=DATE:20201225\nRRULE:FREQ=YEARLY\nEXDATE;VALUE=DATE:20281225",
                 "DTSTART:20261201T100000Z\nDURATION:PT1H\nRRULE:FREQ=WEEKLY;COUNT=3\nRDATE:20270105T100000Z")
    years = [first.year for first, _ in found.dates]
    assert years == [2024, 2025, 2026, 2027, 2029, 2030, 2031, 2032, 2033, 2034, 2035]
    assert [start for start, _ in found.stretches] == [
        at(f"{day}T10:00Z") for day in ("2026-12-01", "2026-12-08", "2026-12-15", "2027-01-05")]


@pytest.mark.parametrize("text", ["", "nonsense", "BEGIN:VCALENDAR\n", ics("DTSTART:never"), ics("SUMMARY:no start")])
def test_a_bad_calendar_is_named(tmp_path, text):
    path = tmp_path / "etc" / "calendars.d" / "bad.ics"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (path.parent / "good.ics").write_text(ics("DTSTART;VALUE=DATE:20261224"))
    places = names.Places(tmp_path / "etc", (), tmp_path, tmp_path, user=False, home=None)
    calendars, faults = load_calendars(places, at("2026-12-01"))
    assert "good" in calendars
    assert all("bad.ics" in str(fault) for fault in faults)
    assert faults or calendars["bad"] == Calendar()


def test_without_the_libraries_the_fault_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "icalendar", None)
    with pytest.raises(ConfigError, match="python3-recurring-ical-events"):
        read(tmp_path, "DTSTART;VALUE=DATE:20261224")


def test_exclude_takes_the_events_out(world, tmp_path):
    use_host({"x": read(tmp_path, "DTSTART;VALUE=DATE:20261202", "DTSTART:20261203T000000Z\nDTEND:20261203T013000Z",
                        "DTSTART:20261205T010000\nDTEND:20261205T020000")})
    world.arm(schedule=("0 1 * * *",), timezone="Europe/Berlin", exclude=("x", "2026-12-06"))
    found, instant = [], world.now
    for _ in range(3):
        world.now = world.cron().next_at
        found.append(world.now)
        world.wake()
        world.end_all()
    assert instant < found[0]
    assert found == [at("2026-12-04T00:00Z"), at("2026-12-07T00:00Z"), at("2026-12-08T00:00Z")]
    assert {row.status for row in world.rows()} == {"success"}


def test_an_unknown_calendar_is_refused_when_armed():
    table = {"name": "a", "command": ["x"], "exclude": ["holidays"]}
    with pytest.raises(ConfigError, match="exclude: there is no calendar 'holidays'"):
        read_definition(table, where="", timezone="UTC")
    use_host({"holidays": Calendar()})
    assert read_definition(table, where="", timezone="UTC").exclude == ("holidays",)


def test_a_changed_calendar_moves_next_and_a_lost_one_parks(world):
    use_host({"x": Calendar()})
    world.arm(schedule=("0 12 * * *",), exclude=("x",))
    assert world.cron().next_at == at("2026-12-01T12:00Z")
    changed(world, {"x": Calendar(dates=((date(2026, 12, 1), date(2026, 12, 3)),))})
    assert world.cron().next_at == at("2026-12-04T12:00Z")
    changed(world)
    assert (world.cron().state, "x.ics" in world.cron().note) == ("paused", True)
    world.now += H + M
    changed(world, {"x": Calendar()})
    assert world.cron().next_at == at("2026-12-01T12:00Z")
    assert world.rows() == []
