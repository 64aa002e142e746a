"""P2: the daemon has left and is woken by its own timer for each run, beside a bare systemd timer, turn by turn."""

import time

from bench.burst import next_due
from bench.core import Line, at_most, figure, quantile, short, stamp
from bench.peers.daemons import Timers
from bench.world import JOB, World

NAME = "P2"
SETTINGS = 'idle_grace = "100ms"\n'
SAMPLES, EVERY, WARM = 25, 3.0, 3
LONGEST = 12.0
"""Seconds between two runs, tried at most."""


def measure(world: World) -> list[Line]:
    every = EVERY
    while True:
        cold, warm, lives = by_turns(world, every)
        if lives >= SAMPLES - WARM:
            break
        if every >= LONGEST:
            raise ValueError(f"only {lives} of {SAMPLES} runs found no daemon")
        every *= 2  # where a start takes long, it does not pay to leave in between
    p99, base = quantile(cold, 0.99), quantile(warm, 0.5)
    return [at_most("cold: due→exec p99 below a bare systemd timer's p50", figure([p99 / base]), 1, "x",
                    more=f"{short(p99)} ms (p50 {short(quantile(cold, 0.5))}), {lives} lives",
                    peers=f"bare timer at 1 us accuracy: p50 {short(base)} ms, worst {short(max(warm))}")]


def by_turns(world: World, every: float) -> tuple[list[float], list[float], int]:
    """Milliseconds of lateness of the daemon and of the bare timer, and the number of the daemon's lives."""
    world.crtrd(SETTINGS)
    begin = next_due(5)
    ours = [begin + every * number for number in range(SAMPLES)]
    bare = [each + every / 2 for each in ours]
    timer, files = Timers(), ("/run/bench/cold", "/run/bench/bare")
    for path in files:
        world.machine.path(path).unlink(missing_ok=True)
    world.arm(*({"name": f"c{number}", "schedule": [f"at {stamp(due)}"], "command": [JOB, files[0]]}
                for number, due in enumerate(ours)))
    try:
        timer.start(world, bare, files[1])
        time.sleep(max(bare[-1] + 2 - time.time(), 0))
        world.wait_for(world.all_settled, what="the last run", pause=0.5)
    finally:
        timer.stop(world)
    cold, warm = (_late(world, path, dues)[WARM:] for path, dues in zip(files, (ours, bare), strict=True))
    return cold, warm, _lives_since(world, begin)


def _late(world: World, path: str, dues: list[float]) -> list[float]:
    ran = sorted(map(int, world.machine.read(path).split()))
    if len(ran) != len(dues):
        raise ValueError(f"{len(ran)} of {len(dues)} jobs ran")
    return [each / 1e6 - due * 1000 for each, due in zip(ran, dues, strict=True)]


def _lives_since(world: World, begin: float) -> int:
    entries = world.machine.journal("-u", "crtrd.service", f"--since=@{int(begin - 2)}")
    return sum(entry.get("CRTRD_EVENT") == "daemon.started" for entry in entries)
