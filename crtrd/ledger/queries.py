"""Reading for views: paged lists and counts, newest first for history. Never writes.

A cursor is the serial number after which the next page starts, as text; '' is the first page and the end.

All of this is asked in the loop's thread, so no question may cost more because the history is long: each is answered
by an index that leads to little more than the answer (SQLite is told which, where it would choose another), and a list
that is narrowed by what no index knows looks through `SCAN` rows a page. Counted by tests/ledger/test_cost.py.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from peewee import DatabaseError, InterfaceError, Model, SqliteDatabase

from crtrd.core.cron import SECOND, Cron, State
from crtrd.core.delivery import Delivery, Escalation
from crtrd.core.occurrence import Cell, Occurrence, Origin, Run
from crtrd.errors import LedgerError
from crtrd.ledger import rows
from crtrd.ledger.damage import is_illegible, read_anything
from crtrd.ledger.models import CellRow, CronRow, EscalationRow, OccurrenceRow, OutboxRow, RunRow
from crtrd.ledger.schema import RAN
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list is narrowed to; None and '' mean any."""

    cron_id: str = ""
    name: str = ""
    state: str = ""
    status: str = ""
    result: str = ""
    occurrence_id: str = ""
    ids: tuple[str, ...] | None = None
    """Only these crons, or what belongs to them."""
    since: int | None = None
    until: int | None = None


SCAN = 5000
"""Rows that one page of a narrowed list looks through at most: a page may be short, or empty, and not the last."""
NARROWING = ("name", "state", "status", "result", "ids", "since", "until")
ORIGINS = ", ".join(f"'{each}'" for each in Origin)
FORMER = """WITH RECURSIVE each(id) AS (
   SELECT min(cron_id) FROM occurrences
   UNION ALL SELECT (SELECT min(cron_id) FROM occurrences WHERE cron_id > each.id) FROM each WHERE id IS NOT NULL)
 SELECT o.cron_id FROM each JOIN occurrences o
     ON o.serial = (SELECT max(serial) FROM occurrences WHERE cron_id = each.id)
  WHERE each.id = ? OR o.cron_name = ? ORDER BY o.serial DESC LIMIT 1"""
"""From cron to cron by the index, of each its newest row: names have no index of their own."""


STANDING = f"""SELECT c.id, o.status, o.instant, r.id, r.result FROM crons c
   LEFT JOIN occurrences o ON o.serial = (
     SELECT max(serial) FROM occurrences INDEXED BY occurrences_ran WHERE cron_id = c.id AND status IN ({RAN}))
   LEFT JOIN runs r ON r.serial = (SELECT max(serial) FROM runs WHERE cron_id = c.id)
  WHERE c.id IN ({{places}})"""  # noqa: S608 - constants
HELD_OF = """SELECT cron_id, count(*) FROM occurrences INDEXED BY occurrences_open
   WHERE settled_at IS NULL AND status = 'held' GROUP BY cron_id"""
LIVE_OF = "SELECT cron_id, count(*) FROM runs INDEXED BY runs_live WHERE phase <> 'ended' GROUP BY cron_id"
MOST_CELLS = 2000
"""Cells that one page of occurrences shows at most, and those of one more occurrence."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a list says of a cron besides its definition."""

    last_status: str | None = None
    """Of the newest settled occurrence that was not refused from the first."""
    last_at: int | None = None
    last_run: str | None = None
    """The newest run, also where it is live."""
    last_result: str | None = None
    held: int = 0
    running: int = 0


class Queries:
    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database

    def _rows(self, sql: str, *values: object) -> list[rows.Row]:
        try:
            return list(self._database.execute_sql(sql, values))
        except (DatabaseError, InterfaceError, sqlite3.Error) as error:
            connection = self._database.connection()
            if is_illegible(error) and connection.text_factory is str:
                read_anything(connection)
                return self._rows(sql, *values)
            text = " ".join(str(part) for part in error.args)
            raise LedgerError(f"cannot read the ledger: {text}") from error

    def cron(self, name_or_id: str) -> Cron | None:
        sql = rows.CRON_SELECT + " WHERE c.name = ? OR c.id = ? ORDER BY c.name = ? DESC LIMIT 1"
        found = self._rows(sql, name_or_id, name_or_id, name_or_id)
        return rows.cron_from_row(found[0]) if found else None

    def crons(self, wanted: Filter, limit: int, after: int) -> tuple[list[Cron], int]:
        """By serial, ascending; with the serial of the last one, or 0 at the end."""
        query = self._query(CronRow, wanted, limit)
        if after:
            query = query.where(CronRow.serial > after)
        found = self._fetch(query.order_by(CronRow.serial))
        values = [rows.cron_from_row(row) for row in found[:limit]]
        return values, (found[limit - 1][-1] if len(found) > limit else 0)

    def crons_of(self, owner: int) -> list[Cron]:
        """All that `owner` armed."""
        return [rows.cron_from_row(row) for row in self._rows(rows.CRON_SELECT + " WHERE c.owner = ?", owner)]

    def occurrences(self, wanted: Filter, limit: int, after: int) -> tuple[list[Occurrence], int]:
        """Newest first."""
        found, onward = self._newest(OccurrenceRow, wanted, limit, after)
        return [rows.occurrence_from_row(row[1:]) for row in found], onward

    def occurrences_with_cells(
        self, wanted: Filter, limit: int, after: int
    ) -> tuple[list[tuple[Occurrence, list[Cell]]], int]:
        """The same; where each has hundreds of cells there are fewer on a page."""
        found, onward = self._newest(OccurrenceRow, wanted, limit, after)
        values: list[tuple[Occurrence, list[Cell]]] = []
        shown = previous = 0
        for row in found:
            if shown >= MOST_CELLS:
                return values, previous
            occurrence = rows.occurrence_from_row(row[1:])
            values.append((occurrence, self.cells(occurrence.id)))
            shown, previous = shown + len(values[-1][1]), int(row[0])
        return values, onward

    def runs(self, wanted: Filter, limit: int, after: int) -> tuple[list[Run], int]:
        """Newest first."""
        found, onward = self._newest(RunRow, wanted, limit, after)
        return [rows.run_from_row(row[1:]) for row in found], onward

    def occurrence(self, occurrence_id: str) -> Occurrence | None:
        """By id, or by a beginning of at least 4 digits that only one occurrence has."""
        found = self._rows(rows.OCCURRENCE_SELECT + " WHERE o.id = ?", occurrence_id)
        if not found and len(occurrence_id) >= 4 and occurrence_id.isalnum():  # noqa: PLR2004 - said above
            found = self._rows(rows.OCCURRENCE_SELECT + " WHERE o.id GLOB ? LIMIT 2", occurrence_id + "*")
        return rows.occurrence_from_row(found[0]) if len(found) == 1 else None

    def occurrence_at(self, cron_id: str, instant: int) -> Occurrence | None:
        """The row of an instant; of whole seconds also one within the second, as tables show it."""
        mine = (f" WHERE o.cron_id = ? AND o.origin IN ({ORIGINS}) AND o.instant BETWEEN ? AND ? "
                "ORDER BY o.instant = ? DESC, o.origin = 'manual', o.serial DESC LIMIT 1")
        last = instant if instant % SECOND else instant + SECOND - 1
        found = self._rows(rows.OCCURRENCE_SELECT + mine, cron_id, instant, last, instant)
        return rows.occurrence_from_row(found[0]) if found else None

    def occurrence_covering(self, cron_id: str, instant: int) -> Occurrence | None:
        """The row that stands for many instants, of which `instant` may be one."""
        sql = (rows.OCCURRENCE_SELECT + " WHERE o.cron_id = ? AND o.origin = 'schedule' AND o.key = '' "
               "AND o.instant <= ? ORDER BY o.instant DESC LIMIT 1")
        found = self._rows(sql, cron_id, instant)
        row = rows.occurrence_from_row(found[0]) if found else None
        return row if row is not None and row.covers > 1 else None

    def recall(self, key: str) -> str | None:
        """What an earlier decision remembered of the host."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(found[0][0]) if found else None

    def run(self, run_id: str) -> Run | None:
        """By id, or by a beginning of at least 4 digits that only one run has."""
        found = self._rows(rows.RUN_SELECT + " WHERE r.id = ?", run_id)
        if not found and len(run_id) >= 4 and run_id.isalnum():  # noqa: PLR2004 - said above
            found = self._rows(rows.RUN_SELECT + " WHERE r.id GLOB ? LIMIT 2", run_id + "*")
        return rows.run_from_row(found[0]) if len(found) == 1 else None

    def cells(self, occurrence_id: str) -> list[Cell]:
        query = CellRow.select().where(CellRow.occurrence_id == occurrence_id).order_by(CellRow.place, CellRow.target)
        return [rows.cell_from_row(row) for row in self._fetch(query)]

    def standing(self, cron_ids: Sequence[str]) -> dict[str, Standing]:
        """How each of the crons stands, asked once for all of them."""
        places = ", ".join("?" for _ in cron_ids)
        found = {cron_id: Standing() for cron_id in cron_ids}
        for row in self._rows(STANDING.format(places=places), *cron_ids):
            found[row[0]] = Standing(*row[1:])
        for cron_id, count in self._rows(HELD_OF):
            if cron_id in found:
                found[cron_id] = replace(found[cron_id], held=int(count))
        for cron_id, count in self._rows(LIVE_OF):
            if cron_id in found:
                found[cron_id] = replace(found[cron_id], running=int(count))
        return found

    def held_count(self) -> int:
        sql = "SELECT count(*) FROM occurrences WHERE settled_at IS NULL AND status = 'held'"
        return int(self._rows(sql)[0][0])

    def pool_count(self, pool: str) -> int:
        sql = "SELECT count(*) FROM runs r JOIN crons c ON c.id = r.cron_id WHERE r.phase <> 'ended' AND c.pool = ?"
        return int(self._rows(sql, pool)[0][0])

    def begun(self, cron_id: str) -> str:
        """The id of the oldest open occurrence that is running or held, '' where there is none."""
        sql = ("SELECT id FROM occurrences INDEXED BY occurrences_open_cron "
               "WHERE settled_at IS NULL AND cron_id = ? AND status IN ('running', 'held') "
               "ORDER BY serial LIMIT 1")
        found = self._rows(sql, cron_id)
        return str(found[0][0]) if found else ""

    def live_count(self) -> int:
        return int(self._rows("SELECT count(*) FROM runs INDEXED BY runs_live WHERE phase <> 'ended'")[0][0])

    def former_cron(self, name_or_id: str) -> str | None:
        """The id of a canceled cron that still has history, by its id or last known name."""
        found = self._rows(FORMER, name_or_id, name_or_id)
        return str(found[0][0]) if found else None

    def former_of(self, owner: int, name_or_id: str = "") -> list[str]:
        """Ids of canceled crons that were the owner's own and still have history; of this id or last name."""
        sql = "SELECT id FROM former WHERE owner = ? AND (? = '' OR id = ? OR name = ?)"
        return [str(row[0]) for row in self._rows(sql, owner, name_or_id, name_or_id, name_or_id)]

    def deliveries(self, wanted: Filter, limit: int, after: int) -> tuple[list[Delivery], int]:
        """Newest first; the next attempt as its queue allows it."""
        found, onward = self._newest(OutboxRow, wanted, limit, after)
        waits = {str(name): int(until) for name, until in self._rows("SELECT name, until FROM queues")}
        return [_with_queue(rows.delivery_from_row(row[1:]), waits) for row in found], onward

    def delivery_id(self, name: str) -> str:
        """The whole id where its beginning, of at least 4 digits, is given and only one row has it."""
        if len(name) >= 4 and name.isalnum():  # noqa: PLR2004 - said above
            found = self._rows("SELECT id FROM outbox WHERE id GLOB ? LIMIT 2", name + "*")
            if len(found) == 1:
                return str(found[0][0])
        return name

    def delivery(self, name: str) -> Delivery | None:
        """By id, or by its beginning as above."""
        found = self._rows(rows.DELIVERY_SELECT + " WHERE d.id = ?", self.delivery_id(name))
        return rows.delivery_from_row(found[0]) if found else None

    def escalations(self, wanted: Filter, limit: int, after: int) -> tuple[list[Escalation], int]:
        """Newest first."""
        found, onward = self._newest(EscalationRow, wanted, limit, after)
        return [rows.escalation_from_row(row[1:]) for row in found], onward

    def escalation(self, name: str) -> Escalation | None:
        """By id, or by a beginning of at least 4 digits that only one has."""
        found = self._rows(rows.ESCALATION_SELECT + " WHERE e.id = ?", name)
        if not found and len(name) >= 4 and name.isalnum():  # noqa: PLR2004 - said above
            found = self._rows(rows.ESCALATION_SELECT + " WHERE e.id GLOB ? LIMIT 2", name + "*")
        return rows.escalation_from_row(found[0]) if len(found) == 1 else None

    def counts(self) -> dict[str, int]:
        """Crons by state, held occurrences, live runs."""
        states = {str(state): int(count) for state, count in self._rows(
            "SELECT state, count(*) FROM crons INDEXED BY crons_resting WHERE state <> 'active' GROUP BY state")}
        active = int(self._rows("SELECT count(*) FROM crons")[0][0]) - sum(states.values())
        states |= {str(State.ACTIVE): active} if active else {}
        waiting = self._rows("SELECT (SELECT count(*) FROM outbox WHERE state = 'pending') + "
                             "(SELECT count(*) FROM outbox WHERE state = 'sending')")[0][0]
        return states | {"live": self.live_count(), "held": self.held_count(), "outbox": int(waiting)}

    def next_wake(self) -> int | None:
        sql = "SELECT min(next_at) FROM crons WHERE state = 'active' AND next_at IS NOT NULL"
        value: int | None = self._rows(sql)[0][0]
        return value

    def integrity(self) -> list[str]:
        """SQLite's own full check; empty when the file is sound. Takes time in proportion to the file."""
        found = [str(row[0]) for row in self._rows("PRAGMA integrity_check")]
        return [] if found == ["ok"] else found

    def _newest(
        self, model: type[OccurrenceRow | RunRow | OutboxRow | EscalationRow], wanted: Filter, limit: int, after: int
    ) -> tuple[list[rows.Row], int]:
        """A page, and the serial after which the next one starts, 0 at the end."""
        query = self._query(model, wanted, limit)
        if after:
            query = query.where(model.serial < after)
        lowest = self._lowest(model, wanted, after)
        if lowest:
            query = query.where(model.serial >= lowest)
        found = self._fetch(query.order_by(model.serial.desc()))
        return found[:limit], (found[limit - 1][0] if len(found) > limit else lowest)

    def _lowest(self, model: type[Model], wanted: Filter, after: int) -> int:
        """How far back one page looks where much may have to be looked through; 0: to the first row."""
        name = model._meta.table_name  # noqa: SLF001
        searches = any(getattr(wanted, field) not in (None, "") for field in NARROWING)
        if not searches or (wanted.occurrence_id and name == "runs"):
            return 0
        below = after or (1 << 63) - 1
        if wanted.cron_id and name != "escalations":
            found = self._rows(
                f"SELECT serial FROM {name} WHERE cron_id = ? AND serial < ? ORDER BY serial DESC LIMIT 1 OFFSET ?",  # noqa: S608 - our tables
                wanted.cron_id, below, SCAN)
            return int(found[0][0]) + 1 if found else 0
        first, last = self._rows(
            f"SELECT min(serial), (SELECT max(serial) FROM {name} WHERE serial < ?) FROM {name}", below)[0]  # noqa: S608
        return 0 if last is None or last - SCAN < first else int(last) - SCAN + 1

    def _query(self, model: type[Model], wanted: Filter, limit: int) -> Any:  # noqa: ANN401 - peewee is untyped
        """One row more than asked for, so that the end is known."""
        query = model.select()
        moment = {"occurrences": "instant", "runs": "scheduled_at"}.get(model._meta.table_name)  # noqa: SLF001
        for field in ("cron_id", "name", "state", "status", "result", "occurrence_id"):
            value = getattr(wanted, field)
            if value not in (None, "") and hasattr(model, field):
                query = query.where(getattr(model, field) == value)
        if wanted.ids is not None:
            query = query.where(getattr(model, "cron_id", CronRow.id).in_(wanted.ids))
        if moment and wanted.since is not None:
            query = query.where(getattr(model, moment) >= wanted.since)
        if moment and wanted.until is not None:
            query = query.where(getattr(model, moment) <= wanted.until)
        return query.limit(limit + 1)

    def _fetch(self, query: Any) -> list[rows.Row]:  # noqa: ANN401 - peewee is untyped
        sql, values = query.sql()
        return self._rows(sql, *values)


def _with_queue(each: Delivery, waits: dict[str, int]) -> Delivery:
    return replace(each, next_attempt_at=max(each.next_attempt_at, waits.get(each.queue, 0)))
