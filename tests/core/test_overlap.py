"""The overlap policies, each against an occurrence that runs, is held, waits for a retry or for a place."""

from dataclasses import replace

import pytest

from crtrd.core.effects import StopRun
from crtrd.core.occurrence import Phase
from tests.core.world import M, S, kinds, spawned

MINUTELY = {"schedule": ("* * * * *",)}


def running(world):
    world.begin()


def held(world):
    world.end(world.live()[0], 75, stderr=b"not now\n")


def retrying(world):
    world.end(world.live()[0], 1)


def starting(world):
    pass


@pytest.mark.parametrize("state", [starting, running, held, retrying])
@pytest.mark.parametrize(
    ("policy", "second"),
    [
        ({"overlap": "skip"}, ("skipped", "overlap")),
        ({"overlap": "queue"}, ("pending", "")),
        ({"overlap": "allow"}, ("running", "")),
        ({"overlap": "allow", "parallel": 1}, ("skipped", "overlap")),
        ({"overlap": "allow", "parallel": 2}, ("running", "")),
    ],
)
def test_second_instant_meets_an_open_one(world, state, policy, second):
    world.arm(**MINUTELY, **policy, retries=3, retry_delay=10 * M)
    world.wake(M)
    state(world)
    world.wake(M)
    assert world.story()[1][1:] == second
    assert world.rows()[0].settled_at is None


@pytest.mark.parametrize("state", [held, retrying])
def test_replace_cancels_what_waits_and_starts_at_once(world, state):
    world.arm(**MINUTELY, overlap="replace", retries=3, retry_delay=10 * M)
    world.wake(M)
    state(world)
    acts = world.wake(M)
    assert world.story() == [(60, "canceled", "replaced"), (120, "running", "")]
    assert world.cells(which=0) == {"": "canceled"}
    assert len(spawned(acts)) == 1


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_replace_ends_the_old_run_before_the_new_one_starts(world, phase):
    world.arm(**MINUTELY, overlap="replace", grace=7 * S)
    world.wake(M)
    old = world.live()[0]
    if phase is Phase.RUNNING:
        world.begin()
    acts = world.wake(M)
    assert kinds(acts, StopRun) == [StopRun(old.id, 7 * S)]
    assert not spawned(acts)
    assert world.story()[1] == (120, "pending", "")
    acts = world.end(old, None, 15)
    assert world.story() == [(60, "canceled", "replaced"), (120, "running", "")]
    assert len(spawned(acts)) == 1
    assert world.session.run(old.id).result == "replaced"


def test_replace_twice_leaves_the_newest(world):
    world.arm(**MINUTELY, overlap="replace")
    world.wake(M)
    old = world.live()[0]
    world.begin()
    world.wake(M)
    acts = world.wake(M)
    assert not kinds(acts, StopRun)
    world.end(old, None, 15)
    assert [row[1:] for row in world.story()] == [("canceled", "replaced"), ("canceled", "replaced"), ("running", "")]


def test_a_replaced_run_that_had_timed_out_is_not_retried(world):
    world.arm(**MINUTELY, overlap="replace", retries=5)
    world.wake(M)
    old = world.live()[0]
    world.begin()
    world.time_out(old)
    world.wake(M)
    world.end(old, None, 15)
    assert world.story() == [(60, "failed", "timeout"), (120, "running", "")]


def test_replace_begins_no_further_cell_of_the_old(world):
    world.arm(**MINUTELY, overlap="replace", targets=("a", "b", "c"), target_parallel=2)
    world.wake(M)
    world.begin()
    world.end(world.live()[0])
    world.wake(M)
    world.end_all()
    assert world.story()[0][1:] == ("canceled", "replaced")
    assert len(world.live()) == 2
    assert {run.scheduled_at for run in world.live()} == {world.rows()[1].instant}


def test_queue_limit_counts_those_behind_the_running_one(world):
    world.arm(**MINUTELY, overlap="queue", queue_limit=2)
    world.wake(M)
    world.begin()
    for _ in range(3):
        world.wake(M)
    assert [row[1:] for row in world.story()] == [
        ("running", ""), ("pending", ""), ("pending", ""), ("skipped", "queue-full")]


def test_queue_does_not_count_one_that_waits_for_capacity(make_world, world):
    world.limits = replace(world.limits, max_runs_at_once=0)
    world.arm(**MINUTELY, overlap="queue")
    for _ in range(3):
        world.wake(M)
    assert [row[1:] for row in world.story()] == [("pending", ""), ("pending", ""), ("skipped", "queue-full")]


def test_queued_ones_start_in_their_order_one_at_a_time(world):
    world.arm(**MINUTELY, overlap="queue", queue_limit=5)
    for _ in range(4):
        world.wake(M)
    for number in range(4):
        (run,) = world.live()
        assert run.scheduled_at == world.rows()[number].instant
        world.end(run)
    assert [row[1] for row in world.story()] == ["success"] * 4


def test_queue_survives_a_restart(world):
    world.arm(**MINUTELY, overlap="queue")
    world.wake(M)
    world.begin()
    world.wake(M)
    world.restart()
    (run,) = world.live()
    world.lose(run)
    assert world.story() == [(60, "unobserved", "crash"), (120, "running", "")]


@pytest.mark.parametrize(("named", "status"), [("", "skipped"), ("allow", "running"), ("queue", "pending")])
def test_a_caller_may_name_another_policy(world, named, status):
    world.arm(**MINUTELY)
    world.wake(M)
    occurrence, _ = world.run(overlap=named)
    assert occurrence.status == status
    if named == "":
        assert occurrence.reason == "overlap"


def test_skip_starts_nothing_extra_at_the_end(world):
    """C21: one run per 150 s of work, two rows skipped each cycle, pokes change nothing."""
    world.arm(**MINUTELY)
    for _ in range(6):
        world.wake(M)
        if world.live() and world.now - world.live()[0].created_at >= 2 * M:
            world.wake(30 * S)
            world.end_all()
            world.now -= 30 * S
        world.begin()
    assert [row[1] for row in world.story()] == ["success", "skipped", "skipped", "success", "skipped", "skipped"]
