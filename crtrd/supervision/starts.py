"""Children on their way to the gate: the queue, the requests with the spawner, the spawner itself and its successors.

QUEUED and ASKED of `child.py`'s table. A spawner that hangs is retired: it is asked for nothing new, and ended once it
has no child left. So is one that an earlier life of the daemon left: it is there for the statuses of its children.
"""

import errno
import marshal
import os
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from crtrd.errors import LaunchError
from crtrd.loop.reactor import IN, Reactor, Timer
from crtrd.supervision import faults, launch
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.child import Child, Phase
from crtrd.supervision.gate import Spawner
from crtrd.supervision.launch import LinesHook

HELD_WITHIN = 30_000_000
"""Microseconds a child may take from the request to standing at its gate."""
AT_ONCE = 32
"""Requests with the spawner at one time: bounds the descriptors in flight (unix(7), ETOOMANYREFS)."""


Handed = Callable[[str, dict[str, int], Callable[[], None]], None]
"""(run id or spawner's name, descriptors by kind, what to call once copies of them are kept)."""


class Owner(Protocol):
    """What becomes of a start; the supervisor, and nothing else of it."""

    handed: Handed | None
    returned: Callable[[str], None] | None

    def stand(self, child: Child, pid: int) -> None: ...
    def ended(self, child: Child) -> None: ...
    def fail(self, child: Child, fault: LaunchError) -> None: ...
    def unwatch(self, child: Child) -> None: ...
    def answered(self, run_id: str, number: int, told: int | str) -> None: ...
    def spawner_lost(self, spawner: Spawner) -> None: ...


class Starts:
    """Owns the spawners; a child is the owner's as soon as it stands at its gate or has failed."""

    def __init__(self, reactor: Reactor, cgroups: Cgroups | None, lines: LinesHook | None, owner: Owner) -> None:
        self._reactor, self._clock = reactor, reactor.clock
        self._cgroups, self._lines, self._owner = cgroups, lines, owner
        self._queued: deque[Child] = deque()
        self._asked: dict[str, Child] = {}
        self._patience: Timer | None = None
        self.spawner: Spawner | None = None
        self.retired: list[Spawner] = []
        self.leaving: list[Spawner] = []

    def want(self, child: Child) -> None:
        self._queued.append(child)
        self._reactor.soon(self._ask_next)

    def unwant(self, child: Child) -> None:
        """Take a QUEUED child out again."""
        self._queued.remove(child)

    def arrived(self, child: Child) -> None:
        """An ASKED child is no longer on its way; another may be asked for."""
        if self._asked.pop(child.run_id, None) is not None:
            self._reactor.soon(self._ask_next)

    def settle(self, child: Child) -> None:
        """The child is over: its spawner has one less to keep."""
        for spawner in (child.spawner, *self.retired):
            if spawner is not None:
                spawner.tokens.discard(child.run_id)
        self.dismiss()

    def dismiss(self) -> None:
        """Let go of the retired spawners that keep nothing any more."""
        for spawner in [spawner for spawner in self.retired if not spawner.tokens]:
            self.retired.remove(spawner)
            self.leaving.append(spawner)
            spawner.discard()
            self._return(spawner)

    def current_spawner(self) -> Spawner:
        """The one that is asked; started where there is none. Raises OSError."""
        if self.spawner is None:
            self.spawner = Spawner(self._reactor, self._owner.answered, self._lost)
            if self._owner.handed is not None:
                kept = {"control": self.spawner.control, "pid": self.spawner.pidfd}
                self._owner.handed(self.spawner.name, kept, lambda: None)
        return self.spawner

    def inherit(self, name: str, control: int, pidfd: int) -> None:
        """One of an earlier life; it is asked for nothing new."""
        self.retired.append(Spawner(self._reactor, self._owner.answered, self._lost, (name, control, pidfd)))

    def parents(self, run_id: str, parent: int) -> list[Spawner]:
        """The inherited spawners that may know of the run: the one with this pid, all of them where nobody has it."""
        known = [spawner for spawner in self.retired if spawner.pid == parent] or list(self.retired)
        for spawner in known:
            spawner.tokens.add(run_id)
        return known

    def hand_over(self) -> dict[str, dict[str, int]]:
        """Detach all that have, or may be given, children; the others end when their control socket is closed."""
        keeping = [*self.retired, *([self.spawner] if self.spawner is not None else [])]
        self.spawner = None
        self.retired.clear()
        handed = {}
        for spawner in keeping:
            control, pidfd = spawner.detach()
            handed[spawner.name] = {"control": control, "pid": pidfd}
        return handed

    def close(self) -> None:
        self._queued.clear()
        self._asked.clear()
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        spawners = [*self.retired, *self.leaving]
        if self.spawner is not None:
            spawners.append(self.spawner)
            self.spawner = None
        self.retired.clear()
        self.leaving.clear()
        for spawner in spawners:
            spawner.close()
            self._return(spawner)

    def _return(self, spawner: Spawner) -> None:
        if self._owner.returned is not None:
            self._owner.returned(spawner.name)

    def _ask_next(self) -> None:
        while self._queued and len(self._asked) < AT_ONCE:
            child = self._queued.popleft()
            assert child.plan is not None  # noqa: S101 - only adopted ones lack it
            try:
                launch.check(child.plan)
                launch.ask(child, child.plan, self.current_spawner(), self._cgroups, self._lines)
            except LaunchError as fault:
                self._owner.fail(child, fault)
                continue
            except OSError as error:
                self._owner.fail(child, faults.launch_error("fork", error.errno or 0, "spawner"))
                continue
            child.phase = Phase.ASKED
            child.asked_at = self._clock.mono()
            self._asked[child.run_id] = child
            self._reactor.watch(child.gate, IN, partial(self._gate_spoke, child))
            self._watch_patience()

    def _gate_spoke(self, child: Child, _: int) -> None:
        """The child says its pid, or why it cannot stand at the gate, or it is gone."""
        try:
            said = os.read(child.gate, 4096)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if child.phase is not Phase.ASKED:
            self._reactor.unwatch(child.gate)  # it died while held: its pidfd tells
            return
        self.arrived(child)
        if said.isdigit():
            self._owner.stand(child, int(said))
            return
        if said:
            child.fault = told(said)
        self._reactor.unwatch(child.gate)
        self._owner.ended(child)

    def _watch_patience(self) -> None:
        """One timer for all that were asked: it rings for the oldest."""
        if self._patience is None and self._asked:
            oldest = next(iter(self._asked.values()))
            delay = oldest.asked_at + HELD_WITHIN - self._clock.mono()
            self._patience = self._reactor.later(delay, self._lose_patience)

    def _lose_patience(self) -> None:
        """Give up the children that do not come; a spawner that hangs is replaced, though it may recover."""
        self._patience = None
        late = self._clock.mono() - HELD_WITHIN
        for child in [child for child in self._asked.values() if child.asked_at <= late]:
            self.arrived(child)
            if child.spawner is not None:
                child.spawner.forget(child.run_id)
                if child.spawner is self.spawner:
                    self.retired.append(child.spawner)
                    self.spawner = None
            fault = faults.Shortage("fork", errno.ETIMEDOUT, "the child did not come to its gate in time")
            self._owner.fail(child, fault)
        self._watch_patience()

    def _lost(self, spawner: Spawner) -> None:
        if spawner is self.spawner:
            self.spawner = None
        if spawner not in self.leaving:
            self._return(spawner)
        for others in (self.retired, self.leaving):
            if spawner in others:
                others.remove(spawner)
        self._owner.spawner_lost(spawner)


def told(said: bytes) -> LaunchError:
    """What the child wrote into its gate: marshalled (stage, errno, detail)."""
    stage, number, detail = marshal.loads(said)  # noqa: S302 - from our own child, before its exec
    return faults.launch_error(stage, number, detail.decode("utf-8", "replace"))
