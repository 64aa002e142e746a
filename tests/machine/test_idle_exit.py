"""No call is lost around the idle exit, by bus or by socket, and no unit fails of it (C55, C56).

Brief by default; CRTRD_SWEEP=500 makes it ten thousand of each (docs/bus.md has the figures of such a run).
"""

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.machine
ROUNDS, CALLS = int(os.environ.get("CRTRD_SWEEP", "25")), 20
FROM_MS, TO_MS = 60, 260
"""After the last answer: at 100 ms the daemon begins to leave; 100 ms later it is gone and can be started anew."""


def test_calls_swept_over_the_idle_exit_are_all_answered(machine):
    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "100ms"\n')
    machine.copy_in(Path(__file__).with_name("sweep.py"), "/root/sweep.py")
    machine.run("systemctl stop crtrd.service; systemctl start crtrd.socket")
    machine.run(["crtrctl", "arm", "tick", "--cron", "0 0 1 1 *", "--", "true"])
    done = machine.run(["python3", "/root/sweep.py", *map(str, (ROUNDS, CALLS, FROM_MS, TO_MS))], timeout=1500)
    found = json.loads(done.stdout)
    print(machine.suite, found)  # noqa: T201 - figures
    for name in ("bus", "socket"):
        assert (found[name]["answers"], found[name]["wrong"]) == (ROUNDS * CALLS, [])
    lives = [entry for entry in machine.journal("-u", "crtrd.service") if entry.get("CRTRD_EVENT") == "daemon.started"]
    assert len(lives) > ROUNDS // 4, "the exit was not met"
    for unit in ("crtrd.service", "crtrd.socket"):
        assert machine.unit(unit)["Result"] == "success"
    assert machine.unit("crtrd.service")["NRestarts"] == "0"
    print(machine.suite, "lives:", len(lives))  # noqa: T201


def test_the_wake_timer_is_armed_anew_only_when_the_next_wake_up_changes(machine):
    """A timer that is replaced is another invocation."""
    def armed_after(*words):
        machine.run(["crtrctl", *words])
        machine.wait_for(lambda: machine.unit("crtrd.service")["ActiveState"] == "inactive", 20, "the idle exit")
        return machine.unit("crtrd-wake.timer")["InvocationID"]

    machine.write("/etc/crtrd/crtrd.toml", 'idle_grace = "100ms"\n')
    machine.run("systemctl stop crtrd.service; systemctl start crtrd.socket")
    lives = 6
    first = [armed_after("arm", "tick", "--cron", "0 0 1 1 *", "--", "true"),
             *(armed_after("list") for _ in range(lives))]
    assert len(set(first)) <= lives // 2  # anew only after a start that took more than twice as long as others
    second = [armed_after("arm", "sooner", "--every", "1h", "--", "true"),
              *(armed_after("list") for _ in range(lives))]
    assert len(set(second)) <= lives // 2
    assert not set(first) & set(second)
    assert armed_after("cancel", "sooner") not in {*first, *second}
