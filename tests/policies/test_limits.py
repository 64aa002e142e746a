"""`resources`: values as systemd reads them, what becomes of them, and how limits that were met are told."""

import os
import resource

import pytest

from crtrd.config.resources import INFINITY, NAMES, Host, check, controllers, read_limit, scope_properties
from crtrd.core import events
from crtrd.core.occurrence import Origin, Output, Phase, Run
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.identity import Proof
from tests.core.world import M, S
from tests.supervision.conftest import Room

HOST = Host(memory=8 << 30, tasks=30_000)


@pytest.mark.parametrize(
    ("name", "value", "given"),
    [
        ("MemoryMax", "1G", ("MemoryMax", 1 << 30)), ("MemoryMax", "512M", ("MemoryMax", 512 << 20)),
        ("MemoryMax", "1.5G", ("MemoryMax", 3 << 29)), ("MemoryMax", "4096", ("MemoryMax", 4096)),
        ("MemoryMax", "50%", ("MemoryMax", 4 << 30)), ("MemoryMax", "infinity", ("MemoryMax", INFINITY)),
        ("MemoryHigh", "100K", ("MemoryHigh", 102_400)), ("MemoryHigh", "0.5%", ("MemoryHigh", (8 << 30) // 200)),
        ("CPUQuota", "20%", ("CPUQuotaPerSecUSec", 200_000)), ("CPUQuota", "250%", ("CPUQuotaPerSecUSec", 2_500_000)),
        ("CPUWeight", "1", ("CPUWeight", 1)), ("IOWeight", "10000", ("IOWeight", 10_000)),
        ("TasksMax", "100", ("TasksMax", 100)), ("TasksMax", "10%", ("TasksMax", 3_000)),
        ("TasksMax", "infinity", ("TasksMax", INFINITY)),
    ],
)
def test_what_a_scope_is_given(name, value, given):
    check(name, value)
    assert scope_properties([(name, value), ("Nice", "5")], HOST) == (given,)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MemoryMax", ""), ("MemoryMax", "0"), ("MemoryMax", "-1G"), ("MemoryMax", "1Q"), ("MemoryMax", "many"),
        ("MemoryMax", "1e9"), ("MemoryMax", "0%"), ("MemoryMax", "99999999999999999999"), ("CPUQuota", "20"),
        ("CPUQuota", "0%"), ("CPUQuota", "infinity"), ("CPUWeight", "0"), ("CPUWeight", "10001"), ("IOWeight", "idle"),
        ("TasksMax", "1G"), ("TasksMax", "-5"), ("Nice", "20"), ("Nice", "-21"), ("Nice", "high"),
        ("OOMScoreAdjust", "1001"), ("LimitNOFILE", "9:3"), ("LimitNOFILE", "1K"), ("LimitNOFILE", "infinity:5"),
        ("memorymax", "1G"), ("LimitCORE", "0"), ("", "1"), ("MemoryMax", "\u0661G"),
    ],
)
def test_what_is_refused_begins_with_the_name(name, value):
    with pytest.raises(ValueError, match=rf"^{name}"):
        check(name, value)


@pytest.mark.parametrize(
    ("name", "value", "limits"),
    [
        ("LimitNOFILE", "1024", (1024, 1024)), ("LimitNOFILE", "512:1024", (512, 1024)),
        ("LimitNOFILE", "5:infinity", (5, resource.RLIM_INFINITY)), ("LimitCORE", "1M", (1 << 20, 1 << 20)),
        ("LimitNPROC", "infinity", (resource.RLIM_INFINITY,) * 2),
    ],
)
def test_limits_of_the_spawn(name, value, limits):
    assert read_limit(name, value) == limits


def test_controllers_that_are_needed():
    given = [(name, "5") for name in NAMES]
    assert controllers(given) == {"MemoryMax": "memory", "MemoryHigh": "memory", "CPUQuota": "cpu", "CPUWeight": "cpu",
                                  "IOWeight": "io", "TasksMax": "pids"}


@pytest.mark.parametrize(
    ("oom", "hits", "code", "signal", "result", "reason"),
    [
        (True, ("MemoryMax",), None, 9, "oom-kill", "killed for want of memory: MemoryMax was reached"),
        (True, (), None, 9, "oom-kill", "killed for want of memory: the host had none left"),
        (True, ("MemoryMax",), 137, None, "oom-kill", "killed for want of memory: MemoryMax was reached"),
        (False, ("TasksMax",), 2, None, "exit-code", "exit status 2; TasksMax was reached"),
        (False, ("TasksMax",), None, 11, "signal", "signal 11; TasksMax was reached"),
        (False, ("TasksMax",), 0, None, "success", ""),
        (False, (), None, 9, "signal", "signal 9"),
        (False, (), 137, None, "exit-code", "exit status 137"),
    ],
)
def test_results_tell_limits_apart(world, oom, hits, code, signal, result, reason):
    world.arm(schedule=("* * * * *",))
    world.wake(M)
    world.begin()
    (run,) = world.live()
    world.do(events.RunEnded(world.now, run.id, events.Ending(code, signal, oom, S, Output(), Output(), hits=hits)))
    ended = world.session.run(run.id)
    assert (ended.result, ended.reason) == (result, reason)


def counters(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


@pytest.fixture
def counted(tmp_path):
    """A room whose run finds files of counters where its cgroup is: the kernel's own need controllers to be there."""
    (tmp_path / "unit").mkdir()
    room = Room(Cgroups(str(tmp_path), "/unit"))
    yield room, tmp_path / "unit"
    room.close()


@pytest.mark.parametrize(
    ("script", "own", "oom", "hits"),
    [
        ("kill -9 $$", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\n", True, ("MemoryMax",)),
        ("kill -9 $$", "oom 0\noom_kill 1\n", True, ()),
        ("exit 1", "oom 1\noom_kill 1\n", True, ("MemoryMax",)),
        ("exit 0", "oom 1\noom_kill 1\n", False, ("MemoryMax",)),
        ("kill -9 $$", "oom 0\noom_kill 0\n", False, ()),
    ],
)
def test_oom_kills_are_read_from_the_runs_own_cgroup(counted, script, own, oom, hits):
    room, unit = counted
    plan = room.plan("sh", "-c", script)
    counters(unit / f"run-{plan.run_id}", cgroup_procs="", memory_events=own, pids_events="max 0\n")
    room.go(plan)
    ending = room.end(plan.run_id).ending
    assert (ending.oom, ending.hits) == (oom, hits)


@pytest.mark.parametrize(
    ("script", "before", "after", "oom"),
    [
        ("kill -9 $$", 4, 5, True), ("exit 137", 4, 5, True), ("kill -9 $$", 5, 5, False), ("exit 1", 4, 5, False),
        ("kill -15 $$", 4, 5, False),
    ],
)
def test_without_a_counter_of_its_own_the_one_around_it_counts(counted, script, before, after, oom):
    room, unit = counted
    counters(unit, memory_events=f"oom_kill {before}\n")
    plan = room.plan("sh", "-c", f"echo 'oom_kill {after}' > {unit}/memory.events; {script}")
    counters(unit / f"run-{plan.run_id}", cgroup_procs="")
    room.go(plan)
    assert room.end(plan.run_id).ending.oom is oom


@pytest.mark.parametrize(
    ("own", "around", "hits"),
    [
        ({"pids_events": "max 7\n"}, "max 3\n", ("TasksMax",)), ({"pids_events": "max 0\n"}, "max 9\n", ()),
        ({}, "max 9\n", ("TasksMax",)), ({}, "max 3\n", ()),
    ],
)
def test_a_limit_of_tasks_that_was_met(counted, own, around, hits):
    room, unit = counted
    counters(unit, pids_events="max 3\n")
    plan = room.plan("sh", "-c", f"echo '{around}' > {unit}/pids.events; exit 2")
    counters(unit / f"run-{plan.run_id}", cgroup_procs="", **own)
    room.go(plan)
    assert room.end(plan.run_id).ending.hits == hits


def test_what_had_been_counted_before_an_adoption_is_not_this_runs(counted):
    room, unit = counted
    counters(unit, memory_events="oom 3\noom_kill 3\n")
    plan = room.plan("sleep", "600")
    counters(unit / f"run-{plan.run_id}", cgroup_procs="")
    held = room.go(plan)
    run = Run(plan.run_id, "o", "c", "job", "", 1, Origin.MANUAL, 0, Phase.RUNNING, out_of_band=True, fence=1,
              created_at=0, identity=held.identity, cgroup=held.cgroup)
    other = Room(Cgroups(str(unit.parent), "/unit"))
    try:
        assert other.supervisor.adopt(run, plan, {}) is Proof.ALIVE
        os.kill(held.identity.pid, 9)
        room.end(plan.run_id)
        assert other.end(plan.run_id).ending.oom is False
    finally:
        other.close()


def test_a_scope_is_not_ours_to_remove(tmp_path):
    groups = Cgroups(str(tmp_path), "/system.slice/crtrd.service")
    scope, own = "/system.slice/crtrd-run-1.scope", "/system.slice/crtrd.service/run-1"
    for path in (scope, own):
        os.makedirs(str(tmp_path) + path)
        assert groups.remove(path)
    assert [os.path.isdir(str(tmp_path) + path) for path in (scope, own)] == [True, False]
