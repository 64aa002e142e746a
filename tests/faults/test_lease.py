"""Two lives and one ledger (C62): the second is refused; a paused owner that wakes up superseded does nothing."""

import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest

from tests.faults.checker import MARK, marks
from tests.instance import Instance

pytestmark = pytest.mark.process


def freeze(crtrd):
    """Stop the daemon where it is not in the middle of a transaction, which would keep everybody else out."""
    while True:
        crtrd.daemon.send_signal(signal.SIGSTOP)
        with closing(sqlite3.connect(crtrd.places.ledger, timeout=0.2, isolation_level=None)) as other:
            try:
                other.executescript("BEGIN IMMEDIATE; COMMIT;")
            except sqlite3.OperationalError:
                crtrd.daemon.send_signal(signal.SIGCONT)
            else:
                return


def claim(ledger):
    """What the first transaction of another life writes."""
    with closing(sqlite3.connect(ledger, timeout=5, isolation_level=None)) as other:
        other.executescript("""
            BEGIN IMMEDIATE;
            UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'fence';
            INSERT INTO meta (key, value) VALUES ('owner', 'other')
                ON CONFLICT (key) DO UPDATE SET value = excluded.value;
            UPDATE leases SET owner = 'other';
            COMMIT;""")


def steal_a_lease(ledger):
    with closing(sqlite3.connect(ledger, timeout=5, isolation_level=None)) as other:
        other.execute("UPDATE leases SET owner = 'other'")


def turn_back(ledger):
    with closing(sqlite3.connect(ledger, timeout=5, isolation_level=None)) as other:
        other.execute("UPDATE meta SET value = '0' WHERE key = 'fence'")


@pytest.mark.parametrize("deed", [claim, steal_a_lease, turn_back])
def test_a_paused_owner_that_wakes_superseded_does_nothing(deed, tmp_path):
    file, signals = tmp_path / "marks", tmp_path / "signals"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--every", "1s", "--shell", MARK.format(file=file))
        crtrd.ctl("arm", "brief", "--shell", "sleep 4")
        crtrd.ctl("arm", "long", "--timeout", "5s", "--shell",
                  f"trap 'echo TERM >> {signals}' TERM CONT; echo up >> {signals}; while :; do sleep 0.1; done")
        crtrd.wait_for(lambda: marks(file))
        crtrd.ctl("run", "brief")
        crtrd.ctl("run", "long")
        crtrd.wait_for(signals.exists)
        freeze(crtrd)
        deed(crtrd.places.ledger)
        (pid,) = [row[0] for row in crtrd.rows("SELECT pid FROM runs WHERE cron_name = 'long'")]
        state = "SELECT * FROM occurrences ORDER BY serial", "SELECT * FROM runs ORDER BY serial"
        before = [crtrd.rows(sql) for sql in state]
        crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 WHERE unixepoch('now', 'subsec') * 1000000 < (SELECT max("
                                              "started_at) + 5500000 FROM runs)"))  # past timeout and next instant
        made = len(marks(file))
        crtrd.daemon.send_signal(signal.SIGCONT)
        assert crtrd.daemon.wait(10) == 1
        assert "daemon.lease.lost" in crtrd.said()
        assert "ledger.unavailable" not in crtrd.said()
        assert [crtrd.rows(sql) for sql in state] == before
        assert len(marks(file)) == made
        assert signals.read_text() == "up\n"
        assert subprocess.run(["kill", "-0", str(pid)], check=False).returncode == 0


def test_a_kill_that_was_due_while_it_was_paused_is_not_sent(tmp_path):
    """The stop was decided by a life that still had its claim; the SIGKILL after the grace would come from one that has
    not."""
    up = tmp_path / "up"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "deaf", "--timeout", "1s", "--grace", "2s", "--shell",
                  f"trap 'echo TERM >> {up}' TERM; echo up >> {up}; while :; do sleep 0.1; done")
        crtrd.ctl("run", "deaf")
        crtrd.wait_for(lambda: up.exists() and "TERM" in up.read_text())
        freeze(crtrd)
        claim(crtrd.places.ledger)
        time.sleep(2.5)
        crtrd.daemon.send_signal(signal.SIGCONT)
        assert crtrd.daemon.wait(10) == 1
        (pid,) = crtrd.rows("SELECT pid FROM runs")[0]
        assert subprocess.run(["kill", "-0", str(pid)], check=False).returncode == 0


def test_the_next_life_takes_over_what_the_lost_one_left(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "long", "--shell", "sleep 3")
        crtrd.ctl("run", "long")
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
        freeze(crtrd)
        claim(crtrd.places.ledger)
        crtrd.daemon.send_signal(signal.SIGCONT)
        crtrd.wait_for(lambda: crtrd.ended)
        crtrd.start()
        crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"))
        assert len(crtrd.rows("SELECT 1 FROM runs")) == 1
        assert crtrd.stop() == 0


def test_a_lease_is_renewed_for_as_long_as_the_run_lives(tmp_path):
    """A run that outlives its lease many times keeps it, and with it its fence."""
    with Instance(tmp_path / "home", 'clock = "internal"\nlease_ttl = "1s"\n') as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "long", "--shell", "echo $CRTR_FENCE; sleep 3")
        crtrd.ctl("run", "long")
        ends = set()
        crtrd.wait_for(lambda: ends.update(crtrd.rows("SELECT until FROM leases")) or len(ends) > 3)
        (fence,) = crtrd.rows("SELECT fence FROM leases")[0]
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'ended'"))
        head, result = crtrd.rows("SELECT stdout_head, result FROM runs")[0]
        assert (int(head), result) == (fence, "success")
        crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM leases"))


def test_a_second_daemon_is_refused_and_the_first_goes_on(tmp_path):
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--every", "1s", "--shell", MARK.format(file=file))
        second = subprocess.run([sys.executable, "-m", "crtrd"], env=crtrd.env, cwd="/", capture_output=True, text=True,
                                timeout=20, check=False)
        assert second.returncode == 78
        assert "another crtrd has it open" in second.stderr
        before = len(marks(file))
        crtrd.wait_for(lambda: len(marks(file)) >= before + 2)
        assert crtrd.ctl("list").returncode == 0
        assert crtrd.stop() == 0
        assert len(crtrd.rows("SELECT 1 FROM runs")) == len(marks(file)) == len(set(marks(file)))
