"""The numbered chain: backups, kills between statements, ledgers of a newer crtrd (C54)."""

import hashlib
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
from contextlib import closing

import pytest

from crtrd.core.effects import PutCron
from crtrd.errors import LedgerError
from crtrd.ledger import schema, store
from tests.ledger.conftest import Opened
from tests.ledger.test_rows import CRON

EXTRA = (
    "ALTER TABLE crons ADD COLUMN extra TEXT NOT NULL DEFAULT 'x'", "CREATE TABLE extra (a TEXT) STRICT",
    "INSERT INTO extra (a) VALUES ('1')",
)


def version(path):
    with closing(sqlite3.connect(path)) as base:
        return base.execute("PRAGMA user_version").fetchone()[0]


def tables(path):
    with closing(sqlite3.connect(path)) as base:
        return {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}


def test_the_chain_from_nothing(opened, tmp_path):
    store = opened()
    assert store.reached == list(range(1, len(schema.STEPS) + 1))
    assert version(store.store.path) == len(schema.STEPS)
    assert not list((tmp_path / "state").glob("*.bak*")), "there was nothing to keep"
    store.store.close()
    assert opened().reached == []


def test_the_chain_from_each_released_version(opened, tmp_path, monkeypatch):
    steps = schema.STEPS
    for start in range(1, len(steps)):
        path = tmp_path / f"from-{start}" / "ledger.sqlite3"
        monkeypatch.setattr(schema, "STEPS", steps[:start])
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as base:
            for step in steps[:start]:
                for statement in step:
                    base.execute(statement)
            base.execute(f"PRAGMA user_version = {start}")
            base.commit()
        monkeypatch.setattr(schema, "STEPS", steps)
        store = opened(path)
        assert store.reached == list(range(start + 1, len(steps) + 1))
        store.do(lambda session: session.put(PutCron(CRON)))
        assert store.do(lambda session: session.find_cron("job")) == CRON


LONG = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT max(i) FROM n"


def test_whoever_waits_for_a_long_step_is_called_meanwhile(tmp_path, monkeypatch):
    """So that the service manager does not take the start for hung (EXTEND_TIMEOUT_USEC)."""
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, (LONG,)))
    monkeypatch.setattr(store, "ALIVE", 0.02)
    calls, each = [], Opened(tmp_path / "ledger.sqlite3")
    reached = each.store.open(lambda: calls.append(threading.current_thread()))
    each.store.close()
    assert reached[-1] == len(schema.STEPS)
    assert calls
    assert set(calls) == {threading.main_thread()}


def test_a_ledger_that_could_not_be_opened_is_opened_later(opened, tmp_path):
    first, second = opened(), Opened(tmp_path / "state" / "ledger.sqlite3", owner="other")
    with pytest.raises(LedgerError):
        second.store.open()
    first.store.close()
    assert second.store.open() == []
    assert second.do(lambda session: session.recall("owner")) == "other"
    second.store.close()


def test_a_backup_is_made_before_each_step(opened, tmp_path, monkeypatch):
    store = opened()
    store.do(lambda session: session.put(PutCron(CRON)))
    store.store.close()
    now = len(schema.STEPS)
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, EXTRA, ("CREATE TABLE more (a TEXT) STRICT",)))
    assert opened().reached == [now + 1, now + 2]
    first, second = (tmp_path / "state" / f"ledger.sqlite3.v{number}.bak" for number in (now, now + 1))
    for path, number in ((first, now), (second, now + 1)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert version(path) == number
        with closing(sqlite3.connect(path)) as base:
            assert base.execute("SELECT name FROM crons").fetchall() == [("job",)]
    assert "extra" not in tables(first)
    assert "extra" in tables(second)
    assert not list((tmp_path / "state").glob("*.tmp"))


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from peewee import SqliteDatabase
    from crtrd.ledger import schema, store
    from tests.ledger.conftest import Opened
    from tests.ledger.test_schema import EXTRA
    schema.STEPS = (*schema.STEPS, EXTRA)
    real, left = SqliteDatabase.execute_sql, [int(sys.argv[2])]
    def counted(self, sql, *rest, **options):
        if sql in EXTRA or sql.startswith("PRAGMA user_version ="):
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
        return real(self, sql, *rest, **options)
    SqliteDatabase.execute_sql = counted
    Opened(Path(sys.argv[1])).store.open()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("done", range(len(EXTRA) + 2))
def test_c54_killed_between_each_pair_of_statements(opened, tmp_path, monkeypatch, done):
    store = opened()
    store.do(lambda session: session.put(PutCron(CRON)))
    store.store.close()
    now, path = len(schema.STEPS), store.store.path
    killed = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED), str(path), str(done)], check=False)
    assert killed.returncode == -signal.SIGKILL
    finished = done == len(EXTRA) + 1
    assert version(path) == now + finished
    assert ("extra" in tables(path)) is finished
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, EXTRA))
    again = opened()
    assert again.reached == ([] if finished else [now + 1])
    assert again.store.queries.integrity() == []
    with closing(sqlite3.connect(path)) as base:
        assert base.execute("SELECT a FROM extra").fetchall() == [("1",)]


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_c54_a_newer_ledger_is_refused_and_left_byte_for_byte(opened, journal):
    store = opened()
    store.do(lambda session: session.put(PutCron(CRON)))
    store.store.close()
    path, newer = store.store.path, len(schema.STEPS) + 1
    with closing(sqlite3.connect(path)) as base:
        base.execute(f"PRAGMA journal_mode = {journal}")
        base.execute(f"PRAGMA user_version = {newer}")
    before = hashlib.sha256(path.read_bytes()).digest()
    with pytest.raises(LedgerError, match=f"schema version {newer}, this crtrd knows up to {newer - 1}"):
        opened()
    assert hashlib.sha256(path.read_bytes()).digest() == before
    with pytest.raises(LedgerError, match="schema version"):
        opened()
