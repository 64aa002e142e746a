"""Downtime, suspend, clock steps and edits with a clock moved by hand (C13 to C16, C18, and their neighbours)."""

import itertools
import time

import pytest

from crtrd.core import events
from crtrd.core.cron import CatchUp
from tests.core.world import D, H, M, S, at, spawned

MINUTELY = {"schedule": ("* * * * *",)}
YEAR = 365 * D


def statuses(world, name="job"):
    return [(str(row.status), str(row.reason)) for row in world.rows(name)]


# C13: stepped back -----------------------------------------------------------------------------------------------


def test_c13_a_clock_that_was_years_ahead(world):
    world.now = at("2098-01-01T00:00Z")
    world.arm(schedule=("*/5 * * * *",))
    world.wake(5 * M)
    world.end_all()
    world.clock_set(at("2026-12-01T10:02Z"))
    assert world.cron().next_at == at("2026-12-01T10:05Z")
    world.now = at("2026-12-01T10:05Z")
    world.wake()
    assert [row.instant for row in world.rows()] == [at("2098-01-01T00:05Z"), at("2026-12-01T10:05Z")]
    assert world.live()


def test_c13_the_same_over_a_restart(world):
    world.now = at("2098-01-01T00:00Z")
    world.arm(schedule=("*/5 * * * *",))
    world.wake(5 * M)
    world.end_all()
    world.now = at("2026-12-01T10:02Z")
    world.restart()
    assert world.cron().next_at == at("2026-12-01T10:05Z")


def test_c13_ninety_seconds_back_serve_no_instant_twice(world):
    world.arm(**MINUTELY)
    world.wake(M)
    world.end_all()
    world.now += 30 * S
    world.clock_set(world.now - 90 * S)
    served = [row.instant for row in world.rows()]
    for _ in range(4):
        world.now = max(world.cron().next_at, world.now)
        world.wake()
        world.end_all()
    instants = [row.instant for row in world.rows()]
    assert served == instants[:1]
    assert len(set(instants)) == len(instants) == 5
    assert instants == sorted(instants)
    assert all(second - first == M for first, second in itertools.pairwise(instants))


def test_c13_two_hours_back_with_a_run_in_progress(world):
    world.arm(**MINUTELY, timeout=10 * M)
    world.wake(M)
    world.begin()
    (run,) = world.live()
    acts = world.clock_set(world.now - 2 * H)
    assert acts == []
    assert world.live() == [run]
    world.end(run)
    assert world.session.run(run.id).duration == 5 * S, "what the monotonic clock said"
    assert statuses(world)[0] == ("success", "")


# C14: stepped forward --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("days", [0, 2])
def test_c14_forward(world, days):
    world.now = at("2026-12-01T02:00:30Z")
    for name, schedule in (("minutely", "* * * * *"), ("hourly", "0 * * * *"), ("fixed", "30 3 * * *")):
        world.arm(name, schedule=(schedule,))
    world.clock_set(world.now + 2 * H + days * D)
    for name in ("minutely", "hourly", "fixed"):
        assert len(world.live(name)) == 1, name
        assert [row for row in world.rows(name) if row.status == "running"] == [world.rows(name)[-1]]
    missed = sum(row.covers for row in world.rows("minutely") if row.status == "missed")
    assert missed == 120 + days * 1440 - 1
    assert {row.reason for row in world.rows("minutely") if row.status == "missed"} <= {"clock-jump", "coalesced"}
    world.wake(1)
    assert len(world.runs("fixed")) == 1


def test_c14_a_live_run_is_neither_stopped_nor_taken(world):
    world.arm(**MINUTELY, timeout=10 * M)
    world.wake(M)
    world.begin()
    before = world.live()
    leases = world.dump()
    world.clock_set(world.now + 2 * D)
    assert world.live() == before
    assert len(world.dump()) == len(leases)


# C15: suspend ----------------------------------------------------------------------------------------------------


def test_c15_twenty_daily_jobs_slept_over(world):
    world.limits = type(world.limits)(world.limits.boot_id, 4)
    for number in range(20):
        world.arm(f"j{number}", schedule=(f"{number} 12 * * *",))
    world.now = at("2026-12-01T20:00Z")
    world.wake()
    peak = 0
    done = set()
    for _ in range(20):
        live = world.session.live_runs()
        peak = max(peak, len(live))
        for run in live:
            done.add(run.cron_name)
            world.end(run)
    assert (peak, len(done)) == (4, 20)
    world.now += M
    world.restart()
    assert world.session.live_runs() == []
    assert all(statuses(world, f"j{number}") == [("success", "")] for number in range(20))


def test_c15_killed_right_after_the_make_up_began(world):
    """The served instant is durable before the fork: the next life makes nothing up a second time."""
    world.arm(schedule=("0 12 * * *",))
    world.now = at("2026-12-01T20:00Z")
    acts = world.wake()
    assert len(spawned(acts)) == 1
    world.now += M
    world.restart()
    assert len(world.rows()) == 1


# C16: downtime ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "ran", "rows", "missed"),
    [(CatchUp.LAST, 1, 101, 100), (CatchUp.NONE, 1, 101, 100), (CatchUp.ALL, 100, 101, 1)],
)
def test_c16_one_hundred_and_one_minutes(world, policy, ran, rows, missed):
    world.arm(**MINUTELY, catch_up=policy)
    world.now += 101 * M
    world.restart()
    for _ in range(200):
        if not world.live():
            break
        world.end_all()
    found = world.rows()
    assert sum(row.status == "success" for row in found) == ran
    assert len(found) == rows
    assert sum(row.covers for row in found if row.status == "missed") == missed
    assert sum(row.covers for row in found) == 101
    assert world.cron().next_at == world.now + M


def test_c16_none_runs_nothing_that_is_late(world):
    world.arm(schedule=("0 12 * * *",), catch_up=CatchUp.NONE)
    world.now = at("2026-12-03T12:01:01Z")
    world.restart()
    assert statuses(world) == [("missed", "downtime")] * 3


def test_c16_five_million_missed_instants_in_bounded_time(world):
    world.arm(**MINUTELY)
    world.now += 10 * YEAR
    begin = time.monotonic()
    world.restart()
    assert time.monotonic() - begin < 5
    assert len(world.live()) == 1
    assert sum(row.covers for row in world.rows()) == 10 * YEAR // M
    assert len(world.rows()) == 101
    (row,) = [row for row in world.rows() if row.covers > 1]
    assert (row.status, row.reason) == ("missed", "coalesced")
    assert f"{row.covers} instants" in row.detail
    world.end_all()
    world.wake(M)
    assert len(world.live()) == 1, "normal minutes go on"


def test_start_within_settles_a_late_start_as_missed(world):
    world.arm(schedule=("0 12 * * *",), start_within=10 * M)
    world.now = at("2026-12-01T12:10:01Z")
    world.wake()
    assert statuses(world) == [("missed", "deadline")]
    world.now = at("2026-12-02T12:10:00Z")
    world.wake()
    assert statuses(world)[-1] == ("running", "")


# C18: editing ----------------------------------------------------------------------------------------------------


def test_c18_editing_never_fires_and_counts_no_phantoms(world):
    world.now = at("2026-12-01T00:00Z")
    world.arm(schedule=("35 5 * * *",))
    world.now = at("2026-12-01T05:35Z")
    world.wake()
    world.end_all()
    world.now = at("2026-12-01T10:37Z")
    world.change(schedule=("35 6 * * *",))
    assert world.cron().next_at == at("2026-12-02T06:35Z")
    world.change(schedule=("* * * * *",))
    assert world.cron().next_at == at("2026-12-01T10:38Z")
    world.arm("unrelated", schedule=("@daily",))
    assert world.live() == []
    world.wake(M)
    assert statuses(world) == [("success", ""), ("running", "")]


def test_c18_an_edit_that_comes_late_leaves_the_old_schedule_its_own(world):
    world.arm(schedule=("0 12 * * *",))
    world.now = at("2026-12-01T12:00:30Z")
    world.change(schedule=("0 18 * * *",))
    assert [row.instant for row in world.rows()] == [at("2026-12-01T12:00Z")]
    assert world.cron().next_at == at("2026-12-01T18:00Z")


# C01, C02 with a clock ---------------------------------------------------------------------------------------------


def drive(world, until, step=M, restart_at=None):
    """Let the clock run; the daemon wakes when it asked to be woken, and once in a while for nothing."""
    while world.now < until:
        upcoming = world.cron().next_at
        world.now = min(until, world.now + step, max(upcoming, world.now + 1) if upcoming else until)
        if restart_at is not None and world.now >= restart_at:
            world.restart()
            restart_at = None
        else:
            world.wake()
        world.end_all()


@pytest.mark.parametrize(
    ("schedule", "start", "until", "served", "following"),
    [
        ("30 2 * * *", "2019-03-10T06:58Z", "2019-03-10T07:10Z", ["2019-03-10T07:00Z"], "2019-03-11T06:30Z"),
        ("0 2 * * *", "2020-03-08T06:58Z", "2020-03-08T07:10Z", ["2020-03-08T07:00Z"], "2020-03-09T06:00Z"),
        ("30 1 * * *", "2019-11-03T05:25Z", "2019-11-03T07:05Z", ["2019-11-03T05:30Z"], "2019-11-04T06:30Z"),
        ("50 1 * * *", "2019-11-03T06:10Z", "2019-11-03T07:05Z", [], "2019-11-04T06:50Z"),
    ],
)
@pytest.mark.parametrize("restart", [False, True])
def test_c01_c02_c03_nights_of_change(world, schedule, start, until, served, following, restart):
    world.now = at(start)
    world.arm(schedule=(schedule,), timezone="America/New_York")
    middle = (at(start) + at(until)) // 2
    drive(world, at(until), 5 * M, restart_at=middle if restart else None)
    assert [row.instant for row in world.rows()] == [at(text) for text in served]
    assert len(world.runs()) == len(served)
    assert world.cron().next_at == at(following)


def test_c04_the_repeated_hour_is_not_silent(world):
    world.now = at("2025-10-25T23:55Z")
    world.arm(schedule=("0 * * * *",), timezone="Europe/London")
    drive(world, at("2025-10-26T02:05Z"), 10 * M)
    assert [row.instant for row in world.rows()] == [at(f"2025-10-26T0{hour}:00Z") for hour in range(3)]


def test_c10_a_stored_impossible_schedule_keeps_nothing_awake(world):
    world.arm("other", schedule=("0 12 * * *",))
    world.arm(schedule=("0 12 * * *",))
    text = '{"name":"job","command":["true"],"schedule":["0 0 30 2 *"]}'
    world.database.execute_sql("UPDATE crons SET definition = ? WHERE name = 'job'", (text,))
    world.now = at("2026-12-01T12:00Z")
    world.restart()
    assert world.cron().state == "paused"
    assert len(world.live("other")) == 1
    world.end_all(name="other")
    assert world.owed().next_wake == at("2026-12-02T12:00Z")


def test_an_at_in_the_past_of_a_set_back_clock_is_not_lost(world):
    """The instant was served: it is not served again when the clock comes there once more."""
    world.arm(schedule=("at 2026-12-01T11:00Z", "at 2026-12-01T13:00Z"))
    world.now = at("2026-12-01T11:00Z")
    world.wake()
    world.end_all()
    world.clock_set(at("2026-12-01T10:30Z"))
    assert world.cron().next_at == at("2026-12-01T13:00Z")
    drive(world, at("2026-12-01T12:59Z"), 10 * M)
    assert len(world.rows()) == 1


def test_at_reboot_is_once_per_boot(world):
    world.arm(schedule=("@reboot",))
    world.restart()
    assert world.rows() == []
    world.restart(boot_id="c" * 32)
    assert len(world.rows()) == 1
    world.end_all()
    world.do(events.WokeUp(world.now))
    world.restart()
    assert len(world.rows()) == 1
