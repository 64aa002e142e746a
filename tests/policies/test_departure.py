"""A cron that is canceled while it runs: by its own command, from outside, with and without kill."""

from dataclasses import replace

import pytest

from crtrd.core import events
from crtrd.core.effects import StopRun
from tests.core.world import M, S, kinds

MINUTELY = {"schedule": ("* * * * *",)}


def cancel(world, by="", *, kill=False):
    world.tickets += 1
    return world.do(events.CancelRequested(world.now, world.tickets, 0, "job", kill, by))


@pytest.mark.parametrize(
    ("by_itself", "kill", "stopped", "delivers"),
    [(True, False, False, True), (True, True, False, True), (False, False, False, False), (False, True, True, False)],
)
def test_who_cancels_decides_what_becomes_of_the_run(world, by_itself, kill, stopped, delivers):
    world.arm(**MINUTELY, success_exit_codes=(0, 3), grace=7 * S)
    world.wake(M)
    world.begin()
    (run,) = world.live()
    acts = cancel(world, run.id if by_itself else "", kill=kill)
    assert kinds(acts, StopRun) == ([StopRun(run.id, 7 * S)] if stopped else [])
    assert world.cron() is None
    assert world.session.departed(run.cron_id).delivers == (run.occurrence_id if delivers else "")
    world.restart()
    world.end(run, 3)
    assert world.rows()[0].status == ("canceled" if stopped else "success")
    assert world.session.departed(run.cron_id) is None


def test_a_run_of_another_cron_is_outside(world):
    world.arm("other")
    world.arm(**MINUTELY)
    world.wake(M)
    world.begin()
    world.run("other")
    (stranger,) = world.live("other")
    world.begin("other")
    cancel(world, stranger.id)
    assert world.session.departed(world.live()[0].cron_id).delivers == ""


def test_nothing_is_left_behind_without_a_live_run(world):
    cron = world.arm(**MINUTELY)
    world.cancel()
    assert world.session.departed(cron.id) is None


def test_the_grace_at_a_timeout_is_still_the_crons_own(world):
    world.arm(**MINUTELY, grace=3 * S)
    world.wake(M)
    world.begin()
    (run,) = world.live()
    cancel(world, run.id)
    assert kinds(world.time_out(run), StopRun) == [StopRun(run.id, 3 * S)]


def test_the_name_is_free_at_once(world):
    world.arm(**MINUTELY)
    world.wake(M)
    world.begin()
    (run,) = world.live()
    cancel(world, run.id)
    world.arm(schedule=("0 0 * * *",))
    world.end(run)
    assert world.cron().failures == 0


def test_a_canceled_crons_run_keeps_its_place_in_the_pool(world):
    world.limits = replace(world.limits, pools=(("disk", 1),))
    world.arm(**MINUTELY, pool="disk")
    world.wake(M)
    world.begin()
    (run,) = world.live()
    world.cancel()
    world.arm("other", pool="disk")
    assert world.run("other")[0].status == "pending"
    world.end(run)
    assert [each.phase for each in world.live("other")] == ["starting"]
