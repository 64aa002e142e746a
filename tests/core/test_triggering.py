"""Triggers that are safe to ask for again (CONTRACT §7, C66), and circles of them, on a real ledger."""

from itertools import pairwise

import pytest

from crtrd.core import events
from crtrd.core.cron import Overlap
from crtrd.errors import Code
from crtrd.ledger.retention import Keep
from tests.core.world import T0, D, H, M, S


def ask(world, key="", name="job", **more):
    fresh = f"{world.tickets:032x}"
    answer = world.ask(events.TriggerRequested, cron=name, fresh=fresh, key=key, **more)
    return str(answer.word), answer.occurrence_id


def finish(world, code=0, name="job"):
    for run in world.live(name):
        world.end(run, code)


def test_c66_one_key_is_one_run_also_after_a_restart_and_an_hour(world):
    world.arm()
    word, name = ask(world, "K")
    assert word == "accepted"
    for _ in range(3):
        assert ask(world, "K")[1] == name
    world.restart()
    assert ask(world, "K") == ("already_running", name)
    finish(world)
    world.now += H
    assert ask(world, "K") == ("already_completed", name)
    assert world.refused(ask, world, "K", label="other") is Code.CONFLICT
    assert world.refused(ask, world, "K", when=T0) is Code.CONFLICT
    assert len(world.rows()) == 1
    assert len(world.runs()) == 1


def test_a_key_is_kept_for_seven_days(world):
    world.arm()
    _, first = ask(world, "K")
    finish(world)
    world.now += 7 * D - S
    assert ask(world, "K") == ("already_completed", first)
    world.now += 2 * S
    word, second = ask(world, "K")
    assert (word, second == first) == ("accepted", False)
    assert ask(world, "K")[1] == second


def test_without_a_key_two_calls_are_two_runs_or_one_while_it_runs(world):
    world.arm()
    first = ask(world)
    assert ask(world) == ("already_running", first[1])  # coalesced by overlap = skip
    finish(world)
    second = ask(world)
    assert (second[0], second[1] == first[1]) == ("accepted", False)
    assert len(world.rows()) == 2


def test_a_coalesced_key_stays_with_the_run_that_stood_for_it(world):
    world.arm()
    _, first = ask(world)
    assert ask(world, "K") == ("already_running", first)
    finish(world)
    assert ask(world, "K") == ("already_completed", first)


def test_queue_replace_and_allow(world):
    world.arm("queued", overlap=Overlap.QUEUE)
    world.arm("replaced", overlap=Overlap.REPLACE)
    world.arm("allowed", overlap=Overlap.ALLOW, parallel=2)
    assert [ask(world, name="queued")[0] for _ in range(2)] == ["accepted"] * 2
    assert world.refused(ask, world, name="queued") is Code.LIMIT_EXCEEDED
    assert [ask(world, name="replaced")[0] for _ in range(3)] == ["accepted"] * 3
    assert [ask(world, name="allowed")[0] for _ in range(2)] == ["accepted"] * 2
    assert world.refused(ask, world, name="allowed") is Code.LIMIT_EXCEEDED
    assert ask(world, name="queued", overlap="skip")[0] == "already_running"


def test_at_is_the_latest_instant_not_after_it_and_clocks_meet_in_its_row(world):
    world.arm(schedule=("*/10 * * * *",))
    world.now = T0 + 10 * M + 5 * S
    word, name = ask(world, when=world.now)
    assert word == "accepted"
    assert ask(world, when=world.now + 30 * S)[1] == name
    world.wake()  # the schedule's own clock finds the row that the other clock made
    assert [(row.id, row.instant, row.origin) for row in world.rows()] == [(name, T0 + 10 * M, "schedule")]
    assert len(world.live()) == 1
    finish(world)
    assert ask(world, when=T0 + 10 * M) == ("already_completed", name)
    world.wake(10 * M)
    assert ask(world, when=world.now)[1] == world.rows()[-1].id  # and the other way round
    assert len(world.rows()) == 2


def test_a_clock_may_be_ahead_a_little_and_its_run_waits_for_the_instant(world):
    world.arm(schedule=("*/10 * * * *",))
    world.now = T0 + 10 * M - 30 * S
    assert ask(world, when=T0 + 10 * M)[0] == "accepted"
    assert world.live() == []
    world.wake(30 * S)
    assert len(world.live()) == 1
    assert world.refused(ask, world, when=world.now + 2 * M) is Code.INVALID_ARGUMENT


def test_at_without_an_instant_is_refused(world):
    world.arm()
    assert world.refused(ask, world, when=T0) is Code.INVALID_ARGUMENT
    world.arm("later", schedule=("* * * * *",), starts_at=T0 + H)
    assert world.refused(ask, world, name="later", when=T0) is Code.INVALID_ARGUMENT


def test_what_is_not_active_takes_no_triggers_but_answers_for_known_keys(world):
    world.arm()
    _, name = ask(world, "K")
    finish(world)
    world.pause()
    assert world.refused(ask, world) is Code.INVALID_STATE
    assert ask(world, "K") == ("already_completed", name)
    assert world.refused(ask, world, name="nobody") is Code.NO_SUCH_CRON


def test_who_asked_and_why_stand_in_the_row(world):
    world.arm()
    ask(world, label="deploy 7", source="ci")
    assert (world.rows()[0].label, world.rows()[0].detail) == ("deploy 7", "asked for by ci")


def test_keys_are_forgotten_by_retention(world):
    world.arm()
    ask(world, "K")
    finish(world)
    world.session.prune(Keep(D, D, 1000), world.now + 8 * D)
    assert list(world.database.execute_sql("SELECT * FROM trigger_keys")) == []


# circles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", [("a",), ("b", "a"), ("b", "c", "a")])
def test_crons_that_trigger_each_other_in_a_circle_are_refused(world, chain):
    names = ["a", *chain]
    for here, there in reversed(list(pairwise(names))[1:]):
        world.arm(here, sinks=(f"cron:{there}",))
    assert world.refused(world.arm, "a", sinks=(f"cron:{chain[0]}",)) is Code.INVALID_DEFINITION
    world.arm("a")
    assert world.refused(world.change, "a", sinks=(f"cron:{chain[0]}",)) is Code.INVALID_DEFINITION
