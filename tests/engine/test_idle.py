"""Leaving when idle, as far as it goes without a service manager: up to the wake-up that cannot be armed."""

import socket

import pytest

from tests.instance import Instance

pytestmark = pytest.mark.process


@pytest.mark.parametrize("last", [("list",), ("trigger", "job"), ("run", "job", "--wait")])
def test_neither_answers_nor_signals_of_the_last_batch_keep_it_awake(tmp_path, last):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager, Instance(
            tmp_path / "home", 'clock = "systemd"\nidle_grace = "500ms"\n') as crtrd:
        manager.bind(str(tmp_path / "notify"))
        nowhere = f"unix:path={tmp_path}/nowhere"  # no timer of this host's
        crtrd.start(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "DBUS_SYSTEM_BUS_ADDRESS": nowhere})
        crtrd.ctl("arm", "job", "--every", "1h", "--", "true")
        crtrd.ctl(*last)
        crtrd.wait_for(lambda: "daemon.wake.failed: cannot arm the wake-up" in crtrd.said())
