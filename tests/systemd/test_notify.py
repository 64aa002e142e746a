"""A datagram socket stands where NOTIFY_SOCKET points and receives what a service manager would."""

import os
import socket

import pytest

from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.systemd.notify import Notifier


@pytest.fixture
def manager(tmp_path, monkeypatch):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(tmp_path / "notify"))
    receiver.settimeout(5)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    yield receiver
    receiver.close()


@pytest.fixture
def notifier(manager):
    made = Notifier(os.environ)
    yield made
    made.close()


def test_messages_are_those_of_sd_notify(manager, notifier):
    assert notifier.present
    assert notifier.ready("3 crons, next 02:00")
    assert manager.recv(4096) == b"READY=1\nSTATUS=3 crons, next 02:00"
    assert notifier.status("idle")
    assert manager.recv(4096) == b"STATUS=idle"
    assert notifier.alive()
    assert manager.recv(4096) == b"WATCHDOG=1"
    assert notifier.stopping()
    assert manager.recv(4096) == b"STOPPING=1"
    assert notifier.reloading()
    first, second = manager.recv(4096).split(b"\n")
    assert first == b"RELOADING=1"
    assert second.startswith(b"MONOTONIC_USEC=")
    assert int(second[15:]) > 0


def test_status_is_one_line_of_ascii(manager, notifier):
    notifier.status("größe\nREADY=1\x1b[31m \udcff" + "x" * 5000)
    message = manager.recv(8192)
    assert message.startswith(b"STATUS=gr\\xf6\\xdfe READY=1?[31m \\udcff")
    assert b"\n" not in message
    assert len(message) < 1000


def test_stored_descriptor_arrives_with_its_name(manager, notifier):
    reader, writer = os.pipe()
    told = []
    assert notifier.store_fds("kept-run", [reader, writer], lambda: told.append("taken"))
    assert told == ["taken"]
    message, fds, _, _ = socket.recv_fds(manager, 4096, 4)
    assert message == b"FDSTORE=1\nFDNAME=kept-run\nFDPOLL=0"
    os.write(writer, b"through")
    assert os.read(fds[0], 10) == b"through"
    os.fstat(reader)  # both stay the caller's
    for fd in (reader, writer, *fds):
        os.close(fd)
    assert notifier.drop_fds("kept-run")
    assert manager.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=kept-run"


@pytest.mark.parametrize("name", ["", "a:b", "a\nb", "ü", "x" * 256])
def test_a_name_that_the_manager_would_ignore_is_refused(notifier, name):
    with pytest.raises(ValueError, match="cannot store a descriptor"):
        notifier.store_fds(name, [0])
    with pytest.raises(ValueError, match="cannot store a descriptor"):
        notifier.drop_fds(name)


def test_environment_is_taken_and_can_be_handed_on(manager, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    made = Notifier(os.environ)
    assert made.watchdog_usec == 30_000_000
    assert not {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} & os.environ.keys()
    assert made.environment.keys() == {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    again = Notifier(os.environ)
    assert again.present
    assert again.watchdog_usec == 30_000_000
    made.close()
    again.close()


@pytest.mark.parametrize(("usec", "pid"), [("0", None), ("-5", None), ("soon", None), ("", None), ("²", None),
                                           ("1000", "1")])
def test_no_watchdog(monkeypatch, usec, pid):
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid)
    assert Notifier(os.environ).watchdog_usec is None


@pytest.mark.parametrize("address", [None, "", "/nowhere/at/all", "vsock:2:1", "@crtrd-nobody-listens"])
def test_without_a_manager_nothing_happens(monkeypatch, address):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    notifier = Notifier(os.environ)
    assert not notifier.present
    for told in (notifier.ready("x"), notifier.status("x"), notifier.alive(), notifier.stopping(),
                 notifier.reloading(), notifier.store_fds("x", [0]), notifier.drop_fds("x")):
        assert told is False
    notifier.close()


def test_abstract_address(monkeypatch):
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(f"\0crtrd-test-{os.getpid()}")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@crtrd-test-{os.getpid()}")
    notifier = Notifier(os.environ)
    assert notifier.alive()
    assert receiver.recv(100) == b"WATCHDOG=1"
    notifier.close()
    receiver.close()


def test_a_manager_that_does_not_read_holds_nobody_up(manager, notifier, monkeypatch):
    notifier._notifier.socket.settimeout(0.01)
    while notifier.alive():
        pass
    manager.close()
    assert not notifier.status("nobody is there")
    assert not notifier.store_fds("x", [0])


def test_what_a_busy_manager_does_not_take_waits_its_turn(manager, notifier):
    """In order, with copies of the descriptors: whoever stored them may have closed them meanwhile."""
    reactor, told = Reactor(Clock()), []
    notifier.attach(reactor)
    full = 0
    while notifier.alive():
        full += 1
    reader, writer = os.pipe()
    assert not notifier.store_fds("kept-run", [reader], lambda: told.append("taken"))
    os.close(reader)
    assert not notifier.drop_fds("kept-other")
    reactor.turn(10_000)
    assert told == []
    for _ in range(full + 1):  # with the one that found no room
        assert manager.recv(4096) == b"WATCHDOG=1"
        reactor.turn(10_000)
    message, (copy,), _, _ = socket.recv_fds(manager, 4096, 4)
    assert message.startswith(b"FDSTORE=1\nFDNAME=kept-run")
    assert told == ["taken"]
    reactor.turn(10_000)
    assert manager.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=kept-other"
    os.write(writer, b"through")
    assert os.read(copy, 10) == b"through"
    assert notifier.status("again at once")
    for fd in (writer, copy):
        os.close(fd)
    reactor.close()


def test_the_last_messages_are_waited_for_and_those_to_nobody_are_not(manager, notifier):
    reactor, told = Reactor(Clock()), []
    notifier.attach(reactor)
    while notifier.alive():
        pass
    manager.recv(4096)
    notifier.flush()  # there is room for the one that waits
    assert not notifier.store_fds("kept-run", [0], lambda: told.append("nobody"))
    manager.close()
    reactor.turn(10_000)
    assert told == ["nobody"]
    assert not notifier.status("nobody is there")
    reactor.close()
