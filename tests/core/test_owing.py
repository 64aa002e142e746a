"""Which instants get which row: catch-up, deadlines, skips, pauses, changes, limits; and never two for one (I2)."""

import time
from dataclasses import replace

import pytest

from crtrd.core import events
from crtrd.errors import Code
from tests.core.world import BOOT, T0, D, H, M, S, at, spawned

MINUTELY = {"schedule": ("* * * * *",)}


def statuses(world):
    return [row[1:] for row in world.story()]


@pytest.mark.parametrize(
    ("catch_up", "away", "expected"),
    [
        ("last", 3 * M, [("missed", "downtime"), ("missed", "downtime"), ("running", "")]),
        ("none", 3 * M, [("missed", "downtime"), ("missed", "downtime"), ("running", "")]),  # the last is on time
        ("none", 3 * M + 59 * S, [("missed", "downtime"), ("missed", "downtime"), ("running", "")]),
        ("all", 3 * M, [("running", ""), ("pending", ""), ("pending", "")]),
        ("last", M, [("running", "")]),
        ("none", M, [("running", "")]),
        ("all", M, [("running", "")]),
    ],
)
def test_catch_up(world, catch_up, away, expected):
    world.arm(**MINUTELY, catch_up=catch_up)
    world.now += away
    world.restart()
    assert statuses(world) == expected
    assert world.cron().considered == world.now


@pytest.mark.parametrize(("late", "expected"), [(M, ("running", "")), (M + 1, ("missed", "downtime"))])
def test_catch_up_none_misses_what_is_more_than_a_minute_late(world, late, expected):
    world.arm(schedule=("0 * * * *",), catch_up="none")
    world.wake(H + late)
    assert statuses(world) == [expected]
    assert world.cron().next_at == T0 + 2 * H


def test_catch_up_all_runs_one_after_the_other_whatever_the_policy(world):
    world.arm(**MINUTELY, catch_up="all", overlap="skip")
    world.wake(3 * M)
    for _ in range(3):
        assert len(world.live()) == 1
        world.end_all()
    assert statuses(world) == [("success", "")] * 3


def test_c16_101_minutes(world):
    world.arm(**MINUTELY)
    world.now += 101 * M
    world.restart()
    rows = world.rows()
    assert sum(row.covers for row in rows) == 101
    assert (rows[0].status, rows[0].reason, rows[0].covers) == ("missed", "coalesced", 1)
    assert [row.detail for row in rows if row.status == "running"] == ["makes up for 100 earlier missed instants"]
    assert len(world.live()) == 1
    assert world.cron().next_at == world.now + M


@pytest.mark.parametrize("catch_up", ["last", "none", "all"])
def test_c16_ten_years_of_minutes_in_bounded_time(world, catch_up):
    world.arm(**MINUTELY, catch_up=catch_up)
    world.now = at("2036-12-01T10:00:00Z")
    began = time.process_time()
    world.restart()
    assert time.process_time() - began < 5
    rows = world.rows()
    assert sum(row.covers for row in rows) == 3653 * 1440
    assert len(rows) == 101
    assert rows[0].reason == "coalesced"
    assert rows[0].instant == T0 + M
    assert len(world.live()) == 1
    world.end_all()
    world.wake(M)
    assert world.rows()[-1].instant == world.now


def test_coalesced_rows_do_not_count_twice_what_had_rows_before_the_clock_was_set_back(world):
    world.arm(**MINUTELY, on_failure="continue")
    for _ in range(30):
        world.wake(M)
        world.end_all()
    world.clock_set(T0)
    world.now += 300 * M
    world.restart()
    rows = world.rows()
    assert sum(row.covers for row in rows) == 300
    assert [row.covers for row in rows if row.reason == "coalesced"] == [170]


@pytest.mark.parametrize(
    ("start_within", "late", "expected"),
    [(10 * S, 10 * S, ("running", "")), (10 * S, 11 * S, ("missed", "deadline")), (None, 59 * S, ("running", ""))],
)
def test_start_within_of_a_late_wake_up(world, start_within, late, expected):
    world.arm(**MINUTELY, start_within=start_within)
    world.wake(M + late)
    assert statuses(world) == [expected]


def test_start_within_of_one_that_waits_for_capacity(world):
    limits = world.limits
    world.limits = replace(limits, max_runs_at_once=0)
    world.arm(schedule=("at 2026-12-01T10:01Z",), start_within=30 * S)
    world.wake(M)
    assert statuses(world) == [("pending", "")]
    world.limits = limits
    world.wake(31 * S)
    assert statuses(world) == [("missed", "deadline")]
    assert world.cells() == {"": "missed"}
    assert world.cron().state == "finished"


def test_a_retry_is_no_late_start(world):
    world.arm(**MINUTELY, start_within=30 * S, retries=1, retry_delay=5 * M, overlap="skip")
    world.wake(M)
    world.end_all(1)
    world.wake(5 * M)
    assert len(world.live()) == 1


def test_skip_requests(world):
    world.arm(**MINUTELY)
    assert world.skip() == T0 + M
    assert world.skip() == T0 + 2 * M
    assert world.skip(T0 + 4 * M) == T0 + 4 * M
    for _ in range(4):
        world.wake(M)
        world.end_all()
    assert statuses(world) == [("skipped", "skip-requested")] * 2 + [("success", ""), ("skipped", "skip-requested")]
    assert world.cron().skip_next == ()


@pytest.mark.parametrize("instant", [T0, T0 - M, T0 + 90 * S])
def test_only_an_instant_ahead_can_be_skipped(world, instant):
    world.arm(**MINUTELY)
    assert world.refused(world.skip, instant) is Code.INVALID_ARGUMENT


def test_nothing_to_skip(world):
    world.arm()
    assert world.refused(world.skip) is Code.INVALID_STATE


def test_a_pause_leaves_a_row_for_each_instant_and_runs_none(world):
    world.arm(**MINUTELY)
    world.wake(M)
    world.end_all()
    world.pause(note="holiday")
    assert world.cron().next_at is None
    world.wake(3 * M + S)
    assert len(world.rows()) == 1
    world.resume()
    assert statuses(world) == [("success", "")] + [("skipped", "paused")] * 3
    assert world.rows()[-1].detail == "holiday"
    assert world.cron().next_at == T0 + 5 * M


def test_a_long_pause_is_coalesced(world):
    world.arm(**MINUTELY)
    world.pause()
    world.wake(D)
    world.resume()
    rows = world.rows()
    assert sum(row.covers for row in rows) == 1440
    assert {(row.status, row.reason) for row in rows} == {("skipped", "paused")}
    assert len(rows) == 101


def test_what_was_due_before_the_pause_or_change_is_served_as_it_was(world):
    """The wake-up for 10:01 is decided in the same batch after the request."""
    world.arm(**MINUTELY)
    world.now += M + 5
    world.pause()
    assert world.story() == [(60, "running", "")]
    world.end_all()
    world.now += M
    world.resume()
    world.now += M
    world.change(schedule=("0 0 * * *",))
    assert [row[:2] for row in world.story()] == [(60, "success"), (120, "skipped"), (180, "running")]


def test_what_waits_when_a_pause_begins_falls_into_it(world):
    """Who pauses a job that fails again and again wants quiet."""
    world.arm("retried", schedule=("1 10 * * *",), retries=1, retry_delay=2 * M)
    world.arm("queued", schedule=("1,2 10 * * *",), overlap="queue", queue_limit=3)
    world.wake(M)
    world.end_all(1, name="retried")
    world.wake(M)
    world.trigger("key", name="queued")
    world.run(name="queued")
    world.now += S
    for name in ("retried", "queued"):
        world.pause(name=name, note="quiet")
    assert [row[1:] for row in world.story("retried")] == [("canceled", "paused")]
    assert [row[1:] for row in world.story("queued")] == [
        ("running", ""), ("skipped", "paused"), ("skipped", "paused"), ("pending", "")]
    assert world.rows("retried")[0].detail == "its retry would have come in the pause: quiet"
    assert world.cells("retried") == {"": "canceled"}
    world.end_all(name="queued")
    assert [str(run.trigger) for run in world.live("queued")] == ["manual"], "who asks for a run gets it"
    world.end_all(name="queued")
    world.wake(H)
    assert world.live("retried") == world.live("queued") == []
    owed = world.owed()
    assert (owed.due, owed.next_wake) == (0, None)
    for name in ("retried", "queued"):
        world.resume(name=name)
    assert world.live("retried") == world.live("queued") == []


@pytest.mark.parametrize("keys", [
    {"catch_up": "all"}, {"overlap": "queue", "queue_limit": 5}, {"catch_up": "all", "pause_after": 2}])
def test_a_failure_that_pauses_is_followed_by_none_of_those_that_wait(world, keys):
    """Or one fault would become a hundred."""
    world.arm(**MINUTELY, **keys)
    for _ in range(5 if "queue_limit" in keys else 1):
        world.wake(M if "queue_limit" in keys else 5 * M)
    for _ in range(keys.get("pause_after", 1)):
        world.now += S
        world.end(world.live()[0], 1)
    failed = [("failed", "exit-code")] * keys.get("pause_after", 1)
    assert world.cron().state == "paused"
    assert [row[1:] for row in world.story()] == failed + [("skipped", "paused")] * (5 - len(failed))
    assert world.live() == []
    world.resume()
    assert world.live() == []
    world.wake(M)
    assert len(world.live()) == 1


def test_c18_a_change_never_fires_at_once_and_counts_no_phantom_misses(world):
    world.now = at("2026-12-01T00:00:00Z")
    world.arm(schedule=("35 5 * * *",))
    world.now = at("2026-12-01T05:35:00Z")
    world.wake()
    world.end_all()
    world.now = at("2026-12-01T10:37:00Z")
    world.change(schedule=("35 6 * * *",))
    world.wake()
    assert world.cron().next_at == at("2026-12-02T06:35:00Z")
    world.change(schedule=("* * * * *",))
    world.wake()
    assert world.cron().next_at == at("2026-12-01T10:38:00Z")
    world.arm("other", schedule=("* * * * *",))
    world.wake()
    assert len(world.rows()) == 1
    assert world.rows("other") == []


def test_a_change_during_a_pause_keeps_the_rows_of_the_old_schedule(world):
    world.arm(**MINUTELY)
    world.pause()
    world.wake(2 * M)
    world.change(schedule=("0 0 * * *",))
    world.resume()
    assert statuses(world) == [("skipped", "paused")] * 2


def test_a_change_with_nothing_ahead_is_refused(world):
    world.arm(**MINUTELY)
    assert world.refused(world.change, schedule=("at 2020-01-01T00:00Z",)) is Code.INVALID_DEFINITION
    assert world.refused(world.change, schedule=("0 0 30 2 *",)) is Code.INVALID_DEFINITION


@pytest.mark.parametrize(
    "schedule", ["0 0 30 2 *", "0 0 31 4 *", "0 0 31 2,4,6 *", "* * 31 11 *", "at 2020-01-01T00:00Z"])
def test_c10_what_can_never_be_due_is_not_armed(world, schedule):
    assert world.refused(world.arm, schedule=(schedule,)) is Code.INVALID_DEFINITION


@pytest.mark.parametrize(
    ("limits", "changes"),
    [
        ({"max_runs": 1}, {"schedule": ("at 2026-12-02T00:00Z",), "max_runs": 2}), ({"max_runs": 1}, {"max_runs": 5}),
        ({"expires_at": T0 + 2 * M}, {"expires_at": T0 + D}),
    ],
)
def test_a_finished_cron_comes_back_with_a_new_when(world, limits, changes):
    world.arm(**MINUTELY, **limits)
    world.wake(M)
    world.end_all()
    assert world.cron().state == "finished"
    world.change(**changes)
    assert world.cron().state == "active"
    assert world.cron().next_at > world.now


def test_an_unrelated_change_of_a_finished_cron_leaves_it_finished(world):
    world.arm(schedule=("at 2026-12-01T10:01Z",))
    world.wake(M)
    world.end_all()
    world.change(stdin="x")
    assert world.cron().state == "finished"


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace", "allow"])
@pytest.mark.parametrize("catch_up", ["last", "all"])
def test_max_runs_is_never_exceeded(world, overlap, catch_up):
    world.arm(**MINUTELY, overlap=overlap, queue_limit=9, max_runs=2, catch_up=catch_up)
    for step in (M, M, 5 * M, M):
        world.wake(step)
        world.begin()
    for _ in range(5):
        world.end_all()
    world.wake(M)
    assert 1 <= len(world.runs()) <= 2
    assert world.cron().state == "finished" or world.cron().runs_counted < 2


def test_max_runs_is_given_back_by_one_that_never_ran(world):
    limits = world.limits
    world.limits = replace(limits, max_runs_at_once=0)
    world.arm(**MINUTELY, max_runs=1, start_within=S)
    world.wake(M)
    assert world.cron().next_at is None
    world.limits = limits
    world.wake(2 * S)
    assert statuses(world) == [("missed", "deadline")]
    assert world.cron().next_at == T0 + 2 * M


# every X after end ------------------------------------------------------------------------------------------------


AFTER_END = {"schedule": ("every 10m after end",)}


def test_after_end_counts_from_the_end(world):
    world.arm(**AFTER_END)
    assert world.cron().next_at == T0 + 10 * M
    world.wake(10 * M)
    assert world.cron().next_at is None
    world.now += 3 * M
    world.end_all()
    assert world.cron().next_at == T0 + 23 * M


@pytest.mark.parametrize(
    ("keys", "how"),
    [
        ({"catch_up": "none"}, "late"), ({"start_within": S}, "late"), ({}, "skip"), ({}, "overlap"),
    ],
)
def test_after_end_goes_on_after_an_instant_that_did_not_run(world, keys, how):
    world.arm(**AFTER_END, **keys)
    if how == "skip":
        world.skip()
    if how == "overlap":
        world.run()
    world.wake(10 * M + (2 * M if how == "late" else 0))
    assert world.rows()[-1].settled_at is not None
    assert world.cron().next_at == world.now + 10 * M


def test_after_end_obeys_its_window(world):
    world.arm(**AFTER_END, starts_at=T0 + H, expires_at=T0 + H + 15 * M)
    assert world.cron().next_at == T0 + H
    world.wake(H)
    world.now += M
    world.end_all()
    assert world.cron().next_at == T0 + H + 11 * M
    world.wake(10 * M)
    world.now += 2 * M
    world.end_all()
    assert world.cron().state == "finished"


def test_after_end_is_not_due_on_days_that_are_excluded(world):
    """T0 is 10:00 on the first of December; the first moment after the exclusion is the third, 00:00."""
    world.arm(schedule=("every 15h after end",), exclude=("2026-12-02",))
    assert world.cron().next_at == at("2026-12-03")
    world.wake(M)
    assert world.cron().next_at == at("2026-12-03")
    world.wake(at("2026-12-03") - world.now)
    world.now += M
    world.end_all()
    assert world.cron().next_at == at("2026-12-03T15:01")
    never = {"exclude": ("2026-12-01..2026-12-31",), "expires_at": at("2026-12-31T12:00")}
    assert world.refused(world.change, **never) is Code.INVALID_DEFINITION


def test_after_end_in_a_pause_has_its_row(world):
    world.arm(**AFTER_END)
    world.pause()
    world.wake(11 * M)
    world.resume()
    assert world.story() == [(600, "skipped", "paused")]
    assert world.cron().next_at == world.now + 10 * M


def test_change_while_it_runs_waits_for_the_end(world):
    world.arm(**AFTER_END)
    world.wake(10 * M)
    world.change(schedule=("every 5m after end",))
    assert world.cron().next_at is None
    world.end_all()
    assert world.cron().next_at == world.now + 5 * M


# @reboot ----------------------------------------------------------------------------------------------------------


def test_reboot_runs_once_per_boot_and_not_at_arming(world):
    world.arm(schedule=("@reboot",))
    assert world.said[-1].message == "job: armed, next after the next boot"
    world.restart()
    world.wake(M)
    assert world.rows() == []
    world.restart("c" * 32)
    assert statuses(world) == [("running", "")]
    world.end_all()
    world.restart()
    world.restart("d" * 32)
    world.end_all()
    assert statuses(world) == [("success", "")] * 2
    assert world.cron().state == "active"


def test_reboot_that_fell_into_a_pause_is_not_made_up(world):
    world.arm(schedule=("@reboot",))
    world.pause()
    world.restart("c" * 32)
    world.resume()
    world.restart()
    assert statuses(world) == [("skipped", "paused")]


def test_reboot_that_is_added_later_waits_for_the_next_boot(world):
    world.arm(schedule=("0 0 1 1 *",))
    world.restart("c" * 32)
    world.change(schedule=("@reboot",))
    world.restart()
    assert world.rows() == []
    world.restart("d" * 32)
    assert statuses(world) == [("running", "")]


def test_reboot_outside_its_window_is_not_due(world):
    world.arm(schedule=("@reboot",), starts_at=T0 + H, expires_at=T0 + D)
    world.restart("c" * 32)
    assert world.rows() == []
    world.now = T0 + D
    world.restart("d" * 32)
    assert world.rows() == []
    assert world.cron().state == "finished"


def test_without_a_clock_of_its_own_no_instant_is_served(world):
    world.limits = replace(world.limits, own_clock=False)
    world.arm(**MINUTELY)
    world.arm("boot", schedule=("@reboot",))
    world.wake(5 * M)
    world.restart("c" * 32)
    assert world.rows() == world.rows("boot") == []
    assert world.session.owed(world.now, own_clock=False).next_wake is None
    assert world.trigger("k")[0].status == "running"


# what cannot be served ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("next_at", [T0 + M, None])
@pytest.mark.parametrize(
    "text", ['{"name":"job","schedule":["0 0 30 2 *"],"command":["true"]}', '{"name":"jo',
             '{"name":"job","novel":1,"schedule":["* * * * *"]}',
             '{"name":"job","retries":"x","schedule":["* * * * *"]}',
             '["schedule"]'])
def test_c10_a_stored_one_that_cannot_be_served_is_parked_and_its_text_stays(world, text, next_at):
    world.arm(**MINUTELY)
    world.arm("other", **MINUTELY)
    world.database.execute_sql(
        "UPDATE crons SET definition = ?, next_at = ? WHERE name = 'job'", (text, next_at))
    world.now += M
    world.restart()
    assert [row[1] for row in world.story("other")] == ["running"]
    assert world.rows() == []
    cron = world.cron()
    assert (cron.state, cron.paused_by) == ("paused", "failure")
    assert "cannot be" in cron.note
    assert world.refused(world.resume) is Code.INVALID_STATE
    world.pause(note="later")
    assert world.database.execute_sql("SELECT definition FROM crons WHERE name = 'job'").fetchone()[0] == text
    world.end_all(name="other")
    assert world.owed().next_wake == T0 + 2 * M
    world.cancel()
    assert world.cron() is None


def test_a_waiting_occurrence_of_a_damaged_cron_fails_and_says_why(world):
    limits = world.limits
    world.limits = replace(limits, max_runs_at_once=0)
    world.arm(**MINUTELY)
    world.wake(M)
    world.database.execute_sql("UPDATE crons SET definition = '{'")
    world.limits = limits
    world.wake(S)
    assert world.story() == [(60, "failed", "start-failed")]
    assert world.live() == []
    assert world.refused(world.run) is Code.INVALID_STATE
    assert world.refused(world.change, stdin="") is Code.INVALID_STATE


# I2 ---------------------------------------------------------------------------------------------------------------


def test_i2_an_occurrence_is_claimed_once_whatever_names_it(world):
    world.arm(**MINUTELY)
    world.wake(M)
    for _ in range(3):
        world.do(events.WokeUp(world.now))
        world.do(events.ClockSet(world.now))
        world.do(events.DaemonStarted(world.now, BOOT))
        world.do(events.ClockSet(world.now - 30 * S))
    assert world.story() == [(60, "running", "")]
    first, runs = world.trigger("key")
    again, _ = world.trigger("key")
    assert first.id == again.id
    assert len([row for row in world.rows() if row.key == "key"]) == 1
    assert len(world.runs()) == 1 + len(runs)
    assert not spawned(world.wake())
