"""Escalations on a real ledger: one message at the final failure, the brief, units that fail soon, late or unseen."""

import json
import zlib
from dataclasses import replace

import pytest

from crtrd.core import events
from crtrd.core.cron import OnCrash, OnFailure, OnOutput
from crtrd.core.delivery import Outcome, Owner
from crtrd.core.effects import Deliver, Escalate, LookAfter
from crtrd.core.escalation import LAST_LOOK, LONGEST_LOOK
from crtrd.ledger.retention import Keep
from tests.core.world import D, H, M, S, kinds

ROOT = Owner("root", "root")
NO_MAIL = Owner("root")
HOOK, FILE, EXEC = "webhook:https://example.com/x", "file:/var/log/x", "exec:cat"


def finish(world, code=0, name="job"):
    for run in world.live(name):
        world.end(run, code)


def failing(world, **keys):
    world.arm(schedule=("every 1m",), command=("backup", "it's"), env=(("TOKEN", "hunter2"),), **keys)
    world.wake(M)
    run = world.live()[-1]
    world.held(run)
    return world.end(run, 3, stderr=b"disk full\n")


def escalations(world):
    return list(world.database.execute_sql("SELECT id, state, brief, error FROM escalations ORDER BY serial"))


def only(world):
    (row,) = escalations(world)
    return row[0]


def told(world):
    return list(world.database.execute_sql("SELECT sink, kind FROM outbox ORDER BY serial"))


def documents(world, kind="escalated"):
    sql = "SELECT message FROM outbox WHERE kind = ? ORDER BY serial"
    return [json.loads(zlib.decompress(row[0])) for row in world.database.execute_sql(sql, (kind,))]


# who is told what at the final failure ----------------------------------------------------------------------------

DEFAULT = "default"
PAGED = "paged elsewhere"
BROKEN = "cannot be started"
LATE = "fails late"
NO_UNIT = "no service manager"


def follow(world, unit, owner=NO_MAIL):
    """What the unit of the escalation does."""
    name = only(world)
    match unit:
        case "default" | "no service manager":
            world.do(events.EscalationTold(world.now, None, 0, name, owner))
            world.do(events.EscalationEnded(world.now, name, "", owner))
        case "paged elsewhere":
            world.do(events.EscalationEnded(world.now, name, "", owner))
        case "cannot be started":
            world.do(events.EscalationEnded(world.now, name, "it is not there", owner))
        case "fails late":
            world.do(events.EscalationEnded(world.now, name, "", owner, at_work=True))
            world.wake(10 * S)
            world.do(events.EscalationEnded(world.now, name, "it failed: exit-code", owner))


@pytest.mark.parametrize("unit", [DEFAULT, PAGED, BROKEN, LATE, NO_UNIT])
@pytest.mark.parametrize(("policy", "sinks", "at_once"), [
    ("on-failure", ("inbox",), [("inbox", "escalated")]),
    ("on-change", ("inbox",), [("inbox", "escalated")]),
    ("always", ("inbox",), [("inbox", "escalated")]),
    ("on-failure", ("inbox:root",), [("inbox:root", "escalated")]),
    ("on-failure", ("inbox:ops", "inbox"), [("inbox:ops", "escalated"), ("inbox", "escalated")]),
    ("on-failure", ("mail:ops@example.com",), [("mail:ops@example.com", "escalated")]),
    ("on-failure", (HOOK, "inbox", FILE, EXEC, "journal"),
     [(HOOK, "failed"), ("inbox", "escalated"), (FILE, "failed"), (EXEC, "failed"), ("journal", "failed")]),
    ("on-failure", (), []),
    ("silent", ("inbox", HOOK), []),
])
def test_one_message_at_the_final_failure_whatever_becomes_of_the_unit(world, policy, sinks, at_once, unit):
    """People get the brief and nothing besides, programs the run; and nothing is told to nobody."""
    failing(world, on_output=OnOutput(policy), sinks=sinks)
    assert told(world) == at_once
    follow(world, unit)
    has_inbox = {"inbox", "inbox:root"} & {sink for sink, _ in at_once}
    added = [] if unit == PAGED or has_inbox else [("inbox", "escalated")]
    assert told(world) == at_once + added
    assert world.cron().state == "paused"


@pytest.mark.parametrize("sinks", [("mail:root",), ("mail:root", "inbox"), ("inbox",), ()])
def test_the_default_adds_the_inbox_and_the_mail_that_have_not_got_the_brief(world, sinks):
    failing(world, sinks=sinks)
    follow(world, DEFAULT, ROOT)
    assert sorted(told(world)) == [("inbox", "escalated"), ("mail:root", "escalated")]


def test_the_brief_carries_what_the_run_would_have_said(world):
    """Programs that read the inbox find the same fields; and the run knows who took it."""
    acts = failing(world)
    (document,) = documents(world)
    run = world.runs()[0]
    found = {key: document[key] for key in ("run_id", "result", "exit_code", "stderr_head", "trigger")}
    assert found == {"run_id": run.id, "result": "exit-code", "exit_code": 3, "stderr_head": "disk full\n",
                     "trigger": "schedule"}
    assert document["escalation_id"] == only(world)
    for act in kinds(acts, Deliver):
        world.do(events.DeliveryEnded(world.now, act.delivery.id, act.delivery.attempts, Outcome.TAKEN))
    assert world.runs()[0].delivered == "inbox"


def test_failures_before_the_pause_are_told_as_they_are(world):
    failing(world, pause_after=2)
    assert told(world) == [("inbox", "failed")]
    world.wake(M)
    finish(world, 3)
    assert told(world) == [("inbox", "failed"), ("inbox", "escalated")]


def test_a_cell_that_failed_first_is_told_at_once_and_the_brief_shows_all_that_failed(world):
    world.arm(schedule=("every 1m",), targets=("a", "b", "c"), target_parallel=3)
    world.wake(M)
    first, second, third = world.live()
    for run in world.live():
        world.held(run)
    world.end(first, 3, stderr=b"a is full\n")
    assert told(world) == [("inbox", "failed")]
    world.end(second, 4, stderr=b"b is full\n")
    world.end(third)  # the last to end has not failed
    assert told(world) == [("inbox", "failed"), ("inbox", "failed")]
    brief = escalations(world)[0][2]
    assert all(text in brief for text in ("[a]", "a is full", "[b]", "b is full", first.id, second.id))
    assert third.id + " " not in brief
    follow(world, DEFAULT)
    assert told(world)[2:] == [("inbox", "escalated")]


def test_many_failed_cells_do_not_fill_the_brief(world):
    world.arm(schedule=("every 1m",), targets=tuple("abcdef"), target_parallel=6)
    world.wake(M)
    for run in world.live():
        world.end(run, 1, stderr=b"x" * 200)
    brief = escalations(world)[0][2]
    assert brief.count("x" * 200) == 3
    assert "and 3 more that failed: crtrctl runs job" in brief
    assert told(world)[-1] == ("inbox", "escalated")
    assert len(told(world)) == 6


# the brief --------------------------------------------------------------------------------------------------------


def test_a_pause_by_failure_escalates_with_all_that_is_needed(world):
    acts = failing(world)
    assert [act.escalation_id for act in kinds(acts, Escalate)] == [only(world)]
    brief = escalations(world)[0][2]
    run = world.runs()[0]
    for text in ("job is paused by failure", "every 1m", "backup 'it'\"'\"'s'", "exit status 3", "disk full",
                 f"crtrctl run-info {run.id}", "crtrctl run job", "crtrctl resume job", "crtrctl cancel job",
                 "armed by", "TOKEN", world.cron().id, "exit-code"):
        assert text in brief
    assert "hunter2" not in brief
    assert [act.kind for act in world.said].count("cron.failure.escalated") == 1
    assert not any("hunter2" in act.message + json.dumps(dict(act.fields)) for act in world.said)


def test_the_last_ten_runs_stand_in_the_brief(world):
    world.arm(schedule=("every 1m",), pause_after=12)
    for _ in range(12):
        world.wake(M)
        finish(world, 1)
    brief = escalations(world)[0][2]
    assert "the last 10 runs" in brief
    assert sum(run.id[:12] in brief for run in world.runs()) == 10


# when it escalates ------------------------------------------------------------------------------------------------


def test_continue_and_manual_runs_never_escalate(world):
    failing(world, on_failure=OnFailure.CONTINUE)
    world.arm("other")
    _, runs = world.run("other")
    world.end(world.session.run(runs[0]), 1)
    assert escalations(world) == []
    assert told(world) == [("inbox", "failed"), ("inbox", "failed")]


def test_a_crash_that_asks_escalates(world):
    world.arm(schedule=("every 1m",), on_crash=OnCrash.ASK)
    world.wake(M)
    run = world.live()[0]
    world.held(run)
    assert len(kinds(world.lose(run), Escalate)) == 1
    assert told(world) == [("inbox", "escalated")]


# the unit ---------------------------------------------------------------------------------------------------------


def test_told_by_default_once_however_often_it_is_asked_for(world):
    acts = failing(world)
    told_so = events.EscalationTold(world.now, None, 0, only(world), ROOT)
    acts += world.do(told_so)
    for act in kinds(acts, Deliver):
        world.do(events.DeliveryEnded(world.now, act.delivery.id, act.delivery.attempts, Outcome.TAKEN))
    assert kinds(world.do(told_so), Deliver) == []
    assert [act.delivery.sink for act in kinds(acts, Deliver)] == ["inbox", "mail:root"]
    assert escalations(world)[0][1] == "told"


def test_a_unit_that_cannot_be_started_is_recorded(world):
    failing(world)
    world.do(events.EscalationEnded(world.now, only(world), "crtrd-escalate@.service failed"))
    assert escalations(world)[0][1::2] == ("spawn-failed", "crtrd-escalate@.service failed")
    assert [act.kind for act in world.said].count("cron.escalation.spawn_failed") == 1
    world.do(events.EscalationEnded(world.now, only(world), "again"))
    assert [act.kind for act in world.said].count("cron.escalation.spawn_failed") == 1


def test_one_that_has_told_its_owner_and_fails_after_that_is_recorded_too(world):
    """An override that pages somebody besides the default."""
    failing(world, sinks=())
    world.do(events.EscalationTold(world.now, None, 0, only(world), ROOT))
    world.do(events.EscalationEnded(world.now, only(world), "", ROOT, at_work=True))
    assert escalations(world)[0][1] == "told"
    world.do(events.EscalationEnded(world.now, only(world), "it failed: exit-code", ROOT))
    assert escalations(world)[0][1::2] == ("spawn-failed", "it failed: exit-code")
    assert told(world) == [("inbox", "escalated"), ("mail:root", "escalated")]


def test_a_unit_at_work_is_looked_at_less_and_less_until_it_has_ended(world):
    failing(world)
    name = only(world)
    assert world.owed().deliveries >= 1  # nobody leaves before it has begun
    world.do(events.EscalationEnded(world.now, name, at_work=True))
    looks, began = [], world.now
    while (due := world.owed().next_wake) is not None and due < began + D:
        world.now = due
        acts = kinds(world.wake(), LookAfter)
        looks += [(due - began) // S for _ in acts]
        world.do(events.EscalationEnded(world.now, name, at_work=True))
    assert looks[:6] == [2, 4, 8, 16, 32, 64]
    assert len(looks) < 40
    world.do(events.EscalationEnded(world.now, name))
    assert world.owed().next_wake is None
    assert escalations(world)[0][1] == "started"


def test_a_look_of_which_nothing_comes_is_followed_by_the_next(world):
    failing(world)
    world.do(events.EscalationEnded(world.now, only(world), at_work=True))
    for _ in range(3):
        world.now = world.owed().next_wake
        assert len(kinds(world.wake(), LookAfter)) == 1
    world.now += LAST_LOOK
    assert len(kinds(world.wake(), LookAfter)) == 1
    assert world.owed().next_wake is None  # a service of its own by now


def test_the_next_life_looks_too(world):
    failing(world)
    world.do(events.EscalationEnded(world.now, only(world), at_work=True))
    world.now = world.owed().next_wake
    assert len(kinds(world.restart(), LookAfter)) == 1
    assert world.owed().deliveries == 1  # the inbox's; the look has been begun


def test_after_a_step_back_of_the_clock_the_look_is_not_put_off(world):
    failing(world)
    world.now += 3 * H
    world.do(events.EscalationEnded(world.now, only(world), at_work=True))
    world.now -= 365 * D
    assert len(kinds(world.wake(), LookAfter)) == 1
    assert world.owed().next_wake <= world.now + LONGEST_LOOK


def test_one_that_the_last_life_did_not_begin_is_begun_again(world):
    failing(world)
    name = only(world)
    assert [act.escalation_id for act in kinds(world.restart(), Escalate)] == [name]
    world.do(events.EscalationEnded(world.now, name))
    assert escalations(world)[0][1] == "started"
    assert kinds(world.restart(), Escalate) == []


@pytest.mark.parametrize("reboot", [False, True])
def test_a_unit_that_went_down_with_the_machine_is_begun_again(world, reboot):
    failing(world)
    name = only(world)
    world.do(events.EscalationEnded(world.now, name, at_work=True))
    acts = world.restart(boot_id="c" * 32 if reboot else None)
    assert [act.escalation_id for act in kinds(acts, Escalate)] == [name] * reboot
    assert escalations(world)[0][1] == ("open" if reboot else "started")
    assert (world.owed().next_wake is None) == reboot


def test_retention_keeps_what_is_not_settled(world):
    failing(world)
    world.do(events.EscalationEnded(world.now, only(world), at_work=True))
    world.session.prune(Keep(D, D, 1000), world.now + 3 * D)
    assert len(escalations(world)) == 1
    world.do(events.EscalationEnded(world.now, only(world)))
    world.session.prune(Keep(D, D, 1000), world.now + 3 * D)
    assert escalations(world) == []


def test_nothing_begins_twice_where_no_attempt_may_begin(world):
    """Leaving: the rows are there, and the next life makes the attempts."""
    world.limits = replace(world.limits, deliver=False)
    assert kinds(failing(world), Deliver) == []
    assert told(world) == [("inbox", "escalated")]
