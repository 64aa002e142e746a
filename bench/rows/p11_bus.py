"""P11: calls by the bus beside a bare echo with jeepney, on the system bus, by turns."""

import json

from bench.core import ROUNDS, Line, at_least, at_most, figure, ratio
from bench.world import World

NAME = "P11"
READS = ("State", "GetCron", "Next")


def measure(world: World) -> list[Line]:
    world.crtrd('clock = "internal"\n')
    world.arm({"name": "job", "command": ["true"], "overlap": "allow"},
              {"name": "tick", "schedule": ["0 0 1 1 *"], "command": ["true"]})
    with world.echo():
        found = json.loads(world.program("bus.py", "calls", str(ROUNDS)))
    return [*reads(found), trigger(found)]


def reads(found: dict[str, dict[str, list[float]]]) -> list[Line]:
    """One line for each way of asking; the slowest method is the one that is judged."""
    alone, together = found["alone"], found["together"]
    singly = {name: ratio(alone["echo"], alone[name]) for name in READS}
    abreast = {name: ratio(together[name], together["echo"]) for name in READS}
    lines = []
    for goal, ratios, told in (
        ("read methods one at a time ≥ 0.6x a bare jeepney echo", singly, figure(alone["echo"]).text(" ms")),
        ("64 in flight ≥ 0.6x", abreast, figure(together["echo"]).text(" calls/s")),
    ):
        slowest = min(ratios, key=lambda name: ratios[name].median)
        others = ", ".join(f"{name} {ratios[name].text('x')}" for name in READS if name != slowest)
        lines.append(at_least(goal, ratios[slowest], 0.6, f"x ({slowest})", more=f"{others}; echo {told}"))
    return lines


def trigger(found: dict[str, list[float]]) -> Line:
    alone: dict[str, list[float]] = found["alone"]  # type: ignore[assignment]
    return at_most("Trigger, durable before its answer: p50 ≤ 3x the echo", ratio(found["trigger"], alone["echo"]), 3,
                   "x", more=f"{figure(found['trigger']).text(' ms')}; one right after the other, among the runs that "
                             f"they start, {figure(found['busy']).text(' ms')}")
