"""Our bytes are jeepney's bytes, and what it refuses is refused."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jeepney import DBusAddress, HeaderFields, MessageFlag, new_method_call, new_method_return, new_signal

from crtrd.core.effects import Announce
from crtrd.dbus import wire
from crtrd.dbus.answer import TRANSLATION_FAULTS
from crtrd.dbus.signals import RULES, changed_objects, comings_and_goings, invalidated, signals
from crtrd.dbus.values import clean, pack

FIELDS = {"CRTRD_CRON_ID": "c" * 32, "CRTRD_RUN_ID": "r" * 31, "CRTRD_OCCURRENCE_ID": "o" * 32, "CRTRD_CRON": "tick",
          "CRTRD_RESULT": "exit-code", "CRTRD_REASON": "kaputt: ä\ud800", "CRTRD_DURATION_USEC": 1 << 40}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.floats(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
CALL = new_method_call(DBusAddress("/a", bus_name="a.b", interface="a.b"), "M")
CALL.header.fields[HeaderFields.sender] = ":1.7"
CALL.header.serial = 77


def of_jeepney(signal, serial):
    address = DBusAddress(signal.path, interface=signal.interface)
    return new_signal(address, signal.member, signal.signature, signal.body).serialise(serial)


@pytest.mark.parametrize("kind", [*RULES, "cron.armed", "cron.canceled", "cron.run.started"])
@pytest.mark.parametrize("fields", [FIELDS, {}])
def test_signals(kind, fields):
    event = Announce(kind, "tick: ä", fields, 6)
    sent = [*comings_and_goings(event), *signals(event), *map(invalidated, changed_objects(event))]
    assert sent
    for serial, signal in enumerate(sent, 1 << 20):
        assert signal.serialise(serial) == of_jeepney(signal, serial)


@given(st.text(), st.dictionaries(st.text(), VALUES))
def test_views(text, view):
    """Everything that a view becomes (`values.pack`), in a reply."""
    reply = new_method_return(CALL, "saa{sv}(tv)", (clean(text), [pack(view), {}], (7, ("as", [clean(text)]))))
    assert wire.serialise(reply, 9, array("i")) == reply.serialise(9)


@given(st.lists(st.dictionaries(st.text(), VALUES)))
def test_what_grows_bit_by_bit(views):
    growing, whole = wire.Growing("a{sa{sv}}"), {}
    for number, view in enumerate(views):
        found = {str(number): pack(view), f"{number}.": {}}
        growing.add(found)
        whole.update(found)
    reply = new_method_return(CALL, "a{sa{sv}}", (whole,))
    assert wire.serialise(new_method_return(CALL, "a{sa{sv}}", (growing,)), 9, array("i")) == reply.serialise(9)


def test_descriptors_and_flags():
    fds = array("i")
    reply = new_method_return(CALL, "hy", (5, 1))
    reply.header.flags = MessageFlag.no_reply_expected | MessageFlag.allow_interactive_authorization
    ours = wire.serialise(reply, 3, fds)
    assert list(fds) == [5]
    assert ours == reply.serialise(3, fds=array("i"))


@pytest.mark.parametrize(("signature", "body"), [
    ("s", (1,)), ("o", ("a",)), ("o", ("/a/",)), ("o", ("//a",)), ("o", ("/ä",)), ("o", ("/a\n",)), ("u", (-1,)),
    ("t", (2**64,)), ("as", ("text",)), ("as", ([1],)), ("s", ("\ud800",)), ("ss", ("one",)), ("i", ("1",)),
    ("s", ("one", "two")), ("v", ("s",)), ("a{sv}", ({"x": ("u", "text")},)), ("(s)", (["a"],)),
])
def test_what_cannot_be_spelled(signature, body):
    message = new_signal(DBusAddress("/a", interface="a.b"), "M", signature, body)
    for spell in (message.serialise, lambda serial: wire.serialise(message, serial, array("i"))):
        with pytest.raises(TRANSLATION_FAULTS):
            spell(1)
