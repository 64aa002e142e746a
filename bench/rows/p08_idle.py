"""P8: leaving. Calls by bus and socket are swept over idle exits; nothing may be lost, nothing stay behind."""

import json
import os
import time

from bench.core import Line, at_most, figure, short, told
from bench.world import PROJECT, SERVICE, World

NAME = "P8"
SETTINGS = 'idle_grace = "100ms"\n'
EXITS = int(os.environ.get("BENCH_EXITS", "100"))
CALLS, FROM_MS, TO_MS = 5, 60, 260
STARTS, EXIT, INACTIVE = "daemon.started", "ExecMainExitTimestampMonotonic", "InactiveEnterTimestampMonotonic"


def measure(world: World) -> list[Line]:
    world.crtrd(SETTINGS)
    world.arm({"name": "tick", "schedule": ["0 0 1 1 *"], "command": ["true"]})
    gaps = [exit_to_activatable(world) for _ in range(10)]
    left = len(world.pids_of(SERVICE)) if world.machine.path(f"/sys/fs/cgroup/system.slice/{SERVICE}").exists() else 0
    lives, found = swept(world)
    calls = sum(each["answers"] for each in found.values())
    lost = 2 * CALLS * EXITS - calls
    hung = max(each["slowest_s"] for each in found.values())
    return [
        at_most("idle: processes left", figure([left]), 0),
        at_most("exit → activatable again ≤ 1 ms", figure(gaps), 1, " ms"),
        at_most(f"calls lost of {calls + lost} raced over {lives} idle exits", figure([lost]), 0,
                more=f"the slowest answer took {short(hung)} s"),
        twenty_activations(world),
        told("exits raced", f"{lives} of the 1000 that the goal names (BENCH_EXITS= sets the rounds)"),
    ]


def exit_to_activatable(world: World) -> float:
    """Milliseconds between the end of the main process and the unit being inactive, as systemd noted them."""
    world.program("call.py")
    world.wait_for(lambda: world.machine.unit(SERVICE)["ActiveState"] == "inactive")
    unit = world.machine.unit(SERVICE)
    return (int(unit[INACTIVE]) - int(unit[EXIT])) / 1000


def swept(world: World) -> tuple[int, dict[str, dict[str, float]]]:
    """How many lives began while the test's own sweep called, and what it heard."""
    world.machine.copy_in(PROJECT / "tests" / "machine" / "sweep.py", "/opt/bench/sweep.py")
    since = time.time()
    said = world.program("sweep.py", *map(str, (EXITS, CALLS, FROM_MS, TO_MS)), timeout=1200)
    entries = world.machine.journal("-u", SERVICE, f"--since=@{int(since)}")
    return sum(entry.get("CRTRD_EVENT") == STARTS for entry in entries), json.loads(said)


def twenty_activations(world: World) -> Line:
    """Twenty in two seconds. They are started and stopped, since a life with its idle exit alone takes longer."""
    begun, failed = time.monotonic(), 0
    for _ in range(20):
        failed += world.machine.run("python3 /opt/bench/call.py && systemctl stop crtrd.service",
                                    check=False).returncode != 0
    took = time.monotonic() - begun
    world.program("call.py")
    states = [world.machine.unit(name)["ActiveState"] for name in ("crtrd.socket", SERVICE)]
    unusable = failed + sum(each != "active" for each in states)
    return at_most("20 activations in a row leave socket and service usable", figure([unusable]), 0, " failed",
                   more=f"{short(took)} s; " + ", ".join(states))
