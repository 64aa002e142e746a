"""The soak on a real systemd: kills, restarts and re-executions at random, then the checker of tests/faults.

CRTRD_MACHINE_KILLS=5 how often (`make soak`: SOAK_KILLS=1000), CRTRD_MACHINE_MINUTES how long at most; figures of
longer runs are in docs/reliability.md.
"""

import os
import random
import sqlite3
import time
from contextlib import closing

from tests.faults.checker import MARK, output_violations, violations

KILLS = int(os.environ.get("CRTRD_MACHINE_KILLS", "5"))
MINUTES = float(os.environ.get("CRTRD_MACHINE_MINUTES", "1e9"))
SECOND = 1_000_000
CRONS = {
    **{f"tick{number}": (1, "echo tick", b"tick\n") for number in range(9)},
    "fail": (2, "echo failing; exit 3", b"failing\n"),
    "long": (3, "echo begin; sleep 2.5; echo end", b"begin\nend\n"),
}
LEDGER = "/var/lib/crtrd/ledger.sqlite3"
OPEN = "SELECT count(*) FROM occurrences WHERE settled_at IS NULL"
ENDS = ("systemctl kill -s KILL --kill-whom=main crtrd.service",) * 4 + (
    "systemctl restart crtrd.service", "crtrctl daemon-reexec")


class OnMachine:
    """What the checker asks of an instance."""

    def __init__(self, machine, folder):
        self._machine, self._copy = machine, folder / "copy.sqlite3"
        machine.run(["sqlite3", "-readonly", LEDGER, ".backup /root/copy"])
        self._copy.write_bytes(machine.path("/root/copy").read_bytes())

    def rows(self, sql, *values):
        with closing(sqlite3.connect(self._copy)) as ledger:
            return ledger.execute(sql, values).fetchall()

    def said(self):
        return "\n".join(self._line(entry) for entry in self._machine.journal())

    @staticmethod
    def _line(entry):
        if "CRTRD_STREAM" in entry:
            return f"{entry['SYSLOG_IDENTIFIER']} {entry['CRTRD_STREAM']}: {entry['MESSAGE']}"
        return f"{entry.get('CRTRD_EVENT')}: {entry.get('MESSAGE')}"


def is_settled(machine):
    return machine.run(["sqlite3", "-readonly", LEDGER, OPEN]).stdout == "0\n"


def unobserved(machine, seen):
    """Of each run whose end nobody saw: when it was, and what happened to the daemon and to it around that time."""
    for run, cron, started, finished in seen.rows(
            "SELECT id, cron_name, started_at, finished_at FROM runs WHERE result = 'unobserved'"):
        yield f"unobserved: {cron} {run} {started} {finished}"
        for entry in machine.journal():
            at = int(entry["__REALTIME_TIMESTAMP"])
            own = entry.get("CRTRD_RUN_ID") == run
            unit = entry.get("UNIT", entry.get("_SYSTEMD_UNIT")) == "crtrd.service" and entry.get("_PID") == "1"
            life = str(entry.get("CRTRD_EVENT", "")).startswith("daemon.")
            if own or ((unit or life) and started - 3 * SECOND < at < (finished or started) + 3 * SECOND):
                yield f"    {at} {entry.get('CRTRD_EVENT', '')} {entry.get('CRTRD_STREAM', '')} {entry.get('MESSAGE')}"


def test_kills_on_a_real_systemd(machine, tmp_path):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "1h"\n')
    machine.write("/etc/systemd/system/crtrd.service.d/soon.conf", "[Service]\nRestartSec=200ms\n")
    machine.run("systemctl daemon-reload; systemctl restart crtrd.service; mkdir /root/marks")
    for name, (period, script, _) in CRONS.items():
        machine.run(["crtrctl", "arm", name, "--every", f"{period}s", "--catch-up", "all", "--overlap", "allow",
                     "--on-failure", "continue", "--shell", f"{MARK.format(file=f'/root/marks/{name}')}; {script}"])
    dice, kills, end = random.Random(20261130), 0, time.monotonic() + MINUTES * 60
    while kills < KILLS and time.monotonic() < end:
        kills += 1
        time.sleep(dice.uniform(0, 2))
        machine.run(dice.choice(ENDS), check=False)
        machine.wait_for(lambda: machine.unit("crtrd.service")["ActiveState"] == "active", 60)
    for name in CRONS:
        machine.run(f"crtrctl pause {name}")
    machine.wait_for(lambda: is_settled(machine), 60 + KILLS)
    seen, found = OnMachine(machine, tmp_path), []
    for name, (period, _, expected) in CRONS.items():
        found += violations(seen, name, machine.path(f"/root/marks/{name}"), period * SECOND)
        found += output_violations(seen, name, expected)
    for line in unobserved(machine, seen):
        print(line)
    statuses = dict(seen.rows("SELECT status, count(*) FROM occurrences GROUP BY status"))
    print(f"kills {kills}, occurrences {statuses}, violations {len(found)}")
    assert found == []
    assert set(statuses) <= {"success", "failed"}, "ends that nobody saw"
