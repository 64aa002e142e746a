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


ONE_OF_EACH = {
    "minutely": ("* * * * *",), "hourly": ("0 * * * *",), "daily": ("30 2 * * *",), "yearly": ("@yearly",),
    "leap": ("0 0 29 2 *",), "every": ("every 1h",), "once": ("at 2026-12-01T10:30:00Z",),
}


@pytest.mark.parametrize("noticed", ["at once", "by the next life"])
def test_a_boot_without_a_clock_owes_nothing_that_lay_before(world, noticed):
    """A machine without a battery is in 1970 until the network comes: nothing before its last hour was missed.

    Each boot would run a yearly job whose last row is forgotten by now, or that of a leap day before it was armed.
    """
    for name, schedule in ONE_OF_EACH.items():
        world.arm(name, schedule=schedule)
    for _ in range(8):
        world.wake(M)
        world.end_all(name="minutely")
    world.now = 10 * S
    world.restart(boot_id="c" * 32)
    world.wake(3 * M)
    world.end_all(name="minutely")
    if noticed == "at once":
        world.clock_set(T0 + H)
        world.wake()
    else:
        world.now = T0 + H
        world.restart()
        world.wake()
    ran = {name: [row.instant for row in world.rows(name) if row.instant >= T0 and row.status != "missed"]
           for name in ONE_OF_EACH}
    assert ran["minutely"] == [*(T0 + n * M for n in range(1, 9)), T0 + H]
    assert (ran["hourly"], ran["every"], ran["once"]) == ([T0 + H], [T0 + H], [T0 + 30 * M])
    assert [len(world.rows(name)) for name in ("daily", "yearly", "leap")] == [0, 0, 0]
    missed = [row for row in world.rows("minutely") if row.status == "missed" and row.instant >= T0]
    assert sum(row.covers or 1 for row in missed) == 51
    assert world.cron("leap").next_at == at("2028-02-29T00:00:00Z")


def test_an_instant_is_owed_after_a_clock_that_was_ahead_came_back(world):
    """What was decided in the wrong future stands in the way of nothing that follows in the right time."""
    world.arm(schedule=("* * * * *",))
    world.now = at("2098-01-01T00:00:00Z")
    world.wake()
    world.end_all()
    world.clock_set(T0 + D)
    assert world.cron().next_at == T0 + D + M
    world.now = T0 + D + 10 * M
    world.restart()
    found = [row for row in world.rows() if T0 + D < row.instant <= T0 + D + 10 * M]
    assert [row.instant for row in found] == [T0 + D + n * M for n in range(1, 11)]
    assert [str(row.status) for row in found][-1] == "running"


def test_a_new_schedule_is_owed_from_its_change_on_whatever_the_old_one_had_decided(world):
    world.arm(schedule=("0 * * * *",))
    world.wake(2 * H)
    world.end_all()
    world.clock_set(T0)
    world.change(schedule=("30 10 * * *",))
    world.now = T0 + 3 * H
    world.restart()
    assert [row.instant for row in world.rows() if row.status == "running"] == [T0 + 30 * M]
