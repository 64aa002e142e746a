"""Stops: SIGTERM and SIGCONT, a grace that only gets shorter, SIGKILL; and who survives a leader (C23, C25)."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from crtrd.core.cron import Survivors
from crtrd.core.events import RunEnded
from tests.supervision.conftest import is_alive, wait_for

pytestmark = pytest.mark.process

GRACE = 300_000


def ready(room, *argv, **fields):
    """Start a command that says `ready` once it has set itself up; its plan and pid."""
    plan = room.plan(*argv, **fields)
    held = room.go(plan)
    room.until(lambda: b"ready" in room.output(plan.run_id))
    return plan, held.identity.pid


def took(room, plan, since):
    ended = room.end(plan.run_id)
    assert isinstance(ended, RunEnded)
    return ended.ending, time.monotonic() - since


@contextlib.contextmanager
def ended_afterwards(pid):
    """A process that its run leaves behind on purpose is ended here, whatever the test finds."""
    try:
        yield pid
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid))


def test_term_is_ignored_and_kill_comes_after_the_grace(room):
    plan, _ = ready(room, "sh", "-c", "trap '' TERM; echo ready; sleep 600")
    begun = time.monotonic()
    room.supervisor.stop(plan.run_id, GRACE)
    ending, seconds = took(room, plan, begun)
    assert 0.3 <= seconds < 0.8
    assert (ending.exit_code, ending.signal) == (None, signal.SIGKILL)
    assert not ending.oom


def test_a_trap_may_say_goodbye(room):
    plan, _ = ready(room, "sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; sleep 600 & wait")
    begun = time.monotonic()
    room.supervisor.stop(plan.run_id, 5_000_000)
    ending, seconds = took(room, plan, begun)
    assert seconds < 2
    assert (ending.exit_code, ending.signal) == (0, None)
    assert ending.stdout.head == b"ready\nbye\n"


def test_one_that_forks_on_term_leaves_nobody(room):
    script = "trap 'sleep 601 & echo forked $!' TERM; echo ready; while :; do sleep 0.05; done"
    plan, _ = ready(room, "sh", "-c", script)
    room.supervisor.stop(plan.run_id, GRACE)
    ending, _ = took(room, plan, time.monotonic())
    assert ending.signal == signal.SIGKILL
    forked = int(ending.stdout.head.split(b"forked ")[1].split()[0])
    wait_for(lambda: not is_alive(forked))


def test_a_second_stop_shortens_the_grace_and_never_restarts_it(room):
    plan, _ = ready(room, "sh", "-c", "trap '' TERM; echo ready; sleep 600")
    begun = time.monotonic()
    room.supervisor.stop(plan.run_id, 500_000)
    room.turn_for(0.2)
    room.supervisor.stop(plan.run_id, 5_000_000)
    _, seconds = took(room, plan, begun)
    assert 0.5 <= seconds < 1.0
    plan, _ = ready(room, "sh", "-c", "trap '' TERM; echo ready; sleep 600")
    begun = time.monotonic()
    room.supervisor.stop(plan.run_id, 60_000_000)
    room.supervisor.stop(plan.run_id, 100_000)
    _, seconds = took(room, plan, begun)
    assert 0.1 <= seconds < 0.6


def test_a_stopped_process_takes_the_term(room):
    plan, pid = ready(room, "sh", "-c", "echo ready; exec sleep 600")
    os.kill(pid, signal.SIGSTOP)
    room.supervisor.stop(plan.run_id, 5_000_000)
    ending, seconds = took(room, plan, time.monotonic())
    assert ending.signal == signal.SIGTERM
    assert seconds < 2


def test_signal_goes_to_the_group(room):
    plan, _ = ready(room, "sh", "-c", "trap 'echo usr; exit 9' USR1; echo ready; sleep 600 & wait")
    room.supervisor.signal(plan.run_id, signal.SIGUSR1)
    ending, _ = took(room, plan, time.monotonic())
    assert (ending.exit_code, ending.stdout.head) == (9, b"ready\nusr\n")


def test_duration_is_monotonic_time_since_the_release(room):
    plan = room.plan("sleep", "0.2")
    room.hold(plan)
    room.turn_for(0.2)
    room.supervisor.release(plan.run_id)
    ended = room.end(plan.run_id)
    assert 200_000 <= ended.ending.duration < 390_000


def test_survivors_of_the_group_are_killed_and_named(room):
    ending = room.run("sh", "-c", "sleep 602 & sleep 603 & echo $!; exit 5")
    assert ending.exit_code == 5
    assert len(ending.survivors) == 2
    assert any(text.startswith(ending.stdout.head.decode().strip() + " (") for text in ending.survivors)
    assert all(not is_alive(int(text.split()[0])) for text in ending.survivors)


def test_survivors_are_kept_and_named(room):
    ending = room.run("sh", "-c", "sleep 604 & echo $!", survivors=Survivors.KEEP)
    with ended_afterwards(int(ending.stdout.head)) as pid:
        (text,) = ending.survivors
        assert int(text.split()[0]) == pid
        assert is_alive(pid)


def test_a_stopped_run_keeps_nobody(room):
    script = "sleep 605 & echo ready $!; wait"
    plan, _ = ready(room, "sh", "-c", script, survivors=Survivors.KEEP)
    room.supervisor.stop(plan.run_id, GRACE)
    ending, _ = took(room, plan, time.monotonic())
    wait_for(lambda: not is_alive(int(ending.stdout.head.split()[1])))


def test_setsid_escapee_without_a_cgroup_is_killed_at_a_stop(room):
    """C25: it is still below the leader when the stop comes."""
    plan, _ = ready(room, "sh", "-c", "setsid sleep 778 & sleep 0.1; echo ready $!; wait")
    room.supervisor.stop(plan.run_id, GRACE)
    ending, _ = took(room, plan, time.monotonic())
    pid = int(ending.stdout.head.split()[1])
    assert any(text.startswith(f"{pid} (sleep)") for text in ending.survivors)
    wait_for(lambda: not is_alive(pid))


def test_a_holder_of_the_pipe_that_nobody_can_name_is_told(room):
    ending = room.run("sh", "-c", "(env -i setsid sleep 788 & echo $!); sleep 0.2")
    with ended_afterwards(int(ending.stdout.head)) as pid:
        assert ending.survivors == ("somebody holds its output: not reached",)
        assert is_alive(pid)


def test_an_escapee_out_of_reach_is_named(room):
    """C25: twice forked and in a session of its own, it holds the pipe and the run's id: named, not killed."""
    ending = room.run("sh", "-c", "(setsid sleep 779 & echo $!); sleep 0.2")
    with ended_afterwards(int(ending.stdout.head)) as pid:
        assert [text for text in ending.survivors if text.startswith(f"{pid} (")] == [f"{pid} (sleep): not reached"]
        assert is_alive(pid)


# --- with a cgroup


@pytest.mark.parametrize("script", [
    "setsid sleep 780 & sleep 0.1; echo ready; wait",
    "(setsid sh -c 'setsid sleep 781 & setsid sleep 782 &' &); sleep 0.2; echo ready; sleep 600",
    "trap '' TERM; (trap '' TERM; exec setsid sleep 783) & sleep 0.1; echo ready; wait; wait",
])
def test_nobody_leaves_a_cgroup(contained, script):
    for _ in range(5):
        plan, _ = ready(contained, "sh", "-c", script)
        child = contained.supervisor._children[plan.run_id]
        path, pids = child.cgroup, contained.supervisor._cgroups.procs(child.cgroup)
        assert len(pids) >= 2
        contained.supervisor.stop(plan.run_id, GRACE)
        took(contained, plan, time.monotonic())
        assert not any(is_alive(pid) for pid in pids)
        contained.until(lambda path=path: not Path(contained.supervisor._cgroups.mount + path).exists())


def test_twice_forked_survivor_in_a_cgroup_is_killed_and_named(contained):
    ending = contained.run("sh", "-c", "(setsid sleep 784 >/dev/null 2>&1 & echo $!); sleep 0.2")
    pid = int(ending.stdout.head)
    assert ending.survivors == (f"{pid} (sleep)",)
    assert not is_alive(pid)


def test_kept_survivor_in_a_cgroup(contained):
    ending = contained.run("sh", "-c", "setsid sleep 785 & echo $!; sleep 0.1", survivors=Survivors.KEEP)
    pid = int(ending.stdout.head)
    assert ending.survivors == (f"{pid} (sleep)",)
    assert is_alive(pid)
    assert contained.supervisor._cgroups.orphans() == []
    os.kill(pid, signal.SIGKILL)
    wait_for(contained.supervisor._cgroups.orphans)
    for path in contained.supervisor._cgroups.orphans():
        assert contained.supervisor._cgroups.remove(path)


def test_child_stands_in_its_cgroup_while_held(contained):
    plan = contained.plan("true")
    held = contained.hold(plan)
    own = Path(f"/proc/{held.identity.pid}/cgroup").read_text().split("0::")[1].strip()
    assert own == held.cgroup
    assert held.cgroup.endswith(plan.run_id)
    contained.supervisor.withhold(plan.run_id)
    contained.until(lambda: not Path(contained.supervisor._cgroups.mount + held.cgroup).exists())


def test_cgroup_that_cannot_be_joined_fails_the_start(contained, monkeypatch):
    monkeypatch.setattr(contained.supervisor._cgroups, "procs_file", lambda _: "/nonexistent/cgroup.procs")
    failed = contained.fail("true")
    assert (failed.stage, failed.errno, failed.shortage) == ("cgroup", 2, False)
