"""P8: leaving. Calls by bus and socket are swept over idle exits; nothing may be lost, nothing stay behind."""

import json
import os
import time

from bench.core import Line, at_most, figure, short, told
from bench.world import DROP_IN, INSIDE, PROJECT, SERVICE, World

NAME = "P8"
SETTINGS = 'idle_grace = "100ms"\n'
EXITS = int(os.environ.get("BENCH_EXITS", "300"))
CALLS, FROM_MS, TO_MS = 5, 90, 260
TWENTY, HANGS = 20, 30
SOCKET = "crtrd.socket"
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
        at_most(f"calls lost of {calls + lost} raced over {lives} idle exits", figure([lost]), 0),
        at_most("the slowest answer ≤ 30 s: none hangs", figure([hung]), HANGS, " s"),
        *twenty_activations(world),
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
    said = world.program("sweep.py", *map(str, (EXITS, CALLS, FROM_MS, TO_MS)), timeout=7200)
    entries = world.machine.journal("-u", SERVICE, f"--since=@{int(since)}")
    return sum(entry.get("CRTRD_EVENT") == STARTS for entry in entries), json.loads(said)


def twenty_activations(world: World) -> list[Line]:
    """Twenty in two seconds, by a program that ends with its answer, since no real daemon starts twenty times in two
    seconds; and of the daemon, as quickly as it goes."""
    world.machine.write(DROP_IN, f"[Service]\nExecStart=\nExecStart=/usr/bin/python3 -I -S {INSIDE}/brief.py\n")
    world.stop_service()
    world.run("systemctl daemon-reload")
    brief = _activations(world)
    world.crtrd(SETTINGS)
    return [brief, _activations(world, "stop")]


def _activations(world: World, *how: str) -> Line:
    failed, took = json.loads(world.program("activations.py", str(TWENTY), *how))
    if not how:
        world.run(["rm", "-f", DROP_IN])
        world.run("systemctl daemon-reload")
    world.program("call.py")
    socket, service = world.machine.unit(SOCKET), world.machine.unit(SERVICE)
    unusable = failed + (socket["ActiveState"] != "active") + (service["Result"] != "success")
    what = "the daemon, started and stopped" if how else "a program that ends at once"
    return at_most(f"{TWENTY} activations in a row leave socket and service usable ({what})", figure([unusable]), 0,
                   " failed", more=f"{short(took)} s; socket {socket['ActiveState']}, service {service['Result']}")
