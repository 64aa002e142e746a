"""What a decision costs, counted in steps of SQLite's machine: not more because much is long past, or much waits.

Each of these was once a hundred times dearer: the planner took an index that leads through all of the history.
"""

from contextlib import contextmanager
from itertools import pairwise

import pytest

from crtrd.core import events
from crtrd.core.cron import CatchUp, Overlap
from crtrd.core.facts import Limits
from crtrd.core.occurrence import Output
from crtrd.engine.engine import decide
from tests.core.world import BOOT, H, M

STEP = 100  # sqlite3_progress_handler's grain


class Steps:
    count = 0

    def tick(self):
        self.count += STEP


@contextmanager
def counted(world):
    steps = Steps()
    connection = world.database.connection()
    connection.set_progress_handler(steps.tick, STEP)
    yield steps
    connection.set_progress_handler(None, 0)


def past(world, number):
    """So many settled occurrences with their runs and cells."""
    world.wake(M)
    (run,) = world.live()
    world.end(run, 3)
    world.database.execute_sql("UPDATE outbox SET state = 'delivered', settled_at = 1")
    occurrence = run.occurrence_id
    columns = {}
    for table in ("occurrences", "runs", "cells", "outbox"):
        columns[table] = [row[1] for row in world.database.execute_sql(f"PRAGMA table_info({table})")]
    with world.database.atomic():
        for n in range(number):
            fill(world, "occurrences", columns["occurrences"], "id", occurrence,
                 {"serial": None, "id": f"{n:032x}", "instant": n, "due_at": n})
            fill(world, "runs", columns["runs"], "occurrence_id", occurrence,
                 {"serial": None, "id": f"{n:032x}", "occurrence_id": f"{n:032x}"})
            fill(world, "outbox", columns["outbox"], "occurrence_id", occurrence, {"serial": None, "id": f"{n:032x}"})
            fill(world, "cells", columns["cells"], "occurrence_id", occurrence, {"occurrence_id": f"{n:032x}"})


def fill(world, table, columns, by, value, changes):
    chosen = [("?" if name in changes else name) for name in columns]
    world.database.execute_sql(
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(chosen)} FROM {table} WHERE {by} = ? LIMIT 1",
        (*(changes[name] for name in columns if name in changes), value))


def cycle(world):
    """An instant comes due, its run stands at the gate, goes and ends."""
    world.wake(M)
    (run,) = world.live()
    world.end(run)


@pytest.mark.parametrize("overlap", list(Overlap))
def test_what_is_long_past_costs_nothing(make_world, overlap):
    counts = []
    for history in (10, 3000):
        world = make_world()
        world.arm(schedule=("every 1m",), overlap=overlap, alert_after=H, on_failure="continue")
        past(world, history)
        cycle(world)
        with counted(world) as steps:
            cycle(world)
            world.trigger("t1")
            world.run()
            world.pause()
            world.resume()
            world.session.owed(world.now)
        counts.append(steps.count)
    assert counts[1] < 1.5 * counts[0] + 50 * STEP, counts


def test_what_waits_is_looked_at_once_for_a_batch(make_world):
    counts = []
    for waiting in (5, 100):
        world = make_world()
        for name in ("a", "b", "c"):
            world.arm(name, schedule=("every 1m",), catch_up=CatchUp.ALL)
        world.now += waiting * M
        world.wake()
        batch = tuple(events.WokeUp(world.now) for _ in range(100))
        with counted(world) as steps, world.database.atomic("IMMEDIATE"):
            decide(batch, world.session, world.limits, world.now, world.now)
        counts.append(steps.count)
    per_waiting = (counts[1] - counts[0]) / (3 * 95)
    assert per_waiting < 300, counts


def test_who_joins_a_long_line_does_not_read_all_of_it(make_world):
    """With two thousand in line each trigger and each start once read them all, 80 ms of the ledger's thread."""
    for overlap in ("queue", "allow"):
        read = []
        for waiting in (5, 100):
            world = make_world(Limits(BOOT, max_runs_at_once=1))
            world.arm(overlap=overlap, queue_limit=1000)
            for n in range(waiting):
                world.trigger(f"k{n}")
            rows = watched(world)
            world.trigger("another")
            (run,) = world.live()
            world.end(run)
            world.database.connection().row_factory = None
            read.append(len(rows))
        assert read[1] <= read[0] + 10, (overlap, read)


def watched(world):
    """Every row that is read from here on."""
    found = []

    def keep(_, row):
        found.append(row)
        return row

    world.database.connection().row_factory = keep
    return found


def test_what_ends_together_is_written_together(make_world):
    """Once whatever was decided of one end was written before the next was looked at."""
    written = []
    for number in (5, 50):
        world = make_world(Limits(BOOT, max_runs_at_once=100))
        for name in (f"c{n}" for n in range(number)):
            world.arm(name, schedule=("every 1m",))
        world.wake(M)
        runs = world.session.live_runs()
        for run in runs:
            world.held(run)
        ends = tuple(
            events.RunEnded(world.now, run.id, events.Ending(0, None, False, 1, Output(), Output())) for run in runs)  # noqa: FBT003
        statements = []
        with world.database.atomic("IMMEDIATE"):
            world.database.connection().set_trace_callback(statements.append)
            decide(ends, world.session, world.limits, world.now, world.now)
            world.database.connection().set_trace_callback(None)
        # one that is executed for many rows is traced for each of them, so turns between tables are counted
        tables = [words[1] for words in map(str.split, statements) if words[0] in {"UPDATE", "INSERT"}]
        written.append(sum(one != other for one, other in pairwise(tables)))
    assert written[1] <= written[0] + 2, written
