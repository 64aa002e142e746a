"""C63: a hand-over (kill and start, re-execution, stop and start) swept over an instant in steps of 100 ms.

    python -m tests.faults.handover [TRIES]      300 tries by default, ten minutes

Afterwards every instant has one row and a command that began within the tolerance; none is early, none twice. A stop
may interrupt what has just begun, which its row says.
"""

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.checker import MARK, violations
from tests.faults.keeper import KeptInstance

PERIOD = 2
SECOND = 1_000_000
STEP = 0.1
TOLERANCE = 5.0
"""Seconds: a cold start of the daemon on a busy machine."""
WAYS = ("kill", "reexec", "stop")


def hand_over(crtrd, way, at):
    """End one life at the wall-clock instant `at` and begin the next one at once."""
    time.sleep(max(at - time.time(), 0))
    if way == "reexec":
        crtrd.ctl("daemon-reexec")
        return
    if way == "kill":
        crtrd.kill()
    else:
        assert crtrd.stop() == 0
    crtrd.start()


def sweep(folder, tries, first=0):
    """Every `tries` takes the next offset and the next way; what is wrong, and how often each status came."""
    file = folder / "marks"
    with KeptInstance(folder / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--every", f"{PERIOD}s", "--catch-up", "all", "--on-failure", "continue",
                  "--shell", MARK.format(file=file))
        anchor = crtrd.rows("SELECT anchor FROM crons")[0][0] / SECOND
        steps = round(PERIOD / STEP)
        for number in range(first, first + tries):
            turn = int((time.time() - anchor) / PERIOD) + 2
            hand_over(crtrd, WAYS[number % len(WAYS)], anchor + turn * PERIOD + (number % steps - steps / 2) * STEP)
        last = time.time()
        crtrd.wait_for(lambda: crtrd.rows("SELECT max(instant) FROM occurrences")[0][0] / SECOND > last)
        crtrd.ctl("pause", "mark")
        crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"))
        assert crtrd.stop() == 0
        found = violations(crtrd, "mark", file, PERIOD * SECOND)
        rows = crtrd.rows("SELECT o.status, o.reason, min(r.started_at) - o.instant FROM occurrences o LEFT JOIN runs r"
                          " ON r.occurrence_id = o.id AND r.started_at IS NOT NULL GROUP BY o.id")
    for status, reason, late in rows:
        if status != "success" and reason != "interrupted":
            found.append(f"an instant that did not run: {status} {reason}")
        if late is not None and not 0 <= late <= TOLERANCE * SECOND:
            found.append(f"began {late / SECOND} s after its instant")
    return found, Counter(f"{row[0]} {row[1]}".strip() for row in rows)


def main():
    tries = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    with tempfile.TemporaryDirectory(prefix="crtrd-handover-") as folder:
        found, statuses = sweep(Path(folder), tries)
    for text in found:
        print("VIOLATION", text)
    print(f"hand-overs {tries}, instants {statuses.total()} ({dict(statuses)}), violations {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
