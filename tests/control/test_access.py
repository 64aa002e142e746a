"""Who may use which verb: the table is total, nobody is nobody, owners have their own, the rest is asked (C59)."""

import os
import pwd

import pytest

from crtrd.control.access import ACTIONS, NEEDS, SUBJECTS, Caller, Need, Subject, Verdict, refusal, words_of
from crtrd.control.admission import PRIVILEGED, is_modest
from crtrd.control.denials import TOLD
from crtrd.control.verbs import Control
from crtrd.core.delivery import Outcome
from crtrd.core.events import DeliveryEnded, LaunchFailed
from crtrd.errors import Code, RequestError
from crtrd.ledger.retention import DAY, Keep
from tests.control.conftest import ROOT

VERBS = sorted({*Control.VERBS, *NEEDS})
NOBODIES = [Caller(None, None, "bus"), Caller(None, 7, "socket"), Caller(None, None, "bus", ":1.5", interactive=True)]
STRANGER = Caller(12345, 7, "bus", ":1.7")
ALICE = Caller(1, 8, "bus", ":1.8")  # `daemon`, whom every Debian has
BOB = Caller(2, 9, "bus", ":1.9")
ANYTHING = ((), (object(),), ({"name": "x"}, 7, 7), ("x", {}, "", 0), ("\ud800", {}))

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may arm crons that run as others")


def refused_for(reply, code=Code.ACCESS_DENIED):
    return isinstance(reply, RequestError) and reply.code is code


class Authority:
    """Gives `verdict` to every question, at once or when the test says so."""

    def __init__(self, desk, verdict=None):
        self.asked, self.waiting, self.verdict = [], [], verdict
        desk.hooks.authority = self.ask

    def ask(self, need, caller, then):
        self.asked.append((need, caller))
        self.waiting.append(then)
        if self.verdict:
            self.answer(self.verdict)

    def answer(self, verdict):
        waiting, self.waiting = self.waiting, []
        for then in waiting:
            then(verdict)


def test_the_tables_are_total():
    assert set(Control.VERBS) <= set(NEEDS)
    assert set(SUBJECTS) <= set(NEEDS)
    assert set(NEEDS.values()) == set(Need) == set(ACTIONS)
    assert {"drain", "reload", "status"}.isdisjoint(SUBJECTS)


@pytest.mark.parametrize("caller", NOBODIES, ids=str)
@pytest.mark.parametrize("verb", [*VERBS, "novel"])
def test_who_cannot_be_identified_may_nothing_whatever_they_pass(desk, verb, caller):
    Authority(desk, Verdict.ALLOWED)
    for given in ANYTHING:
        (reply,) = desk.replies(verb, *given, caller=caller)
        assert refused_for(reply)
    assert {event.kind for event in desk.said} == {"auth.denied"}
    assert desk.store.queries.counts() == {"live": 0, "held": 0, "outbox": 0}


@pytest.mark.parametrize("verb", [*VERBS, "novel"])
def test_a_stranger_without_an_authority_may_nothing_but_calculate(desk, verb):
    desk.arm(schedule=["0 0 * * *"])
    desk.said.clear()
    for given in (*ANYTHING, ("job", {}, "", 0), ("job", 15)):
        if verb == "calendar" and len(given) != 3:
            continue  # surfaces see to the number of arguments
        (reply,) = desk.replies(verb, *given, caller=STRANGER)
        match SUBJECTS.get(verb):
            case Subject.ANYBODY:
                assert not refused_for(reply)
            case Subject.LIST if given and isinstance(given[0], dict) and "job" not in given:
                assert not refused_for(reply)
            case Subject.DEFINITION if given and isinstance(given[0], dict):
                assert refused_for(reply, Code.INVALID_DEFINITION)  # nothing hinders a stranger from being wrong
            case _:
                assert refused_for(reply), (given, reply)
    assert desk.store.queries.counts()["active"] == 1
    assert [event.fields.get("CRTRD_CALLER_UID") for event in desk.said if event.kind == "auth.denied"].count(None) == 0


def test_a_refusal_does_not_tell_whether_the_thing_is_there(desk):
    desk.arm("secret")
    said = {str(desk.replies("get_cron", name, caller=STRANGER)[0]) for name in ("secret", "nothing")}
    assert len(said) == 1
    assert "secret" not in said.pop()


@pytest.mark.parametrize("verb", sorted(NEEDS))
def test_a_refusal_is_a_sentence(verb):
    """Of what begins with a verb, in the daemon's words as in polkit's."""
    first = words_of(verb).split()[0]
    assert first not in {"status", "properties", "metrics", "next", "calendar"}
    assert str(refusal(verb, STRANGER)).startswith(f"cannot {first}")


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.REFUSED, Code.ACCESS_DENIED),
                                               (Verdict.CHALLENGE, Code.INTERACTION_REQUIRED), (Verdict.ALLOWED, None)])
def test_what_is_others_is_asked_for(desk, verdict, code):
    authority = Authority(desk, verdict)
    desk.arm(schedule=["0 0 * * *"])
    (reply,) = desk.replies("pause", "job", "", caller=STRANGER)
    assert authority.asked == [(Need.MANAGE, STRANGER)]
    assert refused_for(reply, code) if code else reply is None
    assert desk.store.queries.cron("job").state == ("active" if code else "paused")


def test_nothing_happens_before_the_authority_has_spoken(desk):
    authority = Authority(desk)
    desk.arm(schedule=["0 0 * * *"])
    found = []
    desk.control.call("cancel", ("job", {}), STRANGER, found.append)
    desk.reactor.turn(1000)
    assert (found, desk.store.queries.counts()["active"]) == ([], 1)
    authority.answer(Verdict.REFUSED)
    assert refused_for(found[0])
    assert desk.store.queries.cron("job")


@as_root
def test_a_user_has_their_own_and_sees_no_others(desk):
    authority = Authority(desk, Verdict.REFUSED)
    desk.arm("secret", schedule=["0 0 * * *"])
    own = desk.ask("arm", {"name": "mine", "command": ["true"], "schedule": ["0 0 * * *"]}, caller=ALICE)
    assert authority.asked == []
    cron = desk.store.queries.cron("mine")
    assert (cron.owner, cron.account) == (1, f"1 {pwd.getpwuid(1).pw_name}")
    views, _ = desk.ask("list_crons", {}, 0, "", caller=ALICE)
    assert [view["name"] for view in views] == ["mine"]
    assert len(desk.ask("list_crons", {}, 0, "")[0]) == 2
    assert desk.ask("change", "mine", {"timeout": "5s"}, caller=ALICE)["id"] == own["id"]
    run = desk.ask("run", "mine", {}, caller=ALICE)["runs"][0]
    desk.ask("run", "secret", {})
    for verb, wanted in (("list_runs", run), ("list_occurrences", None)):
        views, _ = desk.ask(verb, {}, 0, "", caller=ALICE)
        assert {view["cron_name"] for view in views} == {"mine"}
        assert wanted in {None, views[0]["id"]}
        assert desk.refused(verb, {"cron": "secret"}, 0, "", caller=ALICE) is Code.ACCESS_DENIED
    assert desk.ask("get_run", run[:8], caller=ALICE)["id"] == run
    others = desk.store.queries.cron("secret").id
    theirs = next(view["id"] for view in desk.ask("list_runs", {}, 0, "")[0] if view["cron_id"] == others)
    for verb, given in (("get_run", (theirs,)), ("kill", (theirs, 15)), ("pause", ("secret", "")),
                        ("get_cron", (others,)), ("explain", ("secret", 0))):
        assert desk.refused(verb, *given, caller=ALICE) is Code.ACCESS_DENIED
        assert desk.refused(verb, *(run if part == theirs else "mine" if part in {"secret", others} else part
                                    for part in given), caller=BOB) is Code.ACCESS_DENIED
    desk.ask("cancel", "mine", {}, caller=ALICE)
    assert desk.store.queries.cron("mine") is None


@as_root
@pytest.mark.parametrize("more", [{"user": "root"}, {"profile": "x"}, {"resources": {"Nice": "-20"}}, {"pool": "p"},
                                  {"change_ignore": ["(a+)+$"]}, {"sinks": ["inbox:root"]},
                                  {"sinks": ["unit:a.service"]},
                                  {"sinks": ["cron:job"]}, {"sinks": ["webhook:https://a.test/#secret=k"]}], ids=str)
def test_a_user_alone_arms_and_changes_to_nothing_beyond_themselves(desk, more):
    authority = Authority(desk, Verdict.REFUSED)
    base = {"name": "mine", "command": ["true"]}
    assert desk.refused("arm", {**base, **more}, caller=ALICE) is Code.ACCESS_DENIED
    desk.ask("arm", base, caller=ALICE)
    before = desk.store.queries.cron("mine")
    assert desk.refused("change", "mine", more, caller=ALICE) is Code.ACCESS_DENIED
    assert desk.store.queries.cron("mine") == before
    assert [need for need, _ in authority.asked] == [Need.MANAGE] * 2


@as_root
def test_their_own_name_and_modest_sinks_are_theirs():
    name = pwd.getpwuid(1).pw_name
    assert is_modest({"user": name, "sinks": ["inbox", f"inbox:{name}", "file:/x", "exec:cat", "journal"]}, 1)
    assert not is_modest({"user": name, "sinks": "inbox:root"}, 1)
    assert set(PRIVILEGED) == {"profile", "resources", "pool", "change_ignore"}


@as_root
def test_a_cron_that_was_made_to_run_as_another_is_no_longer_theirs(desk):
    desk.ask("arm", {"name": "mine", "command": ["true"]}, caller=ALICE)
    desk.ask("change", "mine", {"user": pwd.getpwuid(2).pw_name})
    for caller in (ALICE, BOB):
        assert desk.refused("change", "mine", {"command": ["id"]}, caller=caller) is Code.ACCESS_DENIED
    assert desk.store.queries.cron("mine").definition.command == ("true",)


@as_root
def test_who_may_read_all_sees_all(desk):
    authority = Authority(desk, Verdict.ALLOWED)
    desk.arm("secret")
    views, _ = desk.ask("list_crons", {}, 0, "", caller=Caller(1, 8, "bus", ":1.8", interactive=True))
    assert [view["name"] for view in views] == ["secret"]
    assert [(need, caller.interactive) for need, caller in authority.asked] == [(Need.READ, False)]


@pytest.mark.parametrize("uid", sorted({0, os.geteuid()}))
def test_root_and_the_instances_own_user_are_asked_nothing(desk, uid):
    authority = Authority(desk, Verdict.REFUSED)
    desk.ask("arm", {"name": "a", "command": ["true"]}, caller=Caller(os.geteuid(), 1, "bus"))
    assert desk.replies("status", caller=Caller(uid, 1, "bus"))[0]["state"] == "running"
    assert authority.asked == []


def test_a_flood_of_refusals_is_told_only_so_often(desk):
    for _ in range(3 * TOLD):
        desk.replies("drain", True, caller=STRANGER)  # noqa: FBT003
    desk.replies("drain", True, caller=Caller(54321, 7, "bus"))  # noqa: FBT003
    assert len(desk.said) == TOLD + 1
    assert ROOT.uid not in {event.fields["CRTRD_CALLER_UID"] for event in desk.said}


def happen(desk, kind, *fields):
    """Something that was seen, and all that follows from it."""
    desk.engine.post(kind(desk.engine.reactor.clock.wall(), *fields))
    while desk.engine.busy:
        desk.reactor.turn(50_000)


NO_SHORTAGE = False


def desk_with_a_failure(desk):
    """Alice's cron has failed and was canceled: (ids of its run, occurrence and deliveries)."""
    desk.ask("arm", {"name": "mine", "command": ["true"], "sinks": ["webhook:https://a.test/x"]}, caller=ALICE)
    run = desk.ask("run", "mine", {}, caller=ALICE)["runs"][0]
    happen(desk, LaunchFailed, run, "command", 2, "there is no such program", NO_SHORTAGE)
    occurrence = desk.ask("get_run", run)["occurrence_id"]
    (delivery,) = desk.ask("list_outbox", {}, 0, "")[0]
    return run, occurrence, delivery["id"]


@as_root
@pytest.mark.parametrize("canceled", [False, True])
def test_deliveries_of_their_own_are_the_owners_to_retry_and_discard(desk, canceled):
    authority = Authority(desk, Verdict.REFUSED)
    *_, delivery = desk_with_a_failure(desk)
    happen(desk, DeliveryEnded, delivery, 1, Outcome.REFUSED, "status 410")
    if canceled:
        desk.ask("cancel", "mine", {}, caller=ALICE)
    assert [each["state"] for each in desk.ask("list_outbox", {}, 0, "", caller=ALICE)[0]] == ["dead"]
    assert desk.refused("retry_delivery", delivery, caller=BOB) is Code.ACCESS_DENIED
    assert desk.refused("discard_delivery", delivery, caller=BOB) is Code.ACCESS_DENIED
    assert authority.asked
    assert {need for need, _ in authority.asked} <= {Need.MANAGE, Need.READ}
    authority.asked.clear()
    desk.ask("retry_delivery", delivery[:10], caller=ALICE)
    happen(desk, DeliveryEnded, delivery, 2, Outcome.REFUSED, "status 410")
    desk.ask("discard_delivery", delivery, caller=ALICE)
    assert desk.ask("list_outbox", {}, 0, "")[0][0]["state"] == "discarded"
    assert authority.asked == []


@as_root
def test_owners_keep_the_history_of_their_canceled_crons(desk):
    Authority(desk, Verdict.REFUSED)
    desk.arm("secret")
    others = desk.ask("run", "secret", {})["runs"][0]
    run, occurrence, _ = desk_with_a_failure(desk)
    cron_id = desk.store.queries.cron("mine").id
    desk.ask("cancel", "mine", {}, caller=ALICE)
    desk.ask("cancel", "secret", {})
    for verb in ("list_runs", "list_occurrences", "list_outbox"):
        for criteria in ({}, {"cron": "mine"}, {"cron": cron_id}):
            views, _ = desk.ask(verb, criteria, 0, "", caller=ALICE)
            assert {view["cron_id"] for view in views} == {cron_id}, (verb, criteria)
        assert desk.ask(verb, {}, 0, "", caller=BOB)[0] == []
        assert desk.refused(verb, {"cron": "mine"}, 0, "", caller=BOB) is Code.ACCESS_DENIED
        assert desk.refused(verb, {"cron": "secret"}, 0, "", caller=ALICE) is Code.ACCESS_DENIED
    assert desk.ask("get_run", run[:10], caller=ALICE)["id"] == run
    assert desk.ask("get_occurrence", occurrence, caller=ALICE)["id"] == occurrence
    for given in (others, run):
        assert desk.refused("get_run", given, caller=BOB if given == run else ALICE) is Code.ACCESS_DENIED
    desk.arm("mine")  # the name is somebody else's now, the history is not
    assert desk.ask("list_runs", {"cron": "mine"}, 0, "", caller=ALICE)[0][0]["id"] == run


@as_root
def test_what_ran_as_another_is_not_its_armers_history(desk):
    Authority(desk, Verdict.REFUSED)
    run, *_ = desk_with_a_failure(desk)
    desk.ask("change", "mine", {"user": pwd.getpwuid(2).pw_name})
    desk.ask("cancel", "mine", {})
    assert desk.refused("get_run", run, caller=ALICE) is Code.ACCESS_DENIED


@as_root
def test_whose_it_was_is_forgotten_with_the_last_of_its_history(desk):
    *_, delivery = desk_with_a_failure(desk)
    happen(desk, DeliveryEnded, delivery, 1, Outcome.REFUSED, "status 410")
    desk.ask("cancel", "mine", {}, caller=ALICE)
    assert len(desk.store.queries.former_of(1)) == 1
    gone, far = [], desk.engine.reactor.clock.wall() + 400 * DAY
    while not gone or gone[-1].onward:
        desk.store.submit(lambda session: session.prune(Keep(DAY, DAY, 10), far), gone.append)
        before = len(gone)
        while len(gone) == before:
            desk.reactor.turn(50_000)
    assert desk.store.queries.former_of(1) == []
