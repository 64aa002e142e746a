"""The gate: nothing executes before it opens, whatever dies; and what the child looks like once it does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crtrd.core.events import LaunchFailed, RunHeld
from tests.supervision.conftest import children, is_alive, wait_for

pytestmark = pytest.mark.process

HOST = """
import sys
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.supervision.supervisor import Plan, Supervisor

reactor = Reactor(Clock())
def report(event):
    print(event.identity.pid, supervisor._starts.spawner.pid, flush=True)
supervisor = Supervisor(reactor, None, report, None)
supervisor.start(Plan("1" * 32, ("touch", sys.argv[1]), (("PATH", "/usr/bin:/bin"),)))
reactor.run()
"""


@pytest.fixture
def host(tmp_path):
    """A small program with one held child: (process, pid of the child, pid of the spawner, marker file)."""
    marker = tmp_path / "executed"
    command = [sys.executable, "-c", HOST, str(marker)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        child, spawner = map(int, process.stdout.readline().split())
        yield process, child, spawner, marker
        process.kill()


def test_a_killed_daemon_closes_the_gate(host):
    process, child, spawner, marker = host
    assert is_alive(child)
    process.kill()
    process.wait()
    wait_for(lambda: not is_alive(child) and not is_alive(spawner))
    assert not marker.exists()


def test_a_killed_spawner_leaves_the_child_held(room, tmp_path):
    marker = tmp_path / "executed"
    plan = room.plan("touch", str(marker))
    held = room.hold(plan)
    os.kill(room.supervisor._starts.spawner.pid, signal.SIGKILL)
    room.until(lambda: room.supervisor._starts.spawner is None)
    assert is_alive(held.identity.pid)
    assert not marker.exists()
    room.supervisor.release(plan.run_id)
    room.end(plan.run_id)
    assert marker.exists()
    assert room.run("true").exit_code == 0  # a new spawner has come


def test_withheld_children_execute_nothing_and_leave_no_zombie(room, tmp_path):
    marker = tmp_path / "executed"
    plans = [room.plan("touch", str(marker)) for _ in range(3)]
    held = room.hold(plans[0])
    room.supervisor.withhold(plans[0].run_id)
    room.supervisor.start(plans[1])
    room.reactor.turn(0)  # asked, and not yet at the gate
    room.supervisor.withhold(plans[1].run_id)
    room.supervisor.start(plans[2])
    room.supervisor.withhold(plans[2].run_id)  # before its turn
    room.until(lambda: not room.supervisor._children)
    wait_for(lambda: not Path(f"/proc/{held.identity.pid}").exists())
    assert not marker.exists()
    assert room.events == [held]


def test_stop_before_release_is_a_launch_that_failed(room, tmp_path):
    plan = room.plan("touch", str(tmp_path / "executed"))
    room.hold(plan)
    room.supervisor.stop(plan.run_id, 10)
    failed = room.end(plan.run_id)
    assert isinstance(failed, LaunchFailed)
    assert (failed.stage, failed.shortage) == ("gate", False)
    assert not (tmp_path / "executed").exists()


def test_a_child_killed_at_the_gate_is_our_shortage(room):
    plan = room.plan("true")
    held = room.hold(plan)
    os.kill(held.identity.pid, signal.SIGKILL)
    failed = room.end(plan.run_id)
    assert isinstance(failed, LaunchFailed)
    assert failed.shortage
    room.supervisor.release(plan.run_id)  # too late, and harmless


def test_close_closes_gates_and_leaves_released_runs_alone(room, tmp_path):
    released, held = room.plan("sleep", "600"), room.plan("touch", str(tmp_path / "executed"))
    running = room.go(released).identity.pid
    waiting = room.hold(held).identity.pid
    room.until(lambda: Path(f"/proc/{running}/comm").read_text() == "sleep\n")
    room.supervisor.close()
    wait_for(lambda: not is_alive(waiting))
    assert is_alive(running)
    os.kill(running, signal.SIGKILL)
    assert not (tmp_path / "executed").exists()


def test_held_child_has_a_session_and_group_of_its_own(room):
    plan = room.plan("true")
    held = room.hold(plan)
    pid = held.identity.pid
    assert isinstance(held, RunHeld)
    assert (os.getpgid(pid), os.getsid(pid)) == (pid, pid)
    assert sorted(os.listdir(f"/proc/{pid}/fd")) == ["0", "1", "2", "3"]  # 3 is the gate
    assert room.supervisor.live() == {plan.run_id}


def test_no_zombie_and_no_descriptor_of_a_hundred_runs(room):
    room.run("true")
    before = len(os.listdir("/proc/self/fd"))
    plans = [room.plan("sh", "-c", "sleep 600 & exit 0") for _ in range(100)]
    for plan in plans:
        room.supervisor.start(plan)
    for plan in plans:
        room.until(lambda plan=plan: room.event(plan.run_id, RunHeld))
        room.supervisor.release(plan.run_id)
    for plan in plans:
        assert room.end(plan.run_id).ending.exit_code == 0
    assert len(os.listdir("/proc/self/fd")) == before
    assert children("Z") == []
    spawner = room.supervisor._starts.spawner.pid
    assert Path(f"/proc/{spawner}/task/{spawner}/children").read_text() == ""
