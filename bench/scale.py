"""The daemon with a thousand, ten thousand and a hundred thousand crons from files: what each size costs.

P9, P10 and the scale row look at the same three; measured once for all of them.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from bench.burst import next_due
from bench.core import Figure, figure, stamp
from bench.here import Here
from bench.world import CLOCK, JOB, LEDGER, SERVICE, World

SIZES = (1_000, 10_000, 100_000)
SETTINGS = 'clock = "internal"\n'
PASSES, LONE, COLD, ARMED, STILL = 40, 10, 5, 200, 30


@dataclass(frozen=True, slots=True)
class Size:
    """Milliseconds, but where it says otherwise."""

    crons: int
    load: float
    """Microseconds for each cron: from Reload() to its answer."""
    arm: float
    """Microseconds for each of some more that are armed by the bus, 64 calls in flight."""
    rss_loaded: float
    """MB, right after the load."""
    rss: float
    """MB, in a new life on that ledger."""
    passes: Figure
    pages: Figure
    list: float
    """Seconds for all pages of 200."""
    wake: Figure
    """Due to exec of a lone run."""
    cold: Figure | None
    """The daemon is not running: a call by the socket until its answer."""
    answered: bool
    """Whether the call that had them loaded got its answer; without it, `load` is until the ledger has them."""
    switches: int
    """Context switches of all threads and of the spawner in 30 s with nothing due."""


def sizes(world: World) -> dict[int, Size | str]:
    """Of each size what was measured, or why it could not be."""
    if "scale" not in world.kept:
        world.kept["scale"] = {count: _tried(world, count) for count in SIZES}
    found: dict[int, Size | str] = world.kept["scale"]
    return found


def first_and_last(world: World) -> tuple[Size, Size]:
    """The smallest and the largest. Raises ValueError where one of them could not be measured."""
    found = [sizes(world)[count] for count in (SIZES[0], SIZES[-1])]
    small, big = found
    if isinstance(small, str) or isinstance(big, str):
        raise ValueError("; ".join(each for each in found if isinstance(each, str)))
    return small, big


def _tried(world: World, count: int) -> Size | str:
    try:
        return one_size(world, count)
    except (AssertionError, ValueError, TimeoutError, LookupError) as error:
        return f"{count} crons: {str(error).strip().splitlines()[-1]}"


def one_size(world: World, count: int) -> Size:
    world.crtrd(SETTINGS)
    world.program("cronfiles.py", str(count), timeout=300)
    load, answered = loaded(world, count)
    rss_loaded = rss(world)
    more = [{"name": f"m{number}", "schedule": ["0 0 1 1 *"], "command": ["true"]} for number in range(ARMED)]
    world.crtrd(SETTINGS, keep=True)
    arm = world.arm(*more)
    world.program("call.py")
    time.sleep(13)  # the first look for what may be forgotten comes after ten seconds
    switches = switched(world, STILL)
    size = rss(world)
    said = json.loads(world.program("bus.py", "list", "200", timeout=300))
    wake = lone_runs(world)
    copy = world.fresh("ledger")
    world.run(["sqlite3", LEDGER, f".backup {world.place(copy)}"])
    passes = json.loads(world.program("passes.py", copy, str(PASSES)))
    return Size(count, load * 1e6 / count, arm * 1e6 / ARMED, rss_loaded, size, figure(passes), figure(said["pages"]),
                sum(said["pages"]) / 1000, wake, cold_calls(world), answered, switches)


def loaded(world: World, count: int) -> tuple[float, bool]:
    """Seconds from Reload() to its answer, or to the last cron's being in the ledger where none comes."""
    begun = time.monotonic()
    try:
        return float(world.program("bus.py", "reload", timeout=620)), True
    except AssertionError:
        world.wait_for(lambda: world.ledger("SELECT count(*) FROM crons") >= count, what=f"{count} crons in the ledger")
        return time.monotonic() - begun, False


def rss(world: World) -> float:
    return int(status(world.main_pid(), "VmRSS")) / 1024


def status(pid: int, key: str) -> str:
    return Path(f"/proc/{pid}/status").read_text().split(f"{key}:")[1].split()[0]


def switched(world: World, seconds: float) -> int:
    def count() -> int:
        tasks = (task for pid in world.pids_of(SERVICE) for task in Path(f"/proc/{pid}/task").iterdir())
        lines = (line for task in tasks for line in (task / "status").read_text().splitlines())
        return sum(int(line.split()[1]) for line in lines if "voluntary_ctxt_switches:" in line)

    before = count()
    time.sleep(seconds)
    return count() - before


def lone_runs(world: World) -> Figure:
    world.forget_clock()
    begin = next_due(3)
    dues = [begin + number * 0.5 for number in range(LONE)]
    world.arm(*({"name": f"w{begin}-{number}", "schedule": [f"at {stamp(due)}"], "command": [JOB, CLOCK]}
                for number, due in enumerate(dues)))
    ran = world.await_jobs(LONE)
    return figure(each / 1e6 - due * 1000 for each, due in zip(ran, dues, strict=True))


def cold_calls(world: World) -> Figure | None:
    if isinstance(world, Here):
        return None
    took = []
    for _ in range(COLD):
        world.stop_service()
        took.append(float(world.program("call.py", "timed")))
    return figure(took)
