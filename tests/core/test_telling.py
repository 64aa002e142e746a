"""Who is told what: the disposition of settled runs, and the life of their deliveries, on a real ledger."""

import hashlib
import json
import zlib
from dataclasses import replace

import pytest

from crtrd.core import events
from crtrd.core.cron import OnFailure, OnOutput
from crtrd.core.delivery import OLDEST, Outcome, wait
from crtrd.core.disposition import Case, Kind, judge
from crtrd.core.effects import Deliver
from crtrd.core.occurrence import Output, Result
from crtrd.engine.engine import decide
from crtrd.ledger.retention import Keep
from tests.core.world import D, H, M, S, kinds

KEEP_GOING = {"on_failure": OnFailure.CONTINUE}


def output(data, masked=""):
    return Output(data[:4096], len(data), hashlib.sha256(data).hexdigest(), masked)


def finish(world, run, data=b"", code=0, err=b"", masked=""):
    world.held(run)
    ending = events.Ending(code, None, oom=False, duration=5 * S, stderr=output(err),
                           stdout=output(data, masked) if data else Output())
    return world.do(events.RunEnded(world.now, run.id, ending))


def once(world, data=b"", code=0, name="job", **more):
    """One scheduled run that ends so; the acts of its end."""
    world.wake(M)
    return finish(world, world.live(name)[-1], data, code, **more)


def answer(world, acts, outcome=Outcome.TAKEN, error="", retry_after=0):
    """Let every attempt of these acts end so."""
    out = []
    for act in kinds(acts, Deliver):
        each = act.delivery
        out += world.do(events.DeliveryEnded(world.now, each.id, each.attempts, outcome, error, retry_after))
    return out


def outbox(world):
    sql = "SELECT kind, state, attempts, run_id, message FROM outbox ORDER BY serial"
    return [(*row[:4], zlib.decompress(row[4]).decode()) for row in world.database.execute_sql(sql)]


def told(world):
    return [row[0] for row in outbox(world)]


# the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "result", "empty", "same", "kind"), [
    ("silent", "exit-code", False, False, None), ("silent", "success", False, False, None),
    ("on-failure", "exit-code", True, False, Kind.FAILED), ("on-failure", "success", False, False, None),
    ("on-failure", "timeout", False, False, Kind.FAILED), ("on-failure", "oom-kill", False, False, Kind.FAILED),
    ("on-failure", "unobserved", True, False, Kind.FAILED), ("on-failure", "start-failed", True, False, Kind.FAILED),
    ("on-change", "success", False, False, Kind.CHANGED), ("on-change", "success", False, True, None),
    ("on-change", "success", True, False, None), ("on-change", "exit-code", False, True, Kind.FAILED),
    ("always", "success", False, True, Kind.OUTPUT), ("always", "success", True, False, None),
    ("always", "signal", True, False, Kind.FAILED),
    ("always", "canceled", False, False, None), ("always", "replaced", False, False, None),
    ("always", "interrupted", False, False, None), ("always", "held", False, False, None),
])
def test_the_table(policy, result, empty, same, kind):
    case = Case(OnOutput(policy), Result(result), empty, "b", "b" if same else "a")
    assert judge(case).kind == kind
    gone = Case(OnOutput(policy), Result(result), empty, "b", "a", canceled=True)
    assert judge(gone).kind is None


def test_a_run_out_of_band_is_compared_and_remembers_nothing():
    case = Case(OnOutput.ON_CHANGE, Result.SUCCESS, empty=False, output="b", told="a", out_of_band=True)
    assert (judge(case).kind, judge(case).remembers) == (Kind.CHANGED, False)


# on-change --------------------------------------------------------------------------------------------------------


def test_a_b_a_is_told_three_times_and_the_same_again_is_not(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    for data in (b"A\n", b"A\n", b"B\n", b"B\n", b"A\n"):
        answer(world, once(world, data))
    assert told(world) == ["changed"] * 3
    second = json.loads(outbox(world)[1][4])
    assert second["diff"].splitlines()[-2:] == ["-A", "+B"]
    assert "diff" not in json.loads(outbox(world)[0][4])


def test_equal_heads_with_different_ends_are_a_change(world):
    """C67: 4096 times A, then B, then C."""
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    for end in (b"B", b"C"):
        answer(world, once(world, b"A" * 4096 + end))
    assert told(world) == ["changed", "changed"]


def test_what_is_masked_does_not_count(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE, change_ignore=(r"\d+",))
    for data in (b"took 12 s\n", b"took 13 s\n"):
        answer(world, once(world, data, masked="m" * 64))
    assert told(world) == ["changed"]


def test_a_delivery_that_failed_has_not_been_told(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    answer(world, once(world, b"A"))
    answer(world, once(world, b"B"), Outcome.REFUSED, "no")
    answer(world, once(world, b"B"))
    answer(world, once(world, b"B"))
    assert [(row[0], row[1]) for row in outbox(world)] == [
        ("changed", "delivered"), ("changed", "dead"), ("changed", "delivered")]
    assert json.loads(outbox(world)[2][4])["diff"].splitlines()[-2:] == ["-A", "+B"]


def test_what_is_on_its_way_is_not_told_twice(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    first = once(world, b"A")
    once(world, b"A")
    assert told(world) == ["changed"]
    answer(world, first, Outcome.DOWN, "away")
    once(world, b"A")
    once(world, b"B")
    assert told(world) == ["changed", "changed"]


def test_empty_output_is_remembered_and_not_delivered(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    for data in (b"A", b"", b"", b"A"):
        answer(world, once(world, data))
    assert told(world) == ["changed", "changed"]


def test_a_manual_run_never_rewrites_what_was_told(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ON_CHANGE)
    answer(world, once(world, b"A"))
    _, runs = world.run()
    answer(world, finish(world, world.session.run(runs[0]), b"B"))
    answer(world, once(world, b"A"))
    assert told(world) == ["changed", "changed"]
    assert world.session.told(world.cron().id, "", "inbox").head == b"A"


# failure and recovery ---------------------------------------------------------------------------------------------


def test_quiet_while_retrying_one_message_at_the_end_one_at_recovery(world):
    world.arm(schedule=("every 1h",), retries=2, retry_delay=S, **KEEP_GOING)
    world.wake(H)
    for _ in range(3):
        finish(world, world.live()[0], code=1)
        world.wake(10 * S)
    assert told(world) == ["failed"]
    world.wake(H)
    finish(world, world.live()[0])
    assert told(world) == ["failed", "recovered"]
    assert "after 1 failure in " in json.loads(outbox(world)[1][4])["subject"]


def test_recovery_counts_all_failures_also_over_a_pause(world):
    world.arm(schedule=("every 1m",), pause_after=2)
    once(world, code=1)
    once(world, code=1)
    assert world.cron().state == "paused"
    world.resume()
    once(world, code=1)
    world.now += 3 * M
    once(world)
    assert told(world) == ["failed", "escalated", "failed", "recovered"]
    assert "after 3 failures in 6min" in json.loads(outbox(world)[-1][4])["subject"]


def test_silent_is_silent(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.SILENT, **KEEP_GOING)
    once(world, b"x", code=1)
    once(world, b"x")
    assert told(world) == []


def test_nothing_is_told_of_a_cron_that_was_canceled_meanwhile(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ALWAYS)
    world.wake(M)
    run = world.live()[0]
    world.held(run)
    world.cancel()
    finish(world, run, b"x")
    assert told(world) == []


def test_the_last_words_of_a_run_that_canceled_its_own_cron_are_told(world):
    world.arm(schedule=("every 1m",), on_output=OnOutput.ALWAYS)
    world.wake(M)
    run = world.live()[0]
    world.held(run)
    world.ask(events.CancelRequested, cron="job", kill=False, run_id=run.id)
    finish(world, run, b"it is there\n")
    assert told(world) == ["output"]


def test_a_late_occurrence_gives_one_alarm(world):
    world.arm(schedule=("every 1h",), alert_after=10 * M)
    world.wake(H)
    world.held(world.live()[0])
    assert world.owed().next_wake == world.now + 10 * M
    world.wake(9 * M)
    assert told(world) == []
    world.wake(M)
    world.wake(M)
    assert told(world) == ["late"]
    assert [act.kind for act in world.said].count("cron.occurrence.late") == 1


def test_a_heartbeat_hears_of_start_success_and_failure(world):
    world.arm(schedule=("every 1m",), sinks=("heartbeat:https://x.example/1",), **KEEP_GOING)
    answer(world, once(world, b"secret output"))
    once(world, code=1)
    assert told(world) == ["started", "succeeded", "started", "failed"]
    assert not any("secret output" in row[4] for row in outbox(world))


def test_a_manual_run_does_not_count(world):
    world.arm(schedule=("every 1m",), **KEEP_GOING)
    once(world, code=1)
    _, runs = world.run()
    finish(world, world.session.run(runs[0]))
    assert told(world) == ["failed"]
    assert world.cron().failing_count == 1


# deliveries -------------------------------------------------------------------------------------------------------


def failing(world, sinks=("inbox",), count=1):
    world.arm(schedule=("every 1m",), sinks=sinks, **KEEP_GOING)
    return [act for _ in range(count) for act in once(world, b"out", code=1)]


def test_a_failed_attempt_waits_longer_each_time_and_says_so_once(world):
    acts = failing(world)
    waits = []
    for _ in range(12):
        answer(world, acts, Outcome.FAILED, "status 500")
        due = world.session.next_delivery(world.now)
        waits.append(due - world.now)
        assert world.owed().deliveries == 0
        world.now = due
        acts = world.do(events.WokeUp(due), limits=world.limits)
        acts = [act for act in acts if isinstance(act, Deliver)]
        assert len(acts) == 1
    assert all(low * 0.8 <= found / S <= low * 1.2 for found, low in
               zip(waits, [min(5 * 2**n, 3600) for n in range(12)], strict=True))
    assert [act.kind for act in world.said].count("outbox.retrying") == 1
    assert len({act.delivery.message for act in acts}) == 1


@pytest.mark.parametrize("event", ["woke", "started", "ended"])
def test_what_comes_due_while_a_batch_is_decided_is_not_overlooked(world, event):
    """A life that is woken a little before its instant looks then; after an end of a run the alarm rings at once."""
    answer(world, failing(world), Outcome.FAILED, "status 500")
    due = world.session.next_delivery(world.now)
    batch = {"woke": events.WokeUp(due - 1), "started": events.DaemonStarted(due - 1, world.limits.boot_id),
             "ended": events.RunEnded(due + 1, "of nobody", None)}[event]
    with world.database.atomic():
        decided = decide((batch,), world.session, world.limits, due + 5, due - 2)
        if event == "ended":
            assert (kinds(decided.acts, Deliver), decided.owed.next_wake) == ([], due)
            decided = decide((events.WokeUp(due + 6),), world.session, world.limits, due + 9, decided.looked)
        assert len(kinds(decided.acts, Deliver)) == 1
        assert decided.owed.next_wake == world.owed().next_wake


def test_jitter_is_a_hash():
    assert wait("a", 3) == wait("a", 3) != wait("b", 3)


def test_what_the_sink_asks_for_is_granted_up_to_a_day(world):
    answer(world, failing(world), Outcome.DOWN, "429", retry_after=2 * H)
    assert world.session.next_delivery(world.now) == world.now + 2 * H
    assert wait("x", 1, 90 * 24 * H) == 24 * H


def test_one_attempt_at_a_time_for_each_sink_in_order(world):
    acts = failing(world, count=3)
    assert len(kinds(acts, Deliver)) == 1
    assert world.owed().deliveries == 2  # one queue with something due, one attempt
    order = []
    while acts := kinds(acts, Deliver):
        order += [act.delivery.run_id for act in acts]
        acts = answer(world, acts)
    assert order == [run.id for run in world.runs()]


def test_a_sink_that_is_down_for_three_days_gets_everything_in_order(world):
    """The clock is the events' own: nothing is lost, nothing is tried in vain more than the queue's backoff."""
    start, attempts = world.now, 0
    world.arm(schedule=("every 1h",), **KEEP_GOING)
    while world.now < start + 3 * 24 * H:
        world.now = world.owed().next_wake
        acts = world.wake()
        for run in world.live():
            acts += finish(world, run, b"%d" % world.now, code=1)
        attempts += len(kinds(acts, Deliver))
        answer(world, acts, Outcome.DOWN, "away")
    assert [row[1] for row in outbox(world)] == ["pending"] * 72
    assert attempts < 100
    world.now = world.session.next_delivery(world.now)
    taken = []
    acts = kinds(world.wake(), Deliver)
    while acts:
        taken += [act.delivery.run_id for act in acts]
        acts = kinds(answer(world, acts), Deliver)
    assert taken == [run.id for run in world.runs()][:72]
    first = json.loads(outbox(world)[0][4])
    assert first["at"] == "2026-12-01T11:00:00Z"  # when it happened, not when it was told


def test_a_hundred_poisonous_messages_hurt_themselves_alone(world):
    acts = kinds(failing(world, count=101), Deliver)
    poison = {run.id for run in world.runs()[:100]}
    tried = []
    while acts and "delivered" not in [row[1] for row in outbox(world)]:
        tried += [act.delivery.run_id for act in acts]
        world.now += S // 4  # so the first are due again long before the last had its turn
        acts = [again for act in acts for again in kinds(
            answer(world, [act], Outcome.FAILED if act.delivery.run_id in poison else Outcome.TAKEN), Deliver)]
    assert tried[-1] not in poison
    assert len(tried) == len(set(tried)) == 101  # each once: who failed goes behind who was never tried


def test_too_old_is_dead_and_may_be_retried(world):
    acts = failing(world)
    world.now += OLDEST
    answer(world, acts, Outcome.FAILED, "no")
    (row,) = outbox(world)
    assert row[1] == "dead"
    assert world.session.next_delivery(0) is None
    name = kinds(acts, Deliver)[0].delivery.id
    again = world.do(events.DeliveryRetryRequested(world.now, 1, 0, name))
    assert [act.delivery.id for act in kinds(again, Deliver)] == [name]
    answer(world, again)
    assert outbox(world)[0][1] == "delivered"
    once_more = world.do(events.DeliveryRetryRequested(world.now, 2, 0, name))
    assert [act.delivery.id == name for act in kinds(once_more, Deliver)] == [False]
    assert world.refused(world.ask, events.DeliveryDiscardRequested, delivery=name) == "InvalidState"


def test_an_attempt_whose_end_nobody_saw_is_made_again_under_the_same_id(world):
    first = kinds(failing(world), Deliver)[0].delivery
    acts = world.restart()
    second = kinds(acts, Deliver)[0].delivery
    assert (second.id, second.message, second.attempts) == (first.id, first.message, 2)
    late = events.DeliveryEnded(world.now, first.id, first.attempts, Outcome.FAILED, "from the other life")
    assert kinds(world.do(late), Deliver) == []
    assert outbox(world)[0][1] == "sending"


def test_after_a_step_back_nothing_waits_for_years(world):
    acts = failing(world)
    answer(world, acts, Outcome.DOWN)
    acts = world.clock_set(world.now - 365 * 24 * H)
    assert len(kinds(acts, Deliver)) == 1


def test_a_run_names_who_took_its_output(world):
    acts = failing(world, sinks=("inbox", "journal"))
    answer(world, acts)
    assert world.runs()[0].delivered == "inbox, journal"


def test_no_attempt_begins_while_leaving(world):
    world.limits = replace(world.limits, deliver=False)
    assert kinds(failing(world), Deliver) == []


def test_sinks_that_hang_leave_the_inbox_its_place(world):
    hooks = tuple(f"exec:hang {n}" for n in range(12))
    acts = failing(world, sinks=(*hooks, "inbox", "journal"))
    begun = [act.delivery.sink for act in kinds(acts, Deliver)]
    assert begun == [*hooks[:8], "inbox", "journal"]
    acts = answer(world, [act for act in acts if isinstance(act, Deliver)][:1], Outcome.FAILED)
    assert [act.delivery.sink for act in kinds(acts, Deliver)] == [hooks[8]]


def test_retention_forgets_what_is_settled_and_keeps_what_is_not(world):
    acts = failing(world, count=3)
    acts = answer(world, acts)
    answer(world, acts, Outcome.REFUSED, "no")
    keep = Keep(D, 10 * D, 1000)
    assert [row[1] for row in outbox(world)] == ["delivered", "dead", "sending"]
    world.session.prune(keep, world.now + 2 * D)
    assert [row[1] for row in outbox(world)] == ["dead", "sending"]
    world.session.prune(keep, world.now + 20 * D)
    assert [row[1] for row in outbox(world)] == ["sending"]


def test_a_megabyte_of_zeroes_is_a_small_row(world):
    """C34: less than 10 KiB for a run, its head in it twice."""
    world.arm(schedule=("every 1m",), on_output=OnOutput.ALWAYS)
    once(world, b"\0" * 4096)
    (size,) = world.database.execute_sql("SELECT length(message) FROM outbox").fetchone()
    assert size < 2048
