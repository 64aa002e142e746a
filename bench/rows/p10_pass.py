"""P10: what many crons cost that are not due, and what arming them costs."""

import time

from bench.core import Line, at_most, figure, ratio, short
from bench.here import Here
from bench.peers.daemons import Timers
from bench.scale import first_and_last
from bench.world import INSIDE, World

NAME = "P10"
NEVER = 4_000_000_000.0


def measure(world: World) -> list[Line]:
    small, big = first_and_last(world)
    peers = "" if isinstance(world, Here) else (
        f"us each: 1000 systemd timers {short(timers(world))}, 1000 of APScheduler {short(apscheduler(world))}")
    lost = "" if big.answered else "the call that has them loaded loses the bus; "
    return [
        at_most("a pass with 100 000 crons, none due ≤ 1.5x the pass with 1000",
                ratio([big.passes.median], [small.passes.median]), 1.5, "x",
                more=f"{big.passes.text(' ms')} and {small.passes.text()}, commit included"),
        at_most("arming 100 000 from files ≤ 100 us each", figure([big.load]), 100, " us",
                more=f"{lost}1000: {short(small.load)}; one by one by the bus {short(small.arm)}", peers=peers),
    ]


def timers(world: World) -> float:
    """Microseconds for each of a thousand: daemon-reload and the start of all."""
    peer, begun = Timers(), time.monotonic()
    try:
        peer.start(world, [NEVER] * 1000)
        return (time.monotonic() - begun) * 1e6 / 1000
    finally:
        peer.stop(world)


def apscheduler(world: World) -> float:
    command = ["env", "PYTHONPATH=/opt/peers/python", "python3", f"{INSIDE}/apscheduled.py", "--arm", "1000"]
    return float(world.machine.run(command).stdout)
