"""Forgetting in small steps: settled occurrences by age, runs by age and by number for each cron.

Each step is one short transaction that looks at `LOOK` rows at most and deletes `CHUNK`, and the next one goes on where
it has stopped, so that neither pruning a million rows nor looking through a million that stay holds up a run.
Open occurrences and their runs are never touched.
"""

from typing import Any

from peewee import SqliteDatabase

from crtrd.values import dataclass

CHUNK = 500
LOOK = 5000
"""Occurrences that one step looks at."""
CRONS = 20
"""Crons whose runs one step counts."""
KEYS_KEPT = 7 * 86_400_000_000
"""As core.triggering promises."""
DAY = 86_400_000_000
QUIET = "('success', 'skipped', 'missed', 'canceled')"


@dataclass(frozen=True, slots=True)
class Keep:
    """How long settled occurrences stay, microseconds, and how many runs of one cron."""

    success: int
    failure: int
    runs_per_cron: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next step goes on: behind this occurrence, and with the crons from this id on."""

    serial: int = 0
    cron_id: str = ""


BEGIN = Place()


@dataclass(frozen=True, slots=True)
class Pruned:
    gone: int
    onward: Place | None
    """None when all has been looked through."""


def prune(database: SqliteDatabase, keep: Keep, now: int, start: Place = BEGIN) -> Pruned:
    """Forget up to CHUNK rows of each kind. A step looks at no more rows than it takes some milliseconds to look at:
    between two of them whatever else waits for the ledger has its turn.

    Nothing goes within a day: after a small step back of the clock an instant without its row would be served again.
    """
    last, gone = _prune_occurrences(database, keep, now, start.serial)
    gone += _prune_outbox(database, keep, now)
    cron_id, crowded = _prune_runs(database, keep.runs_per_cron, start.cron_id)
    gone += crowded
    over = last is None and cron_id is None and not gone
    onward = Place(start.serial if last is None else last, start.cron_id if cron_id is None else cron_id)
    return Pruned(gone, None if over else onward)


def _prune_occurrences(database: SqliteDatabase, keep: Keep, now: int, after: int) -> tuple[int | None, int]:
    """The serial up to which all is looked through, None for to the end; and how many went."""
    seen = database.execute_sql(
        "SELECT serial, id, settled_at IS NOT NULL AND settled_at < "  # noqa: S608 - constants
        f"CASE WHEN status IN {QUIET} THEN ? ELSE ? END FROM occurrences WHERE serial > ? ORDER BY serial LIMIT ?",
        (now - max(keep.success, DAY), now - max(keep.failure, DAY), after, LOOK)).fetchall()
    old = [(serial, occurrence_id) for serial, occurrence_id, is_old in seen if is_old][:CHUNK]
    for _, occurrence_id in old:
        for table, column in (("runs", "occurrence_id"), ("cells", "occurrence_id"), ("occurrences", "id")):
            database.execute_sql(f"DELETE FROM {table} WHERE {column} = ?", (occurrence_id,))  # noqa: S608
    if len(old) == CHUNK:
        return old[-1][0], CHUNK
    return (seen[-1][0] if len(seen) == LOOK else None), len(old)


def _prune_outbox(database: SqliteDatabase, keep: Keep, now: int) -> int:
    """Delivered rows go with the quiet ones, dead ones stay as long as failures. What is not settled stays."""
    cursor = database.execute_sql(
        f"DELETE FROM outbox WHERE serial IN (SELECT serial FROM outbox WHERE settled_at IS NOT NULL AND settled_at < "  # noqa: S608
        f"? AND settled_at < CASE state WHEN 'dead' THEN ? ELSE ? END ORDER BY settled_at LIMIT {CHUNK})",
        (now - min(keep.failure, keep.success), now - keep.failure, now - keep.success))
    database.execute_sql("DELETE FROM queues WHERE name NOT IN (SELECT queue FROM outbox WHERE settled_at IS NULL)")
    database.execute_sql(
        "DELETE FROM former WHERE NOT EXISTS (SELECT 1 FROM occurrences o WHERE o.cron_id = former.id) "
        "AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.cron_id = former.id)")
    database.execute_sql("DELETE FROM trigger_keys WHERE at < ?", (now - KEYS_KEPT,))
    database.execute_sql(
        "DELETE FROM escalations WHERE at < ? AND state <> 'open' AND look_at IS NULL", (now - keep.failure,))
    return int(cursor.rowcount)


def _prune_runs(database: SqliteDatabase, most: int, start: str) -> tuple[str | None, int]:
    """Of each cron the newest `most` ended runs stay; the occurrence keeps its row and its reason.

    Returns the cron to go on with, None after the last one; and how many runs went.
    """
    cron_id: str | None = _one(database, "SELECT min(cron_id) FROM runs WHERE cron_id >= ?", start)
    for _ in range(CRONS):
        if cron_id is None:
            break
        newest = "SELECT serial FROM runs WHERE cron_id = ? ORDER BY serial DESC LIMIT 1 OFFSET ?"
        cursor = database.execute_sql(
            f"DELETE FROM runs WHERE serial IN (SELECT serial FROM runs WHERE cron_id = ? AND serial <= ({newest}) "  # noqa: S608
            "AND phase = 'ended' AND occurrence_id NOT IN (SELECT id FROM occurrences WHERE settled_at IS NULL) "
            f"ORDER BY serial LIMIT {CHUNK})", (cron_id, cron_id, most))
        if cursor.rowcount:
            return cron_id, int(cursor.rowcount)
        cron_id = _one(database, "SELECT min(cron_id) FROM runs WHERE cron_id > ?", cron_id)
    return cron_id, 0


def _one(database: SqliteDatabase, sql: str, *values: object) -> Any:  # noqa: ANN401 - whatever the column holds
    return database.execute_sql(sql, values).fetchone()[0]
