"""One open transaction as the core sees it: facts to ask, records to put. Lives only in the ledger's thread."""

from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from typing import assert_never

from peewee import SqliteDatabase

from crtrd.core.cron import Cron, Departed
from crtrd.core.effects import (
    DropCron,
    DropDeparted,
    DropLease,
    PutCell,
    PutCron,
    PutDelivery,
    PutDeparted,
    PutEscalation,
    PutKey,
    PutOccurrence,
    PutQueue,
    PutRun,
    PutTold,
    Record,
    Remember,
    TakeLease,
)
from crtrd.core.idle import Owed
from crtrd.core.occurrence import Cell, Occurrence, Run, rerun_label
from crtrd.core.timetable import UNUSABLE
from crtrd.errors import LeaseLost
from crtrd.ledger import rows
from crtrd.ledger.deliveries import Deliveries
from crtrd.ledger.retention import BEGIN, Keep, Place, Pruned, prune

PENDING_DUE = """ LEFT JOIN crons c ON c.id = o.cron_id
 WHERE o.settled_at IS NULL AND o.status = 'pending' AND o.due_at <= ?
   AND (CASE WHEN o.overlap <> '' THEN o.overlap ELSE c.overlap END = 'allow' OR NOT EXISTS (
     SELECT 1 FROM occurrences p INDEXED BY occurrences_open_cron
      WHERE p.cron_id = o.cron_id AND p.settled_at IS NULL AND p.serial <> o.serial
       AND (p.status IN ('running', 'held') OR p.serial < o.serial)))"""
"""Left alone, SQLite looks through all of the cron's history for each that waits; so do others below without a hint."""
PENDING_CELLS = """ WHERE o.settled_at IS NULL AND o.status = 'running'
   AND o.reason NOT IN ('replaced', 'canceled', 'interrupted') AND EXISTS (
     SELECT 1 FROM cells k WHERE k.occurrence_id = o.id AND k.status = 'pending' AND k.due_at <= ?)"""
POSTPONED = """ WHERE o.settled_at IS NULL AND o.status IN ('pending', 'running') AND EXISTS (
     SELECT 1 FROM cells k WHERE k.occurrence_id = o.id AND k.status = 'pending' AND k.due_at > ?)"""
HELD_OVER = " WHERE o.settled_at IS NULL AND o.status = 'held' AND o.due_at > 0 AND o.due_at <= ?"
NEXT_WAKE = """SELECT min(at) FROM (
   SELECT min(next_at) AS at FROM crons WHERE state = 'active' AND next_at IS NOT NULL AND ?
   UNION ALL SELECT min(due_at) FROM occurrences WHERE settled_at IS NULL AND status = 'pending' AND due_at > ?
   UNION ALL SELECT min(due_at) FROM occurrences WHERE settled_at IS NULL AND status = 'held' AND due_at > 0
   UNION ALL SELECT min(alert_at) FROM occurrences WHERE settled_at IS NULL AND alert_at IS NOT NULL
   UNION ALL SELECT min(k.due_at) FROM occurrences o JOIN cells k ON k.occurrence_id = o.id
     WHERE o.settled_at IS NULL AND o.status = 'running' AND k.status = 'pending' AND k.due_at > ?)"""


class Session(Deliveries):
    """Implements core.facts.Facts; sees its own records before they are committed."""

    def __init__(self, database: SqliteDatabase, owner: str, boot_id: str, lease_until: int) -> None:
        self._database = database
        self._owner, self._boot_id, self._lease_until = owner, boot_id, lease_until

    # facts -------------------------------------------------------------------------------------------------------

    def cron(self, cron_id: str) -> Cron | None:
        row = self._one(rows.CRON_SELECT + " WHERE c.id = ?", cron_id)
        return rows.cron_from_row(row) if row else None

    def find_cron(self, name_or_id: str) -> Cron | None:
        row = self._one(rows.CRON_SELECT + " WHERE c.name = ?", name_or_id)
        return rows.cron_from_row(row) if row else self.cron(name_or_id)

    def departed(self, cron_id: str) -> Departed | None:
        row = self._one("SELECT id, cron, delivers FROM departed WHERE id = ?", cron_id)
        return rows.departed_from_row(row) if row else None

    def crons_due(self, now: int) -> list[Cron]:
        due = " WHERE c.state = 'active' AND c.next_at IS NOT NULL AND c.next_at <= ? ORDER BY c.next_at, c.serial"
        return [rows.cron_from_row(row) for row in self._all(rows.CRON_SELECT + due, now)]

    def crons_on_boot(self) -> list[Cron]:
        """The text search keeps ten thousand others out of it; the core looks closer."""
        booted = " WHERE c.state = 'active' AND c.definition LIKE '%@reboot%' ORDER BY c.serial"
        return [rows.cron_from_row(row) for row in self._all(rows.CRON_SELECT + booted)]

    def crons_unplanned(self) -> list[Cron]:
        """Those that are only triggered have no schedule in their text; damaged ones may have none either."""
        unplanned = (" WHERE c.state = 'active' AND c.next_at IS NULL AND (c.definition LIKE '%\"schedule\"%' "
                     "OR NOT json_valid(c.definition)) ORDER BY c.serial")
        return [rows.cron_from_row(row) for row in self._all(rows.CRON_SELECT + unplanned)]

    def crons_scheduled(self) -> list[Cron]:
        scheduled = (" WHERE c.definition LIKE '%\"schedule\"%' AND (c.state = 'active' OR "
                     "c.state = 'paused' AND c.paused_by = 'failure' AND c.note LIKE ? || '%') ORDER BY c.serial")
        return [rows.cron_from_row(row) for row in self._all(rows.CRON_SELECT + scheduled, UNUSABLE)]

    def crons_from_files(self) -> list[Cron]:
        filed = rows.CRON_SELECT + " WHERE c.source <> '' ORDER BY c.serial"
        return [rows.cron_from_row(row) for row in self._all(filed)]

    def crons_ahead(self, now: int) -> list[Cron]:
        ahead = (" WHERE c.state = 'active' AND (c.considered > ? OR c.after_end_at IS NOT NULL) "
                 "ORDER BY c.serial")
        return [rows.cron_from_row(row) for row in self._all(rows.CRON_SELECT + ahead, now)]

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        row = self._one(rows.OCCURRENCE_SELECT + " WHERE o.id = ?", occurrence_id)
        return rows.occurrence_from_row(row) if row else None

    def known(self, occurrence_ids: Iterable[str]) -> set[str]:
        wanted = list(occurrence_ids)
        places = ", ".join("?" for _ in wanted)
        found = self._all(f"SELECT id FROM occurrences WHERE id IN ({places})", *wanted)  # noqa: S608
        return {row[0] for row in found}

    def covered(self, cron_id: str, after: int, before: int) -> int:
        return self._count(
            "SELECT coalesce(sum(covers), 0) FROM occurrences WHERE cron_id = ? AND origin = 'schedule' "
            "AND instant > ? AND instant < ? AND key = ''", cron_id, after, before)

    def _occurrences(self, where: str, *values: object) -> list[Occurrence]:
        return [rows.occurrence_from_row(row) for row in self._all(rows.OCCURRENCE_SELECT + where, *values)]

    def open_occurrences(self, cron_id: str) -> list[Occurrence]:
        mine = " INDEXED BY occurrences_open_cron WHERE o.cron_id = ? AND o.settled_at IS NULL ORDER BY o.serial"
        return self._occurrences(mine, cron_id)

    def startable(self, now: int, limit: int, without: Collection[str] = ()) -> list[Occurrence]:
        places = ", ".join("?" for _ in without)
        elsewhere = f" AND coalesce(c.pool, '') NOT IN ({places})" if without else ""
        order = f"{PENDING_DUE}{elsewhere} ORDER BY o.due_at, o.serial LIMIT ?"
        return self._occurrences(order, now, *without, limit)

    def unfinished(self, now: int) -> list[Occurrence]:
        return self._occurrences(PENDING_CELLS + " ORDER BY o.serial", now)

    def postponed(self, now: int) -> list[Occurrence]:
        return self._occurrences(POSTPONED + " ORDER BY o.serial", now)

    def held_over(self, now: int) -> list[Occurrence]:
        return self._occurrences(HELD_OVER + " ORDER BY o.serial", now)

    def reruns(self, occurrence: Occurrence) -> list[Occurrence]:
        mine = " WHERE o.cron_id = ? AND o.origin = 'manual' AND o.label = ? ORDER BY +o.serial"  # not by that index
        return self._occurrences(mine, occurrence.cron_id, rerun_label(occurrence.id))

    def late(self, now: int) -> list[Occurrence]:
        alarmed = " INDEXED BY occurrences_alert WHERE o.settled_at IS NULL AND o.alert_at <= ? ORDER BY o.serial"
        return self._occurrences(alarmed, now)

    def cells(self, occurrence_id: str) -> list[Cell]:
        mine = " WHERE occurrence_id = ? ORDER BY place, target"
        return [rows.cell_from_row(row) for row in self._all(rows.CELL_SELECT + mine, occurrence_id)]

    def run(self, run_id: str) -> Run | None:
        row = self._one(rows.RUN_SELECT + " WHERE r.id = ?", run_id)
        return rows.run_from_row(row) if row else None

    def last_run(self, occurrence_id: str) -> Run | None:
        row = self._one(rows.RUN_SELECT + " WHERE r.occurrence_id = ? ORDER BY r.serial DESC", occurrence_id)
        return rows.run_from_row(row) if row else None

    def live_runs(self, occurrence_id: str = "") -> list[Run]:
        mine, values = (" AND r.occurrence_id = ?", (occurrence_id,)) if occurrence_id else ("", ())
        sql = rows.RUN_SELECT + f" INDEXED BY runs_live WHERE r.phase <> 'ended'{mine} ORDER BY r.serial"
        return [rows.run_from_row(row) for row in self._all(sql, *values)]

    def live_count(self) -> int:
        return self._count("SELECT count(*) FROM runs WHERE phase <> 'ended'")

    def pool_count(self, pool: str) -> int:
        """A canceled cron's runs keep their places until they have ended."""
        return self._count(
            "SELECT count(*) FROM runs r LEFT JOIN crons c ON c.id = r.cron_id "
            "LEFT JOIN departed d ON d.id = r.cron_id WHERE r.phase <> 'ended' "
            "AND coalesce(c.pool, json_extract(d.cron, '$.pool')) = ?", pool)

    def owed(self, now: int, *, own_clock: bool = True, looked: int | None = None) -> Owed:
        """What keeps the daemon awake, and what will wake it: of the outbox also what came due after `looked`."""
        due = len(self.startable(now, 1)) or len(self.held_over(now))
        ahead = self._one(NEXT_WAKE, own_clock, now, now)
        deliveries, attempt = self.outbox_owed(now, now if looked is None else min(looked, now))
        escalations, look = self.escalations_owed()
        wakes = [at for at in (ahead[0] if ahead else None, attempt, look) if at is not None]
        return Owed(self.live_count(), due, min(wakes, default=None), deliveries + escalations)

    def undoable(self) -> AbstractContextManager[object]:
        """A savepoint: what is put inside is taken back when an exception leaves it."""
        context: AbstractContextManager[object] = self._database.atomic()
        return context

    # records -----------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:  # noqa: PLR0912 - one arm per record
        """Write one record into the open transaction."""
        match record:
            case PutCron(cron):
                self._put_cron(cron)
            case DropCron(cron_id, name, owner):
                if owner is not None:
                    self._database.execute_sql(rows.FORMER_INSERT, (cron_id, name, owner))
                self._database.execute_sql("DELETE FROM crons WHERE id = ?", (cron_id,))
                self._database.execute_sql("DELETE FROM told WHERE cron_id = ?", (cron_id,))
            case PutDeparted(departed):
                self._database.execute_sql(
                    "INSERT OR REPLACE INTO departed (id, cron, delivers) VALUES (?, ?, ?)",
                    rows.departed_row(departed))
            case DropDeparted(cron_id):
                self._database.execute_sql("DELETE FROM departed WHERE id = ?", (cron_id,))
            case PutOccurrence(occurrence):
                self._database.execute_sql(rows.OCCURRENCE_UPSERT, rows.occurrence_row(occurrence))
            case PutCell(cell):
                self._database.execute_sql(rows.CELL_UPSERT, rows.cell_row(cell))
            case PutRun(run):
                self._database.execute_sql(rows.RUN_UPSERT, rows.run_row(run))
            case TakeLease(occurrence_id):
                self._take_lease(occurrence_id)
            case DropLease(occurrence_id):
                self._database.execute_sql("DELETE FROM leases WHERE occurrence_id = ?", (occurrence_id,))
            case PutDelivery(delivery, fresh):
                self.put_delivery(delivery, fresh=fresh)
            case PutEscalation(escalation):
                self.put_escalation(escalation)
            case PutKey(key):
                self.put_key(key)
            case PutQueue(queue):
                self.put_queue(queue)
            case PutTold(told):
                self.put_told(told)
            case Remember(key, value):
                self.remember(key, value)
            case _:
                assert_never(record)

    def _put_cron(self, cron: Cron) -> None:
        known = self._one("SELECT serial FROM crons WHERE id = ?", cron.id)
        serial = known[0] if known else self._count("SELECT coalesce(max(serial), 0) + 1 FROM crons")
        statement = rows.CRON_UPDATE_DAMAGED if cron.damage else rows.CRON_UPSERT
        self._database.execute_sql(statement, rows.cron_row(cron, serial))

    def _take_lease(self, occurrence_id: str) -> None:
        self._database.execute_sql("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'fence'")
        fence = self.fence()
        self._database.execute_sql(
            "INSERT INTO leases (occurrence_id, owner, boot_id, until, fence) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (occurrence_id) DO UPDATE SET owner = excluded.owner, boot_id = excluded.boot_id, "
            "until = excluded.until, fence = excluded.fence",
            (occurrence_id, self._owner, self._boot_id, self._lease_until, fence))
        self._database.execute_sql("UPDATE occurrences SET fence = ? WHERE id = ?", (fence, occurrence_id))

    # the claim ---------------------------------------------------------------------------------------------------

    def fence(self) -> int:
        return self._count("SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'fence'")

    def claim(self) -> None:
        """The first transaction of a life: from now on whoever held the ledger before finds his fence passed."""
        self._database.execute_sql("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'fence'")
        self.remember("owner", self._owner)
        self.take_over_leases()

    def check(self, fence: int) -> None:
        """Every later one: raises LeaseLost when somebody else has claimed the ledger or one of its leases."""
        owner, now = self.recall("owner"), self.fence()
        if owner != self._owner:
            raise LeaseLost(f"cannot use the ledger: {owner} has claimed it")
        if now < fence:
            raise LeaseLost(f"cannot use the ledger: its fence is {now}, and was {fence} when this crtrd last wrote")
        foreign = self._one("SELECT occurrence_id, owner FROM leases WHERE owner <> ? LIMIT 1", self._owner)
        if foreign is not None:
            raise LeaseLost(f"cannot use the ledger: {foreign[1]} has the lease of occurrence {foreign[0]}")

    def take_over_leases(self) -> int:
        """At start: the store's lock proves that no other life holds any. Returns how many were taken."""
        cursor = self._database.execute_sql(
            "UPDATE leases SET owner = ?, boot_id = ?, until = ? WHERE owner <> ?",
            (self._owner, self._boot_id, self._lease_until, self._owner))
        return int(cursor.rowcount)

    def renew_leases(self) -> None:
        self._database.execute_sql(
            "UPDATE leases SET until = ? WHERE owner = ? AND boot_id = ?",
            (self._lease_until, self._owner, self._boot_id))

    def prune(self, keep: Keep, now: int, start: Place = BEGIN) -> Pruned:
        """One step of retention, from where the one before it has stopped."""
        return prune(self._database, keep, now, start)

    def remember(self, key: str, value: str) -> None:
        self._database.execute_sql(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value))

    def recall(self, key: str) -> str | None:
        row = self._one("SELECT value FROM meta WHERE key = ?", key)
        return row[0] if row else None
