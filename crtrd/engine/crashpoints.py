"""Named points at which a test may have the daemon killed: CRTRD_CRASH_AT=<name>[:<n>] kills at the n-th pass.

Without that variable `reach` does nothing. The names are listed so that the fault tests can go through all of them.
"""

import os
import signal
from collections.abc import Mapping

POINTS = (
    "commit.before", "commit.after", "spawn.before", "spawn.after", "gate.before", "gate.after", "ended.before",
    "answer.before", "answer.after", "leave.before", "leave.armed", "leave.released", "deliver.before", "deliver.taken",
)

_armed: dict[str, int] = {}


def arm(environ: Mapping[str, str]) -> None:
    """Read CRTRD_CRASH_AT once, at start."""
    name, _, count = environ.get("CRTRD_CRASH_AT", "").partition(":")
    if name in POINTS:
        _armed[name] = int(count) if count.isdigit() else 1


def reach(name: str) -> None:
    """Die here, as by power loss, when this pass of this point is armed."""
    if name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
