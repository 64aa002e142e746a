"""A trigger server on a real socket with the stand-in control, all in one thread, turned by hand."""

import socket
import time

import pytest

from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.trigger.server import TriggerServer
from tests.dbus.standin import StandIn

DEADLINE = 10.0


class HandClock(Clock):
    """Monotonic time that can be moved on, so that deadlines need no waiting."""

    def __init__(self):
        self.ahead = 0

    def mono(self):
        return super().mono() + self.ahead


class Server:
    def __init__(self, folder):
        self.path = str(folder / "trigger.sock")
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(self.path)
        self.listening.listen(300)
        self.clock = HandClock()
        self.reactor = Reactor(self.clock)
        self.control = StandIn()
        self.server = TriggerServer(self.reactor, self.control, [self.listening])
        self.clients = []

    def client(self):
        client = socket.socket(socket.AF_UNIX)
        client.connect(self.path)
        client.settimeout(0)
        self.clients.append(client)
        return client

    def until(self, condition):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "nothing happened in time"
            self.reactor.turn(5000)

    def turns(self, count=5):
        for _ in range(count):
            self.reactor.turn(1000)

    def wait(self, seconds):
        self.clock.ahead += int(seconds * 1_000_000)
        self.turns()

    def answer(self, client):
        """Everything until the server closes."""
        received = bytearray()

        def ended():
            try:
                data = client.recv(1 << 16)
            except BlockingIOError:
                return False
            received.extend(data)
            return not data

        self.until(ended)
        return bytes(received)

    def ask(self, request):
        client = self.client()
        client.sendall(request)
        return self.answer(client)

    def close(self):
        for client in self.clients:
            client.close()
        self.server.close()
        self.listening.close()
        self.reactor.close()


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path)
    yield server
    server.close()
