"""What is put comes back, every field of it; what is settled stays; what cannot be read says so and harms no other."""

import json
from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings

from crtrd.core.cron import Cron, Definition, Departed, State
from crtrd.core.delivery import Delivery, Queue, Told
from crtrd.core.effects import PutCell, PutCron, PutDelivery, PutDeparted, PutOccurrence, PutQueue, PutRun, PutTold
from crtrd.core.occurrence import Cell, Occurrence, Origin, Run, Status
from crtrd.ledger.queries import Filter
from crtrd.ledger.rows import dump_definition, load_definition
from tests.ledger import values

once = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
CRON = Cron("c" * 32, Definition("job", schedule=("* * * * *",), command=("true",)), State.ACTIVE, 0, 1, 1, 1, 1, 5)
ROW = Occurrence("i" * 32, CRON.id, "job", Origin.SCHEDULE, 1, "", Status.PENDING, 1, 1)


class Undone(Exception):
    pass


def put_and_read(opened, record, read):
    """Within a transaction that is given up, so that one store serves all examples."""
    found = []

    def work(session):
        try:
            with session.undoable():
                session.put(record)
                if not isinstance(record, PutOccurrence):  # which may be settled
                    session.put(record)
                found.append(read(session))
                raise Undone
        except Undone:
            pass

    opened.do(work)
    return found[0]


@pytest.mark.parametrize(
    ("kind", "strategy", "record", "read"),
    [
        (Cron, values.CRONS, PutCron, lambda session, value: session.cron(value.id)),
        (Departed, values.DEPARTED, PutDeparted, lambda session, value: session.departed(value.cron.id)),
        (Occurrence, values.OCCURRENCES, PutOccurrence, lambda session, value: session.occurrence(value.id)),
        (Cell, values.CELLS, PutCell, lambda session, value: session.cells(value.occurrence_id)[0]),
        (Run, values.RUNS, PutRun, lambda session, value: session.run(value.id)),
        (Delivery, values.DELIVERIES, PutDelivery, lambda session, value: session.delivery(value.id)),
        (Queue, values.QUEUES, PutQueue, lambda session, value: session.queue(value.name)),
        (Told, values.TOLD, PutTold, lambda session, value: session.told(value.cron_id, value.target, value.sink)),
    ],
    ids=["crons", "departed", "occurrences", "cells", "runs", "deliveries", "queues", "told"],
)
def test_everything_comes_back(opened, kind, strategy, record, read):
    store = opened()

    @once
    @given(strategy)
    def check(value):
        assert put_and_read(store, record(value), lambda session: read(session, value)) == value

    check()


def test_the_strategies_miss_no_field():
    for kind, strategy in ((Cron, values.CRONS), (Definition, values.DEFINITIONS), (Occurrence, values.OCCURRENCES),
                           (Cell, values.CELLS), (Run, values.RUNS),
                           (Delivery, values.DELIVERIES), (Queue, values.QUEUES),
                           (Told, values.TOLD)):
        named = set(strategy.wrapped_strategy.kwargs if hasattr(strategy, "wrapped_strategy") else strategy.kwargs)
        assert named | {"damage"} >= {field.name for field in fields(kind)}


@once
@given(values.DEFINITIONS)
def test_definitions_as_text(definition):
    text = dump_definition(definition)
    assert text.isascii()
    assert load_definition(text) == definition


def test_a_stored_definition_holds_what_differs_and_gains_new_defaults():
    assert json.loads(dump_definition(Definition("job", retries=2))) == {"name": "job", "retries": 2}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", '{"retries":1}', '{"name":"job","novel":1}', '{"name":7}',
     '{"name":"job","retries":"2"}',
     '{"name":"job","retries":true}', '{"name":"job","overlap":"sometimes"}', '{"name":"job","env":[["A","B"]]}',
     '{"name":"job","env":{"A":7}}', '{"name":"job","schedule":"* * * * *"}', '{"name":"job","schedule":[7]}',
     '{"name":"job","starts_at":1.5}', '{"name":"job","command":{"0":"true"}}', "[" * 100_000],
)
def test_damaged_definitions_are_told(opened, text):
    store = opened()

    def damage(session):
        session.put(PutCron(CRON))
        session.put(PutCron(replace(CRON, id="d" * 32, definition=replace(CRON.definition, name="sound"))))
        session.write()
        session._database.execute_sql("UPDATE crons SET definition = ? WHERE name = 'job'", (text,))

    store.do(damage)
    damaged, sound = store.do(lambda session: session.crons_due(9))
    assert damaged.damage
    assert damaged.definition == Definition("job")
    assert (sound.name, sound.damage) == ("sound", "")
    crons, _ = store.store.queries.crons(Filter(), 10, 0)
    assert [cron.name for cron in crons] == ["job", "sound"]
    store.do(lambda session: session.put(PutCron(replace(damaged, state=State.PAUSED, note="n", next_at=None))))
    stored = store.do(
        lambda session: session._one("SELECT definition, state, note, overlap FROM crons WHERE name = 'job'"))
    assert stored == (text, "paused", "n", "skip")


@pytest.mark.parametrize("status", sorted(Status))
def test_i4_the_trigger_of_the_table_keeps_settled_rows(opened, status):
    store = opened()
    store.do(lambda session: session.put(PutOccurrence(replace(ROW, status=Status.FAILED, settled_at=3))))
    store.store.submit(lambda session: session.put(PutOccurrence(replace(ROW, status=status))), lambda _: None)
    with pytest.raises(Exception, match="a settled occurrence never moves"):
        store.posts.take()
    assert store.do(lambda session: session.occurrence(ROW.id)).status == "failed"


def test_i2_the_table_refuses_a_second_row_for_one_instant(opened):
    store = opened()
    store.do(lambda session: session.put(PutOccurrence(ROW)))
    store.store.submit(lambda session: session.put(PutOccurrence(replace(ROW, id="j" * 32))), lambda _: None)
    with pytest.raises(Exception, match="UNIQUE"):
        store.posts.take()
