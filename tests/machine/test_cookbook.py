"""Every block of docs/cookbook.md on a machine, as root; and that doctor finds a sound machine sound, and faults."""

import json
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.machine
BOOK = (Path(__file__).parents[2] / "docs/cookbook.md").read_text()
BLOCKS = re.findall(r"^## (.*?)\n.*?```sh\n(.*?)```", BOOK, flags=re.DOTALL | re.MULTILINE)


def test_every_task_of_the_cookbook_works(machine):
    machine.run("systemctl start crtrd.socket; mkdir -p /var/backups")
    assert len(BLOCKS) == 11
    offered = machine.run("cat /sys/fs/cgroup/cgroup.controllers").stdout.split()
    for title, text in BLOCKS:
        block = text if "memory" in offered else re.sub(r"--resource (Mem|CPU)\S+ ", "", text)  # what a host lacks
        done = machine.run(f"export EDITOR=true TERM=dumb; set -x\n{block}", check=False)
        assert done.returncode == 0, (title, done.stdout, done.stderr)
        assert "Traceback" not in done.stdout + done.stderr
    fleet = json.loads(machine.run("crtrctl occurrences fleet --json=short").stdout)
    newest = lambda: json.loads(machine.run("crtrctl occurrences fleet -n 1 --json=short").stdout)[0]  # noqa: E731
    machine.wait_for(lambda: newest()["status"] == "success", 10, "the rerun")
    assert fleet[-1]["status"] == "partial"
    assert machine.failed_units() == []


DELEGATED = ("mkdir -p /etc/systemd/system/crtrd.service.d; printf '[Service]\\nDelegate=no\\n' "
             ">/etc/systemd/system/crtrd.service.d/x.conf; systemctl daemon-reload")
NO_ZONE = "apt install --reinstall tzdata, or timedatectl set-timezone …"
TOLD = "apt", "correct", "systemctl revert", "systemctl unmask"
"""How remedies begin that say more than a command, need a network, or leave a consequence to the next remedy."""


def checks(machine):
    done = machine.run("crtrctl doctor --json=short", check=False)
    found = json.loads(done.stdout)
    return done.returncode, {each["check"]: each["remedy"] for each in found if each["grade"] == "fault"}


@pytest.mark.parametrize(("harm", "check", "remedy"), [
    ("chmod 755 /var/lib/crtrd", "permissions", "chmod 0700 /var/lib/crtrd"),
    ("chmod 777 /etc/crtrd/crtrd.toml", "permissions", "chmod go-w /etc/crtrd/crtrd.toml"),
    ("systemctl stop crtrd.socket", "units", "systemctl restart crtrd.service"),
    ("systemctl restart crtrd.socket || true", "units", "systemctl restart crtrd.service"),
    ("systemctl disable crtrd.service", "units", "systemctl enable crtrd.service"),
    ("echo 'clock = 1' >/etc/crtrd/crtrd.toml", "configuration", "correct the file, then crtrctl daemon-reload"),
    ("rm /usr/share/polkit-1/actions/org.crtrd*", "bus policy", "apt install --reinstall crtrd"),
    ("rm /usr/share/dbus-1/system-services/org.crtrd*", "bus policy", "apt install --reinstall crtrd"),
    ("systemctl mask --now crtrd.service", "units", "systemctl unmask crtrd.service"),
    ("chown alice /etc/crtrd/crons.d", "permissions", "chown root /etc/crtrd/crons.d"),
    ("rm /run/crtrd/trigger.sock", "socket", "systemctl stop crtrd.socket; systemctl restart crtrd.service"),
    ("rm /usr/share/zoneinfo/Europe/Berlin", "zone data", NO_ZONE),
    (DELEGATED, "cgroup delegation", "systemctl revert crtrd.service, or take Delegate= out of its drop-ins"),
])
def test_doctor_finds_a_fault_and_names_its_remedy(machine, harm, check, remedy):
    machine.run("systemctl start crtrd.socket crtrd.service")
    assert checks(machine) == (0, {})
    machine.run(harm)
    for_alice = machine.run_as("alice", "crtrctl --system doctor", check=False)
    assert "Traceback" not in for_alice.stderr
    assert "tells only root" in for_alice.stdout or " mask " in harm  # then nobody answers
    status, faults = checks(machine)
    assert (status, faults.get(check)) == (1, remedy)
    if not remedy.startswith(TOLD):
        machine.run(remedy)
        assert checks(machine)[1].get(check) is None
