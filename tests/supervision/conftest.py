"""A real supervisor on a real reactor, with real processes; every test must leave no child and no descriptor behind."""

import contextlib
import itertools
import os
import signal
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from crtrd.core.events import LaunchFailed, RunEnded, RunHeld
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.identity import read_stat
from crtrd.supervision.supervisor import Plan, Supervisor

PATH = "/usr/local/bin:/usr/bin:/bin"
DEADLINE = 20.0


class Room:
    """Drives one supervisor the way the engine does, and remembers what it reported."""

    def __init__(self, cgroups=None, *, lines=False):
        self.reactor = Reactor(Clock())
        self.events = []
        self.lines = []
        hook = (lambda *told: self.lines.append(told)) if lines else None
        self.supervisor = Supervisor(self.reactor, cgroups, self.events.append, hook)
        self._serial = itertools.count(1)
        self._own = uuid.uuid4().hex[:24]  # no stray of another test has these run ids in its environment

    def plan(self, *argv, **fields):
        run_id = fields.pop("run_id", f"{self._own}{next(self._serial):08x}")
        return replace(Plan(run_id, argv, (("PATH", PATH), ("CRTR_RUN_ID", run_id))), **fields)

    def until(self, condition, within=DEADLINE):
        """Turn the loop until `condition` holds; its value."""
        deadline = time.monotonic() + within
        while not (value := condition()):
            assert time.monotonic() < deadline, f"nothing came of it: {self.events}"
            self.reactor.turn(20_000)
        return value

    def turn_for(self, seconds):
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.reactor.turn(int(left * 1_000_000) + 1)

    def event(self, run_id, kind):
        return next((event for event in self.events if event.run_id == run_id and isinstance(event, kind)), None)

    def hold(self, plan):
        """Start and wait for the gate: RunHeld or LaunchFailed."""
        self.supervisor.start(plan)
        return self.until(lambda: self.event(plan.run_id, RunHeld | LaunchFailed))

    def go(self, plan):
        """Start and release; RunHeld."""
        held = self.hold(plan)
        assert isinstance(held, RunHeld), held
        self.supervisor.release(plan.run_id)
        return held

    def end(self, run_id, within=DEADLINE):
        event = self.until(lambda: self.event(run_id, RunEnded | LaunchFailed), within)
        self.supervisor.durable(run_id)
        return event

    def run(self, *argv, **fields):
        """The Ending of a whole run."""
        plan = self.plan(*argv, **fields)
        self.go(plan)
        ended = self.end(plan.run_id)
        assert isinstance(ended, RunEnded), ended
        return ended.ending

    def fail(self, *argv, **fields):
        """The LaunchFailed of a run that cannot start."""
        plan = self.plan(*argv, **fields)
        if isinstance(self.hold(plan), RunHeld):
            self.supervisor.release(plan.run_id)
        failed = self.end(plan.run_id)
        assert isinstance(failed, LaunchFailed), failed
        return failed

    def output(self, run_id):
        child = self.supervisor._children[run_id]
        return child.out.output().head

    def close(self):
        for child in self.supervisor._children.values():
            if child.pidfd >= 0:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)
        self.supervisor.close()
        self.reactor.close()


def open_fds():
    return len(os.listdir("/proc/self/fd")) - 1


def children(state=""):
    """Our own child processes, all or those in `state`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = read_stat(int(name))
                if stat.parent == os.getpid() and (not state or stat.state == state):
                    found.append(stat)
    return found


def is_alive(pid):
    try:
        return read_stat(pid).state not in "ZX"
    except OSError:
        return False


def wait_for(condition, within=DEADLINE):
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.005)
    return value


@pytest.fixture(autouse=True)
def nothing_left():
    before, fds = {stat.pid for stat in children()}, open_fds()
    yield
    assert [stat for stat in children() if stat.pid not in before] == []
    assert open_fds() == fds


@pytest.fixture
def room():
    made = Room()
    yield made
    made.close()


@pytest.fixture
def lined():
    made = Room(lines=True)
    yield made
    made.close()


@pytest.fixture
def cgroups():
    """Cgroups below one of the test's own, made and removed here; skipped where this is not allowed."""
    mount = next((Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines()
                  if line.split()[2] == "cgroup2"), None)
    if mount is None:
        pytest.skip("no cgroup2 hierarchy is mounted")
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    unit = own.rstrip("/") + f"/crtrd-test-{os.getpid()}"
    try:
        (mount / unit.lstrip("/")).mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    found = Cgroups.find(unit)
    assert found is not None, Cgroups.refusal
    yield found
    folder = mount / unit.lstrip("/")
    (mount / own.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
    (folder / "cgroup.kill").write_text("1")
    for below in sorted(folder.rglob("*"), key=lambda path: -len(path.parts)):
        if below.is_dir():
            wait_for(lambda below=below: _removed(below))
    wait_for(lambda: _removed(folder))


def _removed(folder):
    try:
        folder.rmdir()
    except OSError:
        return not folder.exists()
    return True


@pytest.fixture
def contained(cgroups):
    made = Room(cgroups)
    yield made
    made.close()
