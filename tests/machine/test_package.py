"""The Debian package on a real system: what installing, upgrading, removing and purging it does and leaves."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.machine.machine import Machine

PROJECT = Path(__file__).parents[2]
NAME = "org.crtrd.Crtrd1"
OWN = f"busctl call org.freedesktop.DBus / org.freedesktop.DBus RequestName su {NAME} 4"


def as_version(deb: Path, version: str, folder: Path) -> Path:
    """The same package under another version."""
    tree, target = folder / f"tree-{version}", folder / f"crtrd_{version}_all.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", deb, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub("^Version: .*", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", tree, target], check=True, stdout=subprocess.DEVNULL)
    return target


@pytest.fixture
def newer(deb: Path, tmp_path: Path) -> Path:
    return as_version(deb, "99.0", tmp_path)


RESIDENT = """#!/bin/sh -e
# Stays; its first life starts a run. Both have cgroups of their own below the unit's, as crtrd does it.
unit=/sys/fs/cgroup/system.slice/crtrd.service
mkdir -p $unit/supervisor $unit/run-1
echo $$ >$unit/supervisor/cgroup.procs
if [ ! -e /root/run.pid ]; then
    sleep 1000 &
    echo $! >/root/run.pid
    echo $! >$unit/run-1/cgroup.procs
fi
systemd-notify --ready
exec sleep infinity
"""


@pytest.fixture
def resident(machine: Machine) -> Machine:
    """A machine whose crtrd.service is RESIDENT, and runs."""
    machine.write("/root/resident", RESIDENT, 0o755)
    drop_in = "[Service]\nExecStart=\nExecStart=/root/resident\nNotifyAccess=all\nWatchdogSec=0\n"
    machine.write("/etc/systemd/system/crtrd.service.d/resident.conf", drop_in)
    machine.run("systemctl daemon-reload; systemctl restart crtrd.service; touch /var/lib/crtrd/ledger.sqlite3")
    return machine


def state(machine: Machine, unit: str) -> str:
    properties = machine.unit(unit)
    return f"{properties['ActiveState']} {properties.get('Result', '')}".strip()


def pid(machine: Machine) -> str:
    return machine.unit("crtrd.service")["MainPID"]


def test_versions_agree() -> None:
    version = re.search(r'__version__ = "(.*)"', (PROJECT / "crtrd/__init__.py").read_text())
    changelog = re.match(r"crtrd \((.*)\)", (PROJECT / "packaging/debian/changelog").read_text())
    assert version is not None
    assert changelog is not None
    assert version[1] == changelog[1]


def test_install_enables_both_and_starts_the_socket(bare: Machine, deb: Path) -> None:
    bare.install_deb(deb)
    assert bare.run("systemctl is-enabled crtrd.socket crtrd.service").stdout == "enabled\nenabled\n"
    assert state(bare, "crtrd.socket") == "active success"
    assert state(bare, "crtrd.service") == "inactive success"
    assert bare.run("systemctl start crtrd.socket").returncode == 0
    assert bare.failed_units() == []


def test_units_are_without_complaint(machine: Machine) -> None:
    """Their manual pages are looked for by name: the machine has no man(1)."""
    for unit in ("crtrd.socket", "crtrd.service"):
        for page, section in re.findall(r"man:([\w.]+)\((\d)\)", machine.unit(unit)["Documentation"]):
            machine.run(f"test -e /usr/share/man/man{section}/{page}.{section}.gz")
    verify = machine.run("systemd-analyze --man=no verify crtrd.socket crtrd.service")
    assert verify.stdout + verify.stderr == ""
    machine.user_manager("alice")
    verify = machine.run_as("alice", "systemd-analyze --user --man=no verify crtrd.socket crtrd.service")
    assert verify.stdout + verify.stderr == ""
    assert [entry["MESSAGE"] for entry in machine.journal("-b", "--grep=crtrd.*Unknown", "-p", "warning")] == []


def test_what_runs_need_of_the_service(machine: Machine) -> None:
    service = machine.unit("crtrd.service")
    wanted = {
        "Type": "notify", "NotifyAccess": "main", "KillMode": "process", "Delegate": "yes", "OOMPolicy": "continue",
        "StateDirectoryMode": "0700", "RuntimeDirectoryPreserve": "yes", "TriggeredBy": "crtrd.socket",
        "StartLimitIntervalUSec": "0", "Restart": "on-failure", "NoNewPrivileges": "no", "PrivateTmp": "no",
        "ProtectSystem": "no", "PrivateDevices": "no",
    }  # fmt: skip
    assert {key: service[key] for key in wanted} == wanted
    assert int(service["FileDescriptorStoreMax"]) > 3 * 32


def test_modes_and_owners(machine: Machine) -> None:
    paths = "/run/crtrd /run/crtrd/trigger.sock /etc/crtrd /etc/crtrd/{crtrd.toml,crons.d,profiles.d}"
    listing = machine.run(["bash", "-c", f"stat -c '%n %a %U:%G' {paths}"]).stdout.splitlines()
    assert listing == [
        "/run/crtrd 755 root:root",
        "/run/crtrd/trigger.sock 660 root:crtrd",
        "/etc/crtrd 755 root:root",
        "/etc/crtrd/crtrd.toml 644 root:root",
        "/etc/crtrd/crons.d 755 root:root",
        "/etc/crtrd/profiles.d 755 root:root",
    ]
    denied = machine.run_as("alice", "curl -s --unix-socket /run/crtrd/trigger.sock http://x/", check=False)
    assert denied.returncode == 7


def test_state_is_roots_alone(resident: Machine) -> None:
    assert resident.run("stat -c '%a %U:%G' /var/lib/crtrd").stdout == "700 root:root\n"


def test_only_root_owns_the_name(machine: Machine) -> None:
    refused = machine.run_as("alice", OWN, check=False)
    assert refused.returncode != 0
    assert "Access denied" in refused.stderr
    assert machine.run(OWN).returncode == 0
    assert NAME in machine.run("busctl list --activatable --no-legend").stdout


def test_the_bus_starts_the_service(resident: Machine) -> None:
    resident.run("systemctl stop crtrd.service")
    resident.run(f"busctl call --expect-reply=no {NAME} / org.freedesktop.DBus.Peer Ping")
    resident.wait_for(lambda: state(resident, "crtrd.service") == "active success", 5)


def test_boot_starts_the_service(resident: Machine) -> None:
    resident.reboot()
    assert state(resident, "crtrd.service") == "active success"
    assert state(resident, "crtrd.socket") == "active success"


def test_upgrade_restarts_an_unoccupied_daemon_and_keeps_the_rest(resident: Machine, newer: Path) -> None:
    resident.run("kill $(cat /root/run.pid)")
    socket = resident.run("stat -c %i /run/crtrd/trigger.sock").stdout
    before = pid(resident)
    resident.write("/etc/crtrd/crtrd.toml", "# mine\n")
    resident.install_deb(newer)
    assert pid(resident) not in {before, "0"}
    assert state(resident, "crtrd.socket") == "active success"
    assert resident.run("stat -c %i /run/crtrd/trigger.sock").stdout == socket
    assert resident.path("/var/lib/crtrd/ledger.sqlite3").exists()
    assert resident.read("/etc/crtrd/crtrd.toml") == "# mine\n"


def test_upgrade_restarts_one_that_cannot_execute_itself_anew_and_runs_go_on(resident: Machine, newer: Path) -> None:
    before, run = pid(resident), resident.read("/root/run.pid").strip()
    resident.install_deb(newer)
    assert pid(resident) not in {before, "0"}
    assert resident.path(f"/proc/{run}").exists()
    assert "99.0" in resident.run("dpkg-query -W crtrd").stdout


def test_a_restart_leaves_what_the_daemon_does_not_stop_itself(resident: Machine) -> None:
    before, run = pid(resident), resident.read("/root/run.pid").strip()
    resident.run("systemctl restart crtrd.service")
    assert pid(resident) not in {before, "0"}
    assert resident.path(f"/proc/{run}").exists()


def test_a_run_may_be_the_upgrade(machine: Machine, newer: Path) -> None:
    """It must live through what it does to its own daemon."""
    machine.copy_in(newer, "/root/newer.deb")
    machine.run("crtrctl arm upgrade --on-output always -- sh -c 'dpkg -i /root/newer.deb && echo after'")
    machine.run("crtrctl run upgrade --wait", timeout=30)
    (run,) = json.loads(machine.run("crtrctl runs upgrade --json=short").stdout)
    assert run["result"] == "success"
    assert machine.run("dpkg --audit").stdout == ""
    assert state(machine, "crtrd.socket") == "active success"


@pytest.mark.parametrize("running", [True, False])
def test_six_reinstalls_in_a_row(machine: Machine, deb: Path, running: bool) -> None:  # noqa: FBT001
    machine.write("/etc/crtrd/crtrd.toml", 'clock = "internal"\n')
    machine.run(f"systemctl {'restart' if running else 'stop'} crtrd.service")
    before = pid(machine)
    machine.copy_in(deb, "/root/crtrd.deb")
    for _ in range(6):
        machine.run("dpkg -i --force-confold /root/crtrd.deb")
    assert pid(machine) == before
    assert state(machine, "crtrd.socket") == "active success"
    assert state(machine, "crtrd.service") == ("active success" if running else "inactive success")
    machine.run("systemctl restart crtrd.service; systemctl restart crtrd.service")
    assert state(machine, "crtrd.service") == "active success"


def test_remove_stops_everything_and_keeps_state(resident: Machine, deb: Path) -> None:
    resident.run("systemd-run --unit=crtrd-wake --on-active=1h true")
    main = pid(resident)
    resident.run("apt-get remove -y -qq crtrd")
    assert not resident.path(f"/proc/{main}").exists()
    for unit in ("crtrd.socket", "crtrd.service", "crtrd-wake.timer"):
        assert resident.unit(unit)["ActiveState"] == "inactive"
    assert not resident.path("/run/crtrd/trigger.sock").exists()
    assert resident.path("/var/lib/crtrd/ledger.sqlite3").exists()
    assert resident.failed_units() == []
    resident.install_deb(deb)
    assert state(resident, "crtrd.socket") == "active success"
    resident.run("systemctl start crtrd.service")


def test_removal_ends_the_instances_of_users(machine: Machine) -> None:
    machine.user_manager("alice")
    machine.run_as("alice", "systemctl --user enable --now crtrd.socket crtrd.service; crtrctl --user list")
    assert machine.processes(r"-m crtrd")
    machine.run("apt-get remove -y -qq crtrd")
    assert not machine.processes(r"-m crtrd")


def test_purge_leaves_nothing(resident: Machine) -> None:
    resident.write("/etc/crtrd/crons.d/mine.toml", "")
    resident.run("apt-get purge -y -qq crtrd")
    left = resident.run("find / -xdev -path /proc -prune -o -name '*crtrd*' -print").stdout.split()
    drop_in = "/etc/systemd/system/crtrd.service.d"
    assert [path for path in left if not path.startswith(("/root/", drop_in, "/var/log/", "/var/cache/apt"))] == []
    assert not resident.processes(r"-m crtrd")


AUTOPKGTEST = "autopkgtest", "dpkg-dev"
"""The tool, and what it makes the archive of with the package under test."""


def test_the_packages_own_test_passes_by_autopkgtest(suite: str, deb: Path) -> None:
    """With the runner for the machine at hand, which is one of its own although the runner cannot know that."""
    with Machine(suite, extra=AUTOPKGTEST) as machine:
        machine.copy_in(deb, f"/root/{deb.name}")
        machine.copy_in(PROJECT / "packaging", "/root/tree")
        machine.run("chmod +x /root/tree/debian/tests/life")
        options = "--ignore-restrictions=isolation-machine --no-built-binaries"
        done = machine.run(f"autopkgtest {options} /root/{deb.name} /root/tree -- null", check=False, timeout=200)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert re.search(r"^life +PASS", said, flags=re.MULTILINE), said
