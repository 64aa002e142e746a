"""What one transaction has read and decided of crons, occurrences, cells and runs, on its way to the file.

A decision looks at the same few rows again and again and changes each of them several times. So rows that were read
are remembered, what is put is remembered first and written once, many rows by one statement, before the file is asked
anything that is not about one known row, and at the end. Nothing of it outlives the transaction, and it never holds
more than MOST changed rows.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from peewee import SqliteDatabase

from crtrd.core.cron import Cron, Definition, Departed
from crtrd.core.occurrence import Cell, Occurrence, Phase, Run
from crtrd.ledger import rows

MOST = 1000
IN_ONE = 500
"""Ids that one statement names; SQLite takes some ten thousand."""
LIVE_OF = " INDEXED BY runs_live WHERE r.phase <> 'ended' AND r.occurrence_id IN"
OPEN_OF = " INDEXED BY occurrences_open_cron WHERE o.settled_at IS NULL AND o.cron_id IN"
T = TypeVar("T")
R = TypeVar("R", Occurrence, Run)


class Draft:
    """Rows by id; None is a row that is known not to be there."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._changed: dict[str, dict[str, None]] = {}
        self._cells_changed: dict[tuple[str, str], None] = {}
        self.live_count: int | None = None
        """Runs that are starting or running, where it was asked for."""
        self._last_serial: int | None = None
        self._forget()

    def _forget(self) -> None:
        self.crons: dict[str, Cron | None] = {}
        self.departed: dict[str, Departed | None] = {}
        """What canceled crons left behind; it is put into the file at once."""
        self.names: dict[str, str] = {}
        """Ids by name, of crons that were put; one that was renamed or dropped meanwhile may still be here."""
        self.occurrences: dict[str, Occurrence | None] = {}
        self.runs: dict[str, Run | None] = {}
        self.cells: dict[str, dict[str, Cell]] = {}
        self.live: dict[str, dict[str, Run]] = {}
        """By occurrence, complete for those that are there; so are `cells`, and `open` by cron."""
        self.open: dict[str, dict[str, Occurrence]] = {}
        self._written: dict[str, Definition] = {}
        """Of crons: the definition as it lies in the file."""
        self._filed: set[str] = set()
        """Occurrences and runs that have a row in the file."""

    @property
    def changed(self) -> bool:
        return bool(self._changed or self._cells_changed)

    def forget(self) -> None:
        """What was put is taken back (a savepoint was rolled back): everything is to be read anew."""
        self._changed.clear()
        self._cells_changed.clear()
        self.live_count = self._last_serial = None
        self._forget()

    # reading -----------------------------------------------------------------------------------------------------

    def note_crons(self, found: Iterable[Cron]) -> list[Cron]:
        """Remember crons that were just read, unless they are known; what is known is returned in their place."""
        return [self._noted_cron(cron) for cron in found]

    def _noted_cron(self, cron: Cron) -> Cron:
        known = self.crons.get(cron.id)
        if known is not None:
            return known
        self.crons[cron.id] = cron
        self._written[cron.id] = cron.definition
        return cron

    def latest_cron(self, read: Cron) -> Cron | None:
        """What became of a cron whose row was just read; None where it was dropped."""
        if read.id in self.crons:
            return self.crons[read.id]
        return self._noted_cron(read)

    def note_occurrences(self, found: Iterable[Occurrence]) -> list[Occurrence]:
        return [self._noted(self.occurrences, each) for each in found]

    def note_runs(self, found: Iterable[Run]) -> list[Run]:
        return [self._noted(self.runs, each) for each in found]

    def _noted(self, known: dict[str, R | None], read: R) -> R:
        """As with crons: what is known counts, and what was not is in the file."""
        latest = known.get(read.id)
        if latest is None:
            known[read.id] = latest = read
            self._filed.add(read.id)
        return latest

    def read_crons(self, ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(ids) if each not in self.crons]
        self.note_crons(rows.cron_from_row(row) for row in self._read(rows.CRON_SELECT + " WHERE c.id IN", wanted))
        for each in wanted:
            self.crons.setdefault(each, None)

    def read_departed(self, ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(ids) if each not in self.departed]
        self.departed.update((each, None) for each in wanted)
        for row in self._read("SELECT id, cron, delivers FROM departed WHERE id IN", wanted):
            self.departed[row[0]] = rows.departed_from_row(row)

    def crons_named(self, names: Iterable[str]) -> list[Cron]:
        found = self._read(rows.CRON_SELECT + " WHERE c.name IN", list(names))
        return self.note_crons(rows.cron_from_row(row) for row in found)

    def read_occurrences(self, ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(ids) if each not in self.occurrences]
        found = self._read(rows.OCCURRENCE_SELECT + " WHERE o.id IN", wanted)
        self.note_occurrences(rows.occurrence_from_row(row) for row in found)
        for each in wanted:
            self.occurrences.setdefault(each, None)

    def read_runs(self, ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(ids) if each not in self.runs]
        self.note_runs(rows.run_from_row(row) for row in self._read(rows.RUN_SELECT + " WHERE r.id IN", wanted))
        for each in wanted:
            self.runs.setdefault(each, None)

    def read_cells(self, occurrence_ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(occurrence_ids) if each not in self.cells]
        self.cells.update((each, {}) for each in wanted)
        for row in self._read(rows.CELL_SELECT + " WHERE occurrence_id IN", wanted, " ORDER BY target"):
            cell = rows.cell_from_row(row)
            self.cells[cell.occurrence_id][cell.target] = cell

    def read_live(self, occurrence_ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(occurrence_ids) if each not in self.live]
        self.live.update((each, {}) for each in wanted)
        found = self._read(rows.RUN_SELECT + LIVE_OF, wanted, " ORDER BY r.serial")
        for run in self.note_runs(rows.run_from_row(row) for row in found):
            self.live[run.occurrence_id][run.id] = run

    def read_open(self, cron_ids: Iterable[str]) -> None:
        wanted = [each for each in dict.fromkeys(cron_ids) if each not in self.open]
        if wanted and "occurrences" in self._changed:
            self.write()  # those of a cron that was not asked for before
        self.open.update((each, {}) for each in wanted)
        found = self._read(rows.OCCURRENCE_SELECT + OPEN_OF, wanted, " ORDER BY o.serial")
        for each in self.note_occurrences(rows.occurrence_from_row(row) for row in found):
            self.open[each.cron_id][each.id] = each

    def _read(self, sql: str, wanted: list[str], order: str = "") -> Iterator[rows.Row]:
        for some in _portions(wanted, IN_ONE):
            places = ", ".join("?" for _ in some)
            yield from self._database.execute_sql(f"{sql} ({places}){order}", tuple(some)).fetchall()

    # putting -----------------------------------------------------------------------------------------------------

    def put_cron(self, cron: Cron) -> None:
        self.crons[cron.id] = cron
        self.names[cron.name] = cron.id
        self._change("crons", cron.id)

    def put_occurrence(self, each: Occurrence) -> None:
        if each.id in self.occurrences and self.occurrences[each.id] is None:  # nobody has it yet
            self.cells.setdefault(each.id, {})
            self.live.setdefault(each.id, {})
        self.occurrences[each.id] = each
        if (others := self.open.get(each.cron_id)) is not None:
            if each.settled_at is None:
                others[each.id] = each
            else:
                others.pop(each.id, None)
        self._change("occurrences", each.id)

    def put_cell(self, cell: Cell) -> None:
        self.read_cells([cell.occurrence_id])
        self.cells[cell.occurrence_id][cell.target] = cell
        self._cells_changed[cell.occurrence_id, cell.target] = None
        self._bound(len(self._cells_changed))

    def put_run(self, run: Run) -> None:
        self.read_live([run.occurrence_id])
        live = self.live[run.occurrence_id]
        before = len(live)
        if run.phase is Phase.ENDED:
            live.pop(run.id, None)
        else:
            live[run.id] = run
        if self.live_count is not None:
            self.live_count += len(live) - before
        self.runs[run.id] = run
        self._change("runs", run.id)

    def _change(self, kind: str, name: str) -> None:
        changed = self._changed.setdefault(kind, {})
        changed[name] = None
        self._bound(len(changed))

    def _bound(self, count: int) -> None:
        if count >= MOST:
            self.write()
            self._forget()

    # writing -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring everything that was put into the open transaction."""
        changed, self._changed = self._changed, {}
        if names := changed.get("crons"):
            self._write_crons([cron for name in names if (cron := self.crons[name]) is not None])
        if names := changed.get("occurrences"):
            put = [each for name in names if (each := self.occurrences[name]) is not None]
            self._write(
                rows.OCCURRENCE_UPDATE, (rows.occurrence_update(each) for each in put if each.id in self._filed))
            self._write(
                rows.OCCURRENCE_UPSERT, (rows.occurrence_row(each) for each in put if each.id not in self._filed))
        if self._cells_changed:
            cells = [self.cells[name][target] for name, target in self._cells_changed]
            self._cells_changed.clear()
            self._write(rows.CELL_UPSERT, map(rows.cell_row, cells))
        if names := changed.get("runs"):
            runs = [run for name in names if (run := self.runs[name]) is not None]
            self._write(rows.RUN_UPDATE, (rows.run_update(run) for run in runs if run.id in self._filed))
            self._write(rows.RUN_UPSERT, (rows.run_row(run) for run in runs if run.id not in self._filed))
        self._filed.update(*(changed.get(kind, ()) for kind in ("occurrences", "runs")))

    def _write_crons(self, put: list[Cron]) -> None:
        """A cron that is there mostly changes in its bookkeeping: its definition is not spelled anew for that."""
        kept = [cron for cron in put if self._written.get(cron.id) is cron.definition]
        others = [cron for cron in put if self._written.get(cron.id) is not cron.definition]
        serials = self._serials([cron.id for cron in others])
        self._write(rows.CRON_UPDATE, map(rows.cron_update, kept))
        for statement, damaged in ((rows.CRON_UPSERT, False), (rows.CRON_UPDATE_DAMAGED, True)):
            mine = [cron for cron in others if bool(cron.damage) is damaged]
            self._write(statement, (rows.cron_row(cron, serials[cron.id]) for cron in mine))
        self._written.update((cron.id, cron.definition) for cron in others if not cron.damage)

    def _serials(self, ids: list[str]) -> dict[str, int]:
        """Those that are there keep theirs, the others get the next ones, in their order."""
        found = dict[str, int](self._read("SELECT id, serial FROM crons WHERE id IN", ids))
        if self._last_serial is None and len(found) < len(ids):
            last = self._database.execute_sql("SELECT coalesce(max(serial), 0) FROM crons").fetchone()
            self._last_serial = int(last[0])
        for name in ids:
            if name not in found and self._last_serial is not None:
                self._last_serial += 1
                found[name] = self._last_serial
        return found

    def _write(self, sql: str, values: Iterable[rows.Row]) -> None:
        """peewee has no `executemany`; its connection is the one that the transaction is open on."""
        self._database.connection().executemany(sql, values)


def _portions(items: list[T], size: int) -> Iterator[list[T]]:
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some
