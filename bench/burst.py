"""A burst: COUNT jobs that are due at one instant, by the floor and by the daemon. What one burst gave is a `Burst`.

The daemon is resident and may run all of them at once, as the floor may. Its rate counts until the last run is settled,
the floor's too; a peer that records nothing is counted until its last job ran.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bench.core import ROUNDS, quantile, stamp
from bench.peers.daemons import QUICK, SLOW, Peer
from bench.world import CLOCK, JOB, SERVICE, World

COUNT = 1000
LEAD = 3.0
"""Seconds in which all must be armed; more, once arming has been seen to need more."""
FLOOR_LEAD = 2.0
SETTINGS = 'clock = "internal"\nmax_runs_at_once = 1000\n'
QUIET = 0.5
PAUSE = 0.5
"""Seconds between two looks into the ledger: a look costs more than a run does."""
PEER_ROUNDS = int(os.environ.get("BENCH_PEER_ROUNDS", "3"))
PEER_TRIES, PEER_SECONDS = 3, 240.0
SLOW_ROUNDS, SLOW_LEAD = 2, 8.0
"""Of the peers that know only minutes, and the seconds before a full one within which they must be begun."""


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
    """One burst of the floor, which is started for it and has its rows before they are due; else it is done again."""
    lead: float = world.kept.setdefault("floor lead", FLOOR_LEAD)
    while True:
        world.forget_clock()
        due = next_due(lead)
        lines = f"{due * 1_000_000}\n" * COUNT
        said = json.loads(world.program("floor.py", f"{world.fresh('floor')}.sqlite3", JOB, CLOCK, stdin=lines))
        clock = world.await_jobs(COUNT)
        if said["ready"] / 1e6 < due - QUIET / 2:
            return burst_of(due, clock, end=said["settled"] / 1e6, cpu=said["cpu"])
        world.kept["floor lead"] = lead = 2 * lead


@dataclass(slots=True)
class Crtrd:
    """Bursts of the daemon; each is a thousand one-shots, armed by the bus. Call `begin` first."""

    world: World
    more: Mapping[str, object]
    program: Mapping[str, str] | None = None
    serial: int = 0
    lead: float = 0.0
    """Seconds that arming is given."""

    def begin(self, settings: str = SETTINGS) -> None:
        self.world.crtrd(settings, program=self.program)

    def __call__(self) -> Burst:
        return self.watch(self.arm())

    def arm(self, lead: float = LEAD) -> float:
        """Arm them all; the instant they are due, which lies `lead` seconds ahead when arming begins, or more.

        What was not armed in time is done again, with twice the time.
        """
        self.lead = max(self.lead, lead)
        while True:
            due, begun = next_due(self.lead), time.time()
            self.serial += 1
            self.world.forget_clock()
            each = {"schedule": [f"at {stamp(due)}"], "command": [JOB, CLOCK], **self.more}
            self.world.arm(*({"name": f"b{self.serial}-{number:04}", **each} for number in range(COUNT)))
            if time.time() < due - (due - begun) / 4:
                return due
            self.lead *= 2
            self.world.await_jobs(COUNT)
            self.world.wait_for(self.world.all_settled, what="every run settled", pause=PAUSE)

    def watch(self, due: float) -> Burst:
        """What becomes of the thousand that are due then."""
        _await_instant(due - QUIET / 2)
        before = self.world.cpu(SERVICE)
        clock = self.world.await_jobs(COUNT)
        self.world.wait_for(self.world.all_settled, what="every run settled", pause=PAUSE)
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
    """One burst of a peer, which is started for it; again with twice the time where it came up too late."""
    lead = peer.lead
    for _ in range(PEER_TRIES - 1):
        try:
            return _peer_burst(world, peer, lead)
        except TimeoutError:
            lead *= 2
    return _peer_burst(world, peer, lead)


def _peer_burst(world: World, peer: Peer, lead: float) -> Burst:
    world.forget_clock()
    left = 60 - time.time() % 60
    if peer.minutes and left < lead + 2:  # it might come up in this minute's last moment, and run at once
        time.sleep(left + 0.1)
    due = int(time.time() // 60 + 1) * 60 if peer.minutes else next_due(lead)
    try:
        peer.start(world, [due] * COUNT)
        _await_instant(due - QUIET / 2)
        before = peer.cpu(world)
        clock = world.await_jobs(COUNT, PEER_SECONDS)
        time.sleep(QUIET)
        return burst_of(due, clock[:COUNT], cpu=(peer.cpu(world) - before) / 1e6)
    finally:
        peer.stop(world)


@dataclass(slots=True)
class _Rounds:
    """Bursts of everyone by turns. Before a peer that knows only minutes, others have theirs as long as time allows."""

    world: World
    found: dict[str, list[Burst]] = field(default_factory=dict)
    longest: float = 30.0
    """Seconds that a burst with all that belongs to it has taken at most, or is believed to take."""

    def run(self, daemon: Crtrd) -> None:
        turns = {"floor": lambda: floor(self.world), "crtrd": daemon}
        quick = [(name, turns[name]) for number in range(ROUNDS) for name in sorted(turns, reverse=number % 2 == 1)]
        for number in range(PEER_ROUNDS):
            after = (number + 1) * (len(turns) + len(QUICK)) - len(QUICK)
            quick[after:after] = [self._turn(peer()) for peer in QUICK]
        slow = [self._turn(peer()) for _ in range(min(PEER_ROUNDS, SLOW_ROUNDS)) for peer in SLOW]
        while quick or slow:
            left = 60 - time.time() % 60 - SLOW_LEAD
            if slow and (not quick or 0 < left < self.longest):
                self._take(*slow.pop(0))
            else:
                self._take(*quick.pop(0))

    def _turn(self, peer: Peer) -> tuple[str, Callable[[], Burst]]:
        return peer.name, lambda: peer_burst(self.world, peer)

    def _take(self, name: str, burst: Callable[[], Burst]) -> None:
        begun = time.monotonic()
        self.found.setdefault(name, []).append(burst())
        if name not in {peer.name for peer in SLOW}:
            self.longest = max(self.longest, time.monotonic() - begun)


def bursts(world: World) -> dict[str, list[Burst]]:
    """Of everyone; of the peers not in every round."""
    if "bursts" not in world.kept:
        daemon, rounds = plain(world), _Rounds(world)
        daemon.begin()
        floor(world), daemon()  # warm
        rounds.run(daemon)
        world.kept["bursts"] = rounds.found
    answer: dict[str, list[Burst]] = world.kept["bursts"]
    return answer
