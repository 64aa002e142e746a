"""P5: processor time of a run in the burst. The daemon's is its unit's: itself, its spawner and the runs."""

from bench.burst import floor, plain
from bench.core import ROUNDS, Line, at_most, figure, interleave, ratio
from bench.world import World

NAME = "P5"


def measure(world: World) -> list[Line]:
    daemon = plain(world)
    daemon.begin()
    found = interleave(ROUNDS, {"floor": lambda: floor(world), "crtrd": daemon})
    ours, base = ([each.cpu for each in found[name]] for name in ("crtrd", "floor"))
    return [at_most("CPU of a run in the burst ≤ 1.7x floor", ratio(ours, base), 1.7, "x",
                    more=f"{figure(ours).text(' ms')}, floor {figure(base).text()}")]
