"""Descriptors in replies, and the log level: members that do more than carry values."""

import os

import pytest
from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection

from crtrd import names
from tests.dbus.bus import Called

pytestmark = pytest.mark.bus
MANAGER = DBusAddress(names.BUS_PATH, names.BUS_NAME, names.MANAGER_INTERFACE)


@pytest.fixture
def peer(world):
    connection = open_dbus_connection(world.bus.address, enable_fds=True)
    yield connection
    connection.close()


def opened(world, peer, run):
    """What OpenOutput gives: the descriptor's content."""
    peer.send(new_method_call(MANAGER, "OpenOutput", "s", (run,)))
    found = []

    def arrived():
        try:
            found.append(peer.receive(timeout=0))
        except TimeoutError:
            return False
        return found[-1].header.fields.get(5) is not None  # REPLY_SERIAL

    world.until(arrived)
    with found[-1].body[0].to_file("rb") as file:
        return file.read()


def a_run(world):
    name = f"job{len(world.control.crons)}"
    world.call("Arm", "a{sv}", {"name": ("s", name), "command": ("as", ["true"])})
    _, runs = world.call("Run", "sa{sv}", name, {})
    return runs[0].rpartition("/")[2]


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_the_output_of_a_run_travels_as_a_descriptor_and_none_stays_behind(world, peer):
    world.control.head = b"\xff\0 hello\n" * 9
    run = a_run(world)
    before = descriptors()
    for _ in range(5):
        assert opened(world, peer, run) == world.control.head
    assert descriptors() == before


def test_a_descriptor_for_nobody_is_closed(world):
    """To who did not agree to descriptors the bus passes none on; the connection lives and nothing is left open."""
    run = a_run(world)
    before = descriptors()
    world.peers[0].send("OpenOutput", "s", (run,))
    assert world.call("ListCrons", "a{sv}us", {}, 0, "")
    assert world.service.connected
    assert descriptors() == before
    with pytest.raises(Called, match="NoSuchRun"):
        world.call("OpenOutput", "s", "f" * 32)


def log(world, member, *body):
    signature = {"Get": "ss", "GetAll": "s", "Set": "ssv"}[member]
    return world.standard("Properties", member, signature, names.LOG_INTERFACE, *body, path=names.LOG_PATH)


def test_the_log_level_is_read_and_set(world):
    assert log(world, "GetAll") == ({"LogLevel": ("s", "debug"), "LogTarget": ("s", "journal"),
                                     "SyslogIdentifier": ("s", "crtrd")},)
    assert log(world, "Set", "LogLevel", ("s", "warning")) == ()
    assert log(world, "Get", "LogLevel") == (("s", "warning"),)
    for name in ("LogTarget", "SyslogIdentifier"):
        with pytest.raises(Called, match="PropertyReadOnly"):
            log(world, "Set", name, ("s", "console"))
    world.control.allowed.clear()
    for member, body in (("GetAll", ()), ("Get", ("LogLevel",)), ("Set", ("LogLevel", ("s", "debug")))):
        with pytest.raises(Called, match="AccessDenied"):
            log(world, member, *body)
    assert world.control.level == "warning"
