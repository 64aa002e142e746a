"""The machines themselves: what the other tests of this folder take for granted."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.machine.keeper import cgroup_of
from tests.machine.machine import Machine
from tests.machine.rootfs import cache

PROJECT = Path(__file__).parents[2]

HOLDER = """
import sys
from tests.machine.machine import Machine
with Machine("bookworm", name=sys.argv[1]) as machine:
    machine.popen("setsid sleep 1000")
    print("up", flush=True)
    sys.stdin.read()
    raise SystemExit("the test failed")
"""


def leftovers(name: str) -> list[str]:
    """What the host still has of the machine NAME."""
    folders = [str(path) for path in (cache() / "machines").glob(f"{name}*")]
    cgroups = [str(path) for path in [cgroup_of(name)] if path.exists()]
    processes = subprocess.run(["pgrep", "-af", name], capture_output=True, text=True, check=False).stdout.splitlines()
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if name in line]
    return folders + cgroups + processes + mounts


def test_a_machine_is_a_whole_system(bare: Machine) -> None:
    assert bare.run("cat /proc/1/comm").stdout == "systemd\n"
    assert bare.failed_units() == []
    assert bare.run("stat -f -c %T /sys/fs/cgroup").stdout == "cgroup2fs\n"
    assert bare.run_in_unit("cat /proc/self/cgroup").stdout.splitlines()[-1].startswith("0::/system.slice/run-")
    assert bare.run_as("alice", "id -un; pwd").stdout == "alice\n/home/alice\n"
    bare.user_manager("alice")
    assert bare.run_as("alice", "busctl --user list").returncode == 0
    assert any(entry["MESSAGE"] for entry in bare.journal("-b"))


def test_a_command_that_fails_or_hangs_is_told(bare: Machine) -> None:
    with pytest.raises(AssertionError, match=r"exited with 3\nout"):
        bare.run("echo out; exit 3")
    with pytest.raises(AssertionError, match="still runs after"):
        bare.run("sleep 100", timeout=0.5)
    with pytest.raises(AssertionError, match="not within"):
        bare.wait_for(lambda: False, 0.1)


def test_the_disk_outlives_reboot_and_power_cut(bare: Machine) -> None:
    boots = [bare.read("/proc/sys/kernel/random/boot_id")]
    bare.write("/root/kept", "kept")
    bare.run("systemd-run --unit=marker --property=ExecStop='touch /root/stopped' sleep infinity")
    bare.power_cut()
    boots.append(bare.read("/proc/sys/kernel/random/boot_id"))
    assert not bare.path("/root/stopped").exists()
    bare.run("systemd-run --unit=marker --property=ExecStop='touch /root/stopped' sleep infinity")
    bare.reboot()
    boots.append(bare.read("/proc/sys/kernel/random/boot_id"))
    assert bare.path("/root/stopped").exists()
    assert bare.read("/root/kept") == "kept"
    assert len(set(boots)) == 3


def test_machines_side_by_side_do_not_see_each_other(suite: str) -> None:
    with Machine(suite) as one, Machine(suite) as other:
        one.run("systemd-run --unit=only-here sleep 1234")
        one.wait_for(lambda: one.processes("^/.*sleep 1234"), 5)
        assert not other.processes("sleep 1234")
        other.power_cut()
        assert one.processes("sleep 1234")


def test_a_frozen_disk_is_a_layer_for_others(bare: Machine, suite: str) -> None:
    bare.run("useradd carol; rm /etc/issue")
    with Machine(suite, layers=[bare.freeze()]) as other:
        assert other.run_as("carol", "true", check=False).returncode in {0, 125}
        assert other.run("id -un carol").stdout == "carol\n"
        assert not other.path("/etc/issue").exists()


@pytest.mark.parametrize("end", ["failure", "SIGINT", "SIGKILL"])
def test_gone_afterwards(end: str) -> None:
    name = f"harness-{end.lower()}"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, name], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        assert len(leftovers(name)) > 2
        if end == "failure":
            holder.communicate()
        else:
            holder.send_signal(getattr(signal, end))
        assert holder.wait(30) != 0
    deadline = time.monotonic() + 10
    while leftovers(name) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert leftovers(name) == []
    left = [line for line in Path("/proc/mounts").read_text().splitlines() if "crtrd-test" in line]
    assert left == []


def test_a_machine_whose_keeper_died_too_is_swept_up_later() -> None:
    name = "harness-orphan"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, name], cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        keeper = subprocess.run(["pgrep", "-f", f"keeper.py .*/{name}$"], capture_output=True, text=True, check=True)
        for pid in (int(keeper.stdout), holder.pid):
            subprocess.run(["kill", "-KILL", str(pid)], check=True)
        holder.wait(10)
    assert leftovers(name)
    with Machine("bookworm", name="harness-next"):
        assert leftovers(name) == []
