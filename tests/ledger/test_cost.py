"""What a question costs, counted in steps of SQLite's machine: no more because the history is long.

The views are asked in the loop's thread, retention in the ledger's: after 300 000 settled occurrences each of these
once stood in the way for tenths of a second, a list of crons for seconds.
"""

import pytest

from crtrd.core.events import DaemonStarted
from crtrd.ledger.queries import SCAN, Filter, Queries
from crtrd.ledger.retention import BEGIN, LOOK, Keep
from tests.core.conftest import make_world  # noqa: F401 - a fixture
from tests.core.test_cost import counted
from tests.core.world import BOOT, D, M

LONG = 2 * max(SCAN, LOOK)
FOREVER = Keep(10_000 * D, 10_000 * D, 10**9)
SERIES = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?) "


def after(world, number, status="success"):
    """A cron, and so many settled occurrences of it, each with a run and a delivery; its questions."""
    cron = world.arm(schedule=("every 1m",), on_failure="continue")
    world.wake(M)
    (run,) = world.live()
    world.end(run, 3)
    world.database.execute_sql("UPDATE outbox SET state = 'delivered', settled_at = created_at")
    name = "printf('%032x', n)"
    copy(world, "occurrences", "id", run.occurrence_id, number,
         {"id": name, "instant": "n", "due_at": "n", "status": f"'{status}'"})
    copy(world, "runs", "occurrence_id", run.occurrence_id, number, {"id": name, "occurrence_id": name})
    copy(world, "outbox", "occurrence_id", run.occurrence_id, number, {"id": name})
    return cron, Queries(world.database)


def copy(world, table, by, value, number, changes):
    changes = {"serial": "NULL", **changes}
    columns = [row[1] for row in world.database.execute_sql(f"PRAGMA table_info({table})")]
    chosen = ", ".join(changes.get(column, column) for column in columns)
    world.database.execute_sql(
        f"INSERT INTO {table} {SERIES} SELECT {chosen} FROM n, (SELECT * FROM {table} WHERE {by} = ? LIMIT 1)",
        (number, value))


QUESTIONS = {
    "standing": lambda ask, cron: ask.standing([cron]),
    "counts": lambda ask, _: ask.counts(),
    "at an instant": lambda ask, cron: ask.occurrence_at(cron, 17),
    "covering": lambda ask, cron: ask.occurrence_covering(cron, 17),
    "nothing of that name": lambda ask, _: ask.former_cron("nobody"),
    "occurrences": lambda ask, cron: ask.occurrences(Filter(cron_id=cron), 20, 0),
    "runs": lambda ask, _: ask.runs(Filter(), 20, 0),
    "deliveries": lambda ask, _: ask.deliveries(Filter(), 20, 0),
}


@pytest.mark.parametrize("status", ["success", "skipped"])
def test_a_question_costs_no_more_after_a_long_history(make_world, status):  # noqa: F811
    costs = {}
    for number in (50, 3000):
        world = make_world()
        cron, queries = after(world, number, status)
        for name, question in QUESTIONS.items():
            with counted(world) as steps:
                question(queries, cron.id)
            costs.setdefault(name, []).append(steps.count)
    assert not {name: cost for name, cost in costs.items() if cost[1] > 2 * cost[0] + 500}


def test_a_rerun_is_looked_for_among_what_was_asked_by_hand(make_world):  # noqa: F811
    costs = []
    for number in (50, 3000):
        world = make_world()
        cron, queries = after(world, number)
        (occurrence,), _ = queries.occurrences(Filter(cron_id=cron.id), 1, 0)
        with counted(world) as steps:
            assert world.session.reruns(occurrence) == []
        costs.append(steps.count)
    assert costs[1] <= costs[0] + 200


NARROWED = [
    {"status": "partial"}, {"since": 1 << 60}, {"until": -1}, {"ids": ("f" * 32,)}, {"result": "oom-kill"},
    {"state": "dead"},
]


@pytest.mark.parametrize("of_one_cron", [False, True])
@pytest.mark.parametrize("narrowed", NARROWED, ids=lambda each: next(iter(each)))
def test_a_page_of_a_narrowed_list_looks_through_so_many_rows_and_no_more(make_world, narrowed, of_one_cron):  # noqa: F811
    world = make_world()
    cron, queries = after(world, LONG)
    wanted = Filter(cron_id=cron.id if of_one_cron else "", **narrowed)
    for each in (queries.occurrences, queries.runs, queries.deliveries):
        with counted(world) as steps:
            each(wanted, 20, 0)
        assert steps.count < 40 * SCAN


def test_what_is_looked_for_is_found_on_a_later_page(make_world):  # noqa: F811
    """Pages may be empty; together they hold every row once, from wherever it is."""
    world = make_world()
    cron, queries = after(world, LONG)
    chosen = [f"{n:032x}" for n in (1, 2, LONG - SCAN - 1, LONG - SCAN, LONG)]
    world.database.execute_sql("UPDATE runs SET result = 'signal' WHERE id IN (?, ?, ?, ?, ?)", chosen)
    for cron_id in ("", cron.id):
        found, pages, cursor = [], 0, 0
        while cursor or not pages:
            page, cursor = queries.runs(Filter(cron_id=cron_id, result="signal"), 2, cursor)
            found, pages = found + page, pages + 1
        assert [run.id for run in found] == chosen[::-1]


def test_a_step_of_retention_looks_at_so_many_rows_and_the_next_goes_on_there(make_world):  # noqa: F811
    world = make_world()
    after(world, LONG)
    place, costs = BEGIN, []
    while place is not None:
        with counted(world) as steps:
            step = world.session.prune(FOREVER, world.now, place)
        costs.append(steps.count)
        place = step.onward
    assert len(costs) == 3
    assert max(costs) < 40 * LOOK


def plans(world, statements):
    """How SQLite goes about each of them, one line for each table that it looks at."""
    for sql in statements:
        for row in world.database.connection().execute(f"EXPLAIN QUERY PLAN {sql}"):
            yield str(row[3])


def test_a_step_of_retention_is_a_few_statements_that_indexes_lead(make_world):  # noqa: F811
    """Not three for each occurrence; and none of them walks through a table, but for those that are always small."""
    world = make_world()
    after(world, 300)
    world.database.execute_sql("UPDATE occurrences SET settled_at = 0")
    asked = []
    world.database.connection().set_trace_callback(asked.append)
    step = world.session.prune(Keep(D, D, 10**9), 10 * D, BEGIN, 200)
    again = world.session.prune(Keep(D, D, 10**9), 10 * D, step.onward, 200)
    while again.onward is not None:
        again = world.session.prune(Keep(D, D, 10**9), 10 * D, again.onward, 200)
    world.database.connection().set_trace_callback(None)
    assert step.gone == 200
    assert len(asked) < 40
    found = [line for line in plans(world, asked) if line.startswith("SCAN")]
    small = ("SCAN queues", "SCAN former", "SCAN escalations", "SCAN (subquery", "SCAN outbox USING INDEX outbox_tell")
    assert [line for line in found if not line.startswith(small)] == []


def test_retention_comes_to_what_is_old_behind_much_that_stays(make_world):  # noqa: F811
    world = make_world()
    after(world, LONG)
    world.database.execute_sql("UPDATE occurrences SET settled_at = 0 WHERE serial = ?", (LONG,))
    place, gone = BEGIN, 0
    while place is not None:
        step = world.session.prune(Keep(D, D, 10**9), 10 * D, place)
        gone, place = gone + step.gone, step.onward
    assert gone == 1


def test_a_list_of_crons_asks_once_for_all_of_them(make_world):  # noqa: F811
    world = make_world()
    ids = [world.arm(f"c{n}", schedule=("every 1m",)).id for n in range(50)]
    asked = []
    world.database.connection().set_trace_callback(asked.append)
    found = Queries(world.database).standing(ids)
    world.database.connection().set_trace_callback(None)
    assert found.keys() == set(ids)
    assert len(asked) == 3


def test_a_page_of_occurrences_with_hundreds_of_cells_is_short(make_world):  # noqa: F811
    """A page of two hundred would otherwise take a second to make, and be thrown away for its size."""
    world = make_world()
    cron = world.arm(targets=tuple(f"t{n}" for n in range(500)), overlap="allow")
    for n in range(7):
        world.trigger(f"k{n}")
    queries, sizes, found, cursor = Queries(world.database), [], [], 0
    while cursor or not sizes:
        page, cursor = queries.occurrences_with_cells(Filter(cron_id=cron.id), 200, cursor)
        sizes.append(len(page))
        found += [occurrence.id for occurrence, _ in page]
    assert sizes == [4, 3]
    assert len(set(found)) == 7


def many_crons(world, number):
    """One of every kind, and so many that are only due some day."""
    world.arm("boot", schedule=("@reboot",))
    world.arm("after", schedule=("every 5m after end",))
    world.arm("asked")
    world.arm("paused", schedule=("every 1m",))
    world.pause("paused")
    yearly = world.arm("yearly", schedule=("0 0 1 1 *",))
    copy(world, "crons", "id", yearly.id, number,
         {"id": "printf('f%031x', n)", "name": "printf('c%d', n)", "serial": "1000 + n"})


@pytest.mark.parametrize("question", [
    lambda world: Queries(world.database).counts(),
    lambda world: Queries(world.database).next_wake(),
    lambda world: world.session.crons_on_boot(),
    lambda world: world.session.crons_unplanned(),
    lambda world: world.session.crons_ahead(world.now),
    lambda world: world.session.owed(world.now),
    lambda world: world.do(DaemonStarted(world.now, BOOT)),
], ids=["counts", "next wake", "on boot", "unplanned", "ahead", "owed", "a start"])
def test_what_is_asked_at_a_start_and_all_the_time_costs_no_more_with_many_crons(make_world, question):  # noqa: F811
    costs = []
    for number in (10, 3000):
        world = make_world()
        many_crons(world, number)
        with counted(world) as steps:
            question(world)
        costs.append(steps.count)
    assert costs[1] <= costs[0] + 200


def test_counts_by_state(make_world):  # noqa: F811
    world = make_world()
    many_crons(world, 20)
    world.arm("over", schedule=("at 2026-12-01T10:00:01Z",))
    world.wake(M)
    world.end_all(0, "over")
    found = Queries(world.database).counts()
    assert {state: found.get(state) for state in ("active", "paused", "finished")} == {
        "active": 24, "paused": 1, "finished": 1}
    assert [cron.name for cron in world.session.crons_on_boot()] == ["boot"]
    assert [cron.name for cron in world.session.crons_ahead(world.now)] == ["after"]
