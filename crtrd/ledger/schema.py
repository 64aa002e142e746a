"""The numbered chain of schema steps, and how a ledger file is brought to the newest one.

Each step runs in one transaction together with the new `user_version`, so a kill leaves the old version or the new
one. A copy of the file (mode 0600) is made before each step of a ledger that already holds something. A ledger of a
newer crtrd is refused and not touched.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from peewee import SqliteDatabase

from crtrd.errors import LedgerRefused
from crtrd.ledger.damage import beside

STEP_1 = (
    """CREATE TABLE crons (
        id TEXT PRIMARY KEY NOT NULL, name TEXT UNIQUE NOT NULL, definition TEXT NOT NULL, state TEXT NOT NULL,
        paused_by TEXT NOT NULL, note TEXT NOT NULL, owner INTEGER NOT NULL, created_at INTEGER NOT NULL,
        changed_at INTEGER NOT NULL, anchor INTEGER NOT NULL, considered INTEGER NOT NULL, next_at INTEGER,
        after_end_at INTEGER, failures INTEGER NOT NULL, runs_counted INTEGER NOT NULL, last_boot TEXT NOT NULL,
        skip_next TEXT NOT NULL, overlap TEXT NOT NULL, pool TEXT NOT NULL, serial INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX crons_next ON crons (next_at) WHERE state = 'active' AND next_at IS NOT NULL",
    "CREATE UNIQUE INDEX crons_serial ON crons (serial)",
    """CREATE TABLE occurrences (
        serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, cron_id TEXT NOT NULL,
        cron_name TEXT NOT NULL, origin TEXT NOT NULL, instant INTEGER NOT NULL, key TEXT NOT NULL,
        status TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL, label TEXT NOT NULL, target TEXT NOT NULL,
        overlap TEXT NOT NULL, created_at INTEGER NOT NULL, due_at INTEGER NOT NULL, settled_at INTEGER,
        covers INTEGER NOT NULL, fence INTEGER NOT NULL, UNIQUE (cron_id, origin, instant, key)
    ) STRICT""",
    "CREATE INDEX occurrences_open ON occurrences (status, due_at) WHERE settled_at IS NULL",
    "CREATE INDEX occurrences_open_cron ON occurrences (cron_id, serial) WHERE settled_at IS NULL",
    "CREATE INDEX occurrences_cron ON occurrences (cron_id, serial)",
    """CREATE TRIGGER occurrences_settled_is_final BEFORE UPDATE OF status ON occurrences
        WHEN OLD.settled_at IS NOT NULL
        BEGIN SELECT RAISE(ABORT, 'a settled occurrence never moves'); END""",
    """CREATE TABLE cells (
        occurrence_id TEXT NOT NULL, target TEXT NOT NULL, status TEXT NOT NULL, attempts INTEGER NOT NULL,
        shortages INTEGER NOT NULL, due_at INTEGER NOT NULL, PRIMARY KEY (occurrence_id, target)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE runs (
        serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, occurrence_id TEXT NOT NULL,
        cron_id TEXT NOT NULL, cron_name TEXT NOT NULL, target TEXT NOT NULL, attempt INTEGER NOT NULL,
        trigger TEXT NOT NULL, scheduled_at INTEGER NOT NULL, phase TEXT NOT NULL, out_of_band INTEGER NOT NULL,
        fence INTEGER NOT NULL, created_at INTEGER NOT NULL, boot_id TEXT, pid INTEGER, start_ticks INTEGER,
        cgroup TEXT NOT NULL, started_at INTEGER, finished_at INTEGER, duration INTEGER, stopping TEXT NOT NULL,
        result TEXT, reason TEXT NOT NULL, exit_code INTEGER, signal INTEGER, stdout_head BLOB NOT NULL,
        stdout_total INTEGER NOT NULL, stdout_sha256 TEXT NOT NULL, stderr_head BLOB NOT NULL,
        stderr_total INTEGER NOT NULL, stderr_sha256 TEXT NOT NULL, survivors TEXT NOT NULL, delivered TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX runs_live ON runs (occurrence_id) WHERE phase <> 'ended'",
    "CREATE INDEX runs_occurrence ON runs (occurrence_id)",
    "CREATE INDEX runs_cron ON runs (cron_id, serial)",
    """CREATE TABLE leases (
        occurrence_id TEXT PRIMARY KEY NOT NULL, owner TEXT NOT NULL, boot_id TEXT NOT NULL, until INTEGER NOT NULL,
        fence INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
    "INSERT INTO meta (key, value) VALUES ('fence', '0')",
)

STEP_2 = ("ALTER TABLE cells ADD COLUMN excused INTEGER NOT NULL DEFAULT 0",)

STEP_3 = (
    "ALTER TABLE crons ADD COLUMN account TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE departed (
        id TEXT PRIMARY KEY NOT NULL, cron TEXT NOT NULL, delivers TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

STEP_4 = (
    "ALTER TABLE crons ADD COLUMN failing_since INTEGER",
    "ALTER TABLE crons ADD COLUMN failing_count INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE occurrences ADD COLUMN alert_at INTEGER",
    "CREATE INDEX occurrences_alert ON occurrences (alert_at) WHERE settled_at IS NULL AND alert_at IS NOT NULL",
    "ALTER TABLE runs ADD COLUMN stdout_masked TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE outbox (
        serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, cron_id TEXT NOT NULL,
        cron_name TEXT NOT NULL, owner INTEGER NOT NULL, occurrence_id TEXT NOT NULL, run_id TEXT NOT NULL,
        target TEXT NOT NULL, kind TEXT NOT NULL, sink TEXT NOT NULL, queue TEXT NOT NULL, message BLOB NOT NULL,
        created_at INTEGER NOT NULL, next_attempt_at INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL,
        last_error TEXT NOT NULL, settled_at INTEGER, sha256 TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX outbox_pending ON outbox (queue, next_attempt_at) WHERE state = 'pending'",
    "CREATE INDEX outbox_sending ON outbox (queue) WHERE state = 'sending'",
    "CREATE INDEX outbox_telling ON outbox (cron_id, sink, serial) WHERE settled_at IS NULL",
    "CREATE INDEX outbox_settled ON outbox (settled_at) WHERE settled_at IS NOT NULL",
    "CREATE INDEX outbox_cron ON outbox (cron_id, serial)",
    """CREATE TABLE queues (
        name TEXT PRIMARY KEY NOT NULL, until INTEGER NOT NULL, failures INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE escalations (
        serial INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, cron_id TEXT NOT NULL,
        cron_name TEXT NOT NULL, owner INTEGER NOT NULL, occurrence_id TEXT NOT NULL, at INTEGER NOT NULL,
        summary TEXT NOT NULL, brief TEXT NOT NULL, state TEXT NOT NULL, error TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE trigger_keys (
        cron_id TEXT NOT NULL, key TEXT NOT NULL, arguments TEXT NOT NULL, occurrence_id TEXT NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (cron_id, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX trigger_keys_at ON trigger_keys (at)",
    """CREATE TABLE told (
        cron_id TEXT NOT NULL, target TEXT NOT NULL, sink TEXT NOT NULL, sha256 TEXT NOT NULL, head BLOB NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (cron_id, target, sink)
    ) STRICT, WITHOUT ROWID""",
)

STEP_5 = ("ALTER TABLE crons ADD COLUMN source TEXT NOT NULL DEFAULT ''",)

STEP_6 = ("ALTER TABLE cells ADD COLUMN place INTEGER NOT NULL DEFAULT 0",)

STEP_7 = (
    "ALTER TABLE escalations ADD COLUMN look_at INTEGER",
    "ALTER TABLE escalations ADD COLUMN boot_id TEXT NOT NULL DEFAULT ''",
    "CREATE INDEX escalations_look ON escalations (look_at) WHERE look_at IS NOT NULL",
    "CREATE INDEX escalations_open ON escalations (serial) WHERE state = 'open'",
)

STEP_8 = (
    """CREATE TABLE former (
        id TEXT PRIMARY KEY NOT NULL, name TEXT NOT NULL, owner INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX former_owner ON former (owner)",
)

RAN = "'success', 'partial', 'failed', 'unobserved', 'canceled', 'abandoned'"
"""How an occurrence ends that was not refused from the first. Part of an index: a query must spell it alike."""

STEP_9 = (f"CREATE INDEX occurrences_ran ON occurrences (cron_id, serial) WHERE status IN ({RAN})",)

BOOTED = "state = 'active' AND instr(lower(definition), '@reboot') > 0"
"""Crons that may have `@reboot` in their schedule. Part of an index too."""

STEP_10 = (
    "CREATE INDEX crons_resting ON crons (state) WHERE state <> 'active'",
    f"CREATE INDEX crons_booted ON crons (serial) WHERE {BOOTED}",
    "CREATE INDEX crons_unplanned ON crons (serial) WHERE state = 'active' AND next_at IS NULL",
    "CREATE INDEX crons_after_end ON crons (serial) WHERE after_end_at IS NOT NULL",
    "CREATE INDEX crons_considered ON crons (considered)",
)
"""What is asked at each start, and for each property of the manager: without looking through all crons."""

STEP_11 = ("ALTER TABLE crons ADD COLUMN decided INTEGER NOT NULL DEFAULT 0",)

STEPS: tuple[tuple[str, ...], ...] = (
    STEP_1, STEP_2, STEP_3, STEP_4, STEP_5, STEP_6, STEP_7, STEP_8, STEP_9, STEP_10, STEP_11)
"""Step N brings a ledger from version N-1 to N. Steps that have been released are never edited."""


def migrate(database: SqliteDatabase, path: Path) -> list[int]:
    """Bring an open ledger to the newest version; returns the versions reached."""
    found = version(database)
    reached = []
    for number in range(found + 1, len(STEPS) + 1):
        if found:
            back_up(path, number - 1)
        with database.atomic("IMMEDIATE"):
            if version(database) >= number:
                continue
            for statement in STEPS[number - 1]:
                database.execute_sql(statement)
            database.execute_sql(f"PRAGMA user_version = {number}")
        reached.append(number)
    return reached


def refuse_newer(path: Path) -> None:
    """Raise LedgerError for a ledger of a newer crtrd. Looks without writing: opening would set pragmas in the file."""
    if not path.exists() or not path.stat().st_size:
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as looking:
        found = int(looking.execute("PRAGMA user_version").fetchone()[0])
    if found < 0:
        raise LedgerRefused(f"cannot open ledger {path}: its schema version is {found}; it was left as it is")
    if found > len(STEPS):
        reason = f"it has schema version {found}, this crtrd knows up to {len(STEPS)}: install that newer one again"
        raise LedgerRefused(f"cannot open ledger {path}: {reason}; it was left as it is")


def version(database: SqliteDatabase) -> int:
    return int(database.execute_sql("PRAGMA user_version").fetchone()[0])


def back_up(path: Path, number: int) -> Path:
    """Copy the ledger to `<path>.v<number>.bak`, mode 0600, durable at return."""
    target = beside(path, f".v{number}.bak")
    draft = beside(target, ".tmp")
    draft.unlink(missing_ok=True)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as copy:
        source.backup(copy)
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)
    return target
