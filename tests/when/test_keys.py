"""The keys that say when, over restarts: phase, merging, limits, jitter; each on a real ledger."""

from dataclasses import replace

import pytest

from tests.core.world import T0, D, H, M, S, at


def serve(world, until):
    """Wake whenever the cron wants to be woken, until then; the instants that were served."""
    while (upcoming := world.cron().next_at) is not None and upcoming <= until:
        world.now = upcoming
        world.wake()
        world.end_all()
    return [row.instant for row in world.rows()]


@pytest.mark.parametrize("restart", [False, True])
def test_every_keeps_its_phase(world, restart):
    world.now = T0 + 7 * S + 123
    world.arm(schedule=("every 15m",))
    for number in range(1, 5):
        world.now = T0 + 7 * S + number * 15 * M
        (world.restart if restart else world.wake)()
        world.end_all()
        world.now += 8 * M  # a life that ends and begins in the middle of a period
        if restart:
            world.restart()
    assert [row.instant for row in world.rows()] == [T0 + 7 * S + number * 15 * M for number in range(1, 5)]


def test_every_after_downtime_is_on_its_old_grid(world):
    world.arm(schedule=("every 15m",))
    world.now += 10 * D + 4 * M
    world.restart()
    assert world.cron().next_at == T0 + 10 * D + 15 * M


def test_several_schedules_are_one_occurrence_per_instant(world):
    world.arm(schedule=("0 12 * * *", "calendar 12:00", "0 12 * * 2", "at 2026-12-01T12:00Z", "every 1h"))
    assert serve(world, at("2026-12-01T13:00Z")) == [at(f"2026-12-01T{hour}:00Z") for hour in (11, 12, 13)]
    assert len(world.runs()) == 3


def test_the_window_and_the_count_end_a_cron(world):
    world.arm(schedule=("0 * * * *",), starts_at=at("2026-12-01T12:00Z"), expires_at=at("2026-12-01T14:00Z"))
    assert serve(world, world.now + D) == [at("2026-12-01T12:00Z"), at("2026-12-01T13:00Z")]
    assert world.cron().state == "finished"
    world.arm("counted", schedule=("0 * * * *",), max_runs=2)
    world.now += 3 * D
    world.wake()
    for _ in range(3):
        world.end_all(name="counted")
        world.now += H
        world.wake()
    assert sum(row.status == "success" for row in world.rows("counted")) == 2
    assert world.cron("counted").state == "finished"


def test_c19_jitter_is_the_same_after_every_restart(world):
    world.now += 30 * M
    world.arm(schedule=("0 * * * *",), jitter=10 * M)
    first = world.cron().next_at
    assert at("2026-12-01T11:00Z") <= first < at("2026-12-01T11:10Z")
    for _ in range(5):
        world.now += M
        world.restart()
        assert world.cron().next_at == first
    assert serve(world, at("2026-12-01T11:59Z")) == [first]
    offsets = {instant % H for instant in serve(world, at("2026-12-02T11:59Z"))}
    assert len(offsets) > 20, "another offset for each instant"


def test_excluded_dates_are_local(world):
    world.arm(schedule=("0 0 * * *",), timezone="Asia/Tokyo", exclude=("2026-12-03..2026-12-04",))
    assert serve(world, at("2026-12-05T00:00Z")) == [at("2026-12-01T15:00Z"), at("2026-12-04T15:00Z")]


@pytest.mark.parametrize(
    ("schedule", "start", "expected"),
    [
        ("0 0 29 2 *", "2024-12-13", "2028-02-29"), ("0 9 29 2 *", "2016-02-29T09:00Z", "2020-02-29T09:00Z"),
        ("0 0 29 2 */7", "2026-01-01", "2032-02-29"),
    ],
)
def test_c09_far_instants_are_shown_as_they_are(world, schedule, start, expected):
    world.now = at(start)
    world.arm(schedule=(schedule,))
    assert world.cron().next_at == at(expected)
    assert world.owed().next_wake == at(expected)


def test_c19_two_hundred_at_once_all_run_and_in_fair_order(world):
    world.limits = replace(world.limits, max_runs_at_once=10)
    for number in range(200):
        world.arm(f"j{number:03}", schedule=("0 * * * *",))
    world.now = at("2026-12-01T11:00Z")
    world.wake()
    started = []
    while live := world.session.live_runs():
        assert len(live) <= 10
        started += [run.cron_name for run in live if run.cron_name not in started]
        world.now += 5 * S
        for run in live:
            world.end(run)
    assert started == [f"j{number:03}" for number in range(200)]
    assert world.now - at("2026-12-01T11:00Z") == 200 // 10 * 5 * S
    assert {world.rows(name)[0].status for name in started} == {"success"}
