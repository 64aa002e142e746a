"""I3 to I5 and the table of moves; and a machine of random events that looks after each whether all still holds."""

import ast
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crtrd.core import events
from crtrd.core.cron import Overlap, State
from crtrd.core.occurrence import (
    MOVES,
    OPEN,
    SETTLED,
    IllegalMove,
    Occurrence,
    Origin,
    Reason,
    Status,
    move,
)
from crtrd.core.timetable import timetable
from crtrd.errors import RequestError
from tests.core.world import M, S, World

CORE = Path(__file__).parents[2] / "crtrd" / "core"
ROW = Occurrence("i", "c", "n", Origin.SCHEDULE, 1, "", Status.PENDING, 1, 1)


def test_moves_is_closed():
    assert set(MOVES) == set(Status)
    assert set().union(*MOVES.values()) <= set(Status)
    assert set(Status) == SETTLED | OPEN
    assert {"success", "partial", "failed", "unobserved", "canceled", "abandoned", "skipped", "missed"} == SETTLED


@pytest.mark.parametrize(("start", "to"), list(product(Status, Status)))
def test_i4_states_move_along_one_table_and_settled_ones_never(start, to):
    row = replace(ROW, status=start, settled_at=7 if start in SETTLED else None)
    if to in MOVES[start]:
        moved = move(row, to, 9, Reason.OVERLAP, "d")
        assert (moved.status, moved.settled_at) == (to, 9 if to in SETTLED else None)
        assert start not in SETTLED
    else:
        before = replace(row)
        with pytest.raises(IllegalMove, match=f"{start} -> {to}"):
            move(row, to, 9)
        assert row == before


def test_i3_the_core_reads_no_clock_file_or_chance():
    """What import-linter cannot see: calls of builtins that reach out."""
    for path in CORE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "input", "print", "__import__", "eval", "exec"}, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in {"now", "utcnow", "today", "urandom", "uuid4", "getenv", "environ"}, path


def test_i5_every_decision_carries_its_reason(world):
    """One cron for each way of not running; the answer to "why" is in the row."""
    world.arm("skipped", schedule=("* * * * *",))
    world.arm("missed", schedule=("* * * * *",), catch_up="none")
    world.arm("late", schedule=("* * * * *",), start_within=S)
    world.arm("asked", schedule=("* * * * *",))
    world.skip(name="asked")
    world.wake(M)
    world.wake(M + 2 * S)
    world.arm("replaced", schedule=("* * * * *",), overlap="replace")
    for name in ("skipped", "missed", "late", "asked", "replaced"):
        for row in world.rows(name):
            if row.status in SETTLED - {Status.SUCCESS}:
                assert row.reason is not Reason.NONE
                assert row.detail
    assert {str(row.reason) for name in ("skipped", "missed", "late", "asked") for row in world.rows(name)} >= {
        "overlap", "deadline", "skip-requested"}


POLICIES = st.fixed_dictionaries(
    {
        "schedule": st.sampled_from([
            ("* * * * *",), ("*/2 * * * *", "every 90s"), ("every 3m after end",),
            ("every 3m after end", "*/5 * * * *"),
            ("at 2026-12-01T10:03Z", "at 2026-12-01T10:20Z"), ("@reboot", "*/7 * * * *"), ()]),
        "overlap": st.sampled_from(list(Overlap)),
        "catch_up": st.sampled_from(["last", "none", "all"]),
        "on_crash": st.sampled_from(["record", "rerun", "ask"]),
        "on_failure": st.sampled_from(["pause", "continue"]),
        "retries": st.integers(0, 2),
        "queue_limit": st.integers(1, 3),
        "parallel": st.sampled_from([None, 1, 2]),
        "pool": st.sampled_from(["", "disk"]),
        "targets": st.sampled_from([(), ("a", "b", "c")]),
        "target_parallel": st.integers(1, 3),
        "max_runs": st.sampled_from([None, None, 3]),
        "start_within": st.sampled_from([None, 30 * S]),
    }
)
NAMES = st.sampled_from(["one", "two"])
CAP = 3


class Machine(RuleBasedStateMachine):
    """Whatever happens, in whatever order, on a real ledger."""

    folder = None
    count = 0

    def __init__(self):
        super().__init__()
        Machine.count += 1
        self.world = World(self.folder / f"m{Machine.count}.sqlite3")
        self.world.limits = replace(self.world.limits, max_runs_at_once=CAP, pools=(("disk", 2),))
        self.settled, self.highest, self.looked = {}, self.world.now, False

    def teardown(self):
        self.world.database.close()

    def attempt(self, call, *arguments, **options):
        with suppress(RequestError):
            call(*arguments, **options)
        self.looked = False

    @initialize(one=POLICIES, two=POLICIES)
    def arm(self, one, two):
        self.attempt(self.world.arm, "one", **one)
        self.attempt(self.world.arm, "two", **two)

    @rule(step=st.sampled_from([S, 29 * S, M, M, 3 * M, 7 * M, 130 * M]))
    def time_passes(self, step):
        self.world.wake(step)
        self.looked = True

    @rule(step=st.integers(-10 * M, 10 * M))
    def clock_is_set(self, step):
        self.world.clock_set(self.world.now + step)
        self.looked = True

    @rule(boot=st.sampled_from([None, "c" * 32, "d" * 32]))
    def restart(self, boot):
        self.world.restart(boot)
        self.looked = True

    @rule(name=NAMES, policy=POLICIES)
    def change(self, name, policy):
        self.attempt(self.world.change, name, **{key: value for key, value in policy.items() if key != "pool"})

    @rule(name=NAMES, verb=st.sampled_from(["pause", "resume", "poke", "run", "resume"]))
    def ask(self, name, verb):
        self.attempt(getattr(self.world, verb), name)

    @rule(name=NAMES, key=st.sampled_from("xyz"), overlap=st.sampled_from(["", *Overlap]))
    def trigger(self, name, key, overlap):
        self.attempt(self.world.trigger, key, name, overlap=overlap)

    @rule(name=NAMES)
    def skip(self, name):
        self.attempt(self.world.skip, 0, name)

    @rule(name=NAMES, kill=st.booleans(), policy=POLICIES)
    def cancel_and_arm_anew(self, name, kill, policy):
        self.attempt(self.world.cancel, name, kill=kill)
        self.attempt(self.world.arm, name, **policy)

    def any_run(self, data):
        return data.draw(st.sampled_from(self.world.session.live_runs()))

    @precondition(lambda self: self.world.session.live_runs())
    @rule(data=st.data(), code=st.sampled_from([0, 0, 0, 1, 75, None]))
    def a_run_ends(self, data, code):
        self.world.end(self.any_run(data), code)

    @precondition(lambda self: self.world.session.live_runs())
    @rule(data=st.data(), how=st.sampled_from(["held", "time_out", "lose", "fail_to_launch"]), flag=st.booleans())
    def a_run_meets_something_else(self, data, how, flag):
        run = self.any_run(data)
        if how == "fail_to_launch" and run.phase == "starting":
            self.world.fail_to_launch(run, shortage=flag)
        elif how == "lose":
            self.world.lose(run, executed=run.phase == "running")
        elif how == "held" or (how == "time_out" and run.phase == "running"):
            getattr(self.world, how)(run)

    @rule()
    def the_daemon_stops(self):
        self.world.do(events.StopBegun(self.world.now))

    def every_row(self):
        return [row for name in ("one", "two") for row in self.world.rows(name)]

    @invariant()
    def one_row_for_each_instant_and_reasons_for_all(self):
        seen = set()
        for row in self.every_row():
            identity = (row.cron_id, row.origin, row.key or row.instant)
            assert identity not in seen
            seen.add(identity)
            if row.id in self.settled:
                assert row == self.settled[row.id], "a settled occurrence has moved"
            if row.status in SETTLED:
                self.settled[row.id] = row
                assert row.settled_at is not None
                assert row.status is Status.SUCCESS or row.reason is not Reason.NONE
                cells = self.world.session.cells(row.id)
                assert all(cell.status in SETTLED for cell in cells)
            elif row.status is Status.RUNNING:
                assert self.world.session.live_runs(row.id), "running without a run"
            else:
                assert not self.world.session.live_runs(row.id), f"{row.status} with a live run"

    @invariant()
    def capacity_and_overlap(self):
        live = self.world.session.live_runs()
        assert len(live) <= CAP
        assert self.world.session.pool_count("disk") <= 2
        for name in ("one", "two"):
            cron = self.world.session.find_cron(name)
            if cron is None or cron.definition.overlap is Overlap.ALLOW:
                continue
            mine = {run.occurrence_id for run in live if run.cron_id == cron.id}
            rows = [self.world.session.occurrence(each) for each in mine]
            strict = [row for row in rows if row.overlap != "allow" and row.created_at > cron.changed_at]
            assert len(strict) <= 1

    @invariant()
    def next_wake_ups_lie_ahead_and_nothing_due_is_without_its_row(self):
        if not self.looked:
            return
        for name in ("one", "two"):
            cron = self.world.session.find_cron(name)
            if cron is None or cron.state is not State.ACTIVE:
                continue
            assert cron.next_at is None or cron.next_at > self.world.now
            span = timetable(cron).span(max(cron.changed_at, self.world.now - 20 * M), self.world.now)
            rows = {row.instant for row in self.world.rows(name) if row.cron_id == cron.id}
            if cron.definition.max_runs is None and self.world.now - 20 * M > cron.changed_at:
                assert set(span.newest) <= rows
            if cron.definition.max_runs is None and cron.definition.schedule and cron.next_at is None:
                assert self.world.session.open_occurrences(cron.id) or "@reboot" in cron.definition.schedule

    @invariant()
    def what_may_start_has_started(self):
        if self.world.session.live_count() < CAP and self.world.session.pool_count("disk") < 2:
            left = [row for row in self.world.session.startable(self.world.now, 5) if self.looked]
            assert not left


def test_whatever_happens(tmp_path):
    Machine.folder = tmp_path
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60, stateful_step_count=35, deadline=None, derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_same_events_same_decisions(make_world):
    """I3: nothing but events and facts decides."""
    stories = []
    for _ in range(2):
        world = make_world()
        world.arm(schedule=("* * * * *",), jitter=20 * S, overlap="queue")
        for _ in range(5):
            world.wake(M)
            world.begin()
        world.end_all(1)
        stories.append((world.story(), [run.id for run in world.runs()], world.cron()))
    for one, other in pairwise(stories):
        assert one == other
