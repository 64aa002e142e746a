"""One open transaction as the core sees it: facts to ask, records to put. Lives only in the ledger's thread."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from operator import attrgetter
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
from crtrd.core.occurrence import Cell, Line, Occurrence, Run, Status, rerun_label
from crtrd.core.timetable import UNUSABLE
from crtrd.errors import LeaseLost
from crtrd.ledger import rows
from crtrd.ledger.deliveries import Deliveries
from crtrd.ledger.draft import Draft
from crtrd.ledger.retention import BEGIN, CHUNK, Keep, Place, Pruned, prune
from crtrd.ledger.schema import BOOTED

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
TAKE_LEASE = (
    "INSERT INTO leases (occurrence_id, owner, boot_id, until, fence) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (occurrence_id) DO UPDATE SET owner = excluded.owner, boot_id = excluded.boot_id, "
    "until = excluded.until, fence = excluded.fence")
ID_LENGTH = 32
HELD_OVER = " WHERE o.settled_at IS NULL AND o.status = 'held' AND o.due_at > 0 AND o.due_at <= ?"
NEXT_WAKE = """SELECT min(at) FROM (
   SELECT min(next_at) AS at FROM crons WHERE state = 'active' AND next_at IS NOT NULL AND ?
   UNION ALL SELECT min(due_at) FROM occurrences WHERE settled_at IS NULL AND status = 'pending' AND due_at > ?
   UNION ALL SELECT min(due_at) FROM occurrences WHERE settled_at IS NULL AND status = 'held' AND due_at > 0
   UNION ALL SELECT min(alert_at) FROM occurrences WHERE settled_at IS NULL AND alert_at IS NOT NULL
   UNION ALL SELECT min(k.due_at) FROM occurrences o JOIN cells k ON k.occurrence_id = o.id
     WHERE o.settled_at IS NULL AND o.status = 'running' AND k.status = 'pending' AND k.due_at > ?)"""


FEW = 4
"""Crons whose open occurrences are not read beforehand: thousands may stand in the line of one, and the core asks for
no more than how many they are. Of many crons each has few, and one statement reads them all."""


class Session(Deliveries):
    """Implements core.facts.Facts; sees its own records before they are committed."""

    def __init__(self, database: SqliteDatabase, owner: str, boot_id: str, lease_until: int) -> None:
        self._database = database
        self._owner, self._boot_id, self._lease_until = owner, boot_id, lease_until
        self._draft = Draft(database)
        self._fence: int | None = None
        """As the next lease will find it; `_fence_filed` as it lies in the file."""
        self._fence_filed: int | None = None
        self._leases: dict[str, int | None] = {}
        """Taken with their fence, or given up (None), and not written yet."""

    def _all(self, sql: str, *values: object) -> list[rows.Row]:
        """Whatever is asked by a statement finds what was put."""
        self.write()
        return super()._all(sql, *values)

    def _one(self, sql: str, *values: object) -> rows.Row | None:
        self.write()
        return super()._one(sql, *values)

    def write(self) -> None:
        """Bring all that was put into the open transaction; to be called before it is committed."""
        if self._draft.changed:
            self._draft.write()
        if self._leases:
            self._write_leases()

    def expect(self, run_ids: Iterable[str]) -> None:
        """The core is about to be asked about these runs: read what belongs to them, all together."""
        draft, names = self._draft, list(run_ids)
        draft.read_runs(names)
        found = [run for name in names if (run := draft.runs.get(name)) is not None]
        self._expect([run.occurrence_id for run in found], [run.cron_id for run in found])

    def _expect(self, occurrence_ids: list[str], cron_ids: list[str]) -> None:
        draft = self._draft
        draft.read_occurrences(occurrence_ids)
        draft.read_cells(occurrence_ids)
        draft.read_live(occurrence_ids)
        draft.read_crons(cron_ids)
        draft.read_departed(cron_ids)
        if len(set(cron_ids)) > FEW:
            draft.read_open(cron_ids)

    # facts -------------------------------------------------------------------------------------------------------

    def cron(self, cron_id: str) -> Cron | None:
        if cron_id not in self._draft.crons:
            self._draft.read_crons([cron_id])
        return self._draft.crons[cron_id]

    def find_cron(self, name_or_id: str) -> Cron | None:
        draft = self._draft
        cron = draft.crons.get(draft.names.get(name_or_id, ""))
        if cron is None or cron.name != name_or_id:
            found = self._database.execute_sql(rows.CRON_SELECT + " WHERE c.name = ?", (name_or_id,)).fetchone()
            cron = draft.latest_cron(rows.cron_from_row(found)) if found else None
        if cron is not None and cron.name == name_or_id:
            return cron
        return self.cron(name_or_id) if len(name_or_id) == ID_LENGTH else None

    def _crons(self, where: str, *values: object) -> list[Cron]:
        found = self._all(rows.CRON_SELECT + where, *values)
        return self._draft.note_crons(map(rows.cron_from_row, found))

    def departed(self, cron_id: str) -> Departed | None:
        if cron_id not in self._draft.departed:
            self._draft.read_departed([cron_id])
        return self._draft.departed[cron_id]

    def crons_due(self, now: int, limit: int = -1) -> list[Cron]:
        due = (" WHERE c.state = 'active' AND c.next_at IS NOT NULL AND c.next_at <= ? "
               "ORDER BY c.next_at, c.serial LIMIT ?")
        found = self._crons(due, now, limit)
        self._draft.read_open(cron.id for cron in found)
        return found

    def crons_on_boot(self) -> list[Cron]:
        """The index keeps a hundred thousand others out of it; the core looks closer."""
        return self._crons(f" INDEXED BY crons_booted WHERE {BOOTED} ORDER BY c.serial")

    def crons_unplanned(self) -> list[Cron]:
        """Those that are only triggered have no schedule in their text; damaged ones may have none either."""
        unplanned = (" INDEXED BY crons_unplanned WHERE c.state = 'active' AND c.next_at IS NULL "
                     "AND (c.definition LIKE '%\"schedule\"%' OR NOT json_valid(c.definition)) ORDER BY c.serial")
        return self._crons(unplanned)

    def crons_scheduled(self, after: str, limit: int) -> list[Cron]:
        scheduled = (" WHERE c.name > ? AND c.definition LIKE '%\"schedule\"%' AND (c.state = 'active' OR "
                     "c.state = 'paused' AND c.paused_by = 'failure' AND c.note LIKE ? || '%') "
                     "ORDER BY c.name LIMIT ?")
        return self._crons(scheduled, after, UNUSABLE, limit)

    def crons_from_files(self, after: str, upto: str) -> list[Cron]:
        within = " WHERE c.source <> '' AND c.name > ? AND (? = '' OR c.name <= ?) ORDER BY c.name"
        return self._crons(within, after, upto, upto)

    def crons_named(self, names: Collection[str]) -> list[Cron]:
        self.write()
        return self._draft.crons_named(names)

    def crons_ahead(self, now: int) -> list[Cron]:
        ahead = (" WHERE c.state = 'active' AND c.serial IN ("
                 "SELECT serial FROM crons INDEXED BY crons_considered WHERE considered > ? UNION ALL "
                 "SELECT serial FROM crons INDEXED BY crons_after_end WHERE after_end_at IS NOT NULL) "
                 "ORDER BY c.serial")
        return self._crons(ahead, now)

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        if occurrence_id not in self._draft.occurrences:
            self._draft.read_occurrences([occurrence_id])
        return self._draft.occurrences[occurrence_id]

    def known(self, occurrence_ids: Iterable[str]) -> set[str]:
        wanted = list(occurrence_ids)
        self._draft.read_occurrences(wanted)
        return {each for each in wanted if self._draft.occurrences[each] is not None}

    def covered(self, cron_id: str, after: int, before: int) -> int:
        return self._count(
            "SELECT coalesce(sum(covers), 0) FROM occurrences WHERE cron_id = ? AND origin = 'schedule' "
            "AND instant > ? AND instant < ? AND key = ''", cron_id, after, before)

    def _occurrences(self, where: str, *values: object) -> list[Occurrence]:
        found = self._all(rows.OCCURRENCE_SELECT + where, *values)
        return self._draft.note_occurrences(map(rows.occurrence_from_row, found))

    def _starting(self, found: list[Occurrence]) -> list[Occurrence]:
        """The same, with what a start looks at."""
        self._expect([each.id for each in found], [each.cron_id for each in found])
        return found

    def open_occurrences(self, cron_id: str) -> list[Occurrence]:
        if cron_id not in self._draft.open:
            self._draft.read_open([cron_id])
        return list(self._draft.open[cron_id].values())

    def line(self, cron_id: str) -> Line:
        if (known := self._draft.open.get(cron_id)) is not None:
            return _line_of(known.values())
        count, pending = self._one(
            "SELECT count(*), coalesce(sum(status = 'pending'), 0) FROM occurrences INDEXED BY occurrences_open_cron "
            "WHERE cron_id = ? AND settled_at IS NULL", cron_id) or (0, 0)
        oldest = self._one(
            "SELECT id, status FROM occurrences INDEXED BY occurrences_open_cron "
            "WHERE cron_id = ? AND settled_at IS NULL ORDER BY serial LIMIT 1", cron_id)
        return Line(count, pending, oldest[0], Status(oldest[1])) if oldest else Line()

    def startable(self, now: int, limit: int, without: Collection[str] = ()) -> list[Occurrence]:
        places = ", ".join("?" for _ in without)
        elsewhere = f" AND coalesce(c.pool, '') NOT IN ({places})" if without else ""
        order = f"{PENDING_DUE}{elsewhere} ORDER BY o.due_at, o.serial LIMIT ?"
        return self._starting(self._occurrences(order, now, *without, limit))

    def _is_startable(self, now: int) -> int:
        return self._count(f"SELECT EXISTS (SELECT 1 FROM occurrences o {PENDING_DUE})", now)  # noqa: S608 - a constant

    def unfinished(self, now: int) -> list[Occurrence]:
        return self._starting(self._occurrences(PENDING_CELLS + " ORDER BY o.serial", now))

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
        if occurrence_id not in self._draft.cells:
            self._draft.read_cells([occurrence_id])
        found = self._draft.cells[occurrence_id]
        return sorted(found.values(), key=attrgetter("place", "target")) if len(found) > 1 else list(found.values())

    def run(self, run_id: str) -> Run | None:
        if run_id not in self._draft.runs:
            self._draft.read_runs([run_id])
        return self._draft.runs[run_id]

    def last_run(self, occurrence_id: str) -> Run | None:
        row = self._one(rows.RUN_SELECT + " WHERE r.occurrence_id = ? ORDER BY r.serial DESC", occurrence_id)
        return rows.run_from_row(row) if row else None

    def live_runs(self, occurrence_id: str = "") -> list[Run]:
        if not occurrence_id:
            found = self._all(rows.RUN_SELECT + " INDEXED BY runs_live WHERE r.phase <> 'ended' ORDER BY r.serial")
            return self._draft.note_runs(map(rows.run_from_row, found))
        if occurrence_id not in self._draft.live:
            self._draft.read_live([occurrence_id])
        return list(self._draft.live[occurrence_id].values())

    def live_count(self) -> int:
        if self._draft.live_count is None:
            self._draft.live_count = self._count("SELECT count(*) FROM runs WHERE phase <> 'ended'")
        return self._draft.live_count

    def pool_count(self, pool: str) -> int:
        """A canceled cron's runs keep their places until they have ended."""
        return self._count(
            "SELECT count(*) FROM runs r LEFT JOIN crons c ON c.id = r.cron_id "
            "LEFT JOIN departed d ON d.id = r.cron_id WHERE r.phase <> 'ended' "
            "AND coalesce(c.pool, json_extract(d.cron, '$.pool')) = ?", pool)

    def owed(self, now: int, *, own_clock: bool = True, looked: int | None = None) -> Owed:
        """What keeps the daemon awake, and what will wake it: of the outbox also what came due after `looked`."""
        due = self._is_startable(now) or len(self.held_over(now))
        ahead = self._one(NEXT_WAKE, own_clock, now, now)
        deliveries, attempt = self.outbox_owed(now, now if looked is None else min(looked, now))
        escalations, look = self.escalations_owed()
        wakes = [at for at in (ahead[0] if ahead else None, attempt, look) if at is not None]
        return Owed(self.live_count(), due, min(wakes, default=None), deliveries + escalations)

    def undoable(self) -> AbstractContextManager[object]:
        """A savepoint: what is put inside is taken back when an exception leaves it."""
        return self._savepoint()

    @contextmanager
    def _savepoint(self) -> Iterator[None]:
        self.write()
        fence, filed = self._fence, self._fence_filed
        try:
            with self._database.atomic():
                yield
                self.write()
        except BaseException:
            self._draft.forget()
            self._leases.clear()
            self._fence, self._fence_filed = fence, filed
            raise

    # records -----------------------------------------------------------------------------------------------------

    def put(self, record: Record) -> None:  # noqa: PLR0912 - one arm per record
        """Write one record into the open transaction."""
        match record:
            case PutCron(cron):
                self._draft.put_cron(cron)
            case DropCron(cron_id, name, owner):
                self.write()
                self._draft.crons[cron_id] = None
                if owner is not None:
                    self._database.execute_sql(rows.FORMER_INSERT, (cron_id, name, owner))
                self._database.execute_sql("DELETE FROM crons WHERE id = ?", (cron_id,))
                self._database.execute_sql("DELETE FROM told WHERE cron_id = ?", (cron_id,))
            case PutDeparted(departed):
                self._database.execute_sql(
                    "INSERT OR REPLACE INTO departed (id, cron, delivers) VALUES (?, ?, ?)",
                    rows.departed_row(departed))
                self._draft.departed[departed.cron.id] = departed
            case DropDeparted(cron_id):
                self._database.execute_sql("DELETE FROM departed WHERE id = ?", (cron_id,))
                self._draft.departed[cron_id] = None
            case PutOccurrence(occurrence):
                self._draft.put_occurrence(occurrence)
            case PutCell(cell):
                self._draft.put_cell(cell)
            case PutRun(run):
                self._draft.put_run(run)
            case TakeLease(occurrence_id):
                self._take_lease(occurrence_id)
            case DropLease(occurrence_id):
                self._leases[occurrence_id] = None
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

    def _take_lease(self, occurrence_id: str) -> None:
        self._fence = fence = self.fence() + 1
        self._leases[occurrence_id] = fence
        if (occurrence := self.occurrence(occurrence_id)) is not None:
            self._draft.put_occurrence(replace(occurrence, fence=fence))

    def _write_leases(self) -> None:
        leases, self._leases = self._leases, {}
        taken = {name: fence for name, fence in leases.items() if fence is not None}
        connection = self._database.connection()
        if self._fence != self._fence_filed:
            connection.execute("UPDATE meta SET value = ? WHERE key = 'fence'", (str(self._fence),))
            self._fence_filed = self._fence
        mine = (self._owner, self._boot_id, self._lease_until)
        connection.executemany(TAKE_LEASE, ((name, *mine, fence) for name, fence in taken.items()))
        connection.executemany(
            "DELETE FROM leases WHERE occurrence_id = ?", ((name,) for name in leases if name not in taken))

    # the claim ---------------------------------------------------------------------------------------------------

    def fence(self) -> int:
        if self._fence is None:
            sql = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'fence'"
            self._fence = self._fence_filed = super()._count(sql)
        return self._fence

    def claim(self) -> None:
        """The first transaction of a life: from now on whoever held the ledger before finds his fence passed."""
        self._database.execute_sql("UPDATE meta SET value = CAST(value AS INTEGER) + 1 WHERE key = 'fence'")
        self._fence = None
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

    def prune(self, keep: Keep, now: int, start: Place = BEGIN, most: int = CHUNK) -> Pruned:
        """One step of retention, from where the one before it has stopped. It looks past what was put."""
        return prune(self._database, keep, now, start, most)

    def remember(self, key: str, value: str) -> None:
        self._database.execute_sql(
            "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (key, value))

    def recall(self, key: str) -> str | None:
        row = self._one("SELECT value FROM meta WHERE key = ?", key)
        return row[0] if row else None


def _line_of(others: Collection[Occurrence]) -> Line:
    if not others:
        return Line()
    oldest = next(iter(others))
    return Line(len(others), sum(each.status is Status.PENDING for each in others), oldest.id, oldest.status)
