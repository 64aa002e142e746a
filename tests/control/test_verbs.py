"""The verbs: answered once, durable before the answer, refused with the right code, pages, why."""

import os
import time
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtrd.control.verbs import Control
from crtrd.core.effects import PutOccurrence
from crtrd.engine import context
from crtrd.engine.accounts import find_account
from crtrd.engine.lifecycle import Stage
from crtrd.errors import Code, ConfigError, LedgerError, RequestError
from tests.control.conftest import ROOT
from tests.ledger.test_rows import ROW

D, S = 86_400_000_000, 1_000_000
DAILY = {"schedule": ["0 0 * * *"], "timezone": "UTC"}


def midnight(days=1):
    return (int(time.time()) // 86_400 + days) * D


def test_arm_is_durable_when_it_answers(desk, tmp_path):
    answer = desk.arm(**DAILY)
    assert answer["next"] in (midnight(), midnight() - D)
    assert desk.store.queries.cron("job").id == answer["id"]
    assert desk.store.queries.cron("job").owner == os.geteuid()
    assert [event.kind for event in desk.said] == ["cron.armed"]


@pytest.mark.parametrize(
    ("verb", "given_", "code"),
    [
        ("arm", ({"name": "job", "command": ["x"]},), Code.CRON_EXISTS),
        ("arm", ({"name": "n", "command": ["x"], "schedule": ["0 0 30 2 *"]},), Code.INVALID_DEFINITION),
        ("arm", ({"name": "n", "command": ["x"], "timezone": "Mars/Olympus"},), Code.INVALID_DEFINITION),
        ("arm", ({"name": "n", "command": ["x"], "novel": 1},), Code.INVALID_DEFINITION),
        ("arm", ({"name": "a b", "command": ["x"]},), Code.INVALID_DEFINITION),
        ("arm", ({},), Code.INVALID_DEFINITION), ("arm", (7,), Code.INVALID_ARGUMENT),
        ("change", ("job", {}), Code.INVALID_DEFINITION), ("change", ("none", {"stdin": "x"}), Code.NO_SUCH_CRON),
        ("change", ("job", {"schedule": ["x"]}), Code.INVALID_DEFINITION),
        ("cancel", ("none", {}), Code.NO_SUCH_CRON),
        ("cancel", ("job", {"kill": 1}), Code.INVALID_ARGUMENT),
        ("cancel", ("job", {"now": True}), Code.INVALID_ARGUMENT),
        ("pause", ("none", ""), Code.NO_SUCH_CRON), ("resume", ("job",), Code.INVALID_STATE),
        ("skip", ("job", 1), Code.INVALID_ARGUMENT), ("skip", ("job", (1 << 63) - 1), Code.INVALID_ARGUMENT),
        ("poke", ("none",), Code.NO_SUCH_CRON), ("run", ("job", {"target": "x"}), Code.INVALID_ARGUMENT),
        ("run", ("job", {"overlap": "sometimes"}), Code.INVALID_ARGUMENT), ("kill", ("f" * 32, 15), Code.NO_SUCH_RUN),
        ("kill", ("f" * 32, 0), Code.INVALID_ARGUMENT), ("kill", ("f" * 32, 65), Code.INVALID_ARGUMENT),
        ("get_cron", ("none",), Code.NO_SUCH_CRON), ("get_run", ("none",), Code.NO_SUCH_RUN),
        ("get_occurrence", ("none",), Code.NO_SUCH_OCCURRENCE), ("get_run", ("\ud800",), Code.INVALID_ARGUMENT),
        ("list_crons", ({}, 0, "x"), Code.INVALID_ARGUMENT), ("list_crons", ({}, -1, ""), Code.INVALID_ARGUMENT),
        ("list_crons", ({"novel": "x"}, 0, ""), Code.INVALID_ARGUMENT),
        ("list_runs", ({"cron": "none"}, 0, ""), Code.NO_SUCH_CRON),
        ("list_runs", ({"since": 1 << 70}, 0, ""), Code.INVALID_ARGUMENT),
        ("list_runs", ({"result": "fine"}, 0, ""), Code.INVALID_ARGUMENT),
        ("list_occurrences", ({"status": "odd"}, 0, ""), Code.INVALID_ARGUMENT),
        ("list_crons", ({"state": "asleep"}, 0, ""), Code.INVALID_ARGUMENT),
        ("list_runs", ({"since": True}, 0, ""), Code.INVALID_ARGUMENT), ("next", ("job", 1001), Code.INVALID_ARGUMENT),
        ("calendar", ({"schedule": ["60 * * * *"]}, 0, 1), Code.INVALID_DEFINITION),
        ("calendar", ({"schedule": [7]}, 0, 1), Code.INVALID_ARGUMENT),
        ("calendar", ({"schedule": ["* * * * *"], "timezone": "x"}, 0, 1), Code.INVALID_DEFINITION),
        ("explain", ("job", -1), Code.INVALID_ARGUMENT), ("explain", ("job", (1 << 63) - 1), Code.INVALID_ARGUMENT),
        ("drain", (1,), Code.INVALID_ARGUMENT), ("novel", (), Code.INVALID_STATE),
    ],
)
def test_refusals_have_their_code_and_change_nothing(desk, verb, given_, code):
    desk.arm(**DAILY)
    before = desk.store.queries.cron("job")
    assert desk.refused(verb, *given_) is code
    assert desk.store.queries.cron("job") == before
    assert desk.store.queries.counts() == {"active": 1, "live": 0, "held": 0, "outbox": 0}


ARITY = {
    "arm": 1, "change": 2, "cancel": 2, "pause": 2, "resume": 1, "skip": 2, "poke": 1, "run": 2, "rerun": 1, "kill": 2,
    "trigger": 2, "backfill": 4, "next": 2, "calendar": 3, "explain": 2, "get_cron": 1, "find_cron": 1, "get_run": 1,
    "get_occurrence": 1, "unskip": 2, "list_crons": 3, "list_occurrences": 3, "list_runs": 3, "status": 0,
    "properties": 0, "drain": 1, "reload": 0, "reexecute": 0,
    "set_log_level": 1, "open_output": 1,
    "list_outbox": 3, "retry_delivery": 1, "discard_delivery": 1, "list_escalations": 3, "deliver_escalation": 1,
    "read_inbox": 3, "ack_inbox": 2, "metrics": 0,
}
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9), st.binary(max_size=4), st.just("job"),
    st.just("\ud800"), st.just("a\0b"), st.integers(0, 1 << 64))
KEYS = st.sampled_from(
    ["cron", "status", "since", "until", "result", "kill", "run", "target", "overlap", "schedule", "timezone", "name",
     "command", "jitter", "stdin", "starts_at", "timeout", "env", "exclude"]) | st.text(max_size=3) | st.integers()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6)


def test_the_arity_of_every_verb_is_known_here():
    assert set(Control.VERBS) <= set(ARITY)


@given(data=st.data())
@settings(
    max_examples=500, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_whatever_is_passed_is_answered_exactly_once_and_nothing_raises(desk, data):
    verb = data.draw(st.sampled_from(sorted(set(Control.VERBS) - {"reload", "reexecute"})))
    given_ = tuple(data.draw(VALUES) for _ in range(ARITY[verb]))
    replies = desk.replies(verb, *given_)
    assert len(replies) == 1
    assert desk.executor.unanswered == 0


def test_a_ledger_that_is_away_is_an_answer(desk, monkeypatch):
    def away(*_):
        raise LedgerError("cannot read the ledger: gone")

    monkeypatch.setattr(type(desk.store.queries), "cron", away)
    assert desk.refused("get_cron", "job") is Code.LEDGER_UNAVAILABLE


def test_a_stopping_daemon_takes_no_request_but_answers_questions(desk):
    desk.arm(**DAILY)
    desk.hooks.stage = lambda: Stage.STOPPING
    assert desk.refused("pause", "job", "") is Code.SHUTTING_DOWN
    assert desk.ask("get_cron", "job")["name"] == "job"
    assert desk.ask("status")["state"] == "stopping"


def test_a_bad_configuration_is_an_answer_of_reload(desk):
    def reload(_done):
        raise ConfigError("crtrd.toml", "clock", "it is a sundial")

    desk.hooks.reload = reload
    (reply,) = desk.replies("reload")
    assert isinstance(reply, RequestError)
    assert "clock" in str(reply)


# reading ----------------------------------------------------------------------------------------------------------


def test_pages_of_crons(desk):
    for number in range(7):
        desk.arm(f"job-{number}")
    names, cursor = [], ""
    while True:
        rows, cursor = desk.ask("list_crons", {}, 3, cursor)
        assert len(rows) <= 3
        names += [row["name"] for row in rows]
        if not cursor:
            break
    assert names == [f"job-{number}" for number in range(7)]
    assert [row["name"] for row in desk.ask("list_crons", {"name": "job-3"}, 0, "")[0]] == ["job-3"]
    assert desk.ask("list_crons", {"state": "paused"}, 0, "")[0] == []


def test_pages_of_history_newest_first(desk):
    rows = [replace(ROW, id=f"{n:032x}", instant=n, cron_id="c") for n in range(1203)]
    answers = []
    desk.store.submit(lambda session: [session.put(PutOccurrence(row)) for row in rows], answers.append)
    while not answers:
        desk.reactor.turn(50_000)
    first, cursor = desk.ask("list_occurrences", {}, 5000, "")
    assert len(first) == 1000
    rest, end = desk.ask("list_occurrences", {}, 1000, cursor)
    assert (len(rest), end) == (203, "")
    assert [row["instant"] for row in (*first, *rest)] == list(range(1202, -1, -1))
    assert len(desk.ask("list_occurrences", {}, 0, "")[0]) == 200
    assert [row["instant"] for row in desk.ask("list_occurrences", {"since": 3, "until": 4}, 0, "")[0]] == [4, 3]


def test_run_and_its_history_outlive_the_cron(desk):
    cron_id = desk.arm()["id"]
    answer = desk.ask("run", "job", {})
    assert (answer["status"], len(answer["runs"])) == ("running", 1)
    assert desk.ask("get_run", answer["runs"][0])["phase"] == "starting"
    assert desk.ask("get_occurrence", answer["occurrence"])["cells"] == ["=running"]
    desk.ask("cancel", "job", {})
    for name in ("job", cron_id):
        assert len(desk.ask("list_runs", {"cron": name}, 0, "")[0]) == 1
    assert desk.refused("list_runs", {"cron": "never"}, 0, "") is Code.NO_SUCH_CRON


def test_changes_pauses_and_skips_are_seen(desk):
    desk.arm(**DAILY)
    first = desk.ask("get_cron", "job")["next"]
    assert desk.ask("skip", "job", 0) == first
    assert desk.ask("skip", "job", 0) == first + D
    desk.ask("change", "job", {"retries": 3})
    assert desk.ask("get_cron", "job")["retries"] == 3
    desk.ask("pause", "job", "holiday")
    shown = desk.ask("get_cron", "job")
    assert (shown["state"], shown["paused_by"], shown["note"], shown["next"]) == ("paused", "user", "holiday", None)
    assert desk.ask("poke", "job") == 0
    desk.ask("resume", "job")
    assert desk.ask("get_cron", "job")["state"] == "active"


def test_next_and_calendar(desk):
    desk.arm(**DAILY)
    (first, second, third) = desk.ask("next", "job", 3)
    assert (second - first, third - second) == (D, D)
    assert desk.ask("next", "job", 0) == []
    assert desk.ask("calendar", {"schedule": ["0 0 29 2 *"], "timezone": "UTC"}, 1733529600 * S, 2) == [
        1835395200 * S, 1961625600 * S]
    assert desk.ask("calendar", {}, 0, 5) == []


# why --------------------------------------------------------------------------------------------------------------


def test_explain_the_past_from_the_ledger(desk):
    cron_id = desk.arm(**DAILY)["id"]
    occurrence = desk.ask("get_occurrence", desk.ask("run", "job", {})["occurrence"])
    told = desk.ask("explain", "job", occurrence["instant"])
    assert (told["source"], told["status"], told["cron_id"]) == ("ledger", "running", cron_id)


def test_explain_the_future_from_the_schedule(desk):
    ahead = midnight(5)
    day = time.strftime("%Y-%m-%d", time.gmtime(midnight(7) // S))
    desk.arm(**DAILY, expires_at=time.strftime("%Y-%m-%dT00:00Z", time.gmtime(midnight(20) // S)), exclude=[day])

    def why(instant):
        told = desk.ask("explain", "job", instant)
        assert told["source"] == "schedule"
        return told["due"], told["reason"]

    assert why(ahead) == (True, "")
    assert why(ahead + S) == (False, "not-scheduled")
    assert why(midnight(7)) == (False, "excluded")
    assert why(midnight(30)) == (False, "outside-window")
    desk.ask("skip", "job", ahead)
    assert why(ahead) == (False, "skip-requested")
    desk.ask("pause", "job", "holiday")
    assert why(midnight(6)) == (False, "paused")
    assert desk.ask("explain", "job", midnight(6))["detail"] == "holiday"


# drain ------------------------------------------------------------------------------------------------------------


def test_drained_nothing_starts_until_undrained_whatever_is_reloaded(desk):
    desk.arm()
    desk.ask("drain", True)  # noqa: FBT003 - what the verb takes
    assert desk.ask("status")["state"] == "draining"
    desk.engine.limits = replace(desk.engine.limits, max_runs_at_once=7)
    answer = desk.ask("run", "job", {})
    assert (answer["status"], answer["runs"]) == ("pending", [])
    desk.ask("drain", False)  # noqa: FBT003 - what the verb takes
    assert desk.engine.limits.max_runs_at_once == 7
    deadline = time.monotonic() + 10
    while desk.ask("get_occurrence", answer["occurrence"])["status"] != "running":
        assert time.monotonic() < deadline
        desk.reactor.turn(10_000)


def test_properties(desk):
    desk.arm(**DAILY)
    shown = desk.control.properties()
    assert (shown["CronCount"], shown["ActiveCount"], shown["HeldCount"]) == (1, 0, 0)
    assert shown["NextWakeUSec"] == desk.ask("get_cron", "job")["next"]
    assert desk.control.call("status", (), ROOT, lambda _: None) is None


def test_who_asks_for_one_thing_waits_for_no_count(desk):
    """Each property was once read with all of them, and with the status before it: ten statements for a word."""
    desk.arm(**DAILY)
    statements = []
    desk.control.queries._database.connection().set_trace_callback(statements.append)
    assert desk.ask("properties") is None
    assert desk.control.properties("State") == {"State": "running"}
    assert statements == []
    assert desk.ask("find_cron", "job") == {"id": desk.ask("get_cron", "job")["id"]}
    assert desk.refused("find_cron", "none") is Code.NO_SUCH_CRON
    assert desk.control.properties("CronCount")["CronCount"] == 1


# operating -------------------------------------------------------------------------------------------------------


def test_the_log_level_is_one_of_syslogs(desk):
    found = []
    desk.hooks.set_log_level = found.append
    assert desk.ask("set_log_level", "warning") is None
    assert desk.refused("set_log_level", "loud") is Code.INVALID_ARGUMENT
    assert found == [4]


def test_the_output_of_a_settled_run_is_its_heads_and_of_a_live_one_what_follow_gives(desk):
    desk.arm()
    run = desk.ask("run", "job", {})["runs"][0]
    desk.hooks.follow = lambda run_id: 77 if run_id == run else None
    assert desk.ask("open_output", run[:8]) == 77
    desk.hooks.follow = lambda _: None
    fd = desk.ask("open_output", run)
    with open(fd, "rb") as file:
        assert file.read() == b""
    assert desk.refused("open_output", "f" * 32) is Code.NO_SUCH_RUN


# instants as they are shown ------------------------------------------------------------------------------------------


def test_what_is_skipped_is_no_instant_ahead_and_comes_back(desk):
    desk.arm(**DAILY)
    first, second = desk.ask("next", "job", 2)
    assert desk.ask("skip", "job", 0) == first
    assert desk.ask("skip", "job", first) == first
    assert [event.kind for event in desk.said].count("cron.changed") == 1
    view = desk.ask("get_cron", "job")
    assert (view["next"], view["skips"], desk.ask("next", "job", 1)) == (second, [first], [second])
    assert desk.store.queries.cron("job").next_at == first, "its row is still to be written"
    assert desk.ask("explain", "job", first)["reason"] == "skip-requested"
    assert desk.refused("unskip", "job", second) is Code.INVALID_STATE
    desk.ask("unskip", "job", 0)
    assert (desk.ask("next", "job", 1), desk.ask("get_cron", "job")["skips"]) == ([first], [])
    assert desk.refused("unskip", "job", 0) is Code.INVALID_STATE


def test_an_instant_is_found_by_the_second_that_is_shown(desk):
    desk.arm(**DAILY, jitter="1h")
    (upcoming,) = desk.ask("next", "job", 1)
    shown = upcoming - upcoming % S
    assert upcoming != shown
    assert desk.ask("explain", "job", shown)["due"]
    assert desk.ask("skip", "job", shown) == upcoming
    assert desk.ask("get_cron", "job")["skips"] == [upcoming]
    occurrence = desk.ask("run", "job", {})["occurrence"]
    at = desk.ask("get_occurrence", occurrence)["instant"]
    assert desk.ask("explain", "job", at - at % S)["id"] == occurrence


def test_ids_in_details_find_what_they_name(desk):
    desk.arm(**DAILY)
    first = desk.ask("run", "job", {})["occurrence"]
    detail = desk.ask("run", "job", {})["detail"]
    (_, named, *_) = detail.split()
    assert len(named) == 12
    assert desk.ask("get_occurrence", named)["id"] == first


# what is refused when it is armed ------------------------------------------------------------------------------------


REFUSED = {Code.INVALID_ARGUMENT, Code.INVALID_DEFINITION}


def test_times_travel_into_a_cron_as_they_travel_out_of_it(desk):
    """Microseconds since the epoch, as the bus has all of them."""
    at = 1_900_000_000_123_456
    desk.arm("one", starts_at=at, expires_at=at + 86_400_000_000, **DAILY)
    stored = desk.store.queries.cron("one").definition
    assert (stored.starts_at, stored.expires_at) == (at, at + 86_400_000_000)
    desk.replies("change", "one", {"starts_at": at + 1})
    assert desk.store.queries.cron("one").definition.starts_at == at + 1
    for odd in (0, -1, 1 << 63, True):
        assert desk.refused("arm", {"name": "two", "starts_at": odd, **DAILY}) in REFUSED
        assert desk.refused("change", "one", {"starts_at": odd}) in REFUSED
    assert desk.store.queries.cron("one").definition.starts_at == at + 1


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"user": "no-such-account"}, "user: there is no account no-such-account"),
        ({"pool": "bakcup"}, "pool: there is no pool 'bakcup'; there are backup, net"),
        ({"queue_limit": 3}, "queue_limit: it means nothing with overlap skip, only with queue"),
        ({"parallel": 3, "overlap": "queue"}, "parallel: it means nothing with overlap queue, only with allow"),
        ({"targets": [""]}, "targets: "), ({"timezone": "Mars/Phobos"}, "timezone 'Mars/Phobos': there is no such"),
        ({"starts_at": "soon"}, "starts_at: not a time like"), ({"timeout": "long"}, "timeout: not a length of time"),
        ({"starts_at": "2026-01-01", "timezone": "Mars/Phobos"}, "starts_at: timezone 'Mars/Phobos': there is no such"),
        ({"schedule": ["1"]}, "schedule '1': hour: this field is missing: there are five, and here 1"),
        ({"name": "job"}, "a cron of that name exists; change or cancel that one"),
    ],
)
def test_a_refusal_names_the_key_and_what_there_is(desk, keys, said):
    desk.engine.limits = replace(desk.engine.limits, pools=(("backup", 1), ("net", 2)))
    desk.arm(pool="backup", overlap="queue", queue_limit=3, jitter="2h", **DAILY)
    (refusal,) = desk.replies("arm", {"name": "other", "command": ["true"], **keys})
    assert said in str(refusal)
    assert str(refusal).count("cannot") == 1


def test_what_a_cron_has_from_before_keeps_it_changeable(desk):
    desk.engine.limits = replace(desk.engine.limits, pools=(("backup", 1),))
    desk.arm(pool="backup", overlap="queue", queue_limit=3)
    desk.engine.limits = replace(desk.engine.limits, pools=())
    desk.ask("change", "job", {"overlap": "skip"})
    assert desk.refused("change", "job", {"pool": "backup"}) is Code.INVALID_DEFINITION
    desk.ask("change", "job", {"pool": ""})


def test_what_waits_says_for_what(desk):
    desk.engine.limits = replace(desk.engine.limits, pools=(("backup", 1),))
    for name in ("one", "two"):
        desk.arm(name, pool="backup")
    first = desk.ask("run", "one", {})["occurrence"]
    second = desk.ask("run", "two", {})["occurrence"]
    assert desk.ask("get_occurrence", second)["detail"] == "waits for a place in pool backup, which has 1"
    third = desk.ask("run", "one", {"overlap": "queue"})["occurrence"]
    assert desk.ask("get_occurrence", third)["detail"] == f"waits for occurrence {first[:12]}"
    desk.engine.drained = True
    (rows, _) = desk.ask("list_occurrences", {"cron": "two"}, 0, "")
    assert rows[0]["detail"] == "waits until crtrd is undrained"
    assert desk.ask("get_occurrence", first)["detail"] == ""
    desk.engine.drained, desk.engine.limits = False, replace(desk.engine.limits, pools=(), max_runs_at_once=1)
    assert desk.ask("get_occurrence", second)["detail"] == "waits for a place: 1 runs at once are allowed"


def test_an_overlap_that_is_no_policy_is_told_which_there_are(desk):
    desk.arm()
    (refusal,) = desk.replies("run", "job", {"overlap": "sometimes"})
    assert str(refusal) == "cannot run: overlap must be one of skip, queue, replace, allow, not 'sometimes'"


def test_an_instance_that_is_not_roots_starts_nobody_else(desk, monkeypatch):
    monkeypatch.setattr("crtrd.engine.context.os.geteuid", lambda: 1000)
    (refusal,) = desk.replies("arm", {"name": "job", "command": ["true"], "user": "nobody"})
    assert "user: only root may start a command as nobody" in str(refusal)


def test_instants_that_take_long_to_find_are_found_over_many_turns(desk, monkeypatch):
    """A thousand instants of sixty schedules held up everybody for more than a second."""
    monkeypatch.setattr("crtrd.control.ahead.SLICE", 0)  # one instant a turn
    desk.arm(schedule=["0 * * * *", "30 * * * *"])
    for verb, words in (("next", ("job", 5)), ("calendar", ({"schedule": ["@daily"]}, 0, 5))):
        answers = []
        desk.control.call(verb, words, ROOT, answers.append)
        for _ in range(4):
            assert answers == []
            desk.reactor.turn(0)
        desk.reactor.turn(0)
        assert len(answers[0]) == 5
    assert desk.refused("calendar", {"schedule": ["@daily"] * 1001}, 0, 1) is Code.INVALID_ARGUMENT


def test_what_is_armed_in_one_turn_is_looked_up_once(desk, monkeypatch):
    """Sixty calls in flight ask for one account; the next turn asks anew, for it may have changed."""
    looks = []
    monkeypatch.setattr(context, "find_account", lambda *what: looks.append(what) or find_account(*what))
    found = []
    for turn in range(2):
        for number in range(20):
            desk.control.call("arm", ({"name": f"c{turn}-{number}", "command": ["true"]},), ROOT, found.append)
        while len(found) < 20 * (turn + 1):
            desk.reactor.turn(50_000)
    assert len(looks) == 2
