"""P12: how often the wake timer is armed, counted as the service manager notes it; and how exact it is."""

import time

from bench.core import Line, at_most, figure, stamp
from bench.world import SERVICE, World

NAME = "P12"
LIVES = 10
TIMER = "crtrd-wake.timer"


def measure(world: World) -> list[Line]:
    resident = while_resident(world)
    world.crtrd('idle_grace = "100ms"\n')
    world.arm({"name": "first", "schedule": [f"at {stamp(time.time() + 86_400)}"], "command": ["true"]})
    _await_end(world)
    exact = int(_microseconds(world.machine.unit(TIMER)["AccuracyUSec"]))
    same = counted(world, lambda number: world.program("call.py"))
    changed = counted(world, lambda number: world.arm(
        {"name": f"earlier-{number}", "schedule": [f"at {stamp(time.time() + 80_000 - number)}"], "command": ["true"]}))
    return [
        at_most("armed while resident", figure([resident]), 0, more="50 crons armed, each due earlier than all before"),
        at_most(f"armed in {LIVES} lives that change nothing of the next wake-up", figure([same]), 0),
        at_most(f"armed in {LIVES} lives that each change it ≤ {LIVES}", figure([changed]), LIVES),
        at_most("its accuracy (systemd's default is a minute)", figure([exact]), 1, " us"),
    ]


def while_resident(world: World) -> int:
    world.crtrd('idle_grace = "1min"\n')
    before = armings(world)
    for number in range(50):
        due = stamp(time.time() + 90_000 - number)
        world.arm({"name": f"r{number}", "schedule": [f"at {due}"], "command": ["true"]})
    world.settle(1)
    return armings(world) - before


def counted(world: World, wake: object) -> int:
    """How often it is armed in LIVES lives, each begun by `wake(number)`."""
    assert callable(wake)
    before = armings(world)
    for number in range(LIVES):
        wake(number)
        _await_end(world)
    return armings(world) - before


def armings(world: World) -> int:
    """A transient timer that is armed anew is started anew, and that is noted."""
    return sum(entry.get("JOB_TYPE") == "start" for entry in world.machine.journal(f"UNIT={TIMER}"))


def _await_end(world: World) -> None:
    world.wait_for(lambda: world.machine.unit(SERVICE)["ActiveState"] == "inactive", 30, "the idle exit")


def _microseconds(text: str) -> float:
    units = {"us": 1, "ms": 1000, "min": 60_000_000, "s": 1_000_000}
    for unit, size in units.items():
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * size
    raise ValueError(text)
