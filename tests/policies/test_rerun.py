"""Rerun as a table: which cells run again, and what is refused. A cell that is done is never repeated."""

import pytest

from crtrd.core import events
from crtrd.errors import Code
from tests.core.world import M

DAILY = {"schedule": ("* * * * *",), "targets": ("a", "b", "c"), "target_parallel": 3, "on_failure": "continue"}


def rerun(world, occurrence_id):
    return world.ask(events.RerunRequested, occurrence_id=occurrence_id, key=f"again-{world.tickets}")


def ended(world, **codes):
    """One minute's occurrence whose cells end with these exit statuses."""
    world.wake(M)
    for run in world.live():
        world.end(run, codes[run.target])
    return world.rows()[-1]


@pytest.mark.parametrize(
    ("codes", "again"),
    [
        ({"a": 0, "b": 1, "c": 0}, {"b"}),
        ({"a": 1, "b": 1, "c": 1}, {"a", "b", "c"}),
        ({"a": 0, "b": 0, "c": 9}, {"c"}),
    ],
)
def test_only_what_was_left_undone_runs_again(world, codes, again):
    world.arm(**DAILY)
    old = ended(world, **codes)
    new, runs = rerun(world, old.id)
    assert {run.target for run in world.live()} == again
    assert {run.id for run in world.live()} == set(runs)
    assert {run.scheduled_at for run in world.live()} == {old.instant}
    assert (new.origin, new.label, new.instant) == ("manual", f"rerun of {old.id}", old.instant)
    world.end_all()
    assert world.rows()[-1].status == "success"
    assert set(world.cells()) == again
    assert world.session.occurrence(old.id) == old


def test_a_second_rerun_takes_what_the_first_has_left(world):
    world.arm(**DAILY)
    old = ended(world, a=0, b=1, c=1)
    rerun(world, old.id)
    assert world.refused(rerun, world, old.id) is Code.INVALID_STATE
    for run in world.live():
        world.end(run, 0 if run.target == "b" else 1)
    rerun(world, old.id)
    assert {run.target for run in world.live()} == {"c"}
    world.end_all()
    assert world.refused(rerun, world, old.id) is Code.INVALID_STATE


def test_skipped_and_missed_ones_run_whole(world):
    world.arm(**DAILY)
    world.wake(M)
    world.begin()
    world.wake(M)
    assert world.story()[1][1:] == ("skipped", "overlap")
    skipped = world.rows()[1]
    world.end_all()
    rerun(world, skipped.id)
    assert {run.target for run in world.live()} == {"a", "b", "c"}


def test_one_target_of_a_manual_run_stays_one(world):
    world.arm(**DAILY)
    world.run(target="b")
    world.end_all(code=4)
    rerun(world, world.rows()[-1].id)
    assert [run.target for run in world.live()] == ["b"]


def test_refusals(world):
    world.arm(**DAILY)
    assert world.refused(rerun, world, "f" * 32) is Code.NO_SUCH_OCCURRENCE
    done = ended(world, a=0, b=0, c=0)
    assert world.refused(rerun, world, done.id) is Code.INVALID_STATE
    failed = ended(world, a=0, b=3, c=0)
    world.wake(M)
    assert world.refused(rerun, world, world.rows()[-1].id) is Code.INVALID_STATE
    world.end_all()
    world.change(targets=("a", "c"))
    assert world.refused(rerun, world, failed.id) is Code.INVALID_STATE
    world.cancel()
    assert world.refused(rerun, world, failed.id) is Code.NO_SUCH_CRON


def test_it_is_out_of_band(world):
    world.arm(**DAILY | {"on_failure": "pause", "retries": 5})
    old = ended(world, a=0, b=0, c=0)
    world.change(targets=("a", "b", "c"))
    world.run(target="a")
    world.end_all(code=1)
    new, _ = rerun(world, world.rows()[-1].id)
    world.end_all(code=1)
    assert world.session.occurrence(new.id).status == "failed"
    assert (world.cron().state, world.cron().failures) == ("active", 0)
    assert old.status == "success"
