"""P2: the daemon has left and is woken by its own timer for each run, beside a bare systemd timer, turn by turn."""

import time

from bench.burst import next_due
from bench.core import Line, at_most, figure, quantile, short, stamp
from bench.peers.daemons import Timers
from bench.world import JOB, World

NAME = "P2"
SETTINGS = 'idle_grace = "100ms"\n'
SAMPLES, EVERY, WARM = 25, 3.0, 3


def measure(world: World) -> list[Line]:
    world.crtrd(SETTINGS)
    begin = next_due(5)
    ours = [begin + EVERY * number for number in range(SAMPLES)]
    bare = [each + EVERY / 2 for each in ours]
    timer, files = Timers(), ("/run/bench/cold", "/run/bench/bare")
    for path in files:
        world.machine.path(path).unlink(missing_ok=True)
    world.arm(*({"name": f"c{number}", "schedule": [f"at {stamp(due)}"], "command": [JOB, files[0]]}
                for number, due in enumerate(ours)))
    try:
        timer.start(world, bare, files[1])
        time.sleep(max(bare[-1] + 2 - time.time(), 0))
    finally:
        timer.stop(world)
    cold, warm = (_late(world, path, dues)[WARM:] for path, dues in zip(files, (ours, bare), strict=True))
    lives = _lives_since(world, begin)
    if lives < SAMPLES - WARM:
        raise ValueError(f"only {lives} of {SAMPLES} runs found no daemon")
    p99, base = quantile(cold, 0.99), quantile(warm, 0.5)
    return [at_most("cold: due→exec p99 below a bare systemd timer's p50", figure([p99 / base]), 1, "x",
                    more=f"{short(p99)} ms (p50 {short(quantile(cold, 0.5))}), {lives} lives",
                    peers=f"bare timer at 1 us accuracy: p50 {short(base)} ms, worst {short(max(warm))}")]


def _late(world: World, path: str, dues: list[float]) -> list[float]:
    ran = sorted(map(int, world.machine.read(path).split()))
    if len(ran) != len(dues):
        raise ValueError(f"{len(ran)} of {len(dues)} jobs ran")
    return [each / 1e6 - due * 1000 for each, due in zip(ran, dues, strict=True)]


def _lives_since(world: World, begin: float) -> int:
    entries = world.machine.journal("-u", "crtrd.service", f"--since=@{int(begin - 2)}")
    return sum(entry.get("CRTRD_EVENT") == "daemon.started" for entry in entries)
