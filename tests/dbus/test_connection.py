"""How answers leave: together where their calls came together, at once where one came alone, always in order."""

import socket

import pytest
from jeepney import DBusAddress, HeaderFields, Parser, new_method_call, new_method_return

from crtrd.dbus import connection
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor

PING = DBusAddress("/", "org.crtrd.Crtrd1", "org.freedesktop.DBus.Peer")


class Bus:
    """The other end: lets everybody in, and hands out what the test says."""

    def __init__(self, path):
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(path)
        self.listening.listen()
        self.parser, self.reactor, self.ready = Parser(), Reactor(Clock()), False
        self.client = connection.Connection(
            self.reactor, f"unix:path={path}", on_ready=self.let_in, on_message=self.answer, on_lost=pytest.fail)
        self.client.start()
        self.end, _ = self.listening.accept()
        for said in (b"OK 0123456789abcdef0123456789abcdef\r\n", b"AGREE_UNIX_FD\r\n"):
            self.end.recv(4096)
            self.end.sendall(said)
            self.reactor.turn(1_000_000)
        while not self.ready:
            self.reactor.turn(1_000_000)
        self.end.recv(4096)

    def let_in(self):
        self.ready = True

    def answer(self, message):
        self.client.send(new_method_return(message))

    def calls(self, first, number):
        self.end.sendall(b"".join(new_method_call(PING, "Ping").serialise(serial=first + each)
                                  for each in range(number)))

    def answers(self, number):
        """The serials that they are for."""
        found = []
        self.end.settimeout(0.01)
        while len(found) < number:
            self.reactor.turn(10_000)
            try:
                self.parser.add_data(self.end.recv(1 << 16))
            except TimeoutError:
                continue
            while (message := self.parser.get_next_message()) is not None:
                found.append(message.header.fields[HeaderFields.reply_serial])
        return found

    def close(self):
        self.client.close()
        self.end.close()
        self.listening.close()
        self.reactor.close()


@pytest.fixture
def bus(tmp_path):
    bus = Bus(str(tmp_path / "bus"))
    yield bus
    bus.close()


def test_answers_to_calls_that_came_together_leave_together(bus, monkeypatch):
    sends, send = [], connection._Piece.pass_on

    def counted(piece, to):
        sends.append(len(piece.data))
        return send(piece, to)

    monkeypatch.setattr(connection._Piece, "pass_on", counted)
    bus.calls(1, 40)
    assert bus.answers(40) == list(range(1, 41))
    assert len(sends) <= 2
    for serial in range(41, 44):
        bus.calls(serial, 1)
        assert bus.answers(1) == [serial]
    assert len(sends) <= 2 + 3
