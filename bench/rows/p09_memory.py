"""P9: memory and stillness of a resident daemon, beside the peers with as many jobs."""

from bench.core import Line, at_most, figure, short
from bench.here import Here
from bench.peers.daemons import APScheduler, Cronie, Cronstable, DebianCron, Peer, Timers, without
from bench.scale import first_and_last, status
from bench.world import World

NAME = "P9"
NEVER = 4_000_000_000.0
"""An instant far ahead."""
YEARLY = "0 0 1 1 *"


def measure(world: World) -> list[Line]:
    small, big = first_and_last(world)
    everything = int(world.program("everything.py")) / 1024
    world.stop_crtrd()
    some = () if isinstance(world, Here) else (DebianCron(), Cronie(), APScheduler(), Cronstable(), Timers())
    peers = "; ".join(f"{peer.name} {short(megabytes(world, peer))}" for peer in some)
    return [
        at_most("RSS with 1000 crons ≤ 1.3x a process that imports everything", figure([small.rss / everything]), 1.3,
                "x", more=f"{short(small.rss)} MB, that process {short(everything)}",
                peers=f"MB for 1000 jobs: {peers} (of PID 1). {without(world)}"),
        at_most("RSS growth to 100 000 crons ≤ 5 MB", figure([big.rss - small.rss]), 5, " MB",
                more=f"in a new life; right after loading them {short(big.rss_loaded - small.rss_loaded)}"),
        at_most("nothing due: context switches in 30 s", figure([small.switches]), 0,
                more=f"with 100 000 crons {big.switches}"),
    ]


def megabytes(world: World, peer: Peer) -> float:
    """Resident memory of a peer with 1000 jobs far ahead; of PID 1, what it grows by."""
    first = _resident([_init(world)])
    try:
        if isinstance(peer, DebianCron):
            peer.load(world, f"{YEARLY} root true\n" * 1000)
        elif isinstance(peer, Cronstable):
            peer.load(world, [YEARLY] * 1000)
        else:
            peer.start(world, [NEVER] * 1000)
        world.settle(12 if isinstance(peer, Cronstable) else 4)
        if isinstance(peer, Timers):
            return _resident([_init(world)]) - first
        return _resident(world.pids_of(peer.unit))
    finally:
        peer.stop(world)


def _init(world: World) -> int:
    return world.machine._container.init  # noqa: SLF001 - the harness has no other door to it


def _resident(pids: list[int]) -> float:
    return sum(int(status(pid, "VmRSS")) for pid in pids) / 1024
