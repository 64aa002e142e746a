"""Who may use which verb: the table is total, and looked at before any argument."""

import os

import pytest

from crtrd.control.access import NEEDS, Caller, Need, check
from crtrd.control.verbs import Control
from crtrd.errors import Code, RequestError

VERBS = sorted({*Control.VERBS, *NEEDS})
OTHERS = [Caller(None, None, "bus"), Caller(None, 7, "socket"), Caller(12345, 7, "bus"), Caller(65534, None, "socket")]


def test_every_verb_has_its_need():
    assert set(Control.VERBS) <= set(NEEDS)
    assert set(NEEDS.values()) == set(Need)


@pytest.mark.parametrize("verb", [*VERBS, "novel"])
@pytest.mark.parametrize("uid", [0, os.geteuid()])
def test_root_and_the_instances_own_user_may(verb, uid):
    check(verb, Caller(uid, 1, "bus"))


@pytest.mark.parametrize("caller", OTHERS, ids=str)
@pytest.mark.parametrize("verb", [*VERBS, "novel"])
def test_everybody_else_may_not_whatever_they_pass(desk, verb, caller):
    for given in ((), (object(),), ({"name": "x"}, 7, 7)):
        (reply,) = desk.replies(verb, *given, caller=caller)
        assert isinstance(reply, RequestError)
        assert reply.code is Code.ACCESS_DENIED
    assert {event.kind for event in desk.said} == {"auth.denied"}
    assert [event.fields.get("CRTRD_CALLER_UID") for event in desk.said] == [caller.uid] * 3
    assert desk.store.queries.counts() == {"live": 0, "held": 0, "outbox": 0}
