"""The units under fire: activations in quick succession and starts that fail, with a stand-in for the daemon."""

import time
from pathlib import Path

import pytest

from tests.machine.machine import Machine


def state(machine: Machine, unit: str) -> str:
    properties = machine.unit(unit)
    return f"{properties['ActiveState']} {properties.get('Result', '')}".strip()


@pytest.fixture
def standin(machine: Machine) -> Machine:
    machine.copy_in(Path(__file__).with_name("standin.py"), "/root/standin.py")
    drop_in = "[Service]\nExecStart=\nExecStart=/usr/bin/python3 -I /root/standin.py\nWatchdogSec=0\n"
    machine.write("/etc/systemd/system/crtrd.service.d/standin.conf", drop_in)
    machine.run("systemctl daemon-reload; systemctl stop crtrd.service")
    return machine


CALL = "socat -t 20 - UNIX-CONNECT:/run/crtrd/trigger.sock </dev/null"


def test_quick_activations_hit_no_limit(standin: Machine) -> None:
    """The burst that puts a socket with default limits in a failed state for good."""
    for _ in range(20):
        standin.run(CALL)
        standin.wait_for(lambda: state(standin, "crtrd.service") == "inactive success", 5)
    standin.run(f"for i in $(seq 50); do {CALL} >/dev/null & done; wait")
    assert standin.run(CALL).stdout.strip().isdigit()
    assert len(standin.read("/root/standin-starts").split()) > 20
    standin.wait_for(lambda: state(standin, "crtrd.service") == "inactive success", 5)
    assert state(standin, "crtrd.socket") == "active success"


def test_a_start_that_fails_does_not_spin_and_recovers_by_itself(standin: Machine) -> None:
    standin.write("/root/standin-fails", "")
    caller = standin.popen(f"timeout 30 {CALL}")
    time.sleep(5)
    starts = len(standin.read("/root/standin-starts").split())
    standin.path("/root/standin-fails").unlink()
    assert 1 <= starts <= 4
    assert caller.communicate(timeout=20)[0].strip().isdigit()
    standin.wait_for(lambda: state(standin, "crtrd.service") == "inactive success", 5)
    assert state(standin, "crtrd.socket") == "active success"


def test_a_ledger_that_is_refused_has_it_start_slowly_however_often_one_calls(machine: Machine) -> None:
    """Its socket asks for a start as long as a caller waits; each start reads the ledger and writes to the journal."""
    machine.run("systemctl stop crtrd.service crtrd.socket; sqlite3 /var/lib/crtrd/ledger.sqlite3 'PRAGMA user_version"
                " = 9999'; systemctl start crtrd.socket")
    machine.run("end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do " + CALL + " || true; done", timeout=60)
    refused = [entry for entry in machine.journal("-u", "crtrd.service") if entry.get("CRTRD_EVENT") == "daemon.failed"]
    assert 1 <= len(refused) <= 5
    assert machine.unit("crtrd.socket")["Result"] == "success"
