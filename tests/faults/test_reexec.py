"""Re-execution in place: the same pid, the same children, the whole output, and every call answered."""

import contextlib
import hashlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from tests.faults.checker import MARK, marks, violations
from tests.instance import Instance

pytestmark = pytest.mark.process

LONG = "echo one; printf tw; sleep 2; echo o; echo err >&2; exit 3"
WHOLE = b"one\ntwo\n"


@pytest.fixture
def crtrd(tmp_path):
    with Instance(tmp_path / "home") as instance:
        instance.start()
        yield instance


def instances(crtrd):
    return crtrd.said().count("daemon.started")


def test_a_run_goes_on_with_its_output_and_status(crtrd):
    crtrd.ctl("arm", "long", "--on-failure", "continue", "--shell", LONG)
    crtrd.ctl("run", "long")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
    (pid,) = crtrd.rows("SELECT pid FROM runs")[0]
    crtrd.ctl("daemon-reexec")
    assert crtrd.daemon.poll() is None  # the same process
    assert instances(crtrd) == 2
    assert crtrd.rows("SELECT pid, phase FROM runs") == [(pid, "running")]
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'ended'"))
    row = crtrd.rows("SELECT exit_code, result, stdout_head, stdout_sha256, stderr_head FROM runs")
    assert row == [(3, "exit-code", WHOLE, hashlib.sha256(WHOLE).hexdigest(), b"err\n")]
    assert [line for line in crtrd.said().splitlines() if line.startswith("long stdout: ")] == [
        "long stdout: one", "long stdout: two"]
    assert crtrd.stop() == 0


def spawner_of(pid):
    """The process that forks the daemon's runs."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"spawner" in (folder / "cmdline").read_bytes():
                return int(folder.name)
    raise AssertionError("no spawner")


def test_a_run_that_ends_while_the_daemon_takes_leave_is_seen(crtrd):
    """Its status comes late, from a spawner that is slow to say it, when all else is ready for the next life."""
    crtrd.ctl("arm", "short", "--on-failure", "continue", "--shell", "echo out; sleep 1.5; exit 3")
    crtrd.ctl("run", "short")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as slow:
        slow.connect(str(crtrd.places.socket))
        slow.sendall(b"GET /v1/sta")  # holds the daemon back until its end
        spawner = spawner_of(crtrd.daemon.pid)
        leaving = threading.Thread(target=crtrd.ctl, args=("daemon-reexec",))
        leaving.start()
        try:
            crtrd.wait_for(lambda: "daemon.reexec" in crtrd.said())
            os.kill(spawner, signal.SIGSTOP)
            time.sleep(2)
        finally:
            slow.close()
            time.sleep(0.5)
            os.kill(spawner, signal.SIGCONT)
        leaving.join()
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'ended'"))
    assert crtrd.rows("SELECT result, exit_code, stdout_head FROM runs") == [("exit-code", 3, b"out\n")]
    assert instances(crtrd) == 2


def test_a_caller_who_waits_for_the_run_gets_its_status(crtrd):
    crtrd.ctl("arm", "long", "--on-failure", "continue", "--shell", LONG)
    done = []
    waiter = threading.Thread(target=lambda: done.append(crtrd.ctl("run", "long", "--wait", check=False).returncode))
    waiter.start()
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
    crtrd.ctl("daemon-reexec")
    waiter.join(20)
    assert done == [3]


def test_what_came_due_meanwhile_runs_and_nothing_runs_twice(crtrd, tmp_path):
    file = tmp_path / "marks"
    crtrd.ctl("arm", "mark", "--every", "1s", "--catch-up", "all", "--shell", MARK.format(file=file))
    for _ in range(4):
        before = len(marks(file))
        crtrd.ctl("daemon-reexec")
        crtrd.wait_for(lambda n=before: len(marks(file)) > n)
    assert crtrd.stop() == 0
    assert violations(crtrd, "mark", file, 1_000_000) == []


def test_the_trigger_socket_answers_every_request(crtrd):
    answers, failures, over = [], [], threading.Event()

    def ask():
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(20)
            connection.connect(str(crtrd.places.socket))
            connection.sendall(b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n")
            return int(connection.recv(65536).split()[1])

    def hammer():
        while not over.is_set():
            try:
                answers.append(ask())
            except (OSError, IndexError) as error:
                failures.append(error)

    client = threading.Thread(target=hammer)
    client.start()
    for _ in range(3):
        crtrd.ctl("daemon-reexec")
    over.set()
    client.join(30)
    assert failures == []
    assert len(answers) > 20
    assert set(answers) == {200}


def test_a_drain_goes_on_and_a_signal_is_not_lost(crtrd):
    crtrd.ctl("drain")
    crtrd.ctl("daemon-reexec")
    assert "draining" in crtrd.ctl("status").stdout
    crtrd.ctl("undrain")
    crtrd.ctl("arm", "long", "--", "sleep", "600")
    crtrd.ctl("run", "long")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
    before = instances(crtrd)
    reexec = threading.Thread(target=crtrd.ctl, args=("daemon-reexec",), kwargs={"check": False})
    reexec.start()
    crtrd.wait_for(lambda: crtrd.said().count("daemon.reexec:") == before)
    crtrd.daemon.send_signal(signal.SIGTERM)
    assert crtrd.daemon.wait(20) == 0
    reexec.join(40)
    assert crtrd.rows("SELECT result FROM runs") == [("interrupted",)]
