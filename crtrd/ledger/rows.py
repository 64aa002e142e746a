"""Rows and values: how a cron, an occurrence, a cell, a run lies in its table.

The hot statements are written once, here, from the models' own fields; the rest of the room uses peewee's queries.

Reading never raises. What a bad disk, a hand or a newer crtrd has put into one column means the least that can follow
from it (nothing is started a second time, nothing is forgotten), for this row alone: all others go on.
"""

import json
import zlib
from dataclasses import fields
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from peewee import Model

from crtrd.core.cron import (
    CatchUp,
    Cron,
    Definition,
    Departed,
    OnCrash,
    OnFailure,
    OnOutput,
    Overlap,
    PausedBy,
    State,
    Survivors,
)
from crtrd.core.delivery import Delivery, DeliveryState, Escalation, EscalationState
from crtrd.core.disposition import Kind
from crtrd.core.occurrence import (
    Cell,
    Identity,
    Occurrence,
    Origin,
    Output,
    Phase,
    Reason,
    Result,
    Run,
    Status,
)
from crtrd.ledger.models import (
    CellRow,
    CronRow,
    EscalationRow,
    KeyRow,
    OccurrenceRow,
    OutboxRow,
    QueueRow,
    RunRow,
    ToldRow,
)

Row = tuple[Any, ...]
T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)
CHOICES: dict[str, type[StrEnum]] = {
    "overlap": Overlap, "catch_up": CatchUp, "on_crash": OnCrash, "on_output": OnOutput, "on_failure": OnFailure,
    "survivors": Survivors,
}
PAIRS = frozenset({"env", "resources"})
DEFAULTS = {field.name: field.default for field in fields(Definition) if field.name != "name"}
_values_of = attrgetter(*DEFAULTS)
SHAPES = get_type_hints(Definition)


def columns(model: type[Model], *without: str) -> tuple[str, ...]:
    return tuple(name for name in model._meta.sorted_field_names if name not in without)  # noqa: SLF001 - peewee's door


def selection(model: type[Model], condition: str, *without: str, alias: str = "") -> str:
    """SELECT of all columns, in the order that `*_from_row` reads them."""
    table = model._meta.table_name  # noqa: SLF001 - peewee's door
    prefix = f"{alias}." if alias else ""
    names = ", ".join(f'{prefix}"{name}"' for name in columns(model, *without))
    return f'SELECT {names} FROM "{table}" {alias} {condition}'  # noqa: S608 - names come from the models


def upsert(model: type[Model], conflict: str, *without: str, keep: tuple[str, ...] = ()) -> str:
    """INSERT that updates the row of the same identity, all but the columns `keep`."""
    table = model._meta.table_name  # noqa: SLF001 - peewee's door
    names = columns(model, *without)
    places = ", ".join("?" for _ in names)
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name not in (*conflict.split(", "), *keep))
    listed = ", ".join(f'"{name}"' for name in names)
    return f'INSERT INTO "{table}" ({listed}) VALUES ({places}) ON CONFLICT ({conflict}) DO UPDATE SET {changes}'  # noqa: S608


def update(model: type[Model], names: tuple[str, ...]) -> str:
    """UPDATE of these columns by id. Touching no others leaves the indexes on them alone."""
    table = model._meta.table_name  # noqa: SLF001 - peewee's door
    changes = ", ".join(f'"{name}" = ?' for name in names)
    return f'UPDATE "{table}" SET {changes} WHERE id = ?'  # noqa: S608 - names come from this file


def dump_definition(definition: Definition) -> str:
    """JSON of every key that differs from its default: old rows gain new keys' defaults by themselves."""
    values = zip(DEFAULTS, _values_of(definition), DEFAULTS.values(), strict=True)
    kept = {"name": definition.name, **{name: value for name, value, usual in values
                                        if value is not usual and value != usual}}
    for name in PAIRS & kept.keys():
        kept[name] = dict(kept[name])
    return json.dumps(kept, ensure_ascii=True, separators=(",", ":"))


@lru_cache(maxsize=1024)
def load_definition(text: str) -> Definition:
    """The definition of a stored text; raises ValueError where the text is damaged or from a newer crtrd."""
    values = json.loads(text)
    if not isinstance(values, dict) or "name" not in values:
        raise ValueError("it is not a table with a name")
    if unknown := sorted(values.keys() - SHAPES.keys()):
        raise ValueError(f"it has a key that this crtrd does not know: {unknown[0]}")
    return Definition(**{name: _load(name, value) for name, value in values.items()})


@lru_cache(maxsize=64)
def _without_environment(text: str) -> Definition | None:
    """Where nothing but `env` is damaged the schedule is still known, so that each instant owed gets its failed row."""
    try:
        values = json.loads(text)
        return load_definition(json.dumps({name: value for name, value in values.items() if name != "env"}))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def _load(name: str, value: Any) -> Any:  # noqa: ANN401 - one of the field types
    if name in CHOICES:
        return CHOICES[name](value)
    if name in PAIRS and isinstance(value, dict):
        value = tuple(value.items())
    elif isinstance(value, list):
        value = tuple(value)
    if not _fits(value, SHAPES[name]):
        raise ValueError(f"{name} has a value of a wrong type")
    return value


def _fits(value: object, shape: Any) -> bool:  # noqa: ANN401 - a type, as annotations write it
    """Whether `value` is of the type that the field is annotated with: scalars, unions, tuples of any length."""
    if isinstance(shape, UnionType):
        return any(_fits(value, each) for each in get_args(shape))
    if get_origin(shape) is tuple:
        inner = get_args(shape)
        return isinstance(value, tuple) and (
            all(_fits(each, inner[0]) for each in value) if Ellipsis in inner
            else len(value) == len(inner) and all(map(_fits, value, inner)))
    return type(value) is shape


def cron_row(cron: Cron, serial: int) -> Row:
    definition = cron.definition
    return (
        cron.id, cron.name, dump_definition(definition), cron.state, cron.paused_by, cron.note, cron.owner,
        cron.created_at, cron.changed_at, cron.anchor, cron.considered, cron.decided, cron.next_at,
        cron.after_end_at, cron.failures, cron.runs_counted, cron.last_boot, json.dumps(cron.skip_next),
        definition.overlap, definition.pool, cron.account, cron.failing_since, cron.failing_count, cron.source, serial,
    )


def cron_from_row(row: Row) -> Cron:
    """A row whose definition cannot be read is a cron that says so in `damage`: it must not stop the others."""
    try:
        definition, damage = load_definition(row[2]), ""
    except (ValueError, TypeError, RecursionError) as error:
        definition, damage = _without_environment(row[2]) or Definition(row[1]), str(error)
    state = STATES.get(row[3])
    if state is None:
        state, damage = State.PAUSED, damage or f"its state is {row[3]!r}"
    return Cron(
        id=row[0], definition=definition, state=state, paused_by=PAUSED_BY.get(row[4], PausedBy.FAILURE), note=row[5],
        owner=row[6], created_at=row[7], changed_at=row[8], anchor=row[9], considered=row[10],
        decided=row[11] or 0, next_at=row[12], after_end_at=row[13], failures=row[14], runs_counted=row[15],
        last_boot=row[16], skip_next=_list_of(int, row[17]), damage=damage, account=row[20],
        failing_since=row[21], failing_count=row[22], source=row[23],
    )


def _words(kind: type[W]) -> dict[str, W]:
    return {str(each): each for each in kind}


STATES, PAUSED_BY, ORIGINS = _words(State), _words(PausedBy), _words(Origin)
STATUSES, REASONS, PHASES, RESULTS = _words(Status), _words(Reason), _words(Phase), _words(Result)
KINDS, DELIVERY_STATES, ESCALATION_STATES = _words(Kind), _words(DeliveryState), _words(EscalationState)


def _list_of(kind: type[T], text: str) -> tuple[T, ...]:
    """What a column holds as JSON; () where it is no list of these."""
    if text == "[]":
        return ()
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    return tuple(found) if isinstance(found, list) and all(type(each) is kind for each in found) else ()


CRON_BOOKKEEPING = (
    "state", "paused_by", "note", "changed_at", "anchor", "considered", "decided", "next_at", "after_end_at",
    "failures", "runs_counted", "last_boot", "skip_next", "account", "failing_since", "failing_count", "source",
)


def cron_update(cron: Cron) -> Row:
    return (
        cron.state, cron.paused_by, cron.note, cron.changed_at, cron.anchor, cron.considered, cron.decided,
        cron.next_at, cron.after_end_at, cron.failures, cron.runs_counted, cron.last_boot, json.dumps(cron.skip_next),
        cron.account,
        cron.failing_since, cron.failing_count, cron.source, cron.id,
    )


def departed_row(departed: Departed) -> Row:
    """The cron as JSON of its own row, by column: it is read again only to end its last runs."""
    values = dict(zip(columns(CronRow), cron_row(departed.cron, 0), strict=True))
    return (departed.cron.id, json.dumps(values), departed.delivers)


def departed_from_row(row: Row) -> Departed | None:
    """None where it cannot be read: then its last runs end by no rules of their own."""
    try:
        values = json.loads(row[1])
        return Departed(cron_from_row(tuple(values.get(name, "") for name in columns(CronRow))), row[2])
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None


def occurrence_row(each: Occurrence) -> Row:
    return (
        each.id, each.cron_id, each.cron_name, each.origin, each.instant, each.key, each.status, each.reason,
        each.detail, each.label, each.target, each.overlap, each.created_at, each.due_at, each.settled_at,
        each.covers, each.fence, each.alert_at,
    )


OCCURRENCE_MOVES = ("status", "reason", "detail", "label", "due_at", "settled_at", "covers", "fence", "alert_at")


def occurrence_update(each: Occurrence) -> Row:
    return (each.status, each.reason, each.detail, each.label, each.due_at, each.settled_at, each.covers, each.fence,
            each.alert_at, each.id)


def occurrence_from_row(row: Row) -> Occurrence:
    """One that is open with an unknown status is held: it begins when somebody pokes it."""
    status = STATUSES.get(row[6]) or (Status.HELD if row[14] is None else Status.UNOBSERVED)
    return Occurrence(
        id=row[0], cron_id=row[1], cron_name=row[2], origin=ORIGINS.get(row[3], Origin.MANUAL), instant=row[4],
        key=row[5], status=status, reason=REASONS.get(row[7], Reason.NONE), detail=row[8], label=row[9],
        target=row[10], overlap=row[11], created_at=row[12], due_at=row[13], settled_at=row[14], covers=row[15],
        fence=row[16], alert_at=row[17],
    )


def cell_row(cell: Cell) -> Row:
    return (cell.occurrence_id, cell.target, cell.status, cell.attempts, cell.shortages, cell.due_at, cell.excused,
            cell.place)


def cell_from_row(row: Row) -> Cell:
    return Cell(row[0], row[1], STATUSES.get(row[2], Status.UNOBSERVED), *row[3:8])


def run_row(run: Run) -> Row:
    who = run.identity
    return (
        run.id, run.occurrence_id, run.cron_id, run.cron_name, run.target, run.attempt, run.trigger,
        run.scheduled_at, run.phase, int(run.out_of_band), run.fence, run.created_at,
        who.boot_id if who else None, who.pid if who else None, who.start_ticks if who else None, run.cgroup,
        run.started_at, run.finished_at, run.duration, run.stopping, run.result, run.reason, run.exit_code,
        run.signal, run.stdout.head, run.stdout.total, run.stdout.sha256, run.stderr.head, run.stderr.total,
        run.stderr.sha256, json.dumps(run.survivors), run.delivered, run.stdout.masked,
    )


RUN_MOVES = (
    "phase", "boot_id", "pid", "start_ticks", "cgroup", "started_at", "finished_at", "duration", "stopping", "result",
    "reason", "exit_code", "signal", "stdout_head", "stdout_total", "stdout_sha256", "stderr_head", "stderr_total",
    "stderr_sha256", "survivors", "delivered", "stdout_masked",
)


def run_update(run: Run) -> Row:
    """The columns of RUN_MOVES, of which the row has the first right after those that never change."""
    row = run_row(run)
    return (row[8], *row[12:], run.id)


def run_from_row(row: Row) -> Run:
    """One in an unknown phase that has not ended is looked for by its identity; without one its gate never opened."""
    identity = Identity(row[12] or "", row[13], row[14] or 0) if row[13] is not None else None
    phase = PHASES.get(row[8])
    if phase is None:
        phase = Phase.RUNNING if identity else Phase.STARTING
    stopping = RESULTS.get(row[19], Result.CANCELED) if row[19] else ""
    return Run(
        id=row[0], occurrence_id=row[1], cron_id=row[2], cron_name=row[3], target=row[4], attempt=row[5],
        trigger=ORIGINS.get(row[6], Origin.MANUAL), scheduled_at=row[7], phase=phase, out_of_band=bool(row[9]),
        fence=row[10], created_at=row[11], identity=identity, cgroup=row[15], started_at=row[16],
        finished_at=row[17], duration=row[18], stopping=stopping,
        result=RESULTS.get(row[20], Result.UNOBSERVED) if row[20] else None, reason=row[21],
        exit_code=row[22], signal=row[23], stdout=Output(bytes(row[24]), row[25], row[26], row[32]),
        stderr=Output(bytes(row[27]), row[28], row[29]), survivors=_list_of(str, row[30]), delivered=row[31],
    )


def delivery_row(each: Delivery) -> Row:
    """Compressed: a message holds both heads, twice over, and zero bytes are six characters of JSON each."""
    return (
        each.id, each.cron_id, each.cron_name, each.owner, each.occurrence_id, each.run_id, each.target, each.kind,
        each.sink, each.queue, zlib.compress(each.message.encode()), each.created_at, each.next_attempt_at,
        each.state, each.attempts,
        each.last_error, each.settled_at, each.sha256,
    )


def delivery_from_row(row: Row) -> Delivery:
    """Without a message where that cannot be read: no sink takes it, so that it ends as dead."""
    try:
        message = zlib.decompress(row[10]).decode()
    except (zlib.error, ValueError):
        message = ""
    return Delivery(
        id=row[0], cron_id=row[1], cron_name=row[2], owner=row[3], occurrence_id=row[4], run_id=row[5],
        target=row[6], kind=KINDS.get(row[7], Kind.OUTPUT), sink=row[8], queue=row[9], message=message,
        created_at=row[11], next_attempt_at=row[12], state=DELIVERY_STATES.get(row[13], DeliveryState.DEAD),
        attempts=row[14], last_error=row[15], settled_at=row[16], sha256=row[17],
    )


def escalation_row(each: Escalation) -> Row:
    return (each.id, each.cron_id, each.cron_name, each.owner, each.occurrence_id, each.at, each.summary, each.brief,
            each.state, each.error, each.look_at, each.boot_id)


def escalation_from_row(row: Row) -> Escalation:
    return Escalation(
        id=row[0], cron_id=row[1], cron_name=row[2], owner=row[3], occurrence_id=row[4], at=row[5], summary=row[6],
        brief=row[7], state=ESCALATION_STATES.get(row[8], EscalationState.TOLD), error=row[9], look_at=row[10],
        boot_id=row[11],
    )


FORMER_INSERT = "INSERT OR REPLACE INTO former (id, name, owner) VALUES (?, ?, ?)"
CRON_SELECT = selection(CronRow, "", alias="c")
CRON_UPSERT = upsert(CronRow, "id")
CRON_UPDATE = update(CronRow, CRON_BOOKKEEPING)
CRON_UPDATE_DAMAGED = upsert(CronRow, "id", keep=("definition", "overlap", "pool"))
OCCURRENCE_SELECT = selection(OccurrenceRow, "", "serial", alias="o")
OCCURRENCE_UPSERT = upsert(OccurrenceRow, "id", "serial")
OCCURRENCE_UPDATE = update(OccurrenceRow, OCCURRENCE_MOVES)
CELL_SELECT = selection(CellRow, "")
CELL_UPSERT = upsert(CellRow, "occurrence_id, target")
RUN_SELECT = selection(RunRow, "", "serial", alias="r")
RUN_UPSERT = upsert(RunRow, "id", "serial")
RUN_UPDATE = update(RunRow, RUN_MOVES)
DELIVERY_SELECT = selection(OutboxRow, "", "serial", alias="d")
DELIVERY_UPSERT = upsert(OutboxRow, "id", "serial", keep=("message",))
DELIVERY_INSERT = DELIVERY_UPSERT.partition(" DO UPDATE ")[0] + " DO NOTHING"
QUEUE_UPSERT = upsert(QueueRow, "name")
TOLD_UPSERT = upsert(ToldRow, "cron_id, target, sink")
ESCALATION_SELECT = selection(EscalationRow, "", "serial", alias="e")
ESCALATION_UPSERT = upsert(EscalationRow, "id", "serial")
KEY_UPSERT = upsert(KeyRow, "cron_id, key")
