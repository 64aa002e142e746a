"""Capacity: the global cap, pools, fair order, and what is said of those that wait."""

from dataclasses import replace

from crtrd.core.effects import Announce
from tests.core.world import M, S, kinds, spawned

MINUTELY = {"schedule": ("* * * * *",)}


def limited(world, most, **pools):
    world.limits = replace(world.limits, max_runs_at_once=most, pools=tuple(pools.items()))


def test_c19_two_hundred_at_one_instant_all_run_in_fair_order(world):
    limited(world, 10)
    names = [f"job-{number:03}" for number in range(200)]
    for name in names:
        world.arm(name, **MINUTELY)
    acts = world.wake(M)
    assert [run.cron_name for run in spawned(acts)] == names[:10]
    started = 10
    while live := world.session.live_runs():
        assert len(live) <= 10
        started += len(spawned(world.end(live[0])))
    assert started == 200
    assert all(world.rows(name)[0].status == "success" for name in names)


def test_those_that_wait_are_said_and_not_lost(world):
    limited(world, 1)
    world.arm("a", **MINUTELY)
    world.arm("b", **MINUTELY)
    acts = world.wake(M)
    assert [act.kind for act in kinds(acts, Announce)].count("cron.capacity.deferred") == 1
    assert world.rows("b")[0].status == "pending"
    world.end_all(name="a")
    assert len(world.live("b")) == 1


def test_a_pool_excludes_across_crons(world):
    limited(world, 9, disk=1)
    for name in ("a", "b", "c"):
        world.arm(name, **MINUTELY, pool="disk")
    world.wake(M)
    for name in ("a", "b", "c"):
        assert [run.cron_name for run in world.session.live_runs()] == [name]
        world.end_all(name=name)


def test_a_pool_holds_for_the_cells_of_one_occurrence(world):
    limited(world, 9, disk=2)
    world.arm(**MINUTELY, pool="disk", targets=tuple("abcde"), target_parallel=5)
    world.wake(M)
    for left in (5, 4, 3, 2, 1):
        assert len(world.live()) == min(2, left)
        world.end(world.live()[0])


def test_a_full_pool_holds_nobody_else_up(world):
    limited(world, 4, disk=1)
    for number in range(20):
        world.arm(f"disk-{number}", **MINUTELY, pool="disk")
    for number in range(5):
        world.arm(f"free-{number}", **MINUTELY)
    acts = world.wake(M)
    assert [run.cron_name for run in spawned(acts)] == ["disk-0", "free-0", "free-1", "free-2"]


def test_a_pool_without_a_limit_is_no_limit(world):
    world.arm("a", **MINUTELY, pool="unknown")
    world.arm("b", **MINUTELY, pool="unknown")
    assert len(spawned(world.wake(M))) == 2


def test_drained_nothing_starts_and_nothing_is_lost(world):
    limits = world.limits
    limited(world, 0)
    world.arm(**MINUTELY)
    world.wake(M)
    assert world.story() == [(60, "pending", "")]
    world.limits = limits
    world.wake(S)
    assert len(world.live()) == 1


def test_places_that_come_free_go_to_begun_occurrences_too(world):
    limited(world, 2)
    world.arm("other", **MINUTELY)
    world.arm(**MINUTELY, targets=("a", "b", "c"), target_parallel=3)
    world.wake(M)
    assert [run.target for run in world.live()] == ["a"]
    world.end_all(name="other")
    assert [run.target for run in world.live()] == ["a", "b"]


def test_leases_and_fences_grow(world):
    world.arm(**MINUTELY, retries=1, retry_delay=0)
    world.wake(M)
    world.end_all(1)
    fences = [run.fence for run in world.runs()]
    assert fences == sorted(set(fences))
    assert world.database.execute_sql("SELECT count(*) FROM leases").fetchone()[0] == 1
    world.end_all(0)
    assert world.database.execute_sql("SELECT count(*) FROM leases").fetchone()[0] == 0
