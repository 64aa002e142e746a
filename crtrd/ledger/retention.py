"""Forgetting in small steps: settled occurrences by age, runs by age and by number for each cron.

    occurrences -> outbox -> keys -> runs -> the rest

Each step is one short transaction that looks at `LOOK` rows at most and deletes as many as it is told, and the next one
goes on where it has stopped, so that neither pruning a million rows nor looking through a million that stay holds up a
run. Rows go by one statement for each table, found by its index: nearly all of the time is SQLite's own, in which no
other thread waits. Open occurrences and their runs are never touched.
"""

from collections.abc import Callable
from typing import Any

from peewee import SqliteDatabase

from crtrd.values import dataclass

CHUNK = 500
"""Rows of one kind that one step deletes, unless it is told otherwise."""
LOOK = 5000
"""Occurrences that one step looks at."""
CRONS = 20
"""Crons whose runs one step counts."""
KEYS_KEPT = 7 * 86_400_000_000
"""As core.triggering promises."""
DAY = 86_400_000_000
QUIET = "('success', 'skipped', 'missed', 'canceled')"
SETTLED = f"settled_at IS NOT NULL AND settled_at < CASE WHEN status IN {QUIET} THEN ? ELSE ? END"
SEEN = f"SELECT serial, {SETTLED} AS old FROM occurrences WHERE serial > ? ORDER BY serial LIMIT {LOOK}"  # noqa: S608
OLD = f"FROM occurrences WHERE serial > ? AND serial <= ? AND {SETTLED}"


@dataclass(frozen=True, slots=True)
class Keep:
    """How long settled occurrences stay, microseconds, and how many runs of one cron."""

    success: int
    failure: int
    runs_per_cron: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next step goes on: in this stage, behind this occurrence, or with the crons from this id on."""

    stage: int = 0
    serial: int = 0
    cron_id: str = ""


BEGIN = Place()


@dataclass(frozen=True, slots=True)
class Pruned:
    gone: int
    onward: Place | None
    """None when all has been looked through."""


Step = tuple[int, Place | None]
"""How many rows went, and where the stage goes on; None: with the next stage."""


def prune(database: SqliteDatabase, keep: Keep, now: int, start: Place = BEGIN, most: int = CHUNK) -> Pruned:
    """Forget up to `most` rows of each kind. A step looks at no more rows than it takes some milliseconds to look at:
    between two of them whatever else waits for the ledger has its turn.

    Nothing goes within a day: after a small step back of the clock an instant without its row would be served again.
    """
    gone, place = 0, start
    for number, stage in enumerate(STAGES):
        if number < start.stage:
            continue
        went, onward = stage(database, keep, now, place, most)
        gone += went
        if onward is not None:
            return Pruned(gone, onward)
        place = Place(number + 1)
    return Pruned(gone, None)


def _prune_occurrences(database: SqliteDatabase, keep: Keep, now: int, start: Place, most: int) -> Step:
    ages = now - max(keep.success, DAY), now - max(keep.failure, DAY)
    seen, last, old = database.execute_sql(
        f"SELECT count(*), max(serial), sum(old) FROM ({SEEN})", (*ages, start.serial)).fetchone()  # noqa: S608
    onward = Place(0, last) if seen == LOOK else None
    if not old:
        return 0, onward
    if old > most:
        last = _one(database, f"SELECT serial FROM ({SEEN}) WHERE old LIMIT 1 OFFSET ?", *ages, start.serial, most - 1)  # noqa: S608
        onward = Place(0, last)
    within = (start.serial, last, *ages)
    for table in ("runs", "cells"):
        database.execute_sql(f"DELETE FROM {table} WHERE occurrence_id IN (SELECT id {OLD})", within)  # noqa: S608
    return _delete(database, OLD, *within), onward


def _prune_outbox(database: SqliteDatabase, keep: Keep, now: int, _: Place, most: int) -> Step:
    """Delivered rows go with the quiet ones, dead ones stay as long as failures. What is not settled stays."""
    gone = _delete(
        database, "FROM outbox WHERE serial IN (SELECT serial FROM outbox WHERE settled_at IS NOT NULL AND settled_at "
        "< ? AND settled_at < CASE state WHEN 'dead' THEN ? ELSE ? END ORDER BY settled_at LIMIT ?)",
        now - min(keep.failure, keep.success), now - keep.failure, now - keep.success, most)
    return gone, Place(1) if gone == most else None


def _prune_keys(database: SqliteDatabase, _: Keep, now: int, __: Place, most: int) -> Step:
    gone = _delete(
        database, "FROM trigger_keys WHERE (cron_id, key) IN (SELECT cron_id, key FROM trigger_keys WHERE at < ? "
        "LIMIT ?)", now - KEYS_KEPT, most)
    return gone, Place(2) if gone == most else None


def _prune_runs(database: SqliteDatabase, keep: Keep, _: int, start: Place, most: int) -> Step:
    """Of each cron the newest `runs_per_cron` ended runs stay; the occurrence keeps its row and its reason."""
    cron_id: str | None = _one(database, "SELECT min(cron_id) FROM runs WHERE cron_id >= ?", start.cron_id)
    for _ in range(CRONS):
        if cron_id is None:
            break
        newest = "SELECT serial FROM runs WHERE cron_id = ? ORDER BY serial DESC LIMIT 1 OFFSET ?"
        gone = _delete(
            database, f"FROM runs WHERE serial IN (SELECT serial FROM runs WHERE cron_id = ? AND serial <= ({newest}) "  # noqa: S608
            "AND phase = 'ended' AND occurrence_id NOT IN (SELECT id FROM occurrences WHERE settled_at IS NULL) "
            "ORDER BY serial LIMIT ?)", cron_id, cron_id, keep.runs_per_cron, most)
        if gone:
            return gone, Place(3, cron_id=cron_id)
        cron_id = _one(database, "SELECT min(cron_id) FROM runs WHERE cron_id > ?", cron_id)
    return 0, None if cron_id is None else Place(3, cron_id=cron_id)


def _prune_rest(database: SqliteDatabase, keep: Keep, now: int, _: Place, __: int) -> Step:
    """What there are few of, and what hangs on rows that are gone now. Not counted."""
    _delete(database, "FROM queues WHERE name NOT IN (SELECT queue FROM outbox WHERE settled_at IS NULL)")
    _delete(database, "FROM former WHERE NOT EXISTS (SELECT 1 FROM occurrences o WHERE o.cron_id = former.id) "
            "AND NOT EXISTS (SELECT 1 FROM outbox d WHERE d.cron_id = former.id)")
    _delete(database, "FROM escalations WHERE at < ? AND state <> 'open' AND look_at IS NULL", now - keep.failure)
    return 0, None


Stage = Callable[[SqliteDatabase, Keep, int, Place, int], Step]
STAGES: tuple[Stage, ...] = (_prune_occurrences, _prune_outbox, _prune_keys, _prune_runs, _prune_rest)


def _delete(database: SqliteDatabase, what: str, *values: object) -> int:
    return int(database.execute_sql(f"DELETE {what}", values).rowcount)


def _one(database: SqliteDatabase, sql: str, *values: object) -> Any:  # noqa: ANN401 - whatever the column holds
    found = database.execute_sql(sql, values).fetchone()
    return found[0] if found else None
