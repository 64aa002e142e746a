"""What each way to end or disturb the daemon does to its runs: one behaviour each, as docs/reliability.md tells it."""

import json

import pytest

LONG = "echo before; sleep {}; echo after; exit 3"
NAME = "org.crtrd.Crtrd1"
CURL = "curl -sS --max-time 20 --unix-socket /run/crtrd/trigger.sock http://crtrd/v1/status"
OWN = 4
"""Of the present life: its spawner's control socket and pidfd, and the two ends of a box."""
LEDGER = "/var/lib/crtrd/ledger.sqlite3"


def pid(machine):
    return machine.unit("crtrd.service")["MainPID"]


def arm(machine, name, script):
    machine.run("systemctl start crtrd.socket")
    machine.run(["crtrctl", "arm", name, "--on-failure", "continue", "--shell", script])


def run_long(machine, seconds=10):
    arm(machine, "long", LONG.format(seconds))
    machine.run("crtrctl run long")
    machine.wait_for(lambda: machine.processes(f"sleep {seconds}"), 5)
    return pid(machine)


def ended(machine, name="long", within=20):
    """The run once it has a result."""
    def look():
        runs = json.loads(machine.run(f"crtrctl runs {name} --json=short").stdout)
        return runs[0] if runs and runs[0]["result"] else None
    return machine.wait_for(look, within, "the end of the run")


def check_whole(machine, statuses=(3,)):
    run = ended(machine)
    assert run["stdout_head"] == "before\nafter\n"
    assert run["exit_code"] in statuses
    assert run["result"] == ("exit-code" if run["exit_code"] == 3 else "unobserved")
    machine.wait_for(lambda: int(machine.unit("crtrd.service")["NFileDescriptorStore"]) <= OWN, 5)
    assert machine.unit("crtrd.service")["Result"] == "success"


def test_a_run_outlives_a_restart(machine):
    before = run_long(machine)
    machine.run("systemctl restart crtrd.service")
    assert pid(machine) not in {before, "0"}
    machine.run("systemctl try-restart crtrd.service")
    check_whole(machine)


def test_a_run_outlives_a_reexecution(machine):
    before = run_long(machine)
    ping = f"busctl call {NAME} / org.freedesktop.DBus.Peer Ping"
    calls = f"for _ in $(seq 150); do {ping} || echo lost; done >/root/calls 2>&1"
    machine.run(f"({calls}) & crtrctl daemon-reexec; systemctl is-active crtrd.service; crtrctl daemon-reexec; wait")
    assert machine.read("/root/calls") == "", "a call was lost"
    assert pid(machine) == before
    check_whole(machine)


@pytest.mark.parametrize("order", ["dpkg -i /root/crtrd.deb", "systemctl restart crtrd.service"])
def test_a_run_may_upgrade_or_restart_its_own_daemon(order, machine, deb):
    """C48."""
    machine.copy_in(deb, "/root/crtrd.deb")
    arm(machine, "own", f"echo before; {order} >/root/said 2>&1; echo after $?; exit 7")
    machine.run("crtrctl run own")
    run = ended(machine, "own", 40)
    assert (run["stdout_head"], run["exit_code"]) == ("before\nafter 0\n", 7), machine.read("/root/said")
    assert machine.run("dpkg --audit").stdout == ""
    assert machine.unit("crtrd.socket")["ActiveState"] == "active"
    assert len(json.loads(machine.run("crtrctl runs own --json=short").stdout)) == 1


def test_a_watchdog_kill_leaves_the_run_to_the_next_life(machine):
    machine.write("/etc/systemd/system/crtrd.service.d/watchdog.conf", "[Service]\nWatchdogSec=2\n")
    machine.run("systemctl daemon-reload; systemctl restart crtrd.service")
    before = run_long(machine, 6)
    machine.run(f"kill -STOP {before}")
    machine.wait_for(lambda: pid(machine) not in {before, "0"}, 15, "the next life")
    check_whole(machine, (3, None))


def rows(machine, sql):
    return json.loads(machine.run(["sqlite3", "-json", "-readonly", LEDGER, sql]).stdout or "[]")


def test_a_shutdown_interrupts(machine):
    run_long(machine, 6)
    machine.reboot()
    assert rows(machine, "SELECT status, reason FROM occurrences") == [{"status": "canceled", "reason": "interrupted"}]
    assert rows(machine, "SELECT result, stdout_head IS NOT NULL AS told FROM runs") == [
        {"result": "interrupted", "told": 1}]


def test_a_drain_lets_runs_end_and_starts_none(machine):
    run_long(machine, 6)
    arm(machine, "next", "echo ran")
    machine.run("crtrctl drain")
    machine.run("crtrctl run next", check=False)
    check_whole(machine)
    assert rows(machine, "SELECT status FROM occurrences WHERE cron_name = 'next'") == [{"status": "pending"}]
    machine.run("crtrctl undrain")
    assert ended(machine, "next")["stdout_head"] == "ran\n"


def test_max_lifetime_waits_for_the_runs_and_then_leaves(machine):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "1h"\nmax_lifetime = "4s"\n')
    machine.run("systemctl stop crtrd.service")
    before = run_long(machine, 6)
    machine.wait_for(lambda: machine.unit("crtrd.service")["MainPID"] == "0", 25, "the end of that life")
    assert machine.unit("crtrd.service")["Result"] == "success"
    events = [entry.get("CRTRD_EVENT") for entry in machine.journal("-u", "crtrd.service") if entry["_PID"] == before]
    assert events.index("daemon.max_lifetime") < events.index("cron.run.settled") < events.index("daemon.idle")
    check_whole(machine)


def test_a_restart_of_the_bus_disturbs_nothing(machine):
    """C57: runs go on, instants are served, the name is back within five seconds."""
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "1h"\n')
    machine.run("systemctl stop crtrd.service")
    before = run_long(machine, 6)
    machine.run(["crtrctl", "arm", "tick", "--every", "1s", "--catch-up", "all", "--", "true"])
    machine.run("systemctl kill -s KILL --kill-whom=main dbus.service; sleep 3; systemctl start dbus.service")
    machine.wait_for(lambda: machine.run("crtrctl list", check=False).returncode == 0, 5, "the name")
    check_whole(machine)
    assert pid(machine) == before
    machine.run("crtrctl pause tick")
    late = rows(machine, "SELECT max(started_at - scheduled_at) AS late, count(*) AS n FROM runs"
                         " WHERE cron_name = 'tick'")
    assert late[0]["late"] < 1_000_000, late
    assert late[0]["n"] > 3
    assert rows(machine, "SELECT DISTINCT status FROM occurrences WHERE cron_name = 'tick'") == [{"status": "success"}]


def test_a_restart_of_the_journal_loses_no_line(machine):
    before = run_long(machine, 6)
    machine.run("systemctl restart systemd-journald.service")
    check_whole(machine)
    assert pid(machine) == before
    assert [entry["MESSAGE"] for entry in machine.journal("-t", "long")] == ["before", "after"]
    settled = [entry for entry in machine.journal("-u", "crtrd.service")
               if entry.get("CRTRD_EVENT") == "cron.run.settled"]
    assert len(settled) == 1


def test_a_daemon_that_may_not_serve_says_why_to_who_asks(machine):
    """By the bus and by the socket, instead of a call that nobody answers; and it serves as soon as it may."""
    arm(machine, "job", "true")
    machine.run("systemctl stop crtrd.service; cp -a /var/lib/crtrd/ledger.sqlite3 /root/whole")
    machine.run(["sqlite3", LEDGER, "PRAGMA user_version = 99"])
    for _ in range(2):
        refused = machine.run("timeout 20 crtrctl list", check=False)
        assert refused.returncode == 1
        assert "schema version 99" in refused.stderr
        asked = machine.run(CURL, check=False)
        assert "schema version 99" in asked.stdout
    machine.run("systemctl stop crtrd.service; cp -a /root/whole /var/lib/crtrd/ledger.sqlite3")
    assert "job" in machine.run("crtrctl list").stdout
