"""The service's life: the name, the bus that goes and comes back (C57), leaving without losing a call (C55)."""

import os
import socket
import sys
import threading
import time

import pytest
from jeepney import DBusAddress, HeaderFields, new_signal

from crtrd import names
from tests.dbus.bus import Called, Peer
from tests.dbus.conftest import World

pytestmark = pytest.mark.bus


def arm(world, peer, name):
    return world.call("Arm", "a{sv}", {"name": ("s", name)}, peer=peer)


def test_bus_that_is_killed_and_comes_back(world):
    world.control.hold = True
    waiting, subscriber = world.peer(), world.peer()
    subscriber.subscribe()
    waiting.send("Poke", "s", ("x",))
    world.until(lambda: len(world.control.held) == 1)
    world.bus.kill()
    world.peers.clear()
    world.until(lambda: not world.service.connected)
    start = time.monotonic()
    while time.monotonic() - start < 1.5:  # away for a while: the loop goes on
        world.turn(0.05)
    assert len(world.troubles) <= 2
    world.control.announce("cron.paused", CRTRD_CRON_ID="a" * 32)
    world.control.release_held()  # the answer to a caller of the old bus
    assert world.service.pending() == 0
    world.control.hold = False
    world.bus.start()
    back = time.monotonic()
    world.until(lambda: world.service.connected)
    assert time.monotonic() - back < 5
    late = world.peer()
    late.subscribe()
    assert world.call("Reload", peer=late) == ()
    assert [verb for verb, _, _ in world.control.calls] == ["poke", "reload"], "nothing is replayed"
    assert not late.signals
    for peer in (waiting, subscriber):
        peer.close()


def test_no_bus_at_start(no_bus):
    world = World(no_bus)
    world.service.start()
    for _ in range(20):
        world.turn(0.02)
    assert world.troubles == ["cannot reach the bus: No such file or directory; trying again"]
    no_bus.start()
    world.until(lambda: world.service.connected, 5)
    assert world.call("Reload") == ()
    world.close()


def test_address_that_is_none(world):
    service = world.new_service()
    service._address = "tcp:host=localhost,port=1"
    service.start()
    world.turn()
    assert "cannot reach the bus" in world.troubles[-1]
    service.close()


def test_bus_that_does_not_answer(no_bus):
    path = no_bus.path
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    world = World(no_bus)
    world.service.start()
    world.turn()
    connection, _ = listening.accept()
    connection.sendall(b"REJECTED EXTERNAL\r\n")
    world.until(lambda: world.troubles)
    assert "REJECTED" in world.troubles[0]
    connection.close()
    listening.close()
    world.close()


def test_name_taken_is_told_and_taken_later(world):
    other = world.peer()
    second = world.new_service()
    second.start()
    world.until(lambda: world.troubles)
    assert "another process owns it" in world.troubles[0]
    assert not second.connected
    assert world.service.connected
    arm(world, other, "first")
    world.service.release(lambda: None)
    world.until(lambda: second.connected, 2)
    assert not world.service.connected
    world.service.resume()  # now this one is too late
    world.until(lambda: len(world.troubles) == 2)
    assert not world.service.connected
    second.close()
    world.until(lambda: world.service.connected, 2)


def test_release_is_confirmed_and_can_be_taken_back(world):
    done = []
    world.service.release(lambda: done.append(1))
    assert not done
    world.until(lambda: done)
    assert not world.service.connected
    peer = world.peer()
    with pytest.raises(Called, match="ServiceUnknown"):
        world.call("Reload", peer=peer)
    world.service.resume()
    world.until(lambda: world.service.connected)
    assert world.call("Reload", peer=peer) == ()
    world.service.release(lambda: done.append(2))
    world.service.resume()
    assert world.call("Reload", peer=peer) == ()
    assert done == [1], "a release that was taken back is not done"


def test_release_without_a_bus(no_bus):
    world = World(no_bus)
    world.service.start()
    done = []
    world.service.release(lambda: done.append(1))
    world.until(lambda: done)
    world.service.resume()
    world.service.close()
    world.close()


def test_a_daemon_that_may_not_serve_tells_who_had_it_started(no_bus):
    """The call that activates it, and those behind it; then it goes, and the next call has it started again."""
    says = f"from crtrd.dbus.refusing import turn_away; turn_away('no room', '{no_bus.address}', user=False)"
    no_bus.activates(names.BUS_NAME, f'{sys.executable} -c "{says}"')
    no_bus.start()
    for _ in range(2):
        peer = Peer(no_bus.address)
        serials = [peer.send("ListCrons", "a{sv}", ({},)) for _ in range(3)]
        while not set(serials) <= peer.replies.keys():
            peer.take(5)
        for serial in serials:
            with pytest.raises(Called, match=r"LedgerUnavailable: no room"):
                peer.result(serial)
        while peer.connection.bus_proxy.NameHasOwner(names.BUS_NAME)[0]:
            time.sleep(0.05)
        peer.close()


def test_bus_lost_while_releasing(world):
    done = []
    world.bus.kill()
    world.service.release(lambda: done.append(1))
    world.until(lambda: done)
    assert not world.service.connected


def test_calls_around_the_release_are_all_answered(world):
    """In one process, a few hundred times: a call that reached us before the name was gone is answered by us."""
    world.peer()
    outcomes = {}
    stop = threading.Event()

    def caller():
        peer = Peer(world.bus.address)
        while not stop.is_set():
            serial = peer.send("Reload")
            deadline = time.monotonic() + 5
            while serial not in peer.replies:
                assert time.monotonic() < deadline, "a call was lost"
                peer.take(1)
            error = peer.replies.pop(serial).header.fields.get(HeaderFields.error_name)
            outcomes[error] = outcomes.get(error, 0) + 1
        peer.close()

    threads = [threading.Thread(target=caller) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(60):
        done = []
        world.service.release(lambda done=done: done.append(1))
        world.until(lambda done=done: done and not world.service.pending())
        world.service.close()
        world.service = world.new_service()
        world.service.start()
        world.until(lambda: world.service.connected)
    stop.set()
    world.until(lambda: not any(thread.is_alive() for thread in threads))
    assert outcomes[None] > 50
    assert set(outcomes) <= {None, "org.freedesktop.DBus.Error.ServiceUnknown"}, "not lost, but told at once"


def test_calls_swept_around_an_idle_exit(no_bus):
    """C55 with a real process that is activated by the bus and leaves after 60 ms: every call is answered."""
    bus = no_bus
    environment = f"/usr/bin/env PYTHONPATH={':'.join(sys.path)}"
    command = f"{environment} {sys.executable} -m tests.dbus.standin {bus.address} 0 60000"
    bus.activates(names.BUS_NAME, command)
    bus.start()
    peer = Peer(bus.address)
    for index in range(20):
        serial = peer.send("Reload")
        deadline = time.monotonic() + 10
        while serial not in peer.replies:
            assert time.monotonic() < deadline, f"call {index} was lost"
            peer.take(1)
        assert peer.result(serial) == ()
        threading.Event().wait(0.055 + index * 0.0009)
    peer.close()


def test_foreign_signals_mean_nothing(world):
    peer = world.peer()
    emitter = DBusAddress("/org/freedesktop/DBus", interface="org.freedesktop.DBus")
    body = (names.BUS_NAME, ":1.0", "")
    peer.connection.send(new_signal(emitter, "NameOwnerChanged", "sss", body))
    assert world.call("Reload", peer=peer) == ()
    assert world.service.connected


def test_two_lives_in_one_process_leave_nothing(bus):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        world = World(bus)
        world.service.start()
        world.until(lambda world=world: world.service.connected)
        world.close()
    assert len(os.listdir("/proc/self/fd")) == before



def test_a_flood_of_calls_leaves_every_turn_to_others_too(world, monkeypatch):
    """Three thousand calls of one caller once stood between everybody else and the loop for seconds."""
    monkeypatch.setattr("crtrd.dbus.connection.SLICE", 0)  # one message a turn
    peer = world.peer()
    serials = [peer.send("Pause", "ss", (f"job-{n}", "")) for n in range(20)]
    most = before = 0
    while len(peer.replies) < len(serials):
        world.turn()
        most, before = max(most, len(world.control.calls) - before), len(world.control.calls)
        while peer.take():
            pass
    assert most <= 2  # one as it is read, one as what is to be done soon
    assert [arguments[0] for _, arguments, _ in world.control.calls] == [f"job-{n}" for n in range(20)]
    assert world.service.pending() == 0
