"""Asking polkit: a clear yes is a yes and nothing else is; who leaves takes the question along.

polkit is played by a peer on the private bus; tests/machine/test_access.py asks the real one.
"""

import pytest
from jeepney import HeaderFields, MessageType, new_error, new_method_return
from jeepney.bus_messages import message_bus
from jeepney.io.blocking import open_dbus_connection

from crtrd.control.access import Caller, Need, Verdict
from crtrd.dbus.polkit import WITHIN

pytestmark = pytest.mark.bus


class Played:
    """Owns polkit's name; keeps what it is asked."""

    def __init__(self, world):
        self.connection = open_dbus_connection(world.bus.address)
        self.connection.send_and_get_reply(message_bus.RequestName("org.freedesktop.PolicyKit1"))
        self.calls = []

    def take(self):
        try:
            message = self.connection.receive(timeout=0)
        except TimeoutError:
            return False
        if message.header.message_type is MessageType.method_call:
            self.calls.append(message)
        return True

    @property
    def members(self):
        return [call.header.fields[HeaderFields.member] for call in self.calls]

    def answer(self, authorised, challenge):
        self.connection.send(new_method_return(self.calls[0], "(bba{ss})", ((authorised, challenge, {}),)))

    def fail(self):
        self.connection.send(new_error(self.calls[0], "org.freedesktop.PolicyKit1.Error.Failed", "s", ("no",)))

    def close(self):
        self.connection.close()


@pytest.fixture
def polkit(world):
    played = Played(world)
    world.peers.append(played)
    return played


@pytest.fixture
def caller(world):
    return Caller(1, 1, "bus", world.peer().connection.unique_name)


def asked(world, caller, need=Need.MANAGE):
    found = []
    world.service.polkit.check(need, caller, found.append)
    return found


@pytest.mark.parametrize(("said", "verdict"), [((True, False), Verdict.ALLOWED), ((False, True), Verdict.CHALLENGE),
                                               ((False, False), Verdict.REFUSED)])
def test_what_polkit_says(world, polkit, caller, said, verdict):
    found = asked(world, caller)
    world.until(lambda: polkit.calls)
    assert polkit.members == ["CheckAuthorization"]
    subject, action, details, flags, _ = polkit.calls[0].body
    assert (subject, action, details, flags) == (
        ("system-bus-name", {"name": ("s", caller.name)}), "org.crtrd.Crtrd1.manage", {}, 0)
    assert found == []
    polkit.answer(*said)
    world.until(lambda: found)
    assert found == [verdict]


def test_interaction_only_when_the_call_allows_it(world, polkit, caller):
    asked(world, Caller(1, 1, "bus", caller.name, interactive=True), Need.READ)
    world.until(lambda: polkit.calls)
    assert polkit.calls[0].body[1:4] == ("org.crtrd.Crtrd1.read-output", {}, 1)


def test_an_error_and_no_polkit_at_all_are_refusals(world, caller):
    found = asked(world, caller)
    world.until(lambda: found)
    played = Played(world)
    world.peers.append(played)
    more = asked(world, caller)
    world.until(lambda: played.calls)
    played.fail()
    world.until(lambda: more)
    assert found == more == [Verdict.REFUSED]


def test_callers_without_a_name_are_not_asked_about(world, polkit):
    assert asked(world, Caller(1, 1, "socket")) == [Verdict.REFUSED]
    world.turn()
    assert polkit.calls == []


def test_who_leaves_takes_the_question_along(world, polkit):
    peer = world.peer()
    world.call("ListCrons", "a{sv}us", {}, 0, "", peer=peer)  # now the service watches for its end
    found = asked(world, Caller(1, 1, "bus", peer.connection.unique_name, interactive=True))
    world.until(lambda: polkit.calls)
    world.peers.remove(peer)
    peer.close()
    world.until(lambda: found)
    world.until(lambda: "CancelCheckAuthorization" in polkit.members)
    assert polkit.calls[1].body == (polkit.calls[0].body[4],)
    polkit.answer(True, False)  # noqa: FBT003 - too late, and not listened to
    world.turn()
    assert found == [Verdict.REFUSED]


def test_a_bus_that_goes_and_silence_are_refusals(world, polkit, caller, monkeypatch):
    monkeypatch.setattr("crtrd.dbus.polkit.WITHIN", WITHIN // 1000)
    silent = asked(world, caller)
    world.until(lambda: silent)
    monkeypatch.undo()
    found = asked(world, caller)
    world.until(lambda: len(polkit.calls) >= 2)
    while world.peers:
        world.peers.pop().close()
    world.bus.kill()
    world.until(lambda: found)
    assert silent == found == [Verdict.REFUSED]


def test_a_call_says_whether_it_allows_interaction(world):
    peer = world.peer()
    for flags, interactive in ((0, False), (4, True)):
        serial = peer.send("Reload", flags=flags)
        world.until(lambda serial=serial: serial in peer.replies)
        *_, caller = world.control.calls[-1]
        assert (caller.name, caller.interactive) == (peer.connection.unique_name, interactive)
