"""The child begins in its cgroup; where the kernel cannot do that, it moves there itself."""

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.supervision.conftest import wait_for

pytestmark = pytest.mark.process


@contextmanager
def traced(pid, log, *options):
    """strace(1) on the spawner and its children, attached on entry."""
    command = ["strace", "-f", "-qq", "-o", str(log), *options, "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as strace:
        wait_for(lambda: f"TracerPid:\t{strace.pid}\n" in Path(f"/proc/{pid}/status").read_text())
        yield
        strace.terminate()


def run_traced(contained, log, *options):
    contained.run("true")  # the spawner is there
    with traced(contained.supervisor._starts.spawner.pid, log, *options):
        held = contained.go(contained.plan("sleep", "600"))
        assert f"0::{held.cgroup}" in Path(f"/proc/{held.identity.pid}/cgroup").read_text().splitlines()
        os.kill(held.identity.pid, 9)
        contained.end(held.run_id)
    return log.read_text()


def test_no_process_is_moved(contained, tmp_path):
    log = run_traced(contained, tmp_path / "log", "-e", "trace=clone3,openat,?fork,clone")
    assert len(re.findall(r"clone3\(.*CLONE_INTO_CGROUP", log)) == 1
    assert "cgroup.procs" not in log


def test_without_the_system_call_the_child_moves_itself(contained, tmp_path):
    log = run_traced(
        contained, tmp_path / "log", "-e", "trace=clone3,openat", "-e", "inject=clone3:error=ENOSYS")
    assert "ENOSYS" in log
    assert "cgroup.procs" in log
