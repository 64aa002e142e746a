"""Without a service manager every request ends in a ManagerError. What works is tested on a machine with a real one."""

import subprocess
import sys

import pytest

from crtrd.errors import ManagerError
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.systemd import manager as room
from crtrd.systemd.manager import Manager


@pytest.fixture
def ask(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("SYSTEMD_BUS_TIMEOUT", "2")
    reactor = Reactor(Clock())
    manager = Manager(reactor, user=True)

    def ask_and_wait(method, *arguments):
        answers = []
        getattr(manager, method)(*arguments, lambda answer: (answers.append(answer), reactor.stop()))
        reactor.run()
        return answers[0]

    yield ask_and_wait
    manager.close()
    reactor.close()


REQUESTS = [("arm_wake", 1 << 52), ("disarm_wake",), ("start_scope", "crtrd-run.scope", 1, {"MemoryMax": 1})]


@pytest.mark.parametrize("request_", REQUESTS)
def test_no_bus(ask, monkeypatch, request_):
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere/at/all")
    assert str(ask(*request_)) == "cannot reach the bus: No such file or directory"


def test_no_bus_behind_an_address_that_only_sd_bus_can_read(ask, monkeypatch):
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/no%77here")
    answer = ask("disarm_wake")
    assert isinstance(answer, ManagerError)
    assert str(answer).startswith("cannot reach the service manager: ")


@pytest.mark.bus
@pytest.mark.parametrize("request_", REQUESTS)
def test_a_bus_without_a_manager(ask, monkeypatch, request_):
    bus = subprocess.Popen(["dbus-daemon", "--session", "--nofork", "--print-address"], stdout=subprocess.PIPE)
    try:
        monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", bus.stdout.readline().decode().strip())
        answer = ask(*request_)
    finally:
        bus.terminate()
        bus.communicate()
    assert isinstance(answer, ManagerError)
    assert "org.freedesktop.systemd1" in str(answer)


def test_pystemd_that_is_not_installed_is_an_answer(ask, monkeypatch):
    monkeypatch.setattr(room, "ask_for_life", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "pystemd.dbuslib", None)
    assert str(ask("disarm_wake")).startswith("cannot reach the service manager: import of pystemd")


def test_an_unknown_property_is_a_bug_of_the_caller(ask):
    with pytest.raises(ValueError, match="cannot set unit property 'Nice'"):
        ask("start_scope", "x.scope", 1, {"Nice": 5})


def test_pystemd_is_not_imported_before_it_is_needed():
    code = "import sys, crtrd.systemd.manager; sys.exit('pystemd' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
