"""Who of a run outlives its leader: find, name, kill, wait until they are dead.

With a cgroup the kernel knows them all. Without one there is the process group and, at a stop, the tree below the
leader; whoever left both (setsid, twice forked) can only be recognised by the run id in its environment, which is
enough to name it and not enough to kill it (an `at` job inherits it as well).
"""

import os
import signal
from collections.abc import Callable, Iterable

from crtrd.core.occurrence import Identity
from crtrd.loop.reactor import IN, Reactor, Timer
from crtrd.supervision.exit_status import has_ended
from crtrd.supervision.identity import DEAD_STATES, Stat, read_stat

PATIENCE = 2_000_000
"""Microseconds until a killed survivor that does not die (state D) is no longer waited for."""
NAMED = 64
"""How many are named, and waited for, at most; the others are counted."""


def names(stats: Iterable[Stat], remark: str = "") -> list[str]:
    """ "pid (name)" for each, capped."""
    told = [f"{stat.pid} ({stat.name}){remark}" for stat in stats]
    more = len(told) - NAMED
    return told if more <= 0 else [*told[:NAMED], f"and {more} more"]


def look(pids: Iterable[int]) -> list[Stat]:
    """Those of `pids` that are alive now."""
    found = []
    for pid in pids:
        try:
            stat = read_stat(pid)
        except (OSError, ValueError, IndexError):
            continue
        if stat.state not in DEAD_STATES:
            found.append(stat)
    return found


def group_may_live(leader: int) -> bool:
    """Whether the group of a reaped leader still has members. Signal 0 delivers nothing (kill(2))."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def in_group(leader: Identity) -> list[Stat]:
    """Members of the dead leader's group. While one lives the number is taken, so a process of that pid means reuse."""
    everyone = look(_pids())
    if any(stat.pid == leader.pid for stat in everyone):
        return []
    return [
        stat for stat in everyone
        if stat.group == leader.pid and stat.session == leader.pid and stat.start_ticks >= leader.start_ticks
    ]  # fmt: skip


def still_there(tree: Iterable[Stat]) -> list[Stat]:
    """Those of an earlier look that are the same processes still."""
    before = {stat.pid: stat.start_ticks for stat in tree}
    return [stat for stat in look(before) if stat.start_ticks == before[stat.pid]]


def marked(run_id: str) -> list[Stat]:
    """Processes whose environment names the run (as far as we may read it)."""
    mark = b"CRTR_RUN_ID=" + run_id.encode("ascii", "replace")
    return look(pid for pid in _pids() if mark in _environ(pid).split(b"\0"))


def kill_each(stats: Iterable[Stat]) -> list[int]:
    """SIGKILL to each that still is the process that was seen; the pidfds of those, to be closed by the caller."""
    held = []
    for stat in stats:
        pidfd = _hold(stat)
        if pidfd < 0:
            continue
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except OSError:
            os.close(pidfd)
            continue
        held.append(pidfd)
    return held


def hold_each(stats: Iterable[Stat]) -> list[int]:
    """pidfds of those that still are what was seen, to wait for their end."""
    return [pidfd for pidfd in map(_hold, stats) if pidfd >= 0]


class Clearing:
    """Calls `done` when all of `pidfds` have ended, or after PATIENCE. Owns and closes them."""

    def __init__(self, reactor: Reactor, pidfds: list[int], done: Callable[[], None]) -> None:
        self._reactor, self._done = reactor, done
        self._pidfds = set(pidfds)
        for pidfd in pidfds:
            reactor.watch(pidfd, IN, lambda _, pidfd=pidfd: self._ended(pidfd))  # type: ignore[misc]
        self._timer: Timer = reactor.later(PATIENCE if pidfds else 0, self._finish)

    def _ended(self, pidfd: int) -> None:
        if not has_ended(pidfd):
            return
        self._reactor.unwatch(pidfd)
        os.close(pidfd)
        self._pidfds.discard(pidfd)
        if not self._pidfds:
            self._finish()

    def _finish(self) -> None:
        self.close()
        self._done()

    def close(self) -> None:
        self._timer.cancel()
        for pidfd in self._pidfds:
            self._reactor.unwatch(pidfd)
            os.close(pidfd)
        self._pidfds.clear()


def _hold(stat: Stat) -> int:
    """A pidfd of exactly that process, or -1. Opened first, compared after: what it holds cannot be reused."""
    try:
        pidfd = os.pidfd_open(stat.pid)
    except OSError:
        return -1
    try:
        if read_stat(stat.pid).start_ticks == stat.start_ticks:
            return pidfd
    except (OSError, ValueError, IndexError):
        pass
    os.close(pidfd)
    return -1


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
