"""The clock set back and forward (C13, C14): the event's own time is the only time the core knows."""

from dataclasses import replace

import pytest

from tests.core.world import T0, D, H, M, S, at

FIVE = {"schedule": ("*/5 * * * *",)}


def test_c13_back_from_2098_within_one_wake_up(world):
    world.now = at("2098-01-01T00:00:00Z")
    world.arm(**FIVE)
    world.arm("periodic", schedule=("every 5m",))
    world.wake(5 * M)
    world.end_all()
    world.end_all(name="periodic")
    world.clock_set(at("2026-12-01T10:02:00Z"))
    assert world.cron().next_at == at("2026-12-01T10:05:00Z")
    assert world.now < world.cron("periodic").next_at <= world.now + 5 * M
    world.wake(3 * M)
    assert world.rows()[-1].instant == at("2026-12-01T10:05:00Z")
    assert len(world.live()) == 1


@pytest.mark.parametrize("noticed", ["at once", "by the next life"])
def test_c13_what_waits_in_the_other_time_is_brought_forward(world, noticed):
    world.now = at("2098-01-01T00:00:00Z")
    world.arm("retry", **FIVE, retries=3, retry_delay=20 * S)
    world.arm("after", schedule=("every 10m after end",))
    world.wake(5 * M)
    world.end_all(1, name="retry")
    if noticed == "at once":
        world.clock_set(T0)
    else:
        world.now = T0
        world.restart()
    (waiting,) = [row for row in world.rows("retry") if row.settled_at is None]
    assert waiting.due_at <= T0 + 20 * S
    assert world.cron("after").next_at <= T0 + 10 * M
    world.wake(20 * S)
    assert len(world.live("retry")) == 1


def test_c13_what_waits_for_capacity_in_the_other_time_starts(world):
    limits = world.limits
    world.limits = replace(limits, max_runs_at_once=0)
    world.now = at("2098-01-01T00:00:00Z")
    world.arm(**FIVE)
    world.wake(5 * M)
    world.limits = limits
    world.clock_set(T0)
    assert len(world.live()) == 1


def test_c13_ninety_seconds_back_serve_no_instant_twice(world):
    world.arm(schedule=("* * * * *",))
    world.arm("tick", schedule=("every 10s",))
    for _ in range(12):
        world.wake(10 * S)
        world.end_all()
        world.end_all(name="tick")
    world.clock_set(world.now - 90 * S)
    assert world.cron().next_at == T0 + 3 * M
    for _ in range(12):
        world.wake(10 * S)
        world.end_all()
        world.end_all(name="tick")
    for name in ("job", "tick"):
        instants = [row.instant for row in world.rows(name)]
        assert len(instants) == len(set(instants))
    assert [row[0] for row in world.story()] == [60, 120]


def test_c13_two_hours_back_with_a_run_in_progress(world):
    world.arm(schedule=("* * * * *",))
    world.wake(2 * H)
    world.begin()
    (run,) = world.live()
    world.clock_set(T0)
    assert world.session.run(run.id).phase == "running"
    world.end(run)
    assert world.session.run(run.id).duration == 5 * S
    assert world.rows()[-1].status == "success"


def test_the_phase_of_every_survives_a_small_step_back(world):
    world.arm(schedule=("every 15m",))
    world.wake(15 * M)
    world.end_all()
    world.clock_set(world.now - 90 * S)
    assert world.cron().next_at == T0 + 30 * M


@pytest.mark.parametrize("step", [2 * H, 2 * D])
def test_c14_forward_each_is_made_up_once(world, step):
    world.now = at("2026-12-01T02:00:00Z")
    schedules = {"minutely": "* * * * *", "hourly": "0 * * * *", "fixed": "30 3 * * *"}
    for name, text in schedules.items():
        world.arm(name, schedule=(text,))
    world.clock_set(world.now + step)
    for name in schedules:
        rows = world.rows(name)
        assert [row.status for row in rows].count("running") == 1
        assert {row.reason for row in rows if row.status == "missed"} <= {"clock-jump", "coalesced"}
    assert sum(row.covers for row in world.rows("minutely")) == step // M
    assert sum(row.covers for row in world.rows("hourly")) == step // H


def test_c15_made_up_once_then_not_again_after_a_kill(world):
    for number in range(20):
        world.arm(f"daily-{number}", schedule=(f"{number} 12 * * *",))
    world.wake(8 * H)
    world.now += M
    world.restart()
    for number in range(20):
        assert [row.status for row in world.rows(f"daily-{number}")] == ["running"]


def test_c13_after_end_does_not_stay_in_a_time_that_only_its_end_saw(world):
    world.arm(schedule=("every 5s after end",))
    world.wake(5 * S)
    real = world.now
    world.now += 10 * 365 * D
    world.end_all()
    world.clock_set(real + 3 * S)
    assert world.now < world.cron().next_at <= world.now + 5 * S


@pytest.mark.parametrize("back", [H, 3 * D + 17 * S])
def test_a_clock_before_the_anchor_keeps_the_phase(world, back):
    world.arm(schedule=("every 1h",))
    phase = world.cron().next_at % H
    armed = world.now
    world.clock_set(armed - back)
    assert world.cron().next_at % H == phase
    assert world.now < world.cron().next_at <= world.now + H
    world.clock_set(armed + 2 * H)
    assert world.cron().next_at % H == phase
