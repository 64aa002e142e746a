"""Runs of an earlier life: proven before they are touched, read on, their end told where the kernel can (C28, C47)."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from crtrd.core.events import LaunchFailed, RunEnded, RunHeld, RunLost
from crtrd.core.occurrence import Identity, Origin, Phase, Run
from crtrd.loop.clock import Clock
from crtrd.supervision.exit_status import exit_status, zombie_status
from crtrd.supervision.identity import Proof, identify
from tests.supervision.conftest import Room, is_alive, open_fds, wait_for

pytestmark = pytest.mark.process

BOOT = Clock().boot_id()
TELLER = """
import signal, sys, time
log = open(sys.argv[1], "a")
def tell(number, _):
    log.write(f"{number}\\n"); log.flush()
for number in (1, 2, 10, 12, 15, 18):
    signal.signal(number, tell)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def record(run_id, identity, cgroup=""):
    return Run(
        run_id, "o", "c", "name", "", 1, Origin.SCHEDULE, 0, Phase.RUNNING,
        out_of_band=False, fence=1, created_at=0, identity=identity, cgroup=cgroup,
    )  # fmt: skip


def statuses_of_strangers():
    """Whether this kernel tells the status of a process that is not our child."""
    with subprocess.Popen(["true"]) as process:
        pidfd = os.pidfd_open(process.pid)
    try:
        return exit_status(pidfd) is not None
    finally:
        os.close(pidfd)


class Life:
    """An earlier daemon; what it hands out is kept as the service manager would."""

    def __init__(self):
        self.kept = {}
        self.room = Room()
        self.room.supervisor.handed = self._keep

    def _keep(self, run_id, fds, kept):
        if "control" not in fds:
            self.kept[run_id] = {name: os.dup(fd) for name, fd in fds.items()}
        kept()

    def start(self, *argv, **fields):
        plan = self.room.plan(*argv, **fields)
        held = self.room.go(plan)
        return plan, record(plan.run_id, held.identity, held.cgroup)

    def hand_over(self):
        """As a re-execution: the spawner stays."""
        handed = self.room.supervisor.hand_over()
        self.end()
        spawner = next(name for name, fds in handed.items() if "control" in fds)
        for name in handed.keys() - {spawner}:
            for fd in handed[name].values():
                os.close(fd)
        return spawner, handed[spawner]

    def end(self):
        """As a kill -9: released runs go on, the spawner goes."""
        self.room.supervisor.close()
        self.room.reactor.close()


@pytest.fixture
def earlier():
    life = Life()
    yield life
    for fds in life.kept.values():
        for fd in fds.values():
            os.close(fd)


def test_output_and_status_of_an_adopted_run(earlier, room):
    plan, run = earlier.start("sh", "-c", "echo one; sleep 0.6; echo two; exit 3")
    earlier.end()
    assert room.supervisor.adopt(run, plan, earlier.kept.pop(run.id)) is Proof.ALIVE
    assert room.supervisor.live() == {run.id}
    ending = room.end(run.id).ending
    assert ending.stdout.head == b"one\ntwo\n"
    assert ending.exit_code == (3 if statuses_of_strangers() else None)
    assert 400_000 < ending.duration < 2_000_000


@pytest.mark.parametrize("kept", [True, False])
def test_a_spawner_handed_over_knows_every_status(earlier, room, kept):
    """Re-execution, on any kernel: exit status, signal, and one that ended in between."""
    plan, run = earlier.start("sh", "-c", "sleep 0.4; trap '' PIPE; echo two; exit 3")
    _, killed = earlier.start("sh", "-c", "sleep 0.4; kill -9 $$")
    held = earlier.room.plan("touch", "/nonexistent")
    waiting = earlier.room.hold(held).identity.pid
    _, over = earlier.start("sh", "-c", "exit 0")
    wait_for(lambda: not is_alive(over.identity.pid))
    spawner = earlier.hand_over()
    wait_for(lambda: not is_alive(waiting))
    room.supervisor.inherit(*spawner)
    for each in (run, killed, over):
        fds = earlier.kept.pop(each.id)
        assert room.supervisor.adopt(each, plan, fds if kept else {}) is Proof.ALIVE
        for fd in () if kept else fds.values():
            os.close(fd)
    for fd in earlier.kept.pop(held.run_id).values():
        os.close(fd)
    assert room.end(run.id).ending.exit_code == 3
    assert room.end(killed.id).ending.signal == 9
    assert room.end(over.id).ending.exit_code == 0
    if kept:
        assert room.end(run.id).ending.stdout.head == b"two\n"
    room.supervisor.adopted()
    room.until(lambda: not room.supervisor._starts.retired and not room.supervisor._starts.leaving)
    assert room.run("true", run_id="a" * 32).exit_code == 0


def test_one_whose_gate_was_not_opened_was_not_executed(earlier, room):
    """Killed after the identity was recorded and before the gate was opened: no success without a command."""
    plan = earlier.room.plan("touch", "/nonexistent")
    held = earlier.room.hold(plan)
    spawner = earlier.hand_over()
    room.supervisor.inherit(*spawner)
    run = record(plan.run_id, held.identity)
    assert room.supervisor.adopt(run, plan, earlier.kept.pop(run.id)) is Proof.ALIVE
    lost = room.until(lambda: room.event(run.id, RunLost))
    assert not lost.executed


def test_an_adopted_run_can_be_stopped(earlier, room):
    plan, run = earlier.start("sh", "-c", "trap '' TERM; sleep 600")
    earlier.end()
    assert room.supervisor.adopt(run, plan, {}) is Proof.ALIVE
    room.turn_for(0.1)
    room.supervisor.stop(run.id, 100_000)
    ending = room.end(run.id).ending
    assert ending.signal == (signal.SIGKILL if statuses_of_strangers() else None)
    assert not is_alive(run.identity.pid)
    for fd in earlier.kept.pop(run.id).values():
        os.close(fd)


def test_a_run_that_ended_between_two_lives(earlier, room):
    plan, run = earlier.start("sh", "-c", "echo meanwhile; exit 7")
    wait_for(lambda: not is_alive(run.identity.pid))
    earlier.end()
    assert room.supervisor.adopt(run, plan, earlier.kept.pop(run.id)) is Proof.ALIVE
    ending = room.end(run.id).ending
    assert ending.stdout.head == b"meanwhile\n"
    assert ending.exit_code == (7 if statuses_of_strangers() else None)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 9", 9 << 8), ("kill -9 $$", 9)])
def test_a_zombie_tells_its_status(script, status):
    with subprocess.Popen(["sh", "-c", f"read go; {script}"], stdin=subprocess.PIPE) as process:
        known = identify(process.pid, BOOT)
        assert zombie_status(known) is None
        process.stdin.close()
        wait_for(lambda: zombie_status(known) is not None)
        assert zombie_status(known) == status
        assert zombie_status(replace(known, start_ticks=1)) is None
        process.wait()
        assert zombie_status(known) is None


def test_without_a_kept_pidfd_it_is_gone(earlier, room):
    plan, run = earlier.start("true")
    wait_for(lambda: not is_alive(run.identity.pid))
    earlier.end()
    wait_for(lambda: room.supervisor.adopt(run, plan, {}) is Proof.GONE)
    assert room.supervisor.live() == frozenset()
    assert room.events == []


@contextmanager
def telling(log):
    """A process that logs every signal it gets, in a group of its own; its pid."""
    command = [sys.executable, "-c", textwrap.dedent(TELLER), str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            process.stdout.readline()
            yield process.pid
            assert is_alive(process.pid)
        finally:
            process.kill()


@pytest.fixture
def stranger(tmp_path):
    log = tmp_path / "signals"
    with telling(log) as pid:
        yield pid, log


@pytest.mark.parametrize("forged", [
    lambda known: replace(known, boot_id="f" * 32),
    lambda known: replace(known, start_ticks=known.start_ticks - 5),
])
def test_a_stranger_gets_no_signal(room, stranger, forged):
    pid, log = stranger
    run = record("5" * 32, forged(identify(pid, BOOT)))
    assert room.supervisor.adopt(run, None, {}) is Proof.GONE
    room.supervisor.stop(run.id, 0)
    room.supervisor.signal(run.id, signal.SIGUSR1)
    room.supervisor.kill_leftovers(run)
    room.turn_for(0.2)
    assert log.read_text() == ""
    assert room.events == []


def test_a_reused_pid_gets_no_signal(room, tmp_path):
    """C28: the pid of a dead run is given to a stranger (ns_last_pid chooses it)."""
    with subprocess.Popen(["true"]) as process:
        known = identify(process.pid, BOOT)
    log = tmp_path / "signals"
    time.sleep(0.05)  # ticks are hundredths of a second: the stranger is to start in a later one
    for _ in range(50):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(known.pid - 1))
        except OSError as error:
            pytest.skip(f"pids cannot be chosen here: {error}")
        with telling(log) as pid:
            if pid == known.pid:
                run = record("6" * 32, known)
                assert room.supervisor.adopt(run, None, {}) is Proof.GONE
                room.supervisor.stop(run.id, 0)
                room.turn_for(0.1)
                assert log.read_text() == ""
                return
    pytest.skip("somebody else was always faster to take the pid")


def test_an_identity_that_cannot_be_told_is_left_alone(room, stranger, monkeypatch):
    pid, log = stranger
    run = record("7" * 32, identify(pid, BOOT))

    def refuse(_):
        raise PermissionError

    monkeypatch.setattr("crtrd.supervision.identity.read_stat", refuse)
    assert room.supervisor.adopt(run, None, {}) is Proof.UNKNOWN
    room.supervisor.stop(run.id, 0)
    room.turn_for(0.1)
    assert log.read_text() == ""
    assert room.supervisor.live() == frozenset()


def test_a_kept_descriptor_of_somebody_else_is_not_believed(room, stranger):
    pid, log = stranger
    pidfd = os.pidfd_open(pid)
    run = record("8" * 32, Identity(BOOT, 2**22 + 5, 1))
    assert room.supervisor.adopt(run, None, {"pid": pidfd}) is Proof.GONE
    os.close(pidfd)
    assert log.read_text() == ""


def test_leftovers_in_a_cgroup(cgroups):
    room = Room(cgroups)
    plan = room.plan("sh", "-c", "setsid sleep 786 & setsid sleep 787 & sleep 0.1; echo ready; sleep 600")
    held = room.go(plan)
    room.until(lambda: room.output(plan.run_id) == b"ready\n")
    room.supervisor.close()
    pids = wait_for(lambda: len(found := cgroups.procs(held.cgroup)) == 4 and found)
    run = record(plan.run_id, held.identity, held.cgroup)
    room.supervisor.kill_leftovers(replace(run, id="9" * 32))  # another run's cgroup: nothing happens
    room.turn_for(0.05)
    assert len(cgroups.procs(held.cgroup)) == 4
    room.supervisor.kill_leftovers(run)
    room.until(lambda: not os.path.exists(cgroups.mount + held.cgroup))
    assert not any(is_alive(pid) for pid in pids)
    room.reactor.close()


def test_descriptors_are_handed_once_and_returned_once(room):
    told = []

    def keep(run_id, fds, kept):
        told.append(("handed", run_id, sorted(fds)))
        kept()

    room.supervisor.handed = keep
    room.supervisor.returned = lambda run_id: told.append(("returned", run_id))
    plan = room.plan("true")
    room.go(plan)
    room.until(lambda: room.event(plan.run_id, RunEnded))
    assert len(told) == 2, "not before it is durable"
    room.end(plan.run_id)
    spawner = room.supervisor._starts.spawner.name
    assert told == [
        ("handed", spawner, ["control", "pid"]),
        ("handed", plan.run_id, ["err", "out", "pid", "spe", "spo"]),
        ("returned", plan.run_id),
    ]
    room.supervisor.close()
    assert told[3:] == [("returned", spawner)]


def test_a_run_is_held_until_its_descriptors_are_kept(room):
    """Or until it is not wanted any more; a late word of the manager changes nothing then."""
    waiting = {}
    room.supervisor.handed = lambda name, fds, kept: waiting.update({name: kept})
    first, second, third = (room.plan("true") for _ in range(3))
    for plan in (first, second, third):
        room.supervisor.start(plan)
    room.until(lambda: {first.run_id, second.run_id, third.run_id} <= waiting.keys())
    room.turn_for(0.05)
    assert not room.events
    waiting[first.run_id]()
    room.until(lambda: room.event(first.run_id, RunHeld))
    room.supervisor.withhold(second.run_id)
    room.supervisor.stop(third.run_id, 0)
    room.until(lambda: room.event(third.run_id, LaunchFailed))
    room.until(lambda: second.run_id not in room.supervisor._children)
    for plan in (second, third):
        waiting[plan.run_id]()
    room.turn_for(0.05)
    assert [type(event) for event in room.events] == [RunHeld, LaunchFailed]


def test_many_short_runs_leave_no_zombie_and_the_time_out_neither(room):
    """C27 (a), (b)."""
    room.run("true")
    fds = open_fds()
    for _ in range(50):
        plans = [room.plan("true") for _ in range(10)]
        for plan in plans:
            room.supervisor.start(plan)
        for plan in plans:
            room.until(lambda plan=plan: room.event(plan.run_id, RunHeld))
            room.supervisor.release(plan.run_id)
        for plan in plans:
            assert isinstance(room.end(plan.run_id), RunEnded)
        room.events.clear()
    spawner = room.supervisor._starts.spawner.pid
    assert Path(f"/proc/{spawner}/task/{spawner}/children").read_text() == ""
    assert open_fds() == fds
    plan = room.plan("sleep", "600")
    pid = room.go(plan).identity.pid
    room.supervisor.stop(plan.run_id, 0)
    begun = time.monotonic()
    room.end(plan.run_id)
    assert time.monotonic() - begun < 1
    assert not os.path.exists(f"/proc/{pid}")
