"""P3: a thousand jobs due at one instant, beside the floor and every peer."""

from bench.burst import bursts
from bench.core import Line, at_least, at_most, figure, ratio
from bench.peers.daemons import QUICK, SLOW, without
from bench.world import World

NAME = "P3"


def measure(world: World) -> list[Line]:
    found = bursts(world)
    ours, base = found["crtrd"], found["floor"]
    rates = {name: figure(each.rate for each in some) for name, some in found.items()}
    names = [peer.name for peer in (*QUICK, *SLOW)]
    best = max(names, key=lambda name: rates[name].median)
    late = {name: figure(each.p99 for each in some) for name, some in found.items()}
    return [
        at_least("1000 due at once: ≥ 0.6x floor's rate",
                 ratio([each.rate for each in ours], [each.rate for each in base]), 0.6, "x",
                 more=f"{rates['crtrd'].text()} runs/s, floor {rates['floor'].text()}"),
        at_most("p99 due→exec ≤ 1.7x floor", ratio([each.p99 for each in ours], [each.p99 for each in base]), 1.7, "x",
                more=f"{late['crtrd'].text(' ms')}, floor {late['floor'].text()}"),
        at_least(f"ahead of every peer (the quickest here: {best})",
                 figure([rates["crtrd"].median / rates[best].median]), 1, "x",
                 peers=f"runs/s: {'; '.join(f'{name} {rates[name].text()}' for name in names)}. {without(world)}"),
    ]
