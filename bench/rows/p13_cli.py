"""P13: what a look at the daemon costs, beside an interpreter that does nothing."""

import json

from bench.core import Line, at_most, figure, ratio
from bench.world import World

NAME = "P13"
ROUNDS = 25


def measure(world: World) -> list[Line]:
    world.crtrd('clock = "internal"\n')
    world.arm({"name": "tick", "schedule": ["0 0 1 1 *"], "command": ["true"]})
    found = json.loads(world.program("starts.py", str(ROUNDS)))
    return [
        at_most("crtrctl status ≤ 3.5x `python3 -I -c pass`", ratio(found["status"], found["empty"]), 3.5, "x",
                more=f"{figure(found['status']).text(' ms')}, empty {figure(found['empty']).text()}"),
        at_most("of asyncio, peewee and pystemd it imports", figure([len(found["imports"])]), 0,
                more=", ".join(found["imports"])),
    ]
