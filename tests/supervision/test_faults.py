"""Starts that fail: what is missing is named, a shortage of our own is told from a fault of the command (C38, C39)."""

import errno
import os
import resource
import signal

import pytest

from crtrd.core.events import LaunchFailed, RunEnded, RunHeld
from crtrd.supervision import starts

pytestmark = pytest.mark.process


def program(path, text, mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_each_errno_and_stage(room, tmp_path):
    no_start = program(tmp_path / "plain", "echo hi\n")
    lost = program(tmp_path / "lost", "#!/no/such/interp -x\necho hi\n")
    not_executable = program(tmp_path / "closed", "#!/etc/passwd\n")
    told = {
        ("/nonexistent",): ("command", errno.ENOENT),
        ("/etc/passwd",): ("command", errno.EACCES),
        ("/tmp",): ("command", errno.EACCES),
        ("/etc/passwd/x",): ("command", errno.ENOTDIR),
        (no_start,): ("command", errno.ENOEXEC),
        (lost,): ("interpreter", errno.ENOENT),
        (not_executable,): ("interpreter", errno.EACCES),
        (): ("command", errno.ENOENT),
        ("",): ("command", errno.ENOENT),
        ("no-such-command-at-all",): ("command", errno.ENOENT),
    }
    for argv, (stage, number) in told.items():
        failed = room.fail(*argv)
        assert (failed.stage, failed.errno, failed.shortage) == (stage, number, False), (argv, failed)
        assert failed.message.startswith("cannot start ")
    assert "/no/such/interp" in room.fail(lost).message


def test_path_search(room, tmp_path):
    closed, good = tmp_path / "closed", tmp_path / "good"
    closed.mkdir()
    good.mkdir()
    program(closed / "job", "#!/bin/sh\necho closed\n", 0o644)
    env = (("PATH", f"{closed}:/nonexistent:{good}"),)
    assert room.fail("job", env=env).errno == errno.EACCES
    program(good / "job", "#!/bin/sh\necho good\n")
    assert room.run("job", env=env).stdout.head == b"good\n"
    os.environ["PATH"], before = str(good), os.environ["PATH"]
    try:
        assert room.fail("job", env=(("PATH", "/usr/bin:/bin"),)).errno == errno.ENOENT  # the child's PATH counts
    finally:
        os.environ["PATH"] = before


def test_relative_command_is_below_the_folder(room, tmp_path):
    program(tmp_path / "job", "#!/bin/sh\necho here\n")
    assert room.run("./job", cwd=str(tmp_path)).stdout.head == b"here\n"


def test_cwd_that_is_gone(room, tmp_path):
    failed = room.fail("true", cwd=str(tmp_path / "gone"))
    assert (failed.stage, failed.errno) == ("cwd", errno.ENOENT)
    assert str(tmp_path / "gone") in failed.message


def test_a_command_removed_while_held(room, tmp_path):
    plan = room.plan(program(tmp_path / "job", "#!/bin/sh\n"))
    room.hold(plan)
    (tmp_path / "job").unlink()
    room.supervisor.release(plan.run_id)
    failed = room.end(plan.run_id)
    assert isinstance(failed, LaunchFailed)
    assert (failed.stage, failed.errno) == ("command", errno.ENOENT)


@pytest.mark.parametrize("code", [126, 127])
def test_a_program_that_exits_126_or_127_was_executed(room, code):
    assert room.run("sh", "-c", f"exit {code}").exit_code == code


def test_descriptors_run_out_and_come_back(room):
    """C38 (a): each affected start is our shortage; nothing leaks; all recovers without a restart."""
    room.run("true")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    fds = len(os.listdir("/proc/self/fd"))
    top = max(map(int, os.listdir("/proc/self/fd")))
    filling = [os.open(os.devnull, os.O_RDONLY)]
    while filling[-1] < top:
        filling.append(os.open(os.devnull, os.O_RDONLY))
    shortages = []
    try:
        for room_left in range(16):
            resource.setrlimit(resource.RLIMIT_NOFILE, (filling[-1] + 1 + room_left, hard))
            plan = room.plan("true")
            if isinstance(room.hold(plan), RunHeld):
                room.supervisor.release(plan.run_id)
            shortages.append(room.end(plan.run_id))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in filling:
            os.close(fd)
    failed = [event for event in shortages if isinstance(event, LaunchFailed)]
    assert len(failed) > 4
    assert all(event.shortage and event.errno == errno.EMFILE for event in failed), failed
    assert any(isinstance(event, RunEnded) for event in shortages)
    room.until(lambda: not room.supervisor._children)
    assert len(os.listdir("/proc/self/fd")) == fds
    assert room.run("true").exit_code == 0


def test_a_fork_that_fails_is_our_shortage(room):
    room.run("true")
    spawner = room.supervisor._starts.spawner.pid
    before = resource.prlimit(spawner, resource.RLIMIT_NPROC)
    if os.geteuid() == 0:
        pytest.skip("RLIMIT_NPROC does not bind root; the pids controller is tested on the machine")
    resource.prlimit(spawner, resource.RLIMIT_NPROC, (0, before[1]))
    failed = room.fail("true")
    assert (failed.stage, failed.errno, failed.shortage) == ("fork", errno.EAGAIN, True)
    resource.prlimit(spawner, resource.RLIMIT_NPROC, before)
    assert room.run("true").exit_code == 0


def test_a_dead_spawner_is_our_shortage_and_replaced(room):
    running = room.plan("sh", "-c", "sleep 0.3; exit 4")
    room.go(running)
    spawner = room.supervisor._starts.spawner.pid
    os.kill(spawner, signal.SIGSTOP)
    asked = room.plan("true")
    room.supervisor.start(asked)
    room.reactor.turn(0)
    os.kill(spawner, signal.SIGKILL)
    failed = room.end(asked.run_id)
    assert isinstance(failed, LaunchFailed)
    assert failed.shortage
    assert room.run("true").exit_code == 0
    ending = room.end(running.run_id).ending  # its parent is gone: told by the pidfd where the kernel can
    assert ending.exit_code in {4, None}
    assert ending.signal is None


def test_a_hanging_spawner_is_given_up(room, monkeypatch):
    monkeypatch.setattr(starts, "HELD_WITHIN", 200_000)
    room.run("true")
    spawner = room.supervisor._starts.spawner.pid
    os.kill(spawner, signal.SIGSTOP)
    failed = room.fail("true")
    assert (failed.stage, failed.errno, failed.shortage) == ("fork", errno.ETIMEDOUT, True)
    assert room.run("true").exit_code == 0
    assert room.supervisor._starts.spawner.pid != spawner
    room.until(lambda: not room.supervisor._starts.retired and not room.supervisor._starts.leaving)
