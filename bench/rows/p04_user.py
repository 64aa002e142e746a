"""P4: the burst as another user, by a daemon of its ordinary size and by one that is 52 MB bigger."""

from bench.burst import SETTINGS, Crtrd, floor
from bench.core import ROUNDS, Line, at_least, figure, interleave, ratio, short
from bench.scale import status
from bench.world import World

NAME = "P4"
BALLAST = "52"
"""From 21 to 73 MB, the two sizes that are compared."""


def measure(world: World) -> list[Line]:
    small = Crtrd(world, {"user": "nobody", "cwd": "/"}, {})
    big = Crtrd(world, {"user": "nobody", "cwd": "/"}, {"BENCH_BALLAST": BALLAST})

    sizes: dict[int, float] = {}

    def burst(daemon: Crtrd) -> float:
        daemon.begin(SETTINGS)
        rate = daemon().rate
        sizes[id(daemon)] = int(status(world.main_pid(), "VmRSS")) / 1024
        return rate

    found = interleave(ROUNDS, {"floor": lambda: floor(world).rate, "small": lambda: burst(small),
                                "big": lambda: burst(big)}, warm=0)
    rates = {name: figure(values).text() for name, values in found.items()}
    return [
        at_least("burst with user=: ≥ 0.45x floor's rate (which changes no user)",
                 ratio(found["small"], found["floor"]), 0.45, "x",
                 more=f"{rates['small']} runs/s, floor {rates['floor']}"),
        at_least(f"the same rate in a daemon {BALLAST} MB bigger: ≥ 0.9x", ratio(found["big"], found["small"]), 0.9,
                 "x", more=f"{rates['big']} runs/s; {short(sizes[id(big)])} and {short(sizes[id(small)])} MB resident"),
    ]
