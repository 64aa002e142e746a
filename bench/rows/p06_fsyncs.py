"""P6: how often the disk is waited for, counted by strace, and what that waiting costs."""

import re
import signal
import subprocess
import time
from collections.abc import Callable

from bench.burst import COUNT, SETTINGS, Crtrd, next_due, plain
from bench.core import ROUNDS, Line, at_least, at_most, figure, interleave, ratio, stamp
from bench.world import CLOCK, DEADLINE, JOB, World

NAME = "P6"
SYNCS = "fsync,fdatasync,sync_file_range,msync"


def measure(world: World) -> list[Line]:
    daemon = plain(world)
    daemon.begin()
    daemon()  # warm
    due = daemon.arm(10)
    burst = counted(world, lambda: daemon.watch(due))
    lone = []
    for number in range(ROUNDS):
        due = next_due(3)
        world.arm({"name": f"lone-{number}", "schedule": [f"at {stamp(due)}"], "command": [JOB, CLOCK]})
        lone.append(counted(world, lambda due=due: _await_end(world, due)))
    return [
        at_most(f"fsyncs of a burst of {COUNT} ≤ 100", figure([burst]), 100),
        at_most("fsyncs of a lone run ≤ 3", figure(lone), 3),
        durable_beside_not(world),
    ]


def _await_end(world: World, due: float) -> None:
    world.wait_for(lambda: time.time() > due + 1 and world.all_settled())


def counted(world: World, work: Callable[[], object]) -> int:
    """The synchronising calls of all of the daemon's threads while `work` is done."""
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={SYNCS}", "-p", str(world.main_pid())],
                              stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        time.sleep(0.5)  # until it is attached to every thread
        work()
    finally:
        tracer.send_signal(signal.SIGINT)
        text = tracer.communicate(timeout=DEADLINE)[1]
    return len(re.findall(r"(?:fsync|fdatasync|sync_file_range|msync)\(", text))


def durable_beside_not(world: World) -> Line:
    """By turns the same daemon with and without; each is started anew, with a small burst to warm it."""
    durable, loose = Crtrd(world, {}), Crtrd(world, {}, {"BENCH_SYNCHRONOUS": "off"})
    durable.program = {}

    def burst(daemon: Crtrd) -> float:
        daemon.begin(SETTINGS)
        return daemon().rate

    found = interleave(ROUNDS, {"full": lambda: burst(durable), "off": lambda: burst(loose)}, warm=0)
    return at_least("burst with the ledger durable ≥ 0.85x of synchronous=OFF", ratio(found["full"], found["off"]),
                    0.85, "x", more=f"{figure(found['full']).text()} and {figure(found['off']).text()} runs/s")
