"""P14: a run that says a gibibyte, and four of them at once."""

import json
import time

from bench.core import Line, at_least, at_most, figure, interleave, quantile, ratio, short
from bench.scale import status
from bench.world import World

NAME = "P14"
PART = "/run/bench/part"
"""64 MiB of lines of 64 bytes, said sixteen times."""
ROUNDS = 3


def measure(world: World) -> list[Line]:
    world.crtrd('clock = "internal"\n')
    line = "123456789" * 7
    world.run(f"yes {line} | head -c 67108864 >{world.place(PART)}")
    world.arm(*({"name": f"say{number}", "shell": say(world), "sinks": ["journal"]} for number in range(4)))
    growth: list[float] = []
    found = interleave(ROUNDS, {"ours": lambda: run(world, growth), "pipe": lambda: pipe(world)}, warm=0)
    idle = json.loads(world.program("bus.py", "ask", "5"))
    busy = asked_meanwhile(world)
    return [
        at_most("1 GiB of output: RSS grows ≤ 20 MiB", figure(growth), 20, " MiB"),
        at_least("its throughput ≥ 0.5x `cat | sha256sum`", ratio(found["pipe"], found["ours"]), 0.5, "x",
                 more=f"{figure(found['ours']).text(' s')}, the pipe {figure(found['pipe']).text()}"),
        at_most("four at once: a bus call takes < 10x its idle time",
                figure([quantile(busy, 0.5) / quantile(idle, 0.5)]), 10, "x",
                more=f"p50 {short(quantile(busy, 0.5))} ms, worst {short(max(busy))}; "
                     f"idle {short(quantile(idle, 0.5))}, worst {short(max(idle))}"),
    ]


def say(world: World) -> str:
    return f"for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do cat {world.place(PART)}; done"


def run(world: World, growth: list[float]) -> float:
    """Seconds of one run, as the daemon recorded it; adds the MiB that its resident memory grew by at most."""
    pid, serial = world.main_pid(), world.ledger("SELECT max(serial) FROM runs")
    before = int(status(pid, "VmRSS"))
    with open(f"/proc/{pid}/clear_refs", "w") as file:
        file.write("5")  # the high-water mark begins anew (proc(5))
    world.ctl("run", "say0", "--wait")
    growth.append((int(status(pid, "VmHWM")) - before) / 1024)
    return world.ledger(f"SELECT max(duration) FROM runs WHERE serial > {serial}") / 1e6


def pipe(world: World) -> float:
    begun = time.monotonic()
    world.run(f"{{ {say(world)}; }} | sha256sum")
    return time.monotonic() - begun


def asked_meanwhile(world: World) -> list[float]:
    """Milliseconds of each answer while four runs talk."""
    for number in range(4):
        world.ctl("trigger", f"say{number}")
    took: list[float] = json.loads(world.program("bus.py", "ask", "1"))  # they talk for a few seconds
    if world.all_settled():
        raise ValueError("the four ended too early to be measured")
    world.wait_for(world.all_settled, what="the end of the four")
    return took
