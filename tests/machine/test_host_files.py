"""Zone files, calendars and cron files on a real system: what dpkg brings while no crtrd runs is looked at."""

import json

import pytest

from tests.machine.test_whole_path import gone

ZONE = "/usr/share/zoneinfo/Europe/Berlin"
CALENDAR = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//crtrd//tests//EN\r
BEGIN:VEVENT\r
UID:1\r
DTSTAMP:20200101T000000Z\r
DTSTART;VALUE=DATE:20200101\r
RRULE:FREQ=DAILY\r
END:VEVENT\r
END:VCALENDAR\r
"""


@pytest.fixture
def asleep(machine):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "1s"\n')
    machine.run("systemctl stop crtrd.service; systemctl start crtrd.socket")
    return machine


def wake_up(machine):
    shown = machine.run("systemctl show -P NextElapseUSecRealtime crtrd-wake.timer").stdout.strip()
    return machine.run(["date", "-u", "-d", shown, "+%H:%M"]).stdout.strip()


def state(machine):
    (cron,) = json.loads(machine.run("crtrctl list --json=short").stdout)
    return cron["state"]


def upgrade_zones(machine, change):
    """What an upgrade of tzdata does: files are replaced, then dpkg tells whom it concerns."""
    machine.run(change)
    machine.run("dpkg-trigger --no-await /usr/share/zoneinfo && dpkg --configure --pending")


def test_new_zone_files_move_the_wake_up_of_a_daemon_that_is_away(asleep):
    machine = asleep
    machine.run(["crtrctl", "arm", "noon", "--cron", "0 12 * * *", "--timezone", "Europe/Berlin", "--", "true"])
    machine.wait_for(lambda: gone(machine), 20, "the idle exit")
    before = wake_up(machine)
    assert before in {"10:59", "11:00", "09:59", "10:00"}
    upgrade_zones(machine, f"cp /usr/share/zoneinfo/Asia/Tokyo {ZONE}.new && mv {ZONE}.new {ZONE}")
    machine.wait_for(lambda: wake_up(machine) in {"02:59", "03:00"}, 20, "the new wake-up")
    machine.wait_for(lambda: gone(machine), 20, "the idle exit")
    upgrade_zones(machine, f"mv {ZONE} /root/kept")
    machine.wait_for(lambda: state(machine) == "paused", 20, "the cron without its zone to be parked")
    upgrade_zones(machine, f"mv /root/kept {ZONE}")
    machine.wait_for(lambda: state(machine) == "active", 20, "the cron to go on by itself")


def test_cron_files_masks_and_calendars(asleep):
    machine = asleep
    machine.write("/usr/lib/crtrd/crons.d/a.toml", '[cron]\nschedule = ["every 2s"]\ncommand = ["touch", "/root/a"]\n')
    machine.write("/usr/lib/crtrd/crons.d/b.toml", '[cron]\nschedule = ["every 2s"]\ncommand = ["touch", "/root/b"]\n')
    machine.write("/etc/crtrd/calendars.d/always.ics", CALENDAR)
    machine.write("/etc/crtrd/crons.d/b.toml.d/not-now.toml", '[cron]\nexclude = ["always"]\n')
    machine.run("crtrctl daemon-reload")
    machine.wait_for(lambda: machine.run("test -e /root/a", check=False).returncode == 0, 15, "the cron of a file")
    listed = {cron["name"]: cron["next"] for cron in json.loads(machine.run("crtrctl list --json=short").stdout)}
    assert listed["b"] is None or listed["b"] > "2030"
    machine.run("mkdir -p /run/crtrd/crons.d && ln -s /dev/null /run/crtrd/crons.d/a.toml")
    machine.run("crtrctl daemon-reload && rm -f /root/a /root/b")
    assert [cron["name"] for cron in json.loads(machine.run("crtrctl list --json=short").stdout)] == ["b"]
    assert machine.run("ls /root/a /root/b", check=False).returncode != 0
