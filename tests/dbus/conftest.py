"""A private bus, the service on it with the stand-in control, and callers; all in one thread, turned by hand."""

import shutil
import time

import pytest

from crtrd import names
from crtrd.dbus.service import BusService
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from tests.dbus.bus import Peer, PrivateBus
from tests.dbus.standin import StandIn

DEADLINE = 10.0


class World:
    """Reactor, service and control in the test's own thread: `until` turns them."""

    def __init__(self, bus):
        self.bus = bus
        self.troubles = []
        self.peers = []
        self.reactor = Reactor(Clock())
        self.control = StandIn()
        self.service = self.new_service()

    def new_service(self):
        service = BusService(self.reactor, self.control, address=self.bus.address, user=False)
        service.on_trouble = self.troubles.append
        return service

    def turn(self, seconds=0.005):
        self.reactor.turn(int(seconds * 1_000_000))

    def until(self, condition, seconds=DEADLINE):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"nothing happened in time; troubles: {self.troubles}"
            self.turn()
            for peer in self.peers:
                while peer.take():
                    pass

    def peer(self):
        peer = Peer(self.bus.address)
        self.peers.append(peer)
        return peer

    def call(self, member, signature="", *body, peer=None, **where):
        peer = peer or (self.peers[0] if self.peers else self.peer())
        serial = peer.send(member, signature, body, **where)
        self.until(lambda: serial in peer.replies)
        return peer.result(serial)

    def standard(self, interface, member, signature="", *body, path=names.BUS_PATH, **where):
        return self.call(member, signature, *body, path=path, interface=f"org.freedesktop.DBus.{interface}", **where)

    def close(self):
        for peer in self.peers:
            peer.close()
        self.service.close()
        self.reactor.close()


@pytest.fixture
def no_bus(tmp_path):
    """A bus that is not running yet."""
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed")
    bus = PrivateBus(tmp_path)
    yield bus
    bus.kill()


@pytest.fixture
def bus(no_bus):
    no_bus.start()
    return no_bus


@pytest.fixture
def world(bus):
    world = World(bus)
    world.service.start()
    world.until(lambda: world.service.connected)
    yield world
    world.close()
