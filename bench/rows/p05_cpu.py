"""P5: processor time of a run in the burst. The daemon's is its unit's: itself, its spawner and the runs."""

from bench.burst import bursts
from bench.core import Line, at_most, figure, ratio, short
from bench.peers.daemons import QUICK, SLOW, Cronie
from bench.world import World

NAME = "P5"


def measure(world: World) -> list[Line]:
    found = bursts(world)
    ours, base = ([each.cpu for each in found[name]] for name in ("crtrd", "floor"))
    used = {name: figure(each.cpu for each in some) for name, some in found.items()}
    peers = "; ".join(f"{peer.name} {short(used[peer.name].median)}" for peer in (*QUICK, *SLOW))
    cronie = used[Cronie.name].median
    return [
        at_most("CPU of a run in the burst ≤ 1.7x floor", ratio(ours, base), 1.7, "x",
                more=f"{figure(ours).text(' ms')}, floor {figure(base).text()}"),
        at_most("and ≤ cronie's", figure([used["crtrd"].median / cronie]), 1, "x",
                peers=f"ms: {peers} (of systemd's, all that the machine used)"),
    ]
