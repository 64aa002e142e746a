"""Signals to a run's processes, each only after a proof that they are the run's (I6).

The proof is the leader's pidfd: while the leader is not reaped its number cannot be given to anyone else, neither as
pid nor as process group. After that, no signal goes to the number any more.
"""

import os
import signal

from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.child import Child, Phase


def is_proven(child: Child) -> bool:
    """Whether the leader exists, running or as a zombie that nobody has reaped yet (pidfd_send_signal(2))."""
    if child.pidfd < 0 or child.phase not in {Phase.HELD, Phase.RELEASED}:
        return False
    try:
        signal.pidfd_send_signal(child.pidfd, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def deliver(child: Child, signum: int) -> bool:
    """`signum` to the whole process group; False when there is no proof or nobody to take it."""
    if not is_proven(child):
        return False
    try:
        os.killpg(child.pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def terminate(child: Child) -> None:
    """Ask the group to end, and wake it if it is stopped, since a stopped process takes no SIGTERM."""
    deliver(child, signal.SIGTERM)
    deliver(child, signal.SIGCONT)


def kill(child: Child, cgroups: Cgroups | None) -> None:
    """The last step: the cgroup with all that is in it, and the group (a leader may have moved itself elsewhere)."""
    child.killed = True
    if cgroups is not None and child.cgroup:
        cgroups.kill(child.cgroup)
    deliver(child, signal.SIGKILL)
