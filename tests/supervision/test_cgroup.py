"""Cgroups: only ones that are ours, one for each run, emptied and removed."""

import os
import subprocess
from pathlib import Path

import pytest

from crtrd.supervision.cgroup import Cgroups
from tests.supervision.conftest import is_alive, wait_for

pytestmark = pytest.mark.process


def test_without_a_delegated_unit_there_are_none(monkeypatch):
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    own = Path("/proc/self/cgroup").read_text()
    assert Cgroups.find() is None
    assert Cgroups.refusal
    monkeypatch.setenv("INVOCATION_ID", "0" * 32)
    assert Cgroups.find() is None
    assert "not the cgroup of a service" in Cgroups.refusal or "not delegated" in Cgroups.refusal
    assert Path("/proc/self/cgroup").read_text() == own


def test_the_daemon_moves_into_a_group_of_its_own(cgroups):
    own = Path("/proc/self/cgroup").read_text().split("0::")[1].strip()
    assert own == cgroups.unit + "/supervisor"
    again = Cgroups.find(cgroups.unit)
    assert (again.mount, again.unit) == (cgroups.mount, cgroups.unit)


def test_create_fill_kill_remove(cgroups):
    path = cgroups.create("a" * 32)
    assert cgroups.create("a" * 32) == path
    assert cgroups.empty(path)
    assert cgroups.orphans() == [path]
    below = Path(cgroups.mount + path) / "below"
    below.mkdir()
    with subprocess.Popen(["sleep", "20"]) as one, subprocess.Popen(["sleep", "20"]) as two:
        Path(cgroups.procs_file(path)).write_text(str(one.pid))
        (below / "cgroup.procs").write_text(str(two.pid))
        assert sorted(cgroups.procs(path)) == sorted([one.pid, two.pid])
        assert cgroups.orphans() == []
        assert not cgroups.remove(path)
        cgroups.kill(path)
    wait_for(lambda: cgroups.empty(path))
    assert cgroups.remove(path)
    assert cgroups.remove(path)
    assert cgroups.empty(path)
    cgroups.kill(path)
    assert cgroups.counters(path).hits == ()


def test_kill_without_cgroup_kill(cgroups):
    path = cgroups.create("b" * 32)
    with subprocess.Popen(["sleep", "20"]) as one:
        Path(cgroups.procs_file(path)).write_text(str(one.pid))
        cgroups._kill_each(path)
    assert not is_alive(one.pid)
    assert cgroups.remove(path)


@pytest.mark.parametrize("path", ["", "/", "run-x", "/../etc", "/a/../../b"])
def test_what_is_no_runs_cgroup_is_never_touched(cgroups, path):
    with pytest.raises(ValueError, match="is no run's"):
        cgroups.kill(path)
    with pytest.raises(ValueError, match="is no run's"):
        cgroups.kill(cgroups.unit)
    assert os.path.isdir(cgroups.mount + cgroups.unit)
