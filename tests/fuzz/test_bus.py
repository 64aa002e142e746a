"""Bytes on the bus: every call that they hold is answered once, with something that can be sent, by the real verbs."""

import time
from array import array

import pytest
from hypothesis import given
from jeepney import HeaderFields, MessageType

from crtrd.control.access import Caller
from crtrd.dbus import wire
from crtrd.dbus.dispatch import Dispatcher
from crtrd.dbus.framing import BrokenStream, Damaged, Framing
from tests.control.conftest import ROOT, Desk
from tests.fuzz.driver import hostile, inputs, seeds

STRANGER = Caller(12345, 7, "bus", ":1.7")
DEADLINE = 20


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    made = Desk(tmp_path_factory.mktemp("fuzz") / "ledger.sqlite3")
    made.arm(schedule=["0 0 * * *"])
    yield made
    made.close()


def calls_in(data):
    try:
        for message in Framing().feed(data):
            if not isinstance(message, Damaged) and message.header.message_type is MessageType.method_call:
                yield message
    except BrokenStream:
        return


def spelled(message):
    """Raises where it could not be sent."""
    return wire.serialise(message, 1, array("i"))


def check(desk, data):
    troubles = []
    dispatcher = Dispatcher(desk.control, troubles.append)
    for call in calls_in(data):
        if call.header.fields.get(HeaderFields.member) == "OpenOutput":
            continue  # its descriptors are looked at in tests/dbus
        for caller in (ROOT, STRANGER):
            sent = []
            answer = dispatcher.accept(call, lambda message, to=sent: to.append(spelled(message)))
            dispatcher.handle(answer, caller)
            deadline = time.monotonic() + DEADLINE
            while dispatcher.pending or desk.engine.busy:
                assert time.monotonic() < deadline, "not answered"
                desk.reactor.turn(20_000)
            assert len(sent) == (0 if call.header.flags & 1 else 1)
    assert troubles == []


@pytest.mark.parametrize("number", range(len(seeds("bus"))))
def test_the_corpus(desk, number):
    data = seeds("bus")[number]
    assert list(calls_in(data))
    check(desk, data)


@given(data=inputs("bus"))
@hostile
def test_whatever_is_sent(desk, data):
    check(desk, data)
