"""`make soak`: a daemon killed a thousand times, at random and at every named point, and a look at what is left.

SOAK_KILLS=1000 how often, SOAK_MINUTES how long at most, SOAK_SEED the seed (printed). Prints kills, occurrences,
violations; exits with 1 where there are any. Figures of real runs are in docs/reliability.md.
"""

import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from crtrd.engine.crashpoints import POINTS
from tests.faults.checker import MARK, marks, output_violations, violations
from tests.faults.keeper import KeptInstance

SECOND = 1_000_000
HERE = [point for point in POINTS if point.split(".")[0] in {"commit", "spawn", "gate", "ended"}]
TALK = "".join(f"{number}\n" for number in range(1, 3001)).encode()
CRONS = {
    # name: (period in seconds, script after the mark, expected output of a run that ended by itself or None)
    **{f"tick{number}": (1, "echo tick", b"tick\n") for number in range(8)},
    "fail": (2, "echo failing; exit 3", b"failing\n"),
    "long": (3, "echo begin; sleep 2.5; echo end", b"begin\nend\n"),
    "talk": (2, "seq 1 1500; sleep 0.7; seq 1501 3000", TALK),
    "quiet": (1, "exit 0", b""),
}


def arm(crtrd, folder):
    for name, (period, script, _) in CRONS.items():
        crtrd.ctl("arm", name, "--every", f"{period}s", "--catch-up", "all", "--overlap", "allow", "--on-failure",
                  "continue", "--shell", f"{MARK.format(file=folder / name)}; {script}")


def kill_once(crtrd, dice):
    """One life and its end; the way it ended."""
    if dice.random() < 0.5:
        point = dice.choice(HERE)
        crtrd.start(crash_at=f"{point}:{dice.randint(1, 12)}", wait=False)
        deadline = time.monotonic() + 4
        while not crtrd.ended and time.monotonic() < deadline:
            time.sleep(0.02)
        if not crtrd.ended:
            point = "late"
    else:
        point = "random"
        crtrd.start(wait=dice.random() < 0.7)  # else in the middle of the start, too
        time.sleep(dice.uniform(0.05, 2.0))
    crtrd.kill()
    return point


def settle(crtrd):
    """A last life that lets everything end that can."""
    crtrd.start()
    for name in CRONS:
        crtrd.ctl("pause", name)
    crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"), 600)
    assert crtrd.stop() == 0


def look(crtrd, folder):
    found = []
    for name, (period, _, expected) in CRONS.items():
        found += [f"{name}: {text}" for text in violations(crtrd, name, folder / name, period * SECOND)]
        found += [f"{name}: {text}" for text in output_violations(crtrd, name, expected)]
    return found


def soak(kills, seed, folder, minutes=1e9):
    dice = random.Random(seed)
    ways = Counter()
    with KeptInstance(folder / "home") as crtrd:
        crtrd.start()
        arm(crtrd, folder)
        crtrd.kill()
        end = time.monotonic() + minutes * 60
        for number in range(kills):
            if time.monotonic() > end:
                break
            ways[kill_once(crtrd, dice)] += 1
            if number % 100 == 99:
                print(f"{number + 1} kills", flush=True)
        settle(crtrd)
        found = look(crtrd, folder)
        count = lambda sql: dict(crtrd.rows(sql))  # noqa: E731
        statuses = count("SELECT status, count(*) FROM occurrences GROUP BY status")
        results = count("SELECT result, count(*) FROM runs GROUP BY result")
        executed = sum(len(marks(folder / name)) for name in CRONS)
    print("ended", ", ".join(f"{way} {n}" for way, n in sorted(ways.items())))
    print("occurrences", ", ".join(f"{status} {n}" for status, n in sorted(statuses.items())))
    print("runs", ", ".join(f"{result} {n}" for result, n in sorted(results.items())), f"commands executed {executed}")
    for text in found[:50]:
        print("VIOLATION", text)
    print(f"kills {ways.total()}, occurrences {sum(statuses.values())}, violations {len(found)}")
    return found


def main():
    kills = int(os.environ.get("SOAK_KILLS", "1000"))
    seed = int(os.environ.get("SOAK_SEED", str(random.randrange(1 << 32))))
    print(f"soak: {kills} kills, SOAK_SEED={seed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="crtrd-soak-"))
    found = soak(kills, seed, folder, float(os.environ.get("SOAK_MINUTES", "1e9")))
    if found:
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
