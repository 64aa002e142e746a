"""Which process is it: ticks and boot id, not wall time; and "cannot tell" is not "gone" (C28, C29)."""

import os
import subprocess
from dataclasses import replace

import psutil
import pytest

from crtrd.core.occurrence import Identity
from crtrd.loop.clock import Clock
from crtrd.supervision import identity as identity_module
from crtrd.supervision.identity import Proof, identify, prove, read_stat
from tests.supervision.conftest import wait_for

pytestmark = pytest.mark.process

BOOT = Clock().boot_id()


@pytest.fixture
def sleeper():
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_alive(sleeper):
    assert prove(identify(sleeper.pid, BOOT), BOOT) is Proof.ALIVE


def test_another_boot_is_gone(sleeper):
    assert prove(identify(sleeper.pid, "0" * 32), BOOT) is Proof.GONE


def test_other_ticks_are_another_process(sleeper):
    known = identify(sleeper.pid, BOOT)
    assert prove(replace(known, start_ticks=known.start_ticks - 1), BOOT) is Proof.GONE


def test_zombie_and_reaped_are_gone(sleeper):
    known = identify(sleeper.pid, BOOT)
    sleeper.kill()
    wait_for(lambda: read_stat(known.pid).state == "Z")
    assert prove(known, BOOT) is Proof.GONE
    sleeper.wait()
    assert prove(known, BOOT) is Proof.GONE


def test_psutil_sees_the_same_start(sleeper):
    """The cross-check of the reading itself: seconds since boot, whatever the wall clock has done since."""
    known = identify(sleeper.pid, BOOT)
    age = known.start_ticks / os.sysconf("SC_CLK_TCK")
    assert abs(psutil.Process(sleeper.pid).create_time() - psutil.boot_time() - age) < 2


def test_a_clock_step_changes_nothing(sleeper, monkeypatch):
    known = identify(sleeper.pid, BOOT)
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 180.0)
    assert prove(known, BOOT) is Proof.ALIVE


def test_hidden_is_unknown(monkeypatch):
    """hidepid=2: /proc shows nothing, and yet the process is there."""
    def nothing(pid):
        raise FileNotFoundError(pid)

    monkeypatch.setattr(identity_module, "read_stat", nothing)
    assert prove(Identity(BOOT, 1, 1), BOOT) is Proof.UNKNOWN
    assert prove(Identity(BOOT, 2**22 + 1, 1), BOOT) is Proof.GONE


def test_unreadable_is_unknown(sleeper, monkeypatch):
    known = identify(sleeper.pid, BOOT)

    def refuse(pid):
        raise PermissionError(pid)

    monkeypatch.setattr(identity_module, "read_stat", refuse)
    assert prove(known, BOOT) is Proof.UNKNOWN


def test_a_contradiction_is_unknown(sleeper, monkeypatch):
    known = identify(sleeper.pid, BOOT)
    monkeypatch.setattr(psutil.Process, "status", lambda _: psutil.STATUS_ZOMBIE)
    assert prove(known, BOOT) is Proof.UNKNOWN


def test_a_name_with_brackets_and_newlines(tmp_path):
    program = tmp_path / "a) R 1 (\nb"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "600"]) as process:
        try:
            stat = wait_for(lambda: (found := read_stat(process.pid)).name.startswith("a)") and found)
        finally:
            process.kill()
    assert stat.parent == os.getpid()
    assert stat.name == "a) R 1 (\nb"
