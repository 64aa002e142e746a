"""One column of one row holds what nobody wrote: that row is told as well as can be, and all others go on.

Each text column gets a word that means nothing, bytes that are no text, and each message bytes that are no message.
"""

import sqlite3
from contextlib import closing

import pytest

from crtrd.control import views
from crtrd.core.delivery import Outcome
from crtrd.core.effects import Deliver, Spawn
from crtrd.core.events import DaemonStarted, DeliveryEnded, WokeUp
from crtrd.core.facts import Limits
from crtrd.engine.engine import decide
from crtrd.ledger.queries import Filter, Queries
from crtrd.ledger.schema import STEPS
from tests.core.conftest import make_world  # noqa: F401 - a fixture
from tests.core.world import BOOT, M
from tests.ledger.conftest import Opened

TABLES = ("crons", "occurrences", "cells", "runs", "outbox", "queues", "escalations", "told", "departed", "former",
          "trigger_keys")
ODD = {"a word": "'no such word'", "nothing": "''", "no text": "CAST(x'ff41fe' AS TEXT)"}


def columns():
    """(table, column) of all texts, by the schema itself."""
    with closing(sqlite3.connect(":memory:")) as base:
        for step in STEPS:
            for statement in step:
                base.execute(statement)
        return [(table, row[1]) for table in TABLES for row in base.execute(f"PRAGMA table_info({table})")
                if row[2] == "TEXT"]


def filled(world):
    """Of everything at least one row: runs that have ended, one that runs, one at its gate, one that is held."""
    common = {"schedule": ("every 1m",), "sinks": ("journal", "inbox"), "on_output": "always"}
    for name in ("ended", "running", "starting", "held", "paused", "gone"):
        world.arm(name, **common)
    world.wake(M)
    world.end_all(0, "ended")
    world.end_all(75, "held")
    world.end_all(1, "paused")
    world.begin("running")
    world.begin("gone")
    world.trigger("key", "ended")
    world.cancel("gone")
    world.arm("other", schedule=("every 1m",), sinks=("journal",), on_output="always")
    world.database.execute_sql("INSERT INTO queues (name, until, failures) VALUES ('0:file:/x', 1, 1)")
    world.database.execute_sql("INSERT OR IGNORE INTO told VALUES ('c', '', 'journal', '', x'', 0)")
    world.database.execute_sql("INSERT OR IGNORE INTO former VALUES ('c', 'n', 0)")


def look(database):
    """All that a surface can ask for."""
    ask = Queries(database)
    crons, _ = ask.crons(Filter(), 1000, 0)
    standing = ask.standing([cron.id for cron in crons])
    shown = [views.cron_details(cron, views.cron_view(cron, standing[cron.id])) for cron in crons]
    shown += [views.occurrence_view(row, cells) for row, cells in ask.occurrences_with_cells(Filter(), 1000, 0)[0]]
    shown += [views.run_view(run) for run in ask.runs(Filter(), 1000, 0)[0]]
    shown += [views.delivery_view(each) for each in ask.deliveries(Filter(), 1000, 0)[0]]
    shown += [views.escalation_view(each) for each in ask.escalations(Filter(), 1000, 0)[0]]
    ask.counts(), ask.next_wake(), ask.former_of(0), ask.former_cron("gone")
    return shown


@pytest.mark.parametrize(("table", "column"), columns())
@pytest.mark.parametrize("odd", ODD)
def test_one_odd_text_hurts_its_own_row_alone(make_world, table, column, odd):  # noqa: F811
    world = make_world()
    filled(world)
    count = len(look(world.database))
    world.database.close()
    with closing(sqlite3.connect(world.path)) as base:
        which = f"rowid = (SELECT rowid FROM {table} WHERE rowid > 0 LIMIT 1)"
        if table in {"cells", "queues", "told", "departed", "former", "trigger_keys"}:  # those have none
            which = "1" if base.execute(f"SELECT count(*) FROM {table}").fetchone()[0] == 1 else "true"
        try:
            base.execute(f"UPDATE OR IGNORE {table} SET {column} = {ODD[odd]} WHERE {which}")
        except sqlite3.IntegrityError:  # a settled occurrence never moves
            base.execute("DROP TRIGGER occurrences_settled_is_final")
            base.execute(f"UPDATE OR IGNORE {table} SET {column} = {ODD[odd]} WHERE {which}")
        base.commit()
    each = Opened(world.path, owner="life-2", boot_id=BOOT)
    each.store.open()
    try:
        assert len(look(each.store._database)) == count
        assert goes_on(each, world.now)
        assert len(look(each.store._database)) >= count
    finally:
        each.store.close()


def goes_on(each, now):
    """A life begins on that ledger, and the untouched cron has its next instant; what may be delivered is tried."""
    limits = Limits(BOOT)
    begun = []
    for event in (DaemonStarted(now, BOOT), WokeUp(now + M), WokeUp(now + 2 * M)):
        found = each.do(lambda session, event=event: decide((event,), session, limits, event.at, event.at))
        begun += [act.cron.name for act in found.acts if isinstance(act, Spawn)]
        for act in found.acts:
            if isinstance(act, Deliver):
                said = DeliveryEnded(event.at, act.delivery.id, act.delivery.attempts, Outcome.REFUSED, "odd", 0)
                each.do(lambda session, said=said: decide((said,), session, limits, said.at, said.at))
    return "other" in begun
