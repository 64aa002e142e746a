"""P1: one job at a time by a resident daemon, beside the floor and the peers that know fractions of a minute.

All of them are up together and each has its own moment of the same 0.4 s, again and again, so that a busy machine is
unfair to none. The two crons come along: in this time they see a few full minutes.
"""

import subprocess
import time
from collections.abc import Sequence

from bench.burst import SETTINGS, next_due
from bench.core import Line, at_most, figure, quantile, short, stamp
from bench.peers.daemons import APScheduler, Cronie, Cronstable, DebianCron, Peer, Timers, without
from bench.world import INSIDE, JOB, World

NAME = "P1"
SAMPLES, EVERY, WARM = 260, 0.4, 10
LEAD = 12.0
REPEATED = {Cronstable.name: [0.0, 1.0]}
"""Two instants stand for every second."""


def measure(world: World) -> list[Line]:
    late = lateness(world)
    floor, ours = late.pop("floor"), late.pop("crtrd")
    p50, p99 = quantile(ours, 0.5), quantile(ours, 0.99)
    peers = "; ".join(f"{name} {_told(values)}" for name, values in late.items())
    return [
        at_most("resident, one job: due→exec p50 ≤ 2x floor", figure([p50 / quantile(floor, 0.5)]), 2, "x",
                more=f"{short(p50)} ms, floor {short(quantile(floor, 0.5))} ({len(ours)} runs)", peers=peers),
        at_most("p99 ≤ 2x the floor's worst (there is no supercronic)", figure([p99 / max(floor)]), 2, "x",
                more=f"{short(p99)} ms, worst {short(max(ours))}; floor p99 {short(quantile(floor, 0.99))}, worst "
                     f"{short(max(floor))}", peers=without(world)),
    ]


def _told(values: Sequence[float]) -> str:
    if not values:
        return "no run"
    few = f" ({len(values)} runs)" if len(values) < SAMPLES / 10 else ""
    return f"{short(quantile(values, 0.5))} ms, worst {short(max(values))}{few}"


def lateness(world: World) -> dict[str, list[float]]:
    """Milliseconds from due to exec of each run of each."""
    lead = LEAD
    while (found := _lateness(world, lead)) is None:
        lead *= 2
    return found


def _lateness(world: World, lead: float) -> dict[str, list[float]] | None:
    """None where they were not all up when the first was due, `lead` seconds after the beginning."""
    world.crtrd(SETTINGS)
    begin = next_due(lead)
    moments = {name: [begin + EVERY * number + part for number in range(SAMPLES)]
               for name, part in (("floor", 0.05), ("crtrd", 0.15), ("APScheduler 3", 0.25), ("systemd timers", 0.35))}
    files = {name: f"/run/bench/lone-{number}" for number, name in enumerate((*moments, *(
        each.name for each in (Cronstable, DebianCron, Cronie))))}
    for path in files.values():
        world.path(path).unlink(missing_ok=True)
    peers: list[Peer] = [APScheduler(), Timers(), Cronstable(), DebianCron(), Cronie()]
    floor = _start_floor(world, moments["floor"], files["floor"])
    try:
        world.arm(*({"name": f"l{number}", "schedule": [f"at {stamp(due)}"], "command": [JOB, files["crtrd"]]}
                    for number, due in enumerate(moments["crtrd"])))
        for peer in peers:
            peer.start(world, moments.get(peer.name, REPEATED.get(peer.name, [0.0])), files[peer.name])
        if time.time() > begin:
            return None
        time.sleep(max(begin + SAMPLES * EVERY + 2 - time.time(), 0))
    finally:
        floor.kill()
        floor.communicate()
        for peer in peers:
            peer.stop(world)
    ran = {name: _read(world, path) for name, path in files.items()}
    return {name: (_late(ran[name], moments[name])[WARM:] if name in moments else _after_full(name, ran[name]))
            for name in files}


def _start_floor(world: World, dues: Sequence[float], path: str) -> subprocess.Popen[str]:
    instants = world.fresh("instants")
    world.machine.write(instants, "".join(f"{round(due * 1e6)}\n" for due in dues))
    ledger = f"{world.fresh('floor')}.sqlite3"
    return world.machine.popen(f"exec python3 {INSIDE}/floor.py {ledger} {JOB} {path} <{instants}")


def _read(world: World, path: str) -> list[int]:
    file = world.machine.path(path)
    return sorted(map(int, file.read_text().split())) if file.exists() else []


def _late(ran: Sequence[int], dues: Sequence[float]) -> list[float]:
    if len(ran) != len(dues):
        raise ValueError(f"{len(ran)} of {len(dues)} jobs ran")
    return [each / 1e6 - due * 1000 for each, due in zip(ran, dues, strict=True)]


def _after_full(name: str, ran: Sequence[int]) -> list[float]:
    """Past the full second of one that runs every second, the full minute of a cron."""
    unit = 1000 if name == Cronstable.name else 60_000
    return [each / 1e6 % unit for each in ran]
