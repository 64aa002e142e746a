"""A burst: COUNT jobs that are due at one instant, by the floor and by the daemon. What one burst gave is a `Burst`.

The daemon is resident and may run all of them at once, as the floor may. Its rate counts until the last run is settled,
the floor's too; a peer that records nothing is counted until its last job ran.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.core import ROUNDS, quantile, stamp
from bench.peers.daemons import QUICK, SLOW, Peer
from bench.world import CLOCK, JOB, SERVICE, World

COUNT = 1000
LEAD = 4.0
"""Seconds in which all must be armed."""
SETTINGS = 'clock = "internal"\nmax_runs_at_once = 1000\n'
QUIET = 0.5
PEER_ROUNDS = int(os.environ.get("BENCH_PEER_ROUNDS", "3"))


@dataclass(frozen=True, slots=True)
class Burst:
    rate: float
    """Runs in a second, from the due instant to the end of the last."""
    p50: float
    p99: float
    """Milliseconds from due to the job's own clock."""
    cpu: float
    """Milliseconds of processor for each run; 0 where it was not counted."""


def burst_of(due: float, clock: Sequence[int], *, end: float | None = None, cpu: float = 0.0) -> Burst:
    """`due` and `end` in seconds since the epoch, `clock` in nanoseconds, `cpu` in seconds for all."""
    late = [each / 1e6 - due * 1000 for each in clock]
    if min(late) < 0:
        raise ValueError(f"a job ran {-min(late):.1f} ms before it was due")
    last = max(clock) / 1e9 if end is None else end
    return Burst(len(clock) / (last - due), quantile(late, 0.5), quantile(late, 0.99), cpu * 1000 / len(clock))


def next_due(lead: float = LEAD) -> int:
    """A whole second that leaves `lead` seconds."""
    return int(time.time() + lead) + 1


def floor(world: World) -> Burst:
    """One burst of the floor, which is started for it and has its rows long before they are due."""
    world.forget_clock()
    due = next_due(2)
    lines = f"{due * 1_000_000}\n" * COUNT
    said = json.loads(world.program("floor.py", f"{world.fresh('floor')}.sqlite3", JOB, CLOCK, stdin=lines))
    return burst_of(due, world.await_jobs(COUNT), end=said["settled"] / 1e6, cpu=said["cpu"])


@dataclass(slots=True)
class Crtrd:
    """Bursts of the daemon; each is a thousand one-shots, armed by the bus. Call `begin` first."""

    world: World
    more: Mapping[str, object]
    program: Mapping[str, str] | None = None
    serial: int = 0

    def begin(self, settings: str = SETTINGS) -> None:
        self.world.crtrd(settings, program=self.program)

    def __call__(self) -> Burst:
        return self.watch(self.arm())

    def arm(self, lead: float = LEAD) -> float:
        """Arm them all; the instant they are due, which lies `lead` seconds ahead when arming begins."""
        self.serial += 1
        self.world.forget_clock()
        due = next_due(lead)
        each = {"schedule": [f"at {stamp(due)}"], "command": [JOB, CLOCK], **self.more}
        self.world.arm(*({"name": f"b{self.serial}-{number:04}", **each} for number in range(COUNT)))
        return due

    def watch(self, due: float) -> Burst:
        """What becomes of the thousand that are due then."""
        _await_instant(due - QUIET / 2)
        before = self.world.cpu(SERVICE)
        clock = self.world.await_jobs(COUNT)
        self.world.wait_for(self.world.all_settled, what="every run settled")
        time.sleep(QUIET)
        cpu = self.world.cpu(SERVICE) - before
        settled = self.world.ledger("SELECT max(settled_at) FROM occurrences")
        return burst_of(due, clock, end=settled / 1e6, cpu=cpu / 1e6)


def _await_instant(instant: float) -> None:
    left = instant - time.time()
    if left < 0:
        raise TimeoutError(f"arming took {-left:.1f} s longer than there was")
    time.sleep(left)


def plain(world: World) -> Crtrd:
    return Crtrd(world, {})



def peer_burst(world: World, peer: Peer) -> Burst:
    """One burst of a peer, which is started for it."""
    world.forget_clock()
    left = 60 - time.time() % 60
    if peer.minutes and left < peer.lead + 2:  # it might come up in this minute's last moment, and run at once
        time.sleep(left + 0.1)
    due = int(time.time() // 60 + 1) * 60 if peer.minutes else next_due(peer.lead)
    try:
        peer.start(world, [due] * COUNT)
        _await_instant(due - QUIET / 2)
        before = peer.cpu(world)
        clock = world.await_jobs(COUNT, 60)
        time.sleep(QUIET)
        return burst_of(due, clock[:COUNT], cpu=(peer.cpu(world) - before) / 1e6)
    finally:
        peer.stop(world)


def bursts(world: World) -> dict[str, list[Burst]]:
    """Of everyone, by turns; the peers, for whom one has to wait longer, in some of the rounds only."""
    if "bursts" not in world.kept:
        daemon, peers = plain(world), [peer() for peer in (*QUICK, *SLOW)]
        daemon.begin()
        found: dict[str, list[Burst]] = {name: [] for name in ("floor", "crtrd", *(peer.name for peer in peers))}
        floor(world), daemon()  # warm
        for number in range(ROUNDS):
            pair = [("floor", lambda: floor(world)), ("crtrd", daemon)]
            for name, burst in pair if number % 2 else reversed(pair):
                found[name].append(burst())
            for peer in peers if number < PEER_ROUNDS else []:
                found[peer.name].append(peer_burst(world, peer))
        world.kept["bursts"] = found
    answer: dict[str, list[Burst]] = world.kept["bursts"]
    return answer
