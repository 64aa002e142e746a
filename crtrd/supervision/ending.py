"""What is left to do when a leader has ended: survivors, OOM count, cgroup, and the `Ending` that tells it all.

Runs after the leader was reaped. Its number stays taken while its group has a member, so the group is still told
apart from a stranger's (`survivors.in_group`).
"""

import signal
from collections.abc import Callable
from functools import partial

from crtrd.core.events import Ending
from crtrd.core.occurrence import Output
from crtrd.loop.reactor import Reactor
from crtrd.supervision import survivors
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.child import Child, Phase
from crtrd.supervision.counters import UNKNOWN
from crtrd.supervision.exit_status import split
from crtrd.supervision.identity import Stat
from crtrd.supervision.output import Stream
from crtrd.supervision.survivors import Clearing

Done = Callable[[Child, Ending], None]
SWEEPS = (10_000, 100_000, 1_000_000, 10_000_000)
"""Microseconds between tries to remove a cgroup whose killed processes are still going."""
SHELL_KILLED = 128 + signal.SIGKILL
ROUNDS = 3
"""How often survivors are looked for and killed: between two looks one may fork."""


class Endings:
    """Concludes children; what takes longer than a moment is waited for here."""

    def __init__(self, reactor: Reactor, cgroups: Cgroups | None) -> None:
        self._reactor, self._cgroups = reactor, cgroups
        self._clearings: dict[str, Clearing] = {}

    def conclude(self, child: Child, status: int | None, done: Done) -> None:
        """Deal with the survivors by the plan, then `done(child, ending)`, at once where nobody survived."""
        if child.cgroup and self._cgroups is not None:
            self._in_cgroup(child, status, done, ROUNDS)
        else:
            self._in_group(child, status, done, ROUNDS)

    def sweep(self, path: str, tries: tuple[int, ...] = SWEEPS) -> None:
        """Remove a run's cgroup as soon as it is empty; what stays is left to the next boot's migration."""
        if self._cgroups is None or self._cgroups.remove(path) or not tries:
            return
        self._reactor.later(tries[0], partial(self.sweep, path, tries[1:]))

    def so_far(self, child: Child) -> Ending:
        """Of one that does not end: what it has said."""
        return Ending(None, None, False, None, _output(child.out), _output(child.err), tuple(child.survivors))  # noqa: FBT003

    def close(self) -> None:
        for clearing in self._clearings.values():
            clearing.close()
        self._clearings.clear()

    def _in_cgroup(self, child: Child, status: int | None, done: Done, rounds: int) -> None:
        assert self._cgroups is not None  # noqa: S101
        if self._cgroups.vanish(child.cgroup):
            self._finish(child, status, done, gone=True)
            return
        pids = self._cgroups.procs(child.cgroup)
        left = survivors.look(pids) if pids else []
        if not left:
            self._finish(child, status, done)
        elif child.keeps_survivors:
            child.survivors += survivors.names(left)
            self._finish(child, status, done)
        elif not rounds:
            child.survivors += survivors.names(left, ": not dead yet")
            self._finish(child, status, done)
        else:
            self._note(child, left)
            held = survivors.hold_each(left[: survivors.NAMED])
            self._cgroups.kill(child.cgroup)
            self._clear(child, held, partial(self._in_cgroup, child, status, done, rounds - 1))

    def _in_group(self, child: Child, status: int | None, done: Done, rounds: int) -> None:
        """No cgroup: the group, the tree seen at the stop, and whoever carries the run's id."""
        left = self._find(child)
        if left and child.keeps_survivors:
            child.survivors += survivors.names(left)
        elif left and rounds:
            self._note(child, left)
            held = survivors.kill_each(left)
            self._clear(child, held, partial(self._in_group, child, status, done, rounds - 1))
            return
        elif left:
            child.survivors += survivors.names(left, ": not dead yet")
        if child.leaked or child.stopping or child.survivors:
            self._name_strays(child)
        self._finish(child, status, done)

    def _name_strays(self, child: Child) -> None:
        """Those that left the group unseen. Whoever holds the output may have no trace of the run at all."""
        told = {int(text.split()[0]) for text in child.survivors if text[0].isdigit()}
        strays = [stat for stat in survivors.marked(child.run_id) if stat.pid not in told]
        child.survivors += survivors.names(strays, "" if child.keeps_survivors else ": not reached")
        if child.leaked and not child.survivors:
            child.survivors.append("somebody holds its output: not reached")

    def _find(self, child: Child) -> list[Stat]:
        found: dict[int, Stat] = {stat.pid: stat for stat in survivors.still_there(child.tree)}
        if child.identity is not None and survivors.group_may_live(child.pid):
            found |= {stat.pid: stat for stat in survivors.in_group(child.identity)}
        return list(found.values())

    def _note(self, child: Child, left: list[Stat]) -> None:
        child.survivors += [text for text in survivors.names(left) if text not in child.survivors]

    def _clear(self, child: Child, held: list[int], again: Callable[[], None]) -> None:
        """Wait for those that were just killed, then look again."""
        child.phase = Phase.CLEARING

        def cleared() -> None:
            del self._clearings[child.run_id]
            again()

        self._clearings[child.run_id] = Clearing(self._reactor, held, cleared)

    def _finish(self, child: Child, status: int | None, done: Done, *, gone: bool = False) -> None:
        code, signum = split(status)
        oom, hits = False, tuple[str, ...]()
        if self._cgroups is not None and child.cgroup:
            oom, hits = self._limits_met(child, code, signum, gone=gone)
            if not gone:
                self.sweep(child.cgroup)
        duration = max(child.ended_at - child.released_at, 0) if child.released_at is not None else None
        done(child, Ending(
            code, signum, oom, duration, _output(child.out), _output(child.err), tuple(child.survivors), hits,
            child.err.last_line() if child.err is not None else b"",
        ))  # fmt: skip

    def _limits_met(
        self, child: Child, code: int | None, signum: int | None, *, gone: bool
    ) -> tuple[bool, tuple[str, ...]]:
        """Whether it ran out of memory, and which limits were met.

        An OOM kill of any of its processes counts when the run did not succeed in spite of it. One that only the
        cgroup around it has counted does if the run ended as one that was killed, or as a shell whose command was.
        """
        assert self._cgroups is not None  # noqa: S101
        own = child.counted if gone else self._cgroups.counters(child.cgroup).or_else(child.counted)
        around = self._cgroups.counters_around(child.cgroup, self._reactor.clock.mono(), child.ended_at)
        around = around.since(child.before)
        failed = not child.killed and code != 0
        if own.oom_kills == UNKNOWN:
            failed = failed and (signum == signal.SIGKILL or code == SHELL_KILLED)
        counted = own.or_else(around)
        return failed and counted.oom_kills > 0, counted.hits


def _output(stream: Stream | None) -> Output:
    return stream.output() if stream is not None else Output()
