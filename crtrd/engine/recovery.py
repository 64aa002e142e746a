"""After a crash: compare the ledger's live runs with the world, and tell the core what became of each.

    starting               -> never released from the gate: RunLost(executed=False), dispatched again
    running, proven alive  -> adopted with what is left of its timeout
    running, gone          -> RunLost(executed=True), settled by the cron's on_crash
    running, cannot tell   -> left alone and asked again: no signal, no second start (I6)
"""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from crtrd.core.cron import SECOND, Cron
from crtrd.core.events import RunLost
from crtrd.core.occurrence import Phase, Run
from crtrd.core.running import rules
from crtrd.core.stopping import grace_of
from crtrd.engine.engine import Engine
from crtrd.errors import LaunchError, LedgerError
from crtrd.ledger.session import Session
from crtrd.supervision.identity import Proof
from crtrd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from crtrd.supervision.plan import Plan

ASK_AGAIN = 10 * SECOND
TICKS = os.sysconf("SC_CLK_TCK")
Live = list[tuple[Run, Cron | None]]


class Recovery:
    """`fds` are the stored descriptors by run id: {"out": fd, "err": fd, "pid": fd}.

    They go to supervision with the run that is adopted; all others are closed, and `drop` takes them out of the store.
    """

    def __init__(self, engine: Engine, supervisor: Supervisor, drop: Callable[[str], None]) -> None:
        self._engine, self._supervisor, self._drop = engine, supervisor, drop

    def begin(self, fds: Mapping[str, Mapping[str, int]], done: Callable[[], None]) -> None:
        """Ask the ledger what was live; the events follow in a later turn, and `done` after them."""
        self._engine.store.submit(_live, lambda live: self._compare(live, fds, done))

    def _compare(
        self, live: Live | LedgerError, fds: Mapping[str, Mapping[str, int]], done: Callable[[], None]
    ) -> None:
        if isinstance(live, LedgerError):
            self._engine.reactor.later(ASK_AGAIN, lambda: self.begin(fds, done))
            return
        for run, cron in live:
            self._take_up(run, cron, fds.get(run.id, {}))
        for run_id in fds.keys() - {run.id for run, _ in live}:
            self._forget(run_id, fds[run_id])
        self._supervisor.adopted()
        done()

    def _take_up(self, run: Run, cron: Cron | None, fds: Mapping[str, int]) -> None:
        now = self._engine.reactor.clock.wall()
        if run.phase is Phase.STARTING or run.identity is None:
            self._supervisor.kill_leftovers(run)
            self._forget(run.id, fds)
            self._engine.post(RunLost(now, run.id, executed=False))
            return
        if self._engine.executor.output:
            self._engine.executor.output.begin(run)  # lines that were read and not handed out come at once
        match self._supervisor.adopt(run, self._plan(run, cron), fds):
            case Proof.ALIVE:
                self._resume_watch(run, cron)
            case Proof.GONE:
                self._end_output(run)
                self._supervisor.kill_leftovers(run)
                self._forget(run.id, fds)
                self._engine.post(RunLost(now, run.id, executed=True))
            case Proof.UNKNOWN:
                self._engine.reactor.later(ASK_AGAIN, lambda: self._take_up(run, cron, fds))

    def _end_output(self, run: Run) -> None:
        if self._engine.executor.output:
            self._engine.executor.output.end(run.id)

    def _forget(self, run_id: str, fds: Mapping[str, int]) -> None:
        for fd in fds.values():
            os.close(fd)
        if fds:
            self._drop(run_id)

    def _plan(self, run: Run, cron: Cron | None) -> "Plan | None":
        if cron is None:
            return None
        try:
            executor = self._engine.executor
            return executor.contexts.of(run, cron, head=executor.head).plan
        except LaunchError:
            return None

    def _resume_watch(self, run: Run, cron: Cron | None) -> None:
        """Go on with its timeout. No wall clock is in its age: start ticks count from boot, as CLOCK_BOOTTIME does."""
        if run.stopping or cron is None:
            self._supervisor.stop(run.id, grace_of(cron))
            return
        ticks = run.identity.start_ticks if run.identity else 0
        age = self._engine.reactor.clock.boot() - ticks * SECOND // TICKS
        self._engine.executor.time_out_after(run.id, max(cron.definition.timeout - age, 0))


def _live(session: Session) -> Live:
    return [(run, rules(run.cron_id, session)) for run in session.live_runs()]
