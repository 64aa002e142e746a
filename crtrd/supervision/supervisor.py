"""The door of the room: start, hold, release, stop, adopt; reports RunHeld, LaunchFailed, RunEnded.

The phases of one child are told in `child.py`; here they are driven. No call waits for a process: each returns at
once, and what comes of it is reported from a later turn of the loop. Nothing is decided about crons here.
"""

import contextlib
import errno
import os
from collections.abc import Callable, Mapping
from functools import partial

from crtrd.core.events import Ending, Event, LaunchFailed, RunEnded, RunHeld, RunLost, RunWedged
from crtrd.core.occurrence import Run
from crtrd.errors import LaunchError
from crtrd.loop.reactor import IN, Reactor
from crtrd.supervision import adoption, faults, launch, signals
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.child import Child, Phase
from crtrd.supervision.ending import Endings
from crtrd.supervision.exit_status import exit_status, has_ended, zombie_status
from crtrd.supervision.gate import Spawner
from crtrd.supervision.identity import Proof, descendants, identify
from crtrd.supervision.launch import LinesHook
from crtrd.supervision.output import Stream
from crtrd.supervision.plan import Plan
from crtrd.supervision.spawner import SHUT
from crtrd.supervision.starts import Handed, Starts, told

PATIENCE = 15_000_000
"""Microseconds between SIGKILL and giving a run up. With the usual grace both fit into the unit's TimeoutStopSec=."""
TOGETHER = 2_000
"""Microseconds within which runs begin together: what was counted just before is not read anew for each."""
STATUS_TRIES = (1_000, 10_000, 100_000, 1_000_000)
"""Microseconds between looks for the status of a process that somebody else (init) has to reap first."""


class Supervisor:
    """Owns the spawner and every child until its end is reported. One thread, the reactor's."""

    def __init__(
        self, reactor: Reactor, cgroups: Cgroups | None, report: Callable[[Event], None], lines: LinesHook | None = None
    ) -> None:
        self._reactor, self._clock = reactor, reactor.clock
        self._cgroups, self._report, self._lines = cgroups, report, lines
        self._boot_id = reactor.clock.boot_id()
        self._endings = Endings(reactor, cgroups)
        self._children: dict[str, Child] = {}
        self._ended: dict[str, Child] = {}
        """Reported as over and not durable yet: should we die now, the next life must be able to tell it again."""
        self._starts = Starts(reactor, cgroups, lines, self)
        self.handed: Handed | None = None
        """Called with descriptors to be kept, as copies, for a later life: of a run by its id ('out', 'err', their
        spools 'spo' and 'spe', 'pid'), of a spawner by its name ('control', 'pid'); and with what to call once they
        are kept. All of a run's come at once and before it is reported as held: nothing runs that could not be told."""
        self.confirm: Callable[[Callable[[], None]], None] = lambda go_on: go_on()
        """Asked before SIGKILL, long after the stop was decided: goes on if the runs are still this life's."""
        self.returned: Callable[[str], None] | None = None
        """Called when those copies are of no use any more."""

    def prepare(self) -> None:
        """Start the spawner ahead of its first use, so that it comes up while others still load."""
        with contextlib.suppress(OSError):  # the first start will say so
            self._starts.current_spawner()

    def start(self, plan: Plan) -> None:
        """Want a child for `plan`: later RunHeld or LaunchFailed."""
        if plan.run_id in self._children:
            message = f"cannot start run {plan.run_id}: it is live"
            raise ValueError(message)
        child = Child(plan.run_id, plan)
        self._children[plan.run_id] = child
        self._starts.want(child)

    def release(self, run_id: str) -> None:
        """Open the gate of a held child: later RunEnded, or LaunchFailed when there was nothing to execute."""
        child = self._children.get(run_id)
        if child is None or child.phase is not Phase.HELD:
            return
        child.phase = Phase.RELEASED
        child.released_at = self._clock.mono()
        self._begin_to_count(child)
        self._reactor.unwatch(child.gate)
        with contextlib.suppress(OSError):  # it died at the gate: its pidfd tells
            os.write(child.gate, b"!")
        self._watch_streams(child)

    def withhold(self, run_id: str) -> None:
        """The child is not wanted any more: it ends without executing anything, and without a report."""
        child = self._children.get(run_id)
        if child is None or child.phase not in {Phase.QUEUED, Phase.ASKED, Phase.HELD}:
            return
        child.withheld = True
        if child.phase is Phase.QUEUED:
            self._starts.unwant(child)
            self._drop(child)
        elif child.phase is Phase.HELD:
            self._shut(child)

    def stop(self, run_id: str, grace: int) -> None:
        """SIGTERM and SIGCONT to the group, SIGKILL after `grace` microseconds. Again: only ever sooner.

        A child that is not released yet ends without executing anything and is reported as LaunchFailed.
        """
        child = self._children.get(run_id)
        if child is None:
            return
        if child.phase in {Phase.QUEUED, Phase.ASKED, Phase.HELD}:
            self._stop_held(child)
        elif child.phase is Phase.RELEASED:
            self._stop_released(child, grace)

    def signal(self, run_id: str, signum: int) -> None:
        """`signum` to the run's process group, if the run is released and its leader proven."""
        child = self._children.get(run_id)
        if child is not None and child.phase is Phase.RELEASED:
            signals.deliver(child, signum)

    def mute(self, run_id: str) -> None:
        """Hand out no more lines of this run; head, hash and count go on."""
        child = self._children.get(run_id)
        for stream in (child.out, child.err) if child is not None else ():
            if stream is not None:
                stream.mute()

    def moved(self, run_id: str, cgroup: str) -> None:
        """A held child was put into another cgroup (a scope with its resources); that one counts from now on."""
        child = self._children.get(run_id)
        if child is None or self._cgroups is None or child.cgroup == cgroup:
            return
        left, child.cgroup = child.cgroup, cgroup
        if left:
            self._cgroups.remove(left)

    def inherit(self, name: str, fds: Mapping[str, int]) -> None:
        """Go on with a spawner of an earlier life ('control', 'pid'), before its runs are adopted; then `adopted`.

        It keeps its zombies, so that exit statuses are known on every kernel; new runs get a new one. Owns `fds`.
        """
        self._starts.inherit(name, fds["control"], fds["pid"])

    def adopted(self) -> None:
        """No more runs will be adopted: let go of the inherited spawners that keep none."""
        self._starts.dismiss()

    def calm(self) -> bool:
        """No run is between two states that last: every one is released, or not there."""
        return all(child.phase is Phase.RELEASED for child in self._children.values())

    def hand_over(self) -> dict[str, dict[str, int]]:
        """Give up released runs and spawners to a later life: their descriptors by run id or name, the caller's now.

        Nothing of them is returned, nothing is reported any more; children that are not released end at their gates.
        Then `close`.
        """
        handed = {}
        for child in [child for child in self._children.values() if child.phase is Phase.RELEASED]:
            self.unwatch(child)
            handed[child.run_id] = child.hand_over()
            del self._children[child.run_id]
        return handed | self._starts.hand_over()

    def durable(self, run_id: str) -> None:
        """The end of the run is recorded: its kept descriptors go back, and its spawner may forget its status."""
        child = self._ended.pop(run_id, None)
        if child is not None:
            self._let_go(child)

    @property
    def count(self) -> int:
        """How many children there are."""
        return len(self._children)

    def live(self) -> frozenset[str]:
        """Runs that have, or will have, a process: everything that is not reported as over."""
        return frozenset(run_id for run_id, child in self._children.items() if not child.withheld)

    def adopt(self, run: Run, plan: Plan | None, fds: Mapping[str, int]) -> Proof:
        """Take over a run of an earlier life. ALIVE: its end will be reported. Otherwise `fds` are left to the caller.

        `fds` ('out', 'err', 'pid') come from the descriptor store and are owned here once the answer is ALIVE. A run
        that ended meanwhile counts as ALIVE where its pidfd was kept: its end and output are reported at once.
        """
        zombies = bool(self._starts.retired)
        proof, pidfd = adoption.take(run.identity, self._boot_id, fds.get("pid", -1), zombies=zombies)
        if proof is not Proof.ALIVE or run.identity is None:
            return proof
        head = plan.head if plan is not None else 4096
        child = Child(run.id, plan, Phase.RELEASED, identity=run.identity, pidfd=pidfd, cgroup=run.cgroup)
        child.handed, child.adopted = bool(fds), True
        child.parents = self._starts.parents(run.id, adoption.parent_of(run.identity))
        child.spawner = child.parents.pop(0) if child.parents else None
        child.released_at = adoption.started_mono(run.identity, self._clock)
        masks = plan.masks if plan is not None else ()
        child.out = adoption.stream(fds.get("out", -1), fds.get("spo", -1), head, self._hook(run.id, "stdout"), masks)
        child.err = adoption.stream(fds.get("err", -1), fds.get("spe", -1), head, self._hook(run.id, "stderr"))
        self._children[run.id] = child
        self._begin_to_count(child)
        self._reactor.watch(pidfd, IN, lambda _: self._leader_ended(child))
        self._watch_streams(child)
        return proof

    def kill_leftovers(self, run: Run) -> None:
        """End what is left in the cgroup of a run that is gone, and remove it."""
        if self._cgroups is not None and run.cgroup and run.id in run.cgroup and run.id not in self._children:
            self._cgroups.kill(run.cgroup)
            self._endings.sweep(run.cgroup)

    def close(self) -> None:
        """Close the gates of held runs and the spawner. Released runs go on, unwatched."""
        for child in list(self._children.values()):
            self.unwatch(child)
            child.close()
        self._endings.close()
        self._children.clear()
        self._starts.close()

    # --- ASKED, HELD

    def stand(self, child: Child, pid: int) -> None:
        """ASKED -> HELD: prove who it is, set its limits, report it."""
        assert child.plan is not None  # noqa: S101
        child.phase = Phase.HELD
        try:
            child.pidfd = os.pidfd_open(pid)
            child.identity = identify(pid, self._boot_id)
            launch.limit(child.plan, pid)
        except LaunchError as fault:
            child.fault = fault
        except OSError as error:
            child.fault = faults.launch_error("fork", error.errno or 0)
        if child.pidfd >= 0:
            self._reactor.watch(child.pidfd, IN, lambda _: self._leader_ended(child))
        if child.fault is not None or child.withheld:
            self._shut(child)
            return
        if self.handed is None:
            self._report_held(child)
        else:
            child.handed = True
            self.handed(child.run_id, child.keepsakes(), partial(self._report_held, child))

    def _report_held(self, child: Child) -> None:
        if child.phase is Phase.HELD and child.identity is not None and not (child.withheld or child.fault):
            self._report(RunHeld(self._clock.wall(), child.run_id, child.identity, child.cgroup))

    def answered(self, run_id: str, number: int, told: int | str) -> None:
        """The spawner answers: a wait status, or why there is no child."""
        child = self._children.get(run_id)
        if child is None:
            return
        if isinstance(told, int):
            self._concluded(child, told)
        elif told != "reap":
            self._starts.arrived(child)
            self.fail(child, faults.launch_error(told, number))
        elif child.phase is Phase.ENDED:  # not its child: adopted from yet another life
            child.spawner = child.parents.pop(0) if child.parents else None
            self._ask_status(child)

    def spawner_lost(self, spawner: Spawner) -> None:
        """It died: what it was asked for is our shortage; its children live on as somebody else's."""
        for child in [child for child in self._children.values() if child.spawner is spawner]:
            child.spawner = child.parents.pop(0) if child.parents else None
            if child.phase is Phase.ASKED:
                self._starts.arrived(child)
                self.fail(child, faults.Shortage("fork", 0, "the spawner has died"))
            elif child.phase is Phase.ENDED:
                self._ask_status(child)

    def _stop_held(self, child: Child) -> None:
        child.fault = LaunchError("gate", errno.ECANCELED, "it was stopped before it was released")
        if child.phase is Phase.HELD:
            self._shut(child)
        elif child.phase is Phase.QUEUED:
            self._starts.unwant(child)
            child.phase = Phase.ENDED
            self._reactor.soon(partial(self.fail, child, child.fault))

    def _shut(self, child: Child) -> None:
        """Close the gate: the child ends, which its pidfd tells."""
        self._reactor.unwatch(child.gate)
        child.close_gate()
        if child.pidfd < 0:
            self.ended(child)

    # --- RELEASED

    def _watch_streams(self, child: Child) -> None:
        for stream in (child.out, child.err):
            if stream is not None and stream.fd >= 0:
                self._reactor.watch(stream.fd, IN, partial(self._stream_ready, stream))

    def _stream_ready(self, stream: Stream, _: int) -> None:
        if stream.read() == 0:
            self._reactor.unwatch(stream.fd)
            stream.close()

    def _begin_to_count(self, child: Child) -> None:
        if self._cgroups is not None and child.cgroup:
            now = self._clock.mono()
            child.before = self._cgroups.counters_around(child.cgroup, now, now - TOGETHER)

    def _stop_released(self, child: Child, grace: int) -> None:
        deadline = self._clock.mono() + max(grace, 0)
        if child.stopping:
            if child.stop_timer is None or child.stop_timer.deadline <= deadline:
                return
            child.stop_timer.cancel()
        else:
            child.stopping = True
            if not child.cgroup and signals.is_proven(child):
                child.tree = descendants(child.pid)
            signals.terminate(child)
        child.stop_timer = self._reactor.later(grace, partial(self._grace_over, child))

    def _grace_over(self, child: Child) -> None:
        child.stop_timer = None
        self.confirm(partial(self._kill, child))

    def _kill(self, child: Child) -> None:
        if child.phase is Phase.RELEASED:
            signals.kill(child, self._cgroups)
            child.stop_timer = self._reactor.later(PATIENCE, partial(self._wedged, child))

    def _wedged(self, child: Child) -> None:
        """It takes no SIGKILL: state D, or somebody else's by now. Told once; it stays watched."""
        child.stop_timer = None
        if child.phase is Phase.RELEASED:
            self._report(RunWedged(self._clock.wall(), child.run_id, self._endings.so_far(child)))

    # --- ENDED

    def _leader_ended(self, child: Child) -> None:
        """The pidfd is readable: take what lies in the pipes, then ask how it ended."""
        if not has_ended(child.pidfd):
            return
        child.ended_at = self._clock.mono()
        if self._cgroups is not None and child.cgroup:
            child.counted = self._cgroups.counters(child.cgroup)
        for stream in (child.out, child.err):
            if stream is not None and stream.fd >= 0:
                stream.drain()
                child.leaked = child.leaked or stream.read() is None
        if child.phase is Phase.RELEASED and child.gate >= 0:
            child.fault = _failure(child.gate)
        elif child.phase is Phase.HELD and child.fault is None:
            child.fault = faults.Shortage("gate", 0, "it died at the gate")
        self.unwatch(child)
        self.ended(child)

    def ended(self, child: Child) -> None:
        child.phase = Phase.ENDED
        child.close_pipes()
        self._ask_status(child)

    def _ask_status(self, child: Child) -> None:
        if child.spawner is not None:
            child.spawner.reap(child.run_id)
        else:
            self._seek_status(child)

    def _seek_status(self, child: Child, tries: tuple[int, ...] = STATUS_TRIES) -> None:
        """The status of a process that is not the spawner's: our own child (we are init), or told by its pidfd."""
        if child.phase is not Phase.ENDED or self._children.get(child.run_id) is not child:
            return
        status = _own_child(child.pid)
        if status is None and child.pidfd >= 0:
            status = exit_status(child.pidfd)
        if status is None and child.identity is not None:
            status = zombie_status(child.identity)
        if status is None and tries and child.pidfd >= 0:
            self._reactor.later(tries[0], partial(self._seek_status, child, tries[1:]))
            return
        self._concluded(child, status)

    def _concluded(self, child: Child, status: int | None) -> None:
        """The child is reaped: a launch that failed is told now, a run after its survivors."""
        if child.phase is not Phase.ENDED:
            return
        if child.fault is not None or child.withheld or child.identity is None:
            no_word = faults.Shortage("fork", 0, "the child ended before it stood at the gate")
            self.fail(child, child.fault or no_word)
        elif child.adopted and status == SHUT:
            self._drop(child)
            self._report(RunLost(self._clock.wall(), child.run_id, executed=False))
        else:
            self._endings.conclude(child, status, self._over)

    def _over(self, child: Child, ending: Ending) -> None:
        self._drop(child)
        self._report(RunEnded(self._clock.wall(), child.run_id, ending))

    def fail(self, child: Child, fault: LaunchError) -> None:
        """Nothing was executed: give everything back and say so, unless nobody wanted the child any more."""
        self._drop(child)
        if child.cgroup:
            self._endings.sweep(child.cgroup)
        if not child.withheld:
            shortage = isinstance(fault, faults.Shortage)
            self._report(LaunchFailed(
                self._clock.wall(), child.run_id, fault.stage, fault.errno, str(fault), shortage,
            ))  # fmt: skip

    def _drop(self, child: Child) -> None:
        self.unwatch(child)
        child.close()
        if self._children.get(child.run_id) is child:
            del self._children[child.run_id]
        if child.withheld:
            self._let_go(child)
        else:
            self._ended[child.run_id] = child

    def _let_go(self, child: Child) -> None:
        if child.handed and self.returned is not None:
            self.returned(child.run_id)
        self._starts.settle(child)

    def unwatch(self, child: Child) -> None:
        for fd in (child.gate, child.pidfd, *(stream.fd for stream in (child.out, child.err) if stream is not None)):
            if fd >= 0:
                self._reactor.unwatch(fd)

    def _hook(self, run_id: str, name: str) -> Callable[[list[bytes]], object] | None:
        return partial(self._lines, run_id, name) if self._lines is not None else None


def _failure(gate: int) -> LaunchError | None:
    """Why the exec failed; None when it happened (the child's end of the gate closes on exec)."""
    try:
        said = os.read(gate, 8192)
    except OSError:
        return None
    return told(said) if said else None


def _own_child(pid: int) -> int | None:
    """Orphans of a dead spawner come to us when we are init or a subreaper (prctl(2))."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG) if pid > 0 else (0, 0)
    except ChildProcessError:
        return None
    return status if reaped else None


__all__ = ["Plan", "Supervisor"]
