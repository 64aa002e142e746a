"""Runs in the machine: the daemon's pass (decide what is due, commit) over a copy of its ledger, nothing due.

    passes.py LEDGER N          prints the milliseconds of each as JSON
"""

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path

from crtrd.core.events import WokeUp
from crtrd.core.facts import Limits
from crtrd.engine.engine import decide
from crtrd.ledger.store import Store

BOOT = "0" * 32


def perform(call):
    """In the ledger's thread, which nobody would miss if it ended by a fault."""
    try:
        call()
    except BaseException:  # noqa: BLE001 - told, and the end
        traceback.print_exc()
        os._exit(1)


def main():
    store = Store(Path(sys.argv[1]), owner="1" * 32, boot_id=BOOT, post=perform, lease_end=lambda: 1 << 60)
    store.open()
    limits, took = Limits(BOOT, 32, True, ()), []  # noqa: FBT003 - as the daemon itself writes it
    for _ in range(int(sys.argv[2]) + 5):
        done, now = threading.Event(), time.time_ns() // 1000
        begun = time.monotonic()
        store.submit(lambda session, now=now: decide((WokeUp(now),), session, limits, now, now),
                     lambda _, done=done: done.set())
        done.wait(60)
        took.append((time.monotonic() - begun) * 1000)
    store.close()
    print(json.dumps(took[5:]))


if __name__ == "__main__":
    main()
