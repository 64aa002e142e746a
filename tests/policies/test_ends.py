"""What core makes of ends and failed starts, beyond the plain ones: errno, shortages, pokes that come early."""

import errno

import pytest

from crtrd.core import events
from tests.core.world import M, S, spawned

MINUTELY = {"schedule": ("* * * * *",)}


def fail(world, stage, number, *, shortage=False):
    (run,) = world.live()
    return world.do(events.LaunchFailed(world.now, run.id, stage, number, f"cannot start {stage}: why", shortage))


@pytest.mark.parametrize(
    ("stage", "number", "shortage", "reason", "again"),
    [
        ("command", errno.ENOENT, False, "cannot start command: why (ENOENT)", 10 * S),
        ("command", errno.EACCES, False, "cannot start command: why (EACCES)", 10 * S),
        ("command", errno.ENOEXEC, False, "cannot start command: why (ENOEXEC)", 10 * S),
        ("interpreter", errno.ENOENT, False, "cannot start interpreter: why (ENOENT)", 10 * S),
        ("cwd", errno.ENOENT, False, "cannot start cwd: why (ENOENT)", 10 * S),
        ("user", errno.ENOENT, False, "cannot start user: why (ENOENT)", 10 * S),
        ("fork", errno.EAGAIN, True, "cannot start fork: why (EAGAIN)", S),
        ("pipe", errno.EMFILE, True, "cannot start pipe: why (EMFILE)", S),
        ("profile", 0, False, "cannot start profile: why", None),
        ("environment", errno.EINVAL, False, "cannot start environment: why (EINVAL)", None),
    ],
)
def test_failed_starts(world, stage, number, shortage, reason, again):
    world.arm(**MINUTELY, retries=2, retry_delay=10 * S)
    world.wake(M)
    fail(world, stage, number, shortage=shortage)
    (run,) = world.runs()
    assert (run.result, run.reason, run.identity) == ("start-failed", reason, None)
    row = world.rows()[0]
    if again is None:
        assert (row.status, row.reason, row.detail) == ("failed", "start-failed", reason)
        assert (world.cron().state, world.cron().paused_by) == ("paused", "failure")
    else:
        assert (row.status, row.due_at - world.now) == ("pending", again)
        assert world.cron().state == "active"


def test_a_manual_run_outlasts_a_shortage_too_but_is_not_retried(world):
    world.arm(retries=5)
    world.run()
    fail(world, "fork", errno.EAGAIN, shortage=True)
    assert world.rows()[0].status == "pending"
    world.wake(S)
    world.end_all(1)
    assert world.rows()[0].status == "failed"


def test_delays_double_up_to_the_longest_over_restarts(world):
    world.arm(**MINUTELY, retries=6, retry_delay=10 * S, retry_max_delay=60 * S, overlap="skip")
    world.wake(M)
    waits = []
    for _ in range(6):
        world.end_all(1)
        waits.append((world.rows()[0].due_at - world.now) // S)
        world.restart()
        assert not world.live()
        world.now = world.rows()[0].due_at
        assert [run.occurrence_id for run in spawned(world.wake())] == [world.rows()[0].id]
    world.end_all(1)
    assert waits == [10, 20, 40, 60, 60, 60]
    assert world.rows()[0].status == "failed"


def test_a_poke_reaches_a_held_cell_whose_sister_waits_for_a_retry(world):
    world.arm(**MINUTELY, targets=("a", "b"), target_parallel=2, retries=3, retry_delay=600 * S)
    world.wake(M)
    for run in world.live():
        world.end(run, 75 if run.target == "a" else 1)
    assert (world.rows()[0].status, world.cells()) == ("pending", {"a": "held", "b": "pending"})
    assert world.poke() == 1
    assert [run.target for run in world.live()] == ["a"]


def test_a_poke_during_the_check_is_kept_over_a_restart(world):
    world.arm(**MINUTELY)
    world.wake(M)
    world.begin()
    (run,) = world.live()
    assert world.poke() == 1
    world.restart()
    acts = world.end(run, 75, stderr=b"not now\n")
    (again,) = spawned(acts)
    assert (again.occurrence_id, again.attempt) == (run.occurrence_id, 2)
    world.end(again, 75)
    assert world.rows()[0].status == "held"


def test_a_held_one_shot_expires_with_an_event_and_wakes_the_daemon_for_it(world):
    expires = world.now + 3600 * S
    world.arm(schedule=("at 2026-12-01T10:05Z",), expires_at=expires)
    world.wake(5 * M)
    world.end_all(75)
    assert world.rows()[0].status == "held"
    owed = world.owed()
    assert (owed.live, owed.due, owed.next_wake) == (0, 0, expires)
    world.now = expires
    world.said.clear()
    world.wake()
    row = world.rows()[0]
    assert (row.status, row.reason) == ("missed", "deadline")
    assert [event.kind for event in world.said] == ["cron.occurrence.missed", "cron.expired"]
    assert world.cron().state == "finished"


@pytest.mark.parametrize(
    ("schedule", "on_crash", "lost", "others", "status", "state", "failures"),
    [
        ("at 2026-12-01T10:01Z", "record", ["a", "b"], 0, "unobserved", ("paused", "crash"), 0),
        ("at 2026-12-01T10:01Z", "record", ["a"], 0, "partial", ("paused", "crash"), 0),
        ("at 2026-12-01T10:01Z", "record", ["a"], 1, "failed", ("paused", "crash"), 0),
        ("at 2026-12-01T10:01Z", "ask", ["a"], 0, "partial", ("paused", "crash"), 0),
        ("* * * * *", "record", ["a", "b"], 0, "unobserved", ("active", ""), 0),
        ("* * * * *", "record", ["a"], 0, "partial", ("active", ""), 0),
        ("* * * * *", "record", ["a"], 1, "failed", ("active", ""), 1),
        ("* * * * *", "ask", ["a"], 0, "partial", ("paused", "crash"), 0),
    ],
)
def test_a_crash_pauses_one_shots_and_who_asks_and_is_no_failure(
    world, schedule, on_crash, lost, others, status, state, failures
):
    world.arm(schedule=(schedule,), targets=("a", "b"), target_parallel=2, on_failure="continue", on_crash=on_crash)
    world.wake(M)
    world.begin()
    for run in world.live():
        if run.target in lost:
            world.lose(run)
        else:
            world.end(run, others)
    cron = world.cron()
    assert (world.rows()[0].status, (cron.state, cron.paused_by), cron.failures) == (status, state, failures)
    assert world.session.live_runs() == []


def test_a_one_shot_that_was_lost_is_finished_once_it_is_resumed(world):
    world.arm(schedule=("at 2026-12-01T10:01Z",))
    world.wake(M)
    world.begin()
    world.lose(world.live()[0])
    world.restart()
    assert not spawned(world.wake(M))
    assert world.cron().state == "paused"
    world.resume()
    assert (world.cron().state, world.live(), len(world.runs())) == ("finished", [], 1)
