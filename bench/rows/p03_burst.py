"""P3: a thousand jobs due at one instant."""

from bench.burst import Burst, floor, plain
from bench.core import ROUNDS, Line, at_least, at_most, figure, interleave, ratio
from bench.world import World

NAME = "P3"


def measure(world: World) -> list[Line]:
    daemon = plain(world)
    daemon.begin()
    found = interleave(ROUNDS, {"floor": lambda: floor(world), "crtrd": daemon})
    return lines(found)


def lines(found: dict[str, list[Burst]]) -> list[Line]:
    ours, base = found["crtrd"], found["floor"]
    rate, late = figure(each.rate for each in ours), figure(each.p99 for each in ours)
    base_rate, base_late = figure(each.rate for each in base), figure(each.p99 for each in base)
    return [
        at_least("1000 due at once: ≥ 0.6x floor's rate", ratio([each.rate for each in ours],
                 [each.rate for each in base]), 0.6, "x", more=f"{rate.text()} runs/s, floor {base_rate.text()}"),
        at_most("p99 due→exec ≤ 1.7x floor", ratio([each.p99 for each in ours], [each.p99 for each in base]), 1.7, "x",
                more=f"{late.text(' ms')}, floor {base_late.text()}"),
    ]
