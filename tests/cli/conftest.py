"""crtrctl as a real process, against the stand-in control behind a real bus."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.dbus.bus import PrivateBus

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "crtrd.cli.main"]


class Cli:
    """`run` gives the finished process; `json` what it printed with --json."""

    def __init__(self, home):
        self.home = home
        self.env = {"CRTR_HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": ":".join([str(ROOT), *sys.path]),
                    "TZ": "UTC", "LANG": "C.UTF-8", "NO_COLOR": "1"}

    def run(self, *arguments, status=0, **env):
        done = subprocess.run([*COMMAND, *arguments], capture_output=True, timeout=20, env=self.env | env, check=False)
        done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == status, (arguments, done)
        return done

    def out(self, *arguments, status=0, **env):
        return self.run(*arguments, status=status, **env).stdout

    def json(self, *arguments, status=0):
        return json.loads(self.out(*arguments, "--json=short", status=status))


@pytest.fixture(autouse=True)
def broken_pipes():
    """`main` lets SIGPIPE end its process: called in this one, it must not end the tests that come after it."""
    yield
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python itself begins


@pytest.fixture
def nobody(tmp_path):
    """A crtrctl whose daemon and bus do not exist."""
    (tmp_path / "run").mkdir()
    return Cli(tmp_path)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    if shutil.which("dbus-daemon") is None:
        pytest.skip("dbus-daemon is not installed")
    home = tmp_path_factory.mktemp("home")
    (home / "run").mkdir()
    bus = PrivateBus(home / "run")
    bus.start()
    cli = Cli(home)
    command = [sys.executable, "-m", "tests.dbus.standin", bus.address, "7"]
    process = subprocess.Popen(command, env=cli.env, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield cli
    process.kill()
    process.wait(5)
    process.stdout.close()
    bus.kill()


@pytest.fixture
def cli(daemon):
    """The stand-in without any cron."""
    names = [cron["name"] for cron in daemon.json("list")]
    if names:
        daemon.run("cancel", *names)
    return daemon
