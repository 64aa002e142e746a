"""Forgetting in small steps: settled occurrences by age, runs by age and by number for each cron.

Each step is one short transaction of at most `CHUNK` rows, so that pruning a million rows never holds up a run.
Open occurrences and their runs are never touched.
"""

from dataclasses import dataclass

from peewee import SqliteDatabase

CHUNK = 500
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


def prune(database: SqliteDatabase, keep: Keep, now: int) -> int:
    """Forget up to CHUNK rows of each kind; returns how many went, 0 when there is nothing more to forget.

    Nothing goes within a day: after a small step back of the clock an instant without its row would be served again.
    """
    old = database.execute_sql(
        f"SELECT id FROM occurrences WHERE settled_at IS NOT NULL AND settled_at < "  # noqa: S608 - constants
        f"CASE WHEN status IN {QUIET} THEN ? ELSE ? END ORDER BY serial LIMIT {CHUNK}",
        (now - max(keep.success, DAY), now - max(keep.failure, DAY))).fetchall()
    gone = 0
    for (occurrence_id,) in old:
        for table, column in (("runs", "occurrence_id"), ("cells", "occurrence_id"), ("occurrences", "id")):
            database.execute_sql(f"DELETE FROM {table} WHERE {column} = ?", (occurrence_id,))  # noqa: S608
        gone += 1
    return gone + _prune_outbox(database, keep, now) + _prune_runs(database, keep.runs_per_cron)


def _prune_outbox(database: SqliteDatabase, keep: Keep, now: int) -> int:
    """Delivered rows go with the quiet ones, dead ones stay as long as failures. What is not settled stays."""
    cursor = database.execute_sql(
        f"DELETE FROM outbox WHERE serial IN (SELECT serial FROM outbox WHERE settled_at IS NOT NULL AND settled_at < "  # noqa: S608
        f"CASE state WHEN 'dead' THEN ? ELSE ? END ORDER BY settled_at LIMIT {CHUNK})",
        (now - keep.failure, now - keep.success))
    database.execute_sql("DELETE FROM queues WHERE name NOT IN (SELECT queue FROM outbox WHERE settled_at IS NULL)")
    database.execute_sql(
        "DELETE FROM former WHERE NOT EXISTS (SELECT 1 FROM occurrences o WHERE o.cron_id = former.id) "
        "AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.cron_id = former.id)")
    database.execute_sql("DELETE FROM trigger_keys WHERE at < ?", (now - KEYS_KEPT,))
    database.execute_sql(
        "DELETE FROM escalations WHERE at < ? AND state <> 'open' AND look_at IS NULL", (now - keep.failure,))
    return int(cursor.rowcount)


def _prune_runs(database: SqliteDatabase, most: int) -> int:
    """Of each cron the newest `most` ended runs stay; the occurrence keeps its row and its reason."""
    crowded = database.execute_sql(
        "SELECT cron_id FROM runs GROUP BY cron_id HAVING count(*) > ? LIMIT 20", (most,)).fetchall()
    gone = 0
    for (cron_id,) in crowded:
        cursor = database.execute_sql(
            f"DELETE FROM runs WHERE serial IN (SELECT serial FROM runs WHERE cron_id = ? AND phase = 'ended' "  # noqa: S608
            f"AND serial <= (SELECT serial FROM runs WHERE cron_id = ? ORDER BY serial DESC LIMIT 1 OFFSET ?) "
            "AND occurrence_id NOT IN (SELECT id FROM occurrences WHERE settled_at IS NULL) "
            f"ORDER BY serial LIMIT {CHUNK})", (cron_id, cron_id, most))
        gone += cursor.rowcount
    return gone
