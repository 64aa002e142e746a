"""The policies on a real systemd: groups that do not want to end, two hundred at one instant, resources in scopes."""

import hashlib
import json
import re
from pathlib import Path

LEDGER = "/var/lib/crtrd/ledger.sqlite3"
DAEMON = r"-m crtrd"
HI = hashlib.sha256(b"hi\n").hexdigest()

UNWILLING = {
    # name: (command line, options)
    "escapee": ("setsid sleep 778 & wait", ("--timeout", "1s")),
    "twice": ("(setsid sh -c 'sleep 779 & exit' &) ; sleep 600", ("--timeout", "1s", "--grace", "1s")),
    "background": ("echo hi; sleep 601 & exit 0", ("--timeout", "30s")),
    "kept": ("echo hi; sleep 602 & exit 0", ("--survivors", "keep")),
    "stopped": ("sleep 603 & kill -STOP 0", ("--timeout", "1s", "--grace", "5s")),
    "ignoring": ("trap '' TERM; sleep 604", ("--timeout", "2s", "--grace", "3s")),
    "polite": ("trap 'echo bye; exit 0' TERM; sleep 605 & wait", ("--timeout", "1s")),
    "forker": ("trap 'setsid sleep 606 & sleep 607 &' TERM; while :; do sleep 0.1; done",
               ("--timeout", "1s", "--grace", "1s")),
}


def ledger(machine, sql):
    """Straight from the file, so that looking wakes nothing."""
    return json.loads(machine.run(["sqlite3", "-json", "-readonly", LEDGER, sql]).stdout or "[]")


def test_groups_end_as_specified(machine):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "2s"\n')
    machine.run("systemctl start crtrd.socket; systemctl restart crtrd.service")
    for name, (script, options) in UNWILLING.items():
        machine.run(["crtrctl", "arm", name, "--on-failure", "continue", *options, "--shell", script])
    for name in UNWILLING:
        machine.run(["crtrctl", "run", name])
    for _ in range(4):  # with the first: five times
        machine.run(["crtrctl", "run", "escapee", "--overlap", "allow"])
    machine.wait_for(lambda: not ledger(machine, "SELECT id FROM runs WHERE phase <> 'ended'"), 30, "the end of all")
    runs = {run["cron_name"]: run for run in json.loads(machine.run("crtrctl runs --json=short").stdout)}

    def told(name):
        return runs[name]["result"], runs[name]["exit_code"], runs[name]["signal"]

    seconds = {name: run["duration_us"] / 1_000_000 for name, run in runs.items()}
    left = machine.processes(r"^sleep (77|60)\d")
    assert set(left.values()) == {"sleep 602"}, left
    assert told("background") == told("kept") == ("success", 0, None)
    for name in ("background", "kept"):
        run = runs[name]
        assert (run["stdout_head"], run["stdout_bytes"], run["stdout_sha256"]) == ("hi\n", 3, HI)
        (survivor,) = run["survivors"]
        assert re.fullmatch(r"\d+ \((sh|sleep)\)", survivor)  # seen before its exec or after
        assert seconds[name] < 1
    assert (told("stopped"), seconds["stopped"] < 2) == (("timeout", None, 15), True)
    assert told("ignoring") == ("timeout", None, 9)
    assert 5.0 <= seconds["ignoring"] <= 5.5
    assert (told("polite"), runs["polite"]["stdout_head"]) == (("timeout", 0, None), "bye\n")
    assert told("forker")[0] == told("twice")[0] == "timeout"
    escapees = ledger(machine, "SELECT result FROM runs WHERE cron_name = 'escapee'")
    assert [run["result"] for run in escapees] == ["timeout"] * 5
    machine.wait_for(lambda: len(groups_of(machine)) == 1, 15, "the groups of the runs to go, but for the kept one")
    held_keeps_nobody_awake(machine)


def held_keeps_nobody_awake(machine):
    """The daemon leaves a held one-shot behind, and is woken for nothing but its expiry."""
    soon, expires = machine.run("date -u -d '+1 seconds' +%FT%TZ; date -u -d '+12 seconds' +%FT%TZ").stdout.split()
    machine.run(["crtrctl", "arm", "later", "--at", soon, "--expires-at", expires, "--shell", "echo busy >&2; exit 75"])
    machine.wait_for(lambda: not machine.processes(DAEMON), 9, "the idle exit")
    row = "SELECT status, reason, detail FROM occurrences WHERE cron_name = 'later'"
    assert ledger(machine, row) == [{"status": "held", "reason": "held", "detail": "busy"}]
    machine.wait_for(lambda: ledger(machine, row)[0]["status"] != "held", 15, "its expiry")
    assert (ledger(machine, row)[0]["status"], ledger(machine, row)[0]["reason"]) == ("missed", "deadline")
    missed = [entry for entry in machine.journal("-u", "crtrd.service")
              if entry.get("CRTRD_EVENT") == "cron.occurrence.missed"]
    assert [entry["CRTRD_CRON"] for entry in missed] == ["later"]


def groups_of(machine):
    return machine.run("find /sys/fs/cgroup/system.slice/crtrd.service -name 'run-*'").stdout.split()


def test_c19_two_hundred_at_one_instant(machine):
    machine.write("/etc/crtrd/crtrd.toml", "max_runs_at_once = 10\n")
    machine.copy_in(Path(__file__).with_name("many.py"), "/root/many.py")
    machine.run("systemctl start crtrd.socket; systemctl restart crtrd.service")
    folder = machine.run("dirname $(dirname $(dpkg -L crtrd | grep -m1 'crtrd/__init__.py'))").stdout.strip()
    saw = json.loads(machine.run(["python3", "/root/many.py", "200", "0.2"], env={"PYTHONPATH": folder},
                                 timeout=150).stdout)
    assert saw["early"] > 0, saw
    assert (saw["settled"], saw["slowest"] < 1) == (200, True), saw
    assert sorted(map(int, machine.read("/root/many").split())) == list(range(200))
    rows = ledger(machine, "SELECT status, count(*) AS many FROM occurrences GROUP BY status")
    assert rows == [{"status": "success", "many": 200}]
    runs = ledger(machine, "SELECT cron_name, started_at, finished_at FROM runs ORDER BY serial")
    in_order = [f"many-{number:03}" for number in range(200)]
    assert [run["cron_name"] for run in runs] == in_order  # first come, first served
    changes = sorted([(run["started_at"], 1) for run in runs] + [(run["finished_at"], -1) for run in runs])
    alive = most = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    assert most <= 10
    said = [entry for entry in machine.journal("-u", "crtrd.service")
            if entry.get("CRTRD_EVENT") == "cron.capacity.deferred"]
    assert 1 <= len(said) <= 1 + saw["took"] // 60


def scope_of(machine, name):
    """The scope that the live run of a cron is in, by the ledger, once it runs."""
    (run,) = machine.wait_for(lambda: ledger(
        machine, f"SELECT id, cgroup, pid FROM runs WHERE cron_name = '{name}' AND phase = 'running'"), 10)
    return f"crtrd-run-{run['id']}.scope", run


def arm_limited(machine, name, *options):
    machine.run(["crtrctl", "arm", name, "--on-failure", "continue", *options])


def test_resources_and_identity(machine):
    """Where the host has no controllers for cgroup v2 to hand out, the machine is told that it had: scopes are made
    and filled all the same. That limits bite is tested where they can."""
    machine.run("systemctl start crtrd.socket")
    there = machine.read("/sys/fs/cgroup/cgroup.controllers").split()
    if "memory" not in there:
        done = machine.run("crtrctl arm none --resource MemoryMax=1G -- true", check=False)
        assert "resources: MemoryMax needs the control group controller 'memory'" in done.stderr
        assert done.returncode == 1
        machine.write("/root/controllers", "cpu io memory pids\n")
        machine.run("mount --bind /root/controllers /sys/fs/cgroup/cgroup.controllers")
    else:
        limits_bite(machine)
    given = ("MemoryMax=64M", "MemoryHigh=50M", "TasksMax=20", "CPUQuota=50%", "CPUWeight=50", "IOWeight=20", "Nice=3")
    limits = [word for each in given for word in ("--resource", each)]
    limits += ["--timeout", "2s", "--grace", "1s", "--survivors", "kill"]
    arm_limited(machine, "limited", *limits, "--shell", "trap '' TERM; setsid sleep 778 & sleep 600")
    machine.run("crtrctl run limited")
    scope, run = scope_of(machine, "limited")
    unit = machine.unit(scope)
    assert (unit["ActiveState"], unit["ControlGroup"]) == ("active", run["cgroup"])
    assert {key: unit[key] for key in ("MemoryMax", "MemoryHigh", "TasksMax", "CPUQuotaPerSecUSec", "CPUWeight",
                                       "IOWeight")} == {
        "MemoryMax": str(64 << 20), "MemoryHigh": str(50 << 20), "TasksMax": "20", "CPUQuotaPerSecUSec": "500ms",
        "CPUWeight": "50", "IOWeight": "20"}
    assert machine.run(f"ps -o ni= -p {run['pid']}").stdout.strip() == "3"
    machine.wait_for(lambda: not machine.processes("sleep (778|600)"), 10, "the end of all in the scope")
    machine.wait_for(lambda: not scopes(machine), 5, "the scope to go")
    (ended,) = json.loads(machine.run("crtrctl runs limited --json=short").stdout)
    assert (ended["result"], ended["signal"]) == ("timeout", 9)
    adopted_in_its_scope(machine)
    renumbered(machine)
    lost_one_shot(machine)


def limits_bite(machine):
    """Only with controllers of cgroup v2; swap would let the first one live."""
    arm_limited(machine, "hungry", "--resource", "MemoryMax=32M", "--shell", "head -c 300M /dev/zero | tail; exit 1")
    arm_limited(machine, "many", "--resource", "TasksMax=5", "--shell",
                "for i in 1 2 3 4 5 6 7 8 9; do sleep 2 & done; wait")
    for name, result, said in (("hungry", "oom-kill", "want of memory"), ("many", "exit-code", "TasksMax was reached")):
        machine.run(["crtrctl", "run", name, "--wait"], check=False)
        (run,) = json.loads(machine.run(f"crtrctl runs {name} --json=short").stdout)
        if name == "many" or not machine.run("swapon --show").stdout:
            assert (run["result"], said in run["reason"]) == (result, True), run


def scopes(machine):
    return machine.run("systemctl list-units --all --plain --no-legend 'crtrd-run-*'").stdout.split()


def adopted_in_its_scope(machine):
    """kill -9 of the daemon: the scope stays, the next life adopts the run in it and ends what outlives it."""
    arm_limited(machine, "long", "--resource", "TasksMax=50", "--shell",
                "setsid sleep 777 & while ! test -e /root/go; do sleep 0.1; done; exit 3")
    machine.run("crtrctl run long")
    scope, _ = scope_of(machine, "long")
    machine.run("systemctl kill -s KILL --kill-whom=main crtrd.service")
    machine.wait_for(lambda: machine.processes(DAEMON), 10, "the next life")
    assert machine.unit(scope)["ActiveState"] == "active"
    machine.run("crtrctl list; touch /root/go")
    machine.wait_for(lambda: not ledger(machine, "SELECT id FROM runs WHERE phase <> 'ended'"), 10)
    (run,) = ledger(machine, "SELECT result, survivors FROM runs WHERE cron_name = 'long'")
    assert run["result"] in {"exit-code", "unobserved"}  # before 6.15 no kernel tells
    assert "(sleep)" in run["survivors"]
    assert not machine.processes("sleep 777")
    machine.wait_for(lambda: not scopes(machine), 5, "the scope to go")


def renumbered(machine):
    machine.run("crtrctl arm who --user bob --shell 'id -un > /tmp/who'")
    machine.run("crtrctl run who --wait; grep -x bob /tmp/who; rm /tmp/who")
    for command, said in (("usermod -u 3333 bob", "account bob had uid 1001 when the cron was armed and has 3333 now"),
                          ("userdel -f bob", "there is no account bob")):
        machine.run(command)
        machine.run("crtrctl run who --wait", check=False)
        run = json.loads(machine.run("crtrctl runs who --json=short").stdout)[0]
        assert (run["result"], run["pid"], said in run["reason"]) == ("start-failed", None, True), run
    assert machine.run("ls /tmp/who", check=False).returncode != 0


def lost_one_shot(machine):
    """The power goes while it runs: paused by the crash, never fired again; after `resume` it is finished."""
    soon = machine.run("date -u -d '+2 seconds' +%FT%TZ").stdout.strip()
    machine.run(["crtrctl", "arm", "once", "--at", soon, "--shell", "echo ran >> /root/once; sync; sleep 600"])
    machine.wait_for(lambda: machine.run("cat /root/once", check=False).stdout == "ran\n", 10, "the one-shot")
    machine.power_cut()
    lost = "SELECT id FROM occurrences WHERE cron_name = 'once' AND status = 'unobserved'"
    machine.wait_for(lambda: ledger(machine, lost), 15, "what became of it")
    (cron,) = ledger(machine, "SELECT state, paused_by FROM crons WHERE name = 'once'")
    assert (cron["state"], cron["paused_by"]) == ("paused", "crash")
    machine.run("crtrctl resume once")
    (cron,) = ledger(machine, "SELECT state, next_at FROM crons WHERE name = 'once'")
    assert (cron["state"], cron["next_at"]) == ("finished", None)
    assert machine.read("/root/once") == "ran\n"
