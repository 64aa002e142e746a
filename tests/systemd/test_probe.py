"""Signs of life from real sockets: one that answers, one that is silent, one that refuses, none at all."""

import os
import socket
import threading
import time

import pytest

from crtrd.errors import ManagerError
from crtrd.systemd import probe
from crtrd.systemd.probe import ask_for_life


@pytest.fixture
def serve(tmp_path):
    listeners = []

    def make(name, answer):
        listener = socket.socket(socket.AF_UNIX)
        path = tmp_path / name
        listener.bind(f"\0{path}" if name.startswith("abstract") else str(path))
        listener.listen()
        listeners.append(listener)

        def answer_one():
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(100) == b"\0AUTH EXTERNAL %s\r\n" % str(os.geteuid()).encode().hex().encode()
                connection.sendall(answer)

        if answer is not None:
            threading.Thread(target=answer_one, daemon=True).start()
        return str(path)

    yield make
    for listener in listeners:
        listener.close()


@pytest.fixture(autouse=True)
def no_system_manager(monkeypatch, tmp_path):
    monkeypatch.setattr(probe, "SYSTEM_MANAGER", str(tmp_path / "nobody"))


def test_a_bus_that_answers_is_alive(serve):
    path = serve("bus", b"OK 0123\r\n")
    ask_for_life({"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={path},guid=12;tcp:host=x"}, user=False, patience=5)


def test_an_abstract_address(serve):
    path = serve("abstract", b"OK 0123\r\n")
    ask_for_life({"DBUS_SESSION_BUS_ADDRESS": f"unix:abstract={path}"}, user=True, patience=5)


def test_silence_ends_after_the_patience(serve):
    path = serve("bus", None)
    before = time.monotonic()
    with pytest.raises(ManagerError, match=r"cannot reach the bus: no sign of life within 0\.05 s"):
        ask_for_life({"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={path}"}, user=False, patience=0.05)
    assert time.monotonic() - before < 2


def test_a_silent_manager_behind_a_living_bus(serve, monkeypatch):
    path = serve("bus", b"OK 0123\r\n")
    monkeypatch.setattr(probe, "SYSTEM_MANAGER", serve("private", None))
    with pytest.raises(ManagerError, match="cannot reach the service manager: no sign of life"):
        ask_for_life({"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={path}"}, user=False, patience=0.2)


def test_a_refusal_is_shown(serve):
    path = serve("bus", b"REJECTED EXTERNAL\r\n")
    with pytest.raises(ManagerError, match="cannot reach the bus: it answers 'REJECTED EXTERNAL"):
        ask_for_life({"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={path}"}, user=False, patience=5)


def test_no_bus_at_all(tmp_path):
    with pytest.raises(ManagerError, match="cannot reach the bus: No such file or directory"):
        ask_for_life({"XDG_RUNTIME_DIR": str(tmp_path)}, user=True, patience=5)


@pytest.mark.parametrize("address", ["tcp:host=localhost,port=1", "unix:path=/tmp/%20x", "autolaunch:", ""])
def test_other_addresses_are_left_to_sd_bus(address):
    ask_for_life({"DBUS_SYSTEM_BUS_ADDRESS": address}, user=False, patience=5)
