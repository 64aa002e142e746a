"""The daemon on a store that is locked, full, read-only or damaged (C50, C51): nothing unrecorded, nothing lost."""

import os
import signal
import sqlite3
import subprocess
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.faults.checker import MARK, marks, violations
from tests.faults.keeper import KeptInstance
from tests.instance import Instance

pytestmark = pytest.mark.process

SECOND = 1_000_000


def arm_marker(crtrd, file):
    crtrd.ctl("arm", "mark", "--every", "1s", "--catch-up", "all", "--on-failure", "continue",
              "--shell", MARK.format(file=file))


def begin_long(crtrd, file):
    """Marks by the second, and a run that ends with status 3 after two seconds."""
    arm_marker(crtrd, file)
    crtrd.ctl("arm", "long", "--on-failure", "continue", "--shell", "echo out; sleep 2; exit 3")
    crtrd.ctl("run", "long")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'running'"))


def comes_back_whole(crtrd, file):
    """The trouble is over: the end is written with its true times, instants are served, nothing is damaged."""
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'ended'"), 30)
    before = len(marks(file))
    crtrd.wait_for(lambda: len(marks(file)) >= before + 2)
    assert crtrd.stop() == 0
    assert violations(crtrd, "mark", file, SECOND) == []
    (code, head, took), = crtrd.rows(
        "SELECT exit_code, stdout_head, finished_at - started_at FROM runs WHERE cron_name = 'long'")
    assert (code, head, took // SECOND) == (3, b"out\n", 2)
    assert crtrd.rows("PRAGMA integrity_check") == [("ok",)]


def ticks(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@contextmanager
def locked(ledger):
    with closing(sqlite3.connect(ledger, timeout=20, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("COMMIT")


def test_c50_a_lock_of_a_few_seconds_only_adds_latency(tmp_path):
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_marker(crtrd, file)
        crtrd.wait_for(lambda: len(marks(file)) >= 1)
        with locked(crtrd.places.ledger):
            before = len(marks(file))
            time.sleep(3)
            assert len(marks(file)) <= before + 1
        crtrd.wait_for(lambda: len(marks(file)) >= before + 4)
        assert crtrd.stop() == 0
        assert "ledger.unavailable" not in crtrd.said()
        assert violations(crtrd, "mark", file, SECOND) == []


def test_c50_a_lock_that_lasts_is_told_once_and_what_ended_is_written_afterwards(tmp_path):
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_marker(crtrd, file)
        crtrd.ctl("arm", "long", "--on-failure", "continue", "--shell", "sleep 2; exit 3")
        crtrd.ctl("run", "long")
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'running'"))
        busy = ticks(crtrd.daemon.pid)
        with locked(crtrd.places.ledger):
            asked = time.monotonic()
            assert crtrd.ctl("list").returncode == 0
            assert time.monotonic() - asked < 2
            time.sleep(6)
            refused = crtrd.ctl("run", "long", check=False)
            assert refused.returncode == 1
            assert "ledger" in refused.stderr
        assert ticks(crtrd.daemon.pid) - busy < 200, "a hot loop"
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'ended'"))
        before = len(marks(file))
        crtrd.wait_for(lambda: len(marks(file)) >= before + 2)
        assert crtrd.stop() == 0
        assert crtrd.said().count("ledger.unavailable:") == 1
        assert crtrd.said().count("ledger.available:") == 1
        assert violations(crtrd, "mark", file, SECOND) == []
        (code, took), = crtrd.rows("SELECT exit_code, finished_at - started_at FROM runs WHERE cron_name = 'long'")
        assert (code, took // SECOND) == (3, 2)


def test_c50_a_long_reader_keeps_nobody_waiting(tmp_path):
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_marker(crtrd, file)
        with closing(sqlite3.connect(crtrd.places.ledger, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM runs").fetchone()
            before = len(marks(file))
            crtrd.wait_for(lambda: len(marks(file)) >= before + 4)
            log = crtrd.places.ledger.with_name("ledger.sqlite3-wal").stat().st_size
            assert log < 4 << 20
        assert crtrd.stop() == 0
        assert violations(crtrd, "mark", file, SECOND) == []


@contextmanager
def small_disk(folder, size="2m"):
    """A file system of its own for the state folder, where that can be had."""
    folder.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder], check=False,
                          capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no mounting here: {done.stderr}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(state):
    with (state / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(b"x" * 4096)
        except OSError:
            return


def lock_out(state):
    subprocess.run(["mount", "-o", "remount,ro", state], check=True)


def let_in(state):
    subprocess.run(["mount", "-o", "remount,rw", state], check=True)
    (state / "filler").unlink(missing_ok=True)


def test_c51_a_disk_that_takes_nothing(tmp_path):
    """Filled during a run, full at its end and before the next start; then freed."""
    file, state = tmp_path / "marks", tmp_path / "home" / "state"
    with small_disk(state), Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        begin_long(crtrd, file)
        fill(state)
        crtrd.wait_for(lambda: "ledger.unavailable:" in crtrd.said())
        busy = ticks(crtrd.daemon.pid)
        time.sleep(3)
        assert ticks(crtrd.daemon.pid) - busy < 100, "a hot loop"
        begun = {run for _, run, _ in marks(file)}  # some may: what is used anew of the log needs no room
        assert begun <= {row[0] for row in crtrd.rows("SELECT id FROM runs")}, "an unrecorded start"
        assert crtrd.ctl("list").returncode == 0
        let_in(state)
        comes_back_whole(crtrd, file)
        assert crtrd.said().count("ledger.unavailable:") <= 2
        assert crtrd.said().count("ledger.available:") == crtrd.said().count("ledger.unavailable:"), "each told once"


def test_c51_its_own_log_does_not_fill_a_disk_of_one_mebibyte(tmp_path):
    file, state = tmp_path / "marks", tmp_path / "home" / "state"
    with small_disk(state, "1m"), Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_marker(crtrd, file)
        for _ in range(12):
            crtrd.ctl("run", "mark", "--wait", "--overlap", "allow")
        assert "ledger.unavailable:" not in crtrd.said()
        assert crtrd.places.ledger.stat().st_size > 4096


@pytest.mark.parametrize("trouble", [fill, lock_out])
def test_c51_a_start_on_a_full_or_read_only_disk_waits_and_says_so_once(trouble, tmp_path):
    state = tmp_path / "home" / "state"
    with small_disk(state), Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--", "true")
        assert crtrd.stop() == 0
        trouble(state)
        crtrd.start(wait=False)
        crtrd.wait_for(lambda: "ledger.unavailable:" in crtrd.said())
        time.sleep(1)
        assert not crtrd.ended
        let_in(state)
        crtrd.wait_for(lambda: crtrd.ctl("list", check=False).returncode == 0, 30)
        assert "mark" in crtrd.ctl("list").stdout
        assert crtrd.said().count("ledger.unavailable:") == 1
        assert crtrd.stop() == 0


@contextmanager
def failing_writes(pid, ledger, calls, error):
    """The process's own writes to the ledger fail as on a disk that has gone bad or read-only under open files."""
    paths = [word for end in ("", "-wal") for word in ("-P", f"{ledger}{end}")]
    strace = subprocess.Popen(
        ["strace", "-f", "-p", str(pid), *paths, "-e", f"trace={calls}", "-e", f"inject={calls}:error={error}"],
        stderr=subprocess.PIPE, text=True)
    line = strace.stderr.readline()
    if "attached" not in line:
        strace.communicate()
        if os.geteuid() and "not permitted" in line:  # ptrace(2), "Ptrace access mode checking": Yama
            pytest.skip(f"this user may not trace: {line}")
        pytest.fail(f"strace cannot attach: {line}")
    try:
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate()


@pytest.mark.parametrize(("calls", "error"), [("pwrite64", "EROFS"), ("fdatasync,fsync", "EIO")])
def test_c51_a_disk_that_fails_or_turns_read_only_under_open_files(calls, error, tmp_path):
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        begin_long(crtrd, file)
        with failing_writes(crtrd.daemon.pid, crtrd.places.ledger, calls, error):
            crtrd.wait_for(lambda: "ledger.unavailable:" in crtrd.said())
            busy, made = ticks(crtrd.daemon.pid), len(marks(file))
            time.sleep(3)
            assert ticks(crtrd.daemon.pid) - busy < 100, "a hot loop"
            assert len(marks(file)) <= made + 1, "an unrecorded start"
            assert crtrd.ctl("list").returncode == 0
            assert crtrd.ctl("run", "long", check=False).returncode == 1
        comes_back_whole(crtrd, file)
        assert crtrd.said().count("ledger.unavailable:") == 1


def test_a_ledger_that_is_removed_under_a_running_daemon_comes_back_and_its_run_is_adopted(tmp_path):
    with KeptInstance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "long", "--on-failure", "continue", "--shell", "echo out; sleep 3; exit 3")
        crtrd.ctl("run", "long")
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'running'"))
        for each in crtrd.places.state.glob("ledger.sqlite3*"):
            each.unlink()
        refused = crtrd.ctl("pause", "long", check=False)
        assert refused.returncode != 0
        assert crtrd.daemon.wait(20) == 1
        assert "was removed while in use; what it held was put back" in crtrd.said()
        crtrd.start()
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE cron_name = 'long' AND phase = 'ended'"))
        assert crtrd.rows("SELECT result, exit_code, stdout_head FROM runs") == [("exit-code", 3, b"out\n")]
        assert crtrd.rows("SELECT state FROM crons") == [("active",)]
        assert crtrd.stop() == 0


def test_a_damaged_ledger_is_told_and_the_daemon_goes_on_with_a_new_one(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--", "true")
        assert crtrd.stop() == 0
        os.truncate(crtrd.places.ledger, 5000)
        crtrd.start()
        assert "ledger.damaged:" in crtrd.said()
        assert "mark" not in crtrd.ctl("list").stdout
        crtrd.ctl("arm", "mark", "--", "true")
        assert crtrd.stop() == 0
        assert len(list(crtrd.places.state.glob("ledger.sqlite3.damaged-*Z"))) == 1


def test_a_ledger_overwritten_under_a_running_daemon_is_told_by_the_next_one(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--every", "1s", "--", "true")
        with crtrd.places.ledger.open("r+b") as ledger:
            ledger.write(b"overwritten " * 4096)
        crtrd.kill()
        crtrd.start()
        assert "ledger.damaged:" in crtrd.said()
        assert crtrd.stop() == 0
