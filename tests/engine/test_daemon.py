"""The whole daemon from outside: settings, signals, refusals at start. No systemd; see tests/machine for that."""

import hashlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.instance import Instance
from tests.proc import switches

pytestmark = pytest.mark.process


@pytest.fixture
def crtrd(tmp_path):
    with Instance(tmp_path / "home") as instance:
        yield instance


def settings(crtrd, text):
    (crtrd.places.config / "crtrd.toml").write_text(text)


def marks(file):
    return file.read_text().split() if file.exists() else []


def test_an_external_clock_serves_requests_only(crtrd, tmp_path):
    settings(crtrd, 'clock = "external"\n')
    file = tmp_path / "marks"
    crtrd.start()
    crtrd.ctl("arm", "tick", "--every", "1s", "--shell", f"echo $CRTR_TRIGGER >> {file}")
    crtrd.ctl("run", "tick", "--wait")
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        assert marks(file) == ["manual"]
        time.sleep(0.2)


def test_a_bad_file_is_refused_whole_and_the_old_settings_stay(crtrd):
    crtrd.start()
    settings(crtrd, 'clock = "internal"\nmax_runs_at_once = 0\n')
    done = crtrd.ctl("daemon-reload", check=False)
    assert done.returncode == 1
    assert "max_runs_at_once" in done.stderr
    crtrd.daemon.send_signal(signal.SIGHUP)
    crtrd.wait_for(lambda: crtrd.said().count("config.rejected") >= 2)
    crtrd.ctl("arm", "still", "--", "true")
    assert crtrd.ctl("run", "still", "--wait").returncode == 0
    settings(crtrd, 'clock = "internal"\n')
    crtrd.ctl("daemon-reload")
    crtrd.wait_for(lambda: "config.reloaded" in crtrd.said())


def test_a_bad_file_at_start_does_not_stop_the_crons(crtrd):
    settings(crtrd, "clock = 'internal'\nnonsense = 1\n")
    crtrd.start()
    assert "nonsense" in crtrd.said()
    assert crtrd.ctl("list").returncode == 0


def test_a_broken_drop_in_leaves_the_rest_in_force(crtrd):
    crtrd.start()
    crtrd.stop()
    drop_in = crtrd.places.config / "crtrd.toml.d" / "x.toml"
    drop_in.parent.mkdir()
    drop_in.write_text("idle_grac = 3\n")
    crtrd.start()
    assert "idle_grac" in crtrd.said()
    assert "started, clock internal" in crtrd.said().rpartition("idle_grac")[2]
    crtrd.stop()
    drop_in.unlink()
    settings(crtrd, "broken")
    crtrd.start()
    assert crtrd.said().splitlines()[-1].endswith("started, clock internal")


def test_drained_it_starts_nothing_and_loses_nothing(crtrd, tmp_path):
    file = tmp_path / "marks"
    crtrd.start()
    crtrd.ctl("arm", "tick", "--every", "1s", "--shell", f"echo x >> {file}")
    crtrd.ctl("drain")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM occurrences WHERE status = 'pending'"))
    before = len(marks(file))
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert len(marks(file)) == before
        time.sleep(0.2)
    crtrd.ctl("undrain")
    crtrd.wait_for(lambda: len(marks(file)) > before)


def test_a_second_daemon_on_the_same_store_is_refused(crtrd):
    crtrd.start()
    second = subprocess.run([sys.executable, "-m", "crtrd"], env=crtrd.env, capture_output=True, text=True, timeout=30,
                            check=False)
    assert second.returncode == 78
    assert "another crtrd has it open" in second.stderr
    assert crtrd.ctl("list").returncode == 0


def test_a_newer_ledger_is_refused_and_left_as_it_is(crtrd):
    crtrd.start()
    assert crtrd.stop() == 0
    with closing(sqlite3.connect(crtrd.places.ledger)) as ledger:
        ledger.execute("PRAGMA user_version = 99")
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = hashlib.sha256(crtrd.places.ledger.read_bytes()).hexdigest()
    crtrd.start(wait=False)
    assert crtrd.daemon.wait(20) == 78
    assert "schema version 99" in crtrd.said()
    assert hashlib.sha256(crtrd.places.ledger.read_bytes()).hexdigest() == before


def test_the_socket_answers_status(crtrd):
    crtrd.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(crtrd.places.socket))
        client.sendall(b"GET /v1/status HTTP/1.1\r\nHost: crtrd\r\n\r\n")
        reply = b""
        while part := client.recv(65536):
            reply += part
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["state"] == "running"


def test_files_and_folders_are_private(crtrd):
    before = os.umask(0)
    try:
        crtrd.start()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in crtrd.places.state.iterdir() if path.is_file()}
    assert set(modes.values()) == {0o600}
    assert crtrd.places.state.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_interrupts_runs_and_settles_them(number, crtrd):
    crtrd.start()
    crtrd.ctl("arm", "long", "--", "sleep", "300")
    crtrd.ctl("run", "long")
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
    crtrd.daemon.send_signal(number)
    assert crtrd.daemon.wait(20) == 0
    assert crtrd.rows("SELECT status, reason FROM occurrences") == [("canceled", "interrupted")]
    assert crtrd.rows("SELECT result, signal FROM runs") == [("interrupted", 15)]
    assert crtrd.rows("SELECT count(*) FROM leases") == [(0,)]


def test_nothing_due_nothing_wakes(crtrd):
    """Resident with crons far ahead: the loop sleeps (PERFORMANCE P9). Counted, not timed."""
    crtrd.start()
    crtrd.ctl("arm", "far", "--every", "10h", "--", "true")
    time.sleep(1)
    before = switches(crtrd.daemon.pid)
    time.sleep(5)
    assert switches(crtrd.daemon.pid) - before <= 10  # retention's first step may fall into it; polling would not fit


def ask_socket(crtrd, request):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(crtrd.places.socket))
        client.sendall(request)
        reply = b""
        while part := client.recv(65536):
            reply += part
    return reply


@pytest.mark.parametrize("request_line", [
    b"GET /v1/crons?limit=" + b"9" * 5000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    b"HEAD /v1/status HTTP/1.1\r\nHost: x\r\n\r\n",
])
def test_odd_requests_get_an_answer_and_the_daemon_lives(request_line, crtrd):
    crtrd.start()
    assert ask_socket(crtrd, request_line).startswith(b"HTTP/1.1 4")
    assert not crtrd.ended


@pytest.mark.parametrize("closed", [(2,), (0, 2), (0, 1, 2)])
def test_closed_standard_descriptors(closed, tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        shut = " ".join(f"{fd}{'<' if fd == 0 else '>'}&-" for fd in closed)
        crtrd.daemon = subprocess.Popen(["sh", "-c", f"exec {sys.executable} -m crtrd {shut}"], env=crtrd.env, cwd="/")
        crtrd.wait_for(lambda: crtrd.ctl("list", check=False).returncode == 0)
        crtrd.ctl("arm", "one", "--shell", "echo out; echo err >&2; ls /proc/self/fd | wc -l")
        assert crtrd.ctl("run", "one", "--wait").stdout == "out\n4\n"


def test_a_home_with_an_odd_name(tmp_path):
    with Instance(tmp_path / "a b,c;%41é") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "one", "--", "true")
        assert crtrd.ctl("run", "one", "--wait").returncode == 0


@pytest.mark.parametrize("number", ["1e308", "-1e308", "inf", "nan"])
def test_an_absurd_span_in_the_settings_is_refused(number, crtrd):
    settings(crtrd, f'clock = "internal"\nidle_grace = {number}\n')
    crtrd.start()
    assert "idle_grace" in crtrd.said()


def test_a_ledger_of_no_version_is_refused(crtrd):
    crtrd.start()
    crtrd.stop()
    with closing(sqlite3.connect(crtrd.places.ledger)) as ledger:
        ledger.execute("PRAGMA user_version = -5")
    crtrd.start(wait=False)
    assert crtrd.daemon.wait(20) == 78


def test_a_full_disk_is_to_be_seen(crtrd):
    """Whoever looks is told that the ledger cannot be written, and when it can again."""
    crtrd.start()
    with closing(sqlite3.connect(crtrd.places.ledger, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        crtrd.ctl("arm", "never", "--", "true", check=False)
        crtrd.wait_for(lambda: "degraded" in crtrd.ctl("status").stdout)
        assert "locked" in crtrd.ctl("status").stdout
        other.execute("ROLLBACK")
    crtrd.wait_for(lambda: "degraded" not in crtrd.ctl("status").stdout)


@pytest.mark.parametrize("keys", [
    'command = ["env"]\nenv = { V = "a\\u0000b" }', 'command = ["a\\u0000b"]', 'command = ["a"]\nstdin = "\\u0000"',
    'command = ["a"]\n[cron.env]\n"A\\u0000" = "b"',
])
def test_a_nul_is_refused_by_name(keys, crtrd, tmp_path):
    crtrd.start()
    (tmp_path / "nul.toml").write_text(f"[cron]\n{keys}\n")
    done = crtrd.ctl("arm", "--file", str(tmp_path / "nul.toml"), check=False)
    assert (done.returncode, "NUL" in done.stderr) == (1, True), done
    assert crtrd.json("list") == []
