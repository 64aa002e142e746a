"""One child, from the wish for it to the report of its end: its phase, its descriptors, its stop.

    QUEUED    wanted; holds no descriptor yet
    ASKED     the spawner has the request
    HELD      stands in its session and cgroup, waits at the gate; its identity is known and reported
    RELEASED  the gate is open; what follows (also a failed exec) is read when the process has ended
    ENDED     the process has ended, its output is taken; its status is asked for
    CLEARING  survivors were killed and are waited for, briefly

    phase      what happens                        goes to
    QUEUED     its turn                            ASKED
    ASKED      the child says its pid              HELD
    ASKED      no child, no answer in time         over: LaunchFailed
    HELD       release                             RELEASED
    HELD       withhold, stop; its death           ENDED
    RELEASED   the pidfd is readable               ENDED
    ENDED      the status is known                 over: RunEnded or LaunchFailed; or CLEARING
    CLEARING   all dead, or too late               over: RunEnded

`withheld` closes the gate as soon as there is one and suppresses every report. Nothing here waits or reports: the
supervisor drives it.
"""

import os
from enum import StrEnum

from crtrd.core.cron import Survivors
from crtrd.core.occurrence import Identity
from crtrd.errors import LaunchError
from crtrd.loop.reactor import Timer
from crtrd.supervision.counters import Counters
from crtrd.supervision.gate import Spawner
from crtrd.supervision.identity import Stat
from crtrd.supervision.output import Stream
from crtrd.supervision.plan import Plan
from crtrd.values import dataclass, field


class Phase(StrEnum):
    QUEUED = "queued"
    ASKED = "asked"
    HELD = "held"
    RELEASED = "released"
    ENDED = "ended"
    CLEARING = "clearing"


@dataclass(slots=True)
class Child:
    """Owns `gate`, `pidfd` and the pipes of `out` and `err`; -1 where there is none."""

    run_id: str
    plan: Plan | None
    """None for an adopted run whose plan nobody knows any more."""
    phase: Phase = Phase.QUEUED
    spawner: Spawner | None = None
    """Its parent; None once that is gone. For an adopted run one that may be it."""
    parents: list[Spawner] = field(default_factory=list)
    """Further ones that may be it."""
    gate: int = -1
    pidfd: int = -1
    out: Stream | None = None
    err: Stream | None = None
    cgroup: str = ""
    identity: Identity | None = None
    asked_at: int = 0
    released_at: int | None = None
    ended_at: int = 0
    """All three in microseconds of the monotonic clock."""
    withheld: bool = False
    fault: LaunchError | None = None
    """Why nothing was executed, once that is known."""
    stop_timer: Timer | None = None
    stopping: bool = False
    killed: bool = False
    """We sent SIGKILL, so a death by it is no OOM kill."""
    before: Counters = field(default_factory=Counters)
    """Of the cgroup around its own, when it began."""
    counted: Counters = field(default_factory=Counters)
    """Of its own, read as soon as the leader has ended: an empty scope goes away by itself."""
    tree: tuple[Stat, ...] = ()
    """Descendants seen at the stop, where no cgroup remembers them."""
    handed: bool = False
    """Copies of its descriptors may be kept elsewhere."""
    adopted: bool = False
    """Of an earlier life, of which nobody knows whether it opened the gate."""
    leaked: bool = False
    """Somebody still held a pipe when the leader had ended."""
    survivors: list[str] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.identity.pid if self.identity else 0

    @property
    def keeps_survivors(self) -> bool:
        """A run that was told to stop keeps nobody, whatever its plan says."""
        return self.plan is not None and self.plan.survivors is Survivors.KEEP and not self.stopping

    def keepsakes(self) -> dict[str, int]:
        """What a later life needs to tell its output and its end. The descriptors stay ours."""
        fds = {"pid": self.pidfd}
        for name, spool, stream in (("out", "spo", self.out), ("err", "spe", self.err)):
            if stream is not None:
                fds[name], fds[spool] = stream.fd, stream.spool
        return {name: fd for name, fd in fds.items() if fd >= 0}

    def hand_over(self) -> dict[str, int]:
        """Its descriptors, the caller's from now on."""
        if self.stop_timer is not None:
            self.stop_timer.cancel()
        self.close_gate()
        fds = {"pid": self.pidfd}
        for name, spool, stream in (("out", "spo", self.out), ("err", "spe", self.err)):
            if stream is not None:
                fds[name], fds[spool] = stream.detach()
        self.pidfd = -1
        return {name: fd for name, fd in fds.items() if fd >= 0}

    def close_gate(self) -> None:
        if self.gate >= 0:
            os.close(self.gate)
            self.gate = -1

    def close_pipes(self) -> None:
        self.close_gate()
        for stream in (self.out, self.err):
            if stream is not None:
                stream.close()

    def close(self) -> None:
        """Give back everything but the cgroup."""
        self.close_pipes()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        if self.stop_timer is not None:
            self.stop_timer.cancel()
