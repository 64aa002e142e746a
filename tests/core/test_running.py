"""Ends of runs: results, retries, shortages, holding, cells, losses; and what they do to occurrence and cron."""

import pytest

from crtrd.core import events
from crtrd.core.cron import OnCrash
from crtrd.core.effects import CloseGate, OpenGate, StopRun
from crtrd.core.occurrence import Identity, Output
from crtrd.core.retry import SHORTAGE_LIMIT
from crtrd.errors import Code
from tests.core.world import BOOT, T0, D, H, M, S, kinds, spawned

MINUTELY = {"schedule": ("* * * * *",)}
ONCE = {"schedule": ("at 2026-12-01T10:01Z",)}


def start(world, **keys):
    """Arm, come due, release: the run."""
    world.arm(**{**MINUTELY, **keys})
    world.wake(M)
    world.begin()
    return world.live()[0]


@pytest.mark.parametrize(
    ("end", "result", "status", "reason"),
    [
        ({"code": 0}, "success", "success", ""),
        ({"code": 3}, "success", "success", ""),
        ({"code": 1}, "exit-code", "failed", "exit-code"),
        ({"code": None, "signal": 11}, "signal", "failed", "signal"),
        ({"code": None, "signal": 9, "oom": True}, "oom-kill", "failed", "oom-kill"),
        ({"code": 75}, "held", "held", "held"),
        ({"code": None}, "unobserved", "unobserved", "crash"),
    ],
)
def test_results(world, end, result, status, reason):
    run = start(world, success_exit_codes=(0, 3))
    world.end(run, **end)
    assert world.session.run(run.id).result == result
    assert world.story()[0][1:] == (status, reason)
    assert world.session.run(run.id).duration == 5 * S


@pytest.mark.parametrize("end", [{"code": 0}, {"code": 75}, {"code": None, "signal": 9, "oom": True}])
def test_the_first_cause_wins(world, end):
    """C23: a run that traps the TERM of its timeout and exits 0 has timed out all the same."""
    run = start(world, grace=3 * S)
    assert kinds(world.time_out(run), StopRun) == [StopRun(run.id, 3 * S)]
    assert not world.time_out(run)
    world.cancel(kill=True)
    world.end(run, **end)
    ended = world.session.run(run.id)
    assert (ended.result, ended.exit_code) == ("timeout", end["code"])
    assert world.story()[0][1:] == ("failed", "timeout")


def test_a_late_timeout_changes_nothing(world):
    run = start(world)
    world.end(run)
    before = world.dump()
    world.time_out(run)
    world.end(run, 1)
    world.lose(run)
    assert world.dump() == before


# retries ----------------------------------------------------------------------------------------------------------


def test_exponential_delay_and_its_cap_survive_restarts(world):
    world.arm(**ONCE, retries=5, retry_delay=10 * S, retry_max_delay=60 * S)
    world.wake(M)
    delays = []
    while True:
        world.end_all(1)
        (row,) = world.rows()
        if row.settled_at:
            break
        assert (row.status, row.reason) == ("pending", "retry")
        delays.append((row.due_at - world.now) // S)
        world.now = row.due_at - 1
        world.restart()
        assert not world.live()
        assert world.owed().next_wake == row.due_at
        world.now += 1
        world.restart()
    assert delays == [10, 20, 40, 60, 60]
    assert [run.attempt for run in world.runs()] == [1, 2, 3, 4, 5, 6]
    assert world.story() == [(60, "failed", "exit-code")]


def test_a_failure_counts_only_when_retries_are_used_up(world):
    run = start(world, retries=1, retry_delay=0, pause_after=2)
    world.end(run, 1)
    assert world.cron().failures == 0
    world.end_all(1)
    assert (world.cron().failures, world.cron().state) == (1, "active")
    world.wake(M)
    world.end_all(1)
    world.end_all(1)
    assert (world.cron().failures, world.cron().state, world.cron().paused_by) == (2, "paused", "failure")
    assert world.cron().note == "exit-code: exit status 1"


def test_success_forgets_failures_and_says_so(world):
    run = start(world, pause_after=3)
    world.end(run, 1)
    world.wake(M)
    world.end_all(0)
    assert world.cron().failures == 0
    assert [event.kind for event in world.said].count("cron.recovered") == 1


def test_on_failure_continue_never_pauses(world):
    run = start(world, on_failure="continue")
    world.end(run, 1)
    assert (world.cron().state, world.cron().failures) == ("active", 1)


def test_held_attempts_use_up_no_retry(world):
    run = start(world, retries=1, retry_delay=0)
    for _ in range(3):
        world.end(run, 75)
        world.poke()
        (run,) = world.live()
    world.end(run, 1)
    assert world.rows()[0].settled_at is None
    world.end_all(1)
    assert world.story() == [(60, "failed", "exit-code")]


def test_shortages_are_not_counted_and_have_delays_of_their_own(world):
    world.arm(**ONCE, retries=1, retry_delay=5 * S)
    world.wake(M)
    delays = []
    for _ in range(SHORTAGE_LIMIT):
        world.fail_to_launch(world.live()[0], shortage=True)
        delays.append((world.rows()[0].due_at - world.now) // S)
        world.wake(M)
    assert delays[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    world.end_all(1)
    assert world.rows()[0].due_at == world.now + 5 * S
    world.wake(5 * S)
    world.end_all(0)
    assert world.story() == [(60, "success", "")]


def test_a_shortage_without_end_settles_but_is_never_the_crons_failure(world):
    world.arm(**MINUTELY)
    world.wake(M)
    for _ in range(SHORTAGE_LIMIT + 1):
        world.fail_to_launch(world.live()[0], shortage=True)
        world.now = world.rows()[0].due_at
        world.do(events.StopBegun(world.now))
        world.wake()
    assert world.rows()[0].status == "failed"
    assert (world.cron().failures, world.cron().state) == (0, "active")


def test_a_start_that_failed_for_the_crons_own_fault_is_a_failure(world):
    world.arm(**MINUTELY)
    world.wake(M)
    world.fail_to_launch(world.live()[0])
    assert world.story() == [(60, "failed", "start-failed")]
    assert world.rows()[0].detail == "cannot start fork: EAGAIN"
    assert world.cron().state == "paused"
    assert world.live() == []


# held -------------------------------------------------------------------------------------------------------------


def test_held_waits_for_a_poke_and_keeps_nobody_awake(world):
    run = start(world, **ONCE)
    world.end(run, 75, stderr=b"first\nno network\n")
    assert world.story() == [(60, "held", "held")]
    assert world.rows()[0].detail == "no network"
    owed = world.owed()
    assert (owed.live, owed.due, owed.next_wake) == (0, 0, None)
    assert world.cron().state == "active"
    world.wake(D)
    assert world.live() == []
    assert world.poke() == 1
    assert len(world.live()) == 1
    world.end_all()
    assert world.cron().state == "finished"


def test_a_queue_behind_a_held_one_keeps_nobody_awake(world):
    run = start(world, overlap="queue")
    world.end(run, 75)
    world.wake(M)
    assert [row[1] for row in world.story()] == ["held", "pending"]
    assert world.owed().due == 0
    world.poke()
    world.end_all()
    assert [row[1] for row in world.story()] == ["success", "running"]


def test_a_poke_that_lands_while_the_check_still_runs_is_not_lost(world):
    run = start(world, **ONCE)
    assert world.poke() == 1
    world.end(run, 75)
    assert len(world.live()) == 1
    world.end_all(75)
    assert world.story() == [(60, "held", "held")]


def test_a_poke_of_a_run_that_is_not_held_changes_nothing(world):
    run = start(world)
    world.poke()
    world.end(run)
    assert world.story() == [(60, "success", "")]
    assert world.poke() == 0


@pytest.mark.parametrize("noticed", ["awake", "by the next life"])
def test_a_held_one_shot_expires(world, noticed):
    world.arm(**ONCE, expires_at=T0 + H)
    world.wake(M)
    world.end_all(75)
    assert world.owed().next_wake == T0 + H
    world.now = T0 + H
    if noticed == "awake":
        world.wake()
    else:
        world.restart()
    assert world.story() == [(60, "missed", "deadline")]
    assert world.cells() == {"": "missed"}
    assert world.cron().state == "finished"
    assert world.owed().next_wake is None


def test_the_expiry_of_a_held_one_can_be_changed(world):
    world.arm(**ONCE, expires_at=T0 + H)
    world.wake(M)
    world.end_all(75)
    world.change(expires_at=T0 + 2 * H)
    world.wake(H)
    assert world.rows()[0].status == "held"
    world.wake(H)
    assert world.rows()[0].status == "missed"


def test_a_held_run_of_a_canceled_cron_settles(world):
    run = start(world)
    world.cancel()
    world.end(run, 75)
    assert world.story() == [(60, "canceled", "canceled")]
    assert world.owed().due == 0


# cells ------------------------------------------------------------------------------------------------------------


def test_cells_start_and_are_listed_as_they_were_armed(world):
    world.arm(targets=("zeta", "alpha", "mid"), target_parallel=2)
    world.run()
    assert [run.target for run in world.session.live_runs()] == ["zeta", "alpha"]
    (row,) = world.rows()
    assert [cell.target for cell in world.session.cells(row.id)] == ["zeta", "alpha", "mid"]


@pytest.mark.parametrize(
    ("codes", "status", "reason"),
    [
        ((0, 0, 0), "success", ""), ((1, 0, 0), "partial", "exit-code"), ((0, 0, 1), "partial", "exit-code"),
        ((1, 1, 1), "failed", "exit-code"), ((0, None, 0), "partial", "crash"), ((1, None, 1), "failed", "exit-code"),
        ((None, None, None), "unobserved", "crash"),
    ],
)
def test_outcome_of_cells(world, codes, status, reason):
    world.arm(**MINUTELY, targets=("a", "b", "c"))
    world.wake(M)
    for code in codes:
        world.end(world.live()[0], code)
    assert world.story()[0][1:] == (status, reason)
    if status == "partial":
        assert world.rows()[0].detail.startswith(f"{'abc'[next(i for i, code in enumerate(codes) if code != 0)]}: ")


@pytest.mark.parametrize("parallel", [1, 2, 3, 9])
def test_target_parallel_is_kept_full(world, parallel):
    world.arm(**MINUTELY, targets=tuple("abcde"), target_parallel=parallel)
    world.wake(M)
    left = 5
    while left:
        assert len(world.live()) == min(parallel, left)
        world.end(world.live()[0])
        left -= 1
    assert [run.target for run in world.runs()] == list("abcde")
    assert world.story() == [(60, "success", "")]


def test_the_retry_of_a_cell_does_not_wait_for_the_others(world):
    world.arm(**MINUTELY, targets=("a", "b"), target_parallel=2, retries=1, retry_delay=10 * S)
    world.wake(M)
    a, b = world.live()
    world.end(a, 1)
    assert world.owed().next_wake == world.now + 10 * S
    (again,) = spawned(world.wake(10 * S))
    assert (again.target, again.attempt) == ("a", 2)
    world.end(again)
    world.end(b)
    assert world.story()[0][1] == "success"


def test_a_held_cell_beside_a_running_one(world):
    world.arm(**MINUTELY, targets=("a", "b"), target_parallel=2)
    world.wake(M)
    a, b = world.live()
    world.end(a, 75)
    assert world.rows()[0].status == "running"
    world.poke()
    assert [run.target for run in world.live()] == ["b", "a"]
    world.end(b, 75)
    world.end_all()
    assert [run.target for run in world.live()] == ["b"]
    world.end_all()
    assert world.story()[0][1] == "success"


def test_a_rerun_after_a_crash_repeats_no_cell_that_is_done(world):
    world.arm(**MINUTELY, targets=("a", "b"), on_crash="rerun")
    world.wake(M)
    world.end(world.live()[0])
    world.begin()
    world.lose(world.live()[0])
    (again,) = world.live()
    assert (again.target, again.attempt) == ("b", 2)
    world.end(again)
    assert world.story() == [(60, "success", "")]


# losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [MINUTELY, ONCE])
@pytest.mark.parametrize("on_crash", list(OnCrash))
@pytest.mark.parametrize("executed", [True, False])
def test_a_lost_run(world, executed, on_crash, schedule):
    world.arm(**schedule, on_crash=on_crash)
    world.wake(M)
    (run,) = world.live()
    if executed:
        world.begin()
    acts = world.lose(run, executed=executed)
    again = not executed or on_crash == "rerun"
    if again:
        assert world.story() == [(60, "running", "")]
        assert [each.attempt for each in spawned(acts)] == [2]
        assert world.cron().state == "active"
        return
    assert world.story() == [(60, "unobserved", "crash")]
    assert world.live() == []
    assert world.cron().failures == 0
    pauses = on_crash == "ask" or schedule is ONCE
    assert (world.cron().state, world.cron().paused_by) == (("paused", "crash") if pauses else ("active", ""))


def test_a_lost_one_shot_is_never_fired_again(world):
    run = start(world, **ONCE)
    world.restart("c" * 32)
    world.lose(run)
    assert world.cron().paused_by == "crash"
    world.wake(D)
    world.restart()
    world.resume()
    assert world.cron().state == "finished"
    assert len(world.runs()) == 1


def test_a_lost_one_shot_keeps_its_later_instants(world):
    run = start(world, schedule=("at 2026-12-01T10:01Z", "at 2026-12-03T10:01Z"))
    world.lose(run)
    world.resume()
    assert world.cron().next_at == T0 + 2 * D + M


@pytest.mark.parametrize("executed", [True, False])
def test_a_run_lost_while_it_was_canceled_is_not_run_again(world, executed):
    world.arm(**MINUTELY, on_crash="rerun", overlap="replace")
    world.wake(M)
    (run,) = world.live()
    if executed:
        world.begin()
    world.wake(M)
    world.lose(run, executed=executed)
    first = world.rows()[0]
    assert (first.status, first.reason) == (("unobserved", "crash") if executed else ("canceled", "replaced"))
    assert [each.scheduled_at for each in world.live()] == [world.rows()[1].instant]


def test_a_run_lost_during_its_timeout_is_not_run_again(world):
    run = start(world, on_crash="rerun")
    world.time_out(run)
    world.lose(run)
    assert world.story() == [(60, "unobserved", "crash")]


def test_attempts_lost_before_the_gate_use_up_no_retry(world):
    world.arm(**MINUTELY, retries=1, retry_delay=0)
    world.wake(M)
    for _ in range(5):
        world.lose(world.live()[0], executed=False)
    world.end_all(1)
    world.end_all(0)
    assert world.story() == [(60, "success", "")]


# the gate ---------------------------------------------------------------------------------------------------------


def test_the_gate_opens_once_the_identity_is_recorded(world):
    world.arm(**MINUTELY, timeout=7 * S)
    world.wake(M)
    (run,) = world.live()
    acts = world.held(run)
    assert kinds(acts, OpenGate) == [OpenGate(run.id, 7 * S)]
    stored = world.session.run(run.id)
    assert (stored.phase, stored.identity, stored.cgroup) == ("running", Identity(BOOT, 4242, 7), "cg")
    assert kinds(world.held(run), CloseGate) == [CloseGate(run.id)]


def test_the_gate_of_an_unknown_run_is_closed(world):
    acts = world.do(events.RunHeld(world.now, "f" * 32, Identity(BOOT, 1, 1), ""))
    assert acts == [CloseGate("f" * 32)]


# cancel -----------------------------------------------------------------------------------------------------------


def test_cancel_of_what_waits(world):
    run = start(world, retries=1)
    world.end(run, 1)
    world.cancel()
    assert world.story() == [(60, "canceled", "canceled")]
    assert world.cells() == {"": "canceled"}
    assert world.cron() is None
    assert not world.wake(D)


@pytest.mark.parametrize("kill", [True, False])
def test_cancel_at_the_gate_executes_nothing(world, kill):
    world.arm(**MINUTELY)
    world.wake(M)
    (run,) = world.live()
    world.cancel(kill=kill)
    assert kinds(world.held(run), CloseGate) == [CloseGate(run.id)]
    assert world.story() == [(60, "canceled", "canceled")]


@pytest.mark.parametrize(("kill", "code", "expected"), [
    (False, 0, ("success", "")), (False, 1, ("failed", "exit-code")), (True, 0, ("canceled", "canceled"))])
def test_cancel_while_it_runs(world, kill, code, expected):
    run = start(world, retries=5)
    world.tickets += 1
    acts = world.do(events.CancelRequested(world.now, world.tickets, 0, "job", kill))
    assert len(kinds(acts, StopRun)) == kill
    world.end(run, code)
    assert world.story()[0][1:] == expected


@pytest.mark.parametrize("kill", [True, False])
def test_cancel_begins_no_further_cell(world, kill):
    run = start(world, targets=("a", "b", "c"))
    world.cancel(kill=kill)
    world.end(run)
    assert world.live() == []
    assert world.story()[0][1:] == ("canceled", "canceled")
    assert world.cells() == {"a": "canceled" if kill else "success", "b": "canceled", "c": "canceled"}


# out of band ------------------------------------------------------------------------------------------------------


def test_a_manual_run_is_never_retried_and_never_pauses(world):
    world.arm(**MINUTELY, retries=5)
    occurrence, (run_id,) = world.run(label="try")
    assert world.session.run(run_id).out_of_band
    assert (occurrence.origin, occurrence.label) == ("manual", "try")
    world.end_all(1)
    assert world.rows()[0].status == "failed"
    assert (world.cron().state, world.cron().failures, world.cron().runs_counted) == ("active", 0, 0)


def test_a_manual_run_works_while_paused_and_when_finished(world):
    world.arm(**ONCE)
    world.pause()
    assert len(world.run()[1]) == 1
    world.end_all()
    world.resume()
    world.wake(M)
    world.end_all()
    assert world.cron().state == "finished"
    assert len(world.run()[1]) == 1
    world.end_all(0)
    assert world.cron().state == "finished"


def test_one_target_by_hand(world):
    world.arm(**MINUTELY, targets=("a", "b"))
    world.run(target="b")
    assert [run.target for run in world.live()] == ["b"]
    assert world.cells() == {"b": "running"}


@pytest.mark.parametrize(
    ("prepare", "call", "code"),
    [
        (None, lambda world: world.run("nobody"), Code.NO_SUCH_CRON),
        (None, lambda world: world.run(target="z"), Code.INVALID_ARGUMENT),
        ("pause", lambda world: world.trigger("k"), Code.INVALID_STATE),
        (None, lambda world: world.resume(), Code.INVALID_STATE),
        (None, lambda world: world.change("nobody", stdin=""), Code.NO_SUCH_CRON),
        (None, lambda world: world.arm(), Code.CRON_EXISTS),
        (None, lambda world: world.ask(events.KillRequested, run_id="f" * 32, signal=15), Code.NO_SUCH_RUN),
    ],
)
def test_refusals_change_nothing(world, prepare, call, code):
    world.arm(**MINUTELY)
    if prepare:
        getattr(world, prepare)()
    assert world.refused(call, world) is code


def test_kill_is_for_running_ones(world):
    world.arm(**MINUTELY)
    world.wake(M)
    (run,) = world.live()
    assert world.refused(world.ask, events.KillRequested, run_id=run.id, signal=15) is Code.INVALID_STATE
    world.begin()
    world.ask(events.KillRequested, run_id=run.id, signal=10)
    world.end(run, None, 10)
    assert world.refused(world.ask, events.KillRequested, run_id=run.id, signal=15) is Code.INVALID_STATE
    assert world.rows()[0].detail == "signal 10"


def test_the_end_of_the_daemon_interrupts_what_runs(world):
    run = start(world, targets=("a", "b"), grace=4 * S)
    world.arm("timed-out", **MINUTELY)
    acts = world.do(events.StopBegun(world.now))
    assert kinds(acts, StopRun) == [StopRun(run.id, 4 * S)]
    assert kinds(world.do(events.StopBegun(world.now)), StopRun) == [StopRun(run.id, 4 * S)]
    world.end(run, None, 15)
    assert world.story() == [(60, "canceled", "interrupted")]
    assert world.session.run(run.id).result == "interrupted"


def test_a_run_that_does_not_die_is_abandoned_and_its_late_end_moves_nothing(world):
    run = start(world)
    world.begin()
    ending = events.Ending(None, None, oom=False, duration=None, stdout=Output(b"so far", 6), stderr=Output())
    world.do(events.RunWedged(world.now, run.id, ending))
    (given_up,) = world.runs()
    assert (given_up.result, given_up.stdout.head) == ("abandoned", b"so far")
    assert [row.status for row in world.rows()] == ["abandoned"]
    assert world.session.live_runs() == []
    before = world.runs(), world.rows()
    acts = world.end(run, 3)
    assert [act.kind for act in acts] == ["cron.run.late"]
    assert (world.runs(), world.rows()) == before
    world.do(events.RunWedged(world.now, run.id, ending))
    assert (world.runs(), world.rows()) == before
