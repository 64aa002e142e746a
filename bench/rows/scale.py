"""Scale: a thousand, ten thousand, a hundred thousand crons; and forgetting a million rows."""

import json
import time

from bench.core import Line, at_most, figure, quantile, short, told
from bench.scale import SETTINGS, sizes
from bench.world import World

NAME = "scale"
OCCURRENCES = 340_000
"""With a run and a cell each: a million rows."""
LONGEST = 90


def measure(world: World) -> list[Line]:
    lines = []
    for size in sizes(world).values():
        if isinstance(size, str):
            lines.append(Line(size, "", float("inf")))
            continue
        lost = "" if size.answered else " (the call that asked for it lost the bus)"
        cold = size.cold.text(" ms") if size.cold else "unknown"
        lines.append(told(f"{size.crons} crons", (
            f"load {short(size.load)} us each{lost}; one by one by the bus {short(size.arm)} us; "
            f"pass {size.passes.text(' ms')}; list of 200 {size.pages.text(' ms')}, all {short(size.list)} s; "
            f"RSS {short(size.rss)} MB; due→exec {size.wake.text(' ms')}; cold call {cold}")))
    return [*lines, pruning(world)]


def pruning(world: World) -> Line:
    """Bus answers while a million rows go, beside those after they have gone."""
    fill(world)
    world.crtrd(SETTINGS, keep=True)
    before = rows(world)
    world.settle(9)
    busy: list[float] = []
    begun = time.monotonic()
    while rows(world) > 10 and time.monotonic() - begun < LONGEST:
        busy += json.loads(world.program("bus.py", "ask", "10"))
    took, gone = time.monotonic() - begun, before - rows(world)
    idle = json.loads(world.program("bus.py", "ask", "10"))
    return at_most("forgetting a million rows: the longest bus answer < 10x the longest idle one",
                   figure([max(busy) / max(idle)]), 10, "x",
                   more=f"{short(max(busy))} ms (p50 {short(quantile(busy, 0.5))}), idle {short(max(idle))} "
                        f"(p50 {short(quantile(idle, 0.5))}); {gone} of {before} rows in {short(took)} s")


def rows(world: World) -> int:
    return world.ledger("SELECT (SELECT count(*) FROM occurrences) + (SELECT count(*) FROM runs)"
                        " + (SELECT count(*) FROM cells)")


def fill(world: World) -> None:
    """One real run, copied OCCURRENCES times with ids of their own and a date long past."""
    world.crtrd(SETTINGS)
    world.arm({"name": "old", "command": ["true"]})
    for verb in ("run", "trigger"):
        world.ctl(verb, "old")
    world.wait_for(lambda: world.all_settled() and rows(world) >= 6, 20, "a run to copy")
    world.stop_crtrd(keep=True)
    world.program("fill.py", str(OCCURRENCES), timeout=300)
