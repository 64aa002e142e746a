"""The same from outside: a whole daemon, crtrctl as a process, files on disk."""

import os
import pwd
import shutil
import signal

import pytest

from crtrd.cli.client import Client, Refused, choose_bus
from crtrd.cli.session import packed
from crtrd.delivery.mta import sendmail
from tests.instance import Instance

pytestmark = [pytest.mark.bus, pytest.mark.process]
ME = pwd.getpwuid(os.getuid()).pw_name
DAILY = '[cron]\nschedule = ["0 2 * * *"]\ncommand = ["true"]\n'


@pytest.fixture(scope="module")
def crtrd(tmp_path_factory):
    home = tmp_path_factory.mktemp("live") / "home"
    zones = tmp_path_factory.mktemp("zones")
    (zones / "Test").mkdir()
    shutil.copyfile("/usr/share/zoneinfo/Europe/Berlin", zones / "Test" / "Land")
    with Instance(home) as instance:
        instance.zones = zones
        instance.env["PYTHONTZPATH"] = f"{zones}:/usr/share/zoneinfo"
        instance.crons = instance.places.config / "crons.d"
        instance.crons.mkdir()
        instance.start()
        yield instance


@pytest.fixture(scope="module", autouse=True)
def client(crtrd):
    with Client(*choose_bus(crtrd.env, user=False)) as connected:
        crtrd.client = connected
        yield


def names(crtrd):
    return {cron["name"]: cron["state"] for cron in crtrd.json("list")}


def reload(crtrd, status=0):
    done = crtrd.ctl("daemon-reload", check=False)
    assert done.returncode == status, done
    return done.stderr


# cron files ------------------------------------------------------------------------------------------------------


def test_files_are_read_at_reload_at_hangup_and_at_the_start(crtrd):
    (crtrd.crons / "a.toml").write_text(DAILY)
    reload(crtrd)
    assert crtrd.json("show", "a")[0]["source"] == str(crtrd.crons / "a.toml")
    (crtrd.crons / "b.toml").write_text(DAILY)
    crtrd.daemon.send_signal(signal.SIGHUP)
    crtrd.wait_for(lambda: "b" in names(crtrd))
    assert crtrd.stop() == 0
    (crtrd.crons / "c.toml").write_text(DAILY)
    (crtrd.crons / "b.toml").unlink()
    crtrd.start()
    crtrd.wait_for(lambda: names(crtrd).keys() >= {"a", "c"})
    assert "b" not in names(crtrd)


def test_a_bad_file_is_told_to_who_reloads_and_the_rest_is_read(crtrd):
    (crtrd.crons / "a.toml").write_text(DAILY)
    reload(crtrd)
    (crtrd.crons / "a.toml").write_text('[cron]\ncommand = ["true"]\nschedule = ["0 25 * * *"]\n')
    (crtrd.crons / "d.toml").write_text(DAILY)
    said = reload(crtrd, 1)
    assert f"{crtrd.crons / 'a.toml'}:3: schedule: '0 25 * * *': hour: 25" in said
    assert {"a", "d"} <= names(crtrd).keys()
    assert "0 2 * * *" in crtrd.ctl("cat", "a").stdout
    assert "config.rejected" in crtrd.said()
    check = crtrd.ctl("verify", str(crtrd.crons / "a.toml"), str(crtrd.crons / "d.toml"), check=False)
    assert check.returncode == 1
    assert "a.toml:3: schedule" in check.stderr
    assert "d.toml: defines d" in check.stdout
    (crtrd.crons / "a.toml").write_text(DAILY)


def test_pause_survives_a_reload_and_change_is_refused_with_the_file(crtrd):
    (crtrd.crons / "a.toml").write_text(DAILY)
    reload(crtrd)
    crtrd.ctl("pause", "a", "--note", "mine")
    (crtrd.crons / "a.toml").write_text(DAILY + "retries = 3\n")
    reload(crtrd)
    shown = crtrd.json("show", "a")[0]
    assert (shown["state"], shown["note"], shown["retries"]) == ("paused", "mine", 3)
    said = crtrd.ctl("change", "a", "--retries", "1", check=False)
    assert (said.returncode, str(crtrd.crons / "a.toml") in said.stderr) == (1, True)
    crtrd.ctl("resume", "a")


def test_export_reads_back_as_files(crtrd, tmp_path):
    crtrd.ctl("arm", "odd", "--cron", "0 3 * * *", "--env", "A=zwei\nZeilen", "--umask", "0077", "--timeout", "90s",
              "--exclude", "2026-12-24", "--", "sh", "-c", 'echo "ä" \\ $A')
    crtrd.ctl("export", "odd", "--directory", str(tmp_path))
    text = (tmp_path / "odd.toml").read_text()
    assert text == crtrd.ctl("cat", "odd").stdout == crtrd.ctl("export", "odd").stdout
    shutil.copy(tmp_path / "odd.toml", crtrd.crons)
    reload(crtrd)
    assert crtrd.json("show", "odd")[0]["source"] == str(crtrd.crons / "odd.toml")
    assert crtrd.ctl("cat", "odd").stdout == text


def test_c42_a_variable_with_a_newline_arrives_whole_through_a_file(crtrd):
    out = crtrd.home / "c42"
    (crtrd.crons / "env.toml").write_text(
        f'[cron]\ncommand = ["/bin/sh", "-c", \'printf %s "$A" > {out}\']\n[cron.env]\nA = "eins\\nzwei"\n')
    reload(crtrd)
    crtrd.ctl("run", "env", "--wait")
    assert out.read_text() == "eins\nzwei"


# calendars -------------------------------------------------------------------------------------------------------

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//crtrd//tests//EN
BEGIN:VEVENT
UID:1
DTSTAMP:20200101T000000Z
DTSTART;VALUE=DATE:{start}
RRULE:FREQ=DAILY;UNTIL={until}
END:VEVENT
END:VCALENDAR
"""


def test_calendars_are_read_at_reload_and_told_when_bad(crtrd):
    folder = crtrd.places.config / "calendars.d"
    folder.mkdir()
    arm = ("arm", "closed", "--cron", "0 2 * * *", "--timezone", "UTC", "--exclude", "closed", "--", "true")
    refused = crtrd.ctl(*arm, check=False)
    assert (refused.returncode, "exclude: there is no calendar 'closed'" in refused.stderr) == (1, True)
    (folder / "closed.ics").write_text(CALENDAR.format(start="20200101", until="20330101"))
    reload(crtrd)
    crtrd.ctl(*arm)
    assert crtrd.json("list", "closed")[0]["next"] == "2033-01-02T02:00:00Z"
    (folder / "closed.ics").write_text(CALENDAR.format(start="20200101", until="20320101"))
    reload(crtrd)
    assert crtrd.json("list", "closed")[0]["next"] == "2032-01-02T02:00:00Z"
    (folder / "closed.ics").write_text("nonsense")
    for _ in range(2):
        assert f"{folder / 'closed.ics'}: it is no RFC 5545 calendar" in reload(crtrd, 1)
        assert crtrd.json("show", "closed")[0]["state"] == "paused"
    (folder / "closed.ics").write_text(CALENDAR.format(start="20200101", until="20320101"))
    reload(crtrd)
    assert crtrd.json("list", "closed")[0]["state"] == "active"


# zones -----------------------------------------------------------------------------------------------------------


def test_a_zone_that_vanishes_while_the_daemon_runs(crtrd):
    crtrd.ctl("arm", "zoned", "--cron", "0 12 * * *", "--timezone", "Test/Land", "--", "true")
    before = crtrd.json("list", "zoned")[0]["next"]
    (crtrd.zones / "Test" / "Land").unlink()
    crtrd.wait_for(lambda: names(crtrd)["zoned"] == "paused")
    assert "Test/Land" in crtrd.json("show", "zoned")[0]["note"]
    shutil.copyfile("/usr/share/zoneinfo/Asia/Tokyo", crtrd.zones / "Test" / "Land")
    crtrd.wait_for(lambda: names(crtrd)["zoned"] == "active")
    after = crtrd.json("list", "zoned")[0]["next"]
    assert (before[11:13], after[11:13]) in {("11", "03"), ("10", "03")}


def test_a_zone_that_changes_while_no_daemon_runs(crtrd):
    assert crtrd.stop() == 0
    shutil.copyfile("/usr/share/zoneinfo/UTC", crtrd.zones / "Test" / "Land")
    crtrd.start()
    crtrd.wait_for(lambda: crtrd.json("list", "zoned")[0]["next"][11:13] == "12")


# crontabs --------------------------------------------------------------------------------------------------------

C43 = r"""MAILTO=""
OUT={out}
0 0 1 1 * date +\%H\%M > $OUT/1
0 0 1 1 * cat%l1%l2
0 0 1 1 * sh -c 'echo $((7 \% 4))'
"""


def test_c43_imported_lines_run_as_under_cron(crtrd, tmp_path):
    tab = tmp_path / "tab"
    tab.write_text(C43.format(out=tmp_path))
    assert [len(crtrd.json("import", str(tab), "--dry-run")), "sh" in names(crtrd)] == [3, False]
    made = crtrd.json("import", str(tab))
    assert [(each["line"], each["name"].rsplit("-", 1)[0]) for each in made] == [
        (3, f"{ME}-date"), (4, f"{ME}-cat"), (5, f"{ME}-sh")]
    outputs = [crtrd.ctl("run", each["name"], "--wait").stdout for each in made]
    assert outputs[1:] == ["l1\nl2\n", "3\n"]
    digits = (tmp_path / "1").read_text().strip()
    assert (len(digits), digits.isdigit()) == (4, True)
    shown = crtrd.json("show", made[1]["name"])[0]
    assert (shown["on_failure"], shown["overlap"], shown["sinks"]) == ("continue", "allow", [])


def test_an_import_is_whole_or_not_at_all(crtrd, tmp_path):
    tab = tmp_path / "tab"
    tab.write_text("0 1 * * * one\n0 25 * * * two\n0 3 * * * three\r\n0 4 * * * four\n")
    before = names(crtrd)
    done = crtrd.ctl("import", str(tab), check=False)
    assert done.returncode == 1
    assert f"{tab}:2: cannot import this line: hour: 25" in done.stderr
    assert f"{tab}:3: cannot import this line: it holds a carriage return" in done.stderr
    assert names(crtrd) == before
    crtrd.ctl("import", str(tab), "--partial")
    assert len(names(crtrd)) == len(before) + 2
    again = crtrd.ctl("import", str(tab), "--partial", check=False)
    assert (again.returncode, "exists" in again.stderr) == (1, True)
    assert len(names(crtrd)) == len(before) + 2


def test_a_user_column_without_its_option_is_pointed_out(crtrd, tmp_path):
    (tmp_path / "tab").write_text(f"0 1 * * * {ME} true\n0 2 * * * true {ME}\n")
    said = crtrd.ctl("import", str(tmp_path / "tab"), "--dry-run").stderr
    assert [line for line in said.splitlines() if "sendmail" not in line] == [
        f"{tmp_path}/tab:1: its command begins with {ME}, an account: is --system-format missing?"]
    shown = crtrd.json("import", str(tmp_path / "tab"), "--dry-run", "--system-format", "--partial")
    assert [(each["user"], each["shell"]) for each in shown] == [(ME, "true")]


def test_what_debians_cron_does_otherwise_is_pointed_out(crtrd, tmp_path):
    """A zone that it ignores; and mail, which it throws away where there is no sendmail, and crtrd keeps waiting."""
    (tmp_path / "tab").write_text('0 1 * * * one\nCRON_TZ=Asia/Tokyo\n0 2 * * * two\nMAILTO=""\n0 3 * * * three\n')
    program = tmp_path / "sendmail"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    usual = crtrd.env["PATH"]
    for there in (True, False):
        crtrd.env["PATH"] = f"{tmp_path}:{usual}" if there else usual
        said = crtrd.ctl("import", str(tmp_path / "tab"), "--dry-run").stderr.splitlines()
        zones = [line for line in said if "CRON_TZ=Asia/Tokyo is obeyed here" in line]
        assert [line.split(": ")[0] for line in zones] == [f"{tmp_path}/tab:{number}" for number in (3, 5)]
        if there or sendmail() is None:
            assert sum("what 2 crons would mail waits" in line for line in said) == (not there)
    crtrd.env["PATH"] = usual


def test_verify_prints_differences_only(crtrd, tmp_path):
    tab = tmp_path / "tab"
    tab.write_text("CRON_TZ=Europe/Berlin\n30 2 * * * one\n*/20 2 * * * two\n@reboot three\n")
    said = crtrd.ctl("import", str(tab), "--verify", "1y").stdout
    assert "instants of 2 lines compared, none differ." in said
    assert "line 4" in said
    assert len(said.splitlines()) == 2


def test_a_folder_is_read_by_the_rules_of_cron_d(crtrd, tmp_path):
    folder = tmp_path / "cron.d"
    folder.mkdir()
    (folder / "good").write_text(f"SHELL=/bin/sh\n5 4 * * * {ME} true\n")
    (folder / "no.dots").write_text(f"5 4 * * * {ME} true\n")
    (folder / ".placeholder").write_text("# cron's own\n")
    (folder / "open").write_text(f"5 4 * * * {ME} true\n")
    (folder / "open").chmod(0o666)
    done = crtrd.ctl("import", str(folder), "--dry-run", "--partial")
    assert done.stdout.count("[cron]") == 1
    assert "# good-true-" in done.stdout
    assert "no.dots: cannot import it: cron does not read this file: its name" in done.stderr
    assert "open: cannot import it: cron does not read this file: others" in done.stderr


# odd texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("60 * * * *", "minute"), ("* 24 * * *", "hour"), ("* * 0 * *", "day of month"), ("* * * 13 *", "month"),
        ("* * * * 8", "day of week"), ("*/0 * * * *", "minute"), ("10-5 * * * *", "minute"), ("* * * *", "day of week"),
        ("", "minute"), ("1,, * * * *", "minute"), ("-1 * * * *", "minute"), ("1.5 * * * *", "minute"),
        ("\u0663 * * * *", "minute"), ("*/61 * * * *", "minute"), ("," * 100_000, "schedule"),
        ("0 0 30 2 *", "day of month"), ("0 0 31 4 *", "day of month"), ("0 0 31 2,4,6 *", "day of month"),
        ("* * 31 11 *", "day of month"), ("fri-sun * * * *", "minute"), ("@often", "schedule"),
    ],
)
def test_c10_c11_odd_schedules_are_refused_with_the_field(crtrd, text, field):
    """Asked on the bus, so that nothing but the daemon judges; the answer is an error, never silence."""
    with pytest.raises(Refused) as refused:
        crtrd.client.call("Arm", "a{sv}", packed({"name": "odd-text", "command": ["true"], "schedule": [text]}))
    assert refused.value.name == "InvalidDefinition"
    assert f"{field}: " in str(refused.value)
    assert "odd-text" not in {view["name"] for view in crtrd.client.call("ListCrons", "a{sv}us", {}, 100, "")[0]}


# looking ---------------------------------------------------------------------------------------------------------


def test_backfill_and_why(crtrd):
    crtrd.ctl("arm", "filled", "--cron", "0 * * * *", "--timezone", "UTC", "--", "true")
    day = "2026-01-05"
    dry = crtrd.ctl("backfill", "filled", f"{day}T00:00", f"{day}T03:00", "--dry-run").stdout
    assert dry == "Would make 4 occurrences of filled.\n"
    assert crtrd.ctl("backfill", "filled", f"{day}T00:00", f"{day}T03:00").stdout == "Made 4 occurrences of filled.\n"
    crtrd.wait_for(lambda: [row["status"] for row in crtrd.json("occurrences", "filled")] == ["success"] * 4)
    assert "success" in crtrd.ctl("why", "filled", f"{day}T02:00").stdout
    assert crtrd.json("why", "filled", f"{day}T02:30")[0]["reason"] == "not-scheduled"
    refused = crtrd.ctl("backfill", "filled", "2020-01-01", f"{day}T03:00", check=False)
    assert (refused.returncode, "at most 1000" in refused.stderr) == (1, True)
