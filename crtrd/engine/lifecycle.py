"""Staying, leaving and stopping. The daemon leaves only when the ledger owes nothing before an armed wake-up (I8).

    busy -> idle (grace runs) -> probing -> arming -> released -> gone
     ^        |                    |          |           |
     +--------+--------------------+----------+           +-> whatever came in meanwhile is durable; the wake-up is
        anything new, or a probe that failed                  moved to "now" for it, and the next life runs it

From STOPPING=1 on systemd counts the unit as going, so there is no way back from `released`; nothing is started
there, and a new start request waits for our end. `stop` is SIGTERM's way: runs are interrupted, no wake-up is armed.
"""

from collections.abc import Callable
from enum import StrEnum

from crtrd.config.settings import ClockMode, Settings
from crtrd.core.cron import SECOND
from crtrd.core.effects import Announce
from crtrd.core.events import StopBegun
from crtrd.core.idle import Owed, may_leave
from crtrd.engine.crashpoints import reach
from crtrd.engine.engine import Engine
from crtrd.errors import ManagerError
from crtrd.schedule.spans import format_instant
from crtrd.systemd.manager import Manager
from crtrd.systemd.notify import Notifier
from crtrd.values import dataclass

PROBE_AGAIN = 10 * SECOND
QUIET_AGAIN = SECOND
POLL = SECOND // 50
STOP_PATIENCE, LAST_GRACE, STOP_REST = 15 * SECOND, 5 * SECOND, 5 * SECOND  # together below TimeoutStopSec=
LAST_CALLS = 5 * SECOND
EARLY, EARLIEST = 2, 4
"""How many leads ahead of its instant a wake-up is armed, and may have been by another life. One lead is the least.
Cold starts differ; what is left is waited out inside, and a timer that does need not be armed anew."""
NEAR = SECOND
"""A wake-up that passes while we are on our way out would start nobody, so one this near is armed anew."""
RESTARTS = frozenset({"restart", "try-restart"})
"""Job types after whose stopping half the unit is started again (systemd's job.c)."""


class Stage(StrEnum):
    RUNNING = "running"
    DRAINING = "draining"
    LEAVING = "leaving"
    RELEASED = "released"
    HANDING_OVER = "handing-over"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Surfaces:
    """What the lifecycle needs of bus and socket, which live above it."""

    quiet: Callable[[], bool]
    """No request is being received or answered."""
    release: Callable[[Callable[[], None]], None]
    """Give up the bus name; calls back when its reply is there. Requests go on being answered meanwhile."""
    stop_accepting: Callable[[], None]
    """Take no further connection from the socket: what waits in its backlog starts the next life."""


class Lifecycle:
    """`touched` for every request; the engine's batches do the rest."""

    def __init__(
        self, engine: Engine, settings: Settings, notifier: Notifier, manager: Manager | None, surfaces: Surfaces
    ) -> None:
        self.engine, self.settings, self.notifier = engine, settings, notifier
        self.manager, self.surfaces = manager, surfaces
        self.stage = Stage.RUNNING
        self.lead = 0
        """How much earlier than due the wake-up is armed: the measured cold start, microseconds."""
        self._reactor = engine.reactor
        self._quiet_since = self._reactor.clock.mono()
        self._timer = self._reactor.later(0, lambda: None)
        self._aged = False
        self.failed = False
        """Could not leave in order: the exit status must say so."""
        self.again = self.handing_over = False
        """Both at the end of the loop: whether runs are handed over, and whether by executing the daemon anew."""
        self._ready = False
        self._trouble = ""
        self._ending = False
        self._armed: int | None = None
        engine.after_batch = self.consider

    @property
    def resident(self) -> bool:
        return self.settings.clock is ClockMode.INTERNAL or self.manager is None

    def start(self) -> None:
        """READY=1 is out: leaving is possible from now on, and `max_lifetime` counts."""
        self._ready = True
        if not self.resident:
            self._reactor.later(self.settings.max_lifetime, self._grow_old)
        self.consider()

    def touched(self) -> None:
        """A request came in: the window starts anew."""
        self._quiet_since = self._reactor.clock.mono()
        self.consider()

    def consider(self) -> None:
        """Look whether it is time to leave, or to wait out the grace, or to go on."""
        if self.stage is Stage.STOPPING:
            self._stop_when_done()
        if self.stage is not Stage.RUNNING or self.resident or not self._ready:
            return
        self._timer.cancel()
        if not self._idle(self.engine.owed):
            self._quiet_since = self._reactor.clock.mono()
            if not self.surfaces.quiet():  # of what leaves them, an answer or a signal, no batch tells
                self._timer = self._reactor.later(QUIET_AGAIN, self.consider)
            return
        waited = self._reactor.clock.mono() - self._quiet_since
        self._timer = self._reactor.later(self._grace - waited, self._probe)

    @property
    def _grace(self) -> int:
        return 0 if self._aged else self.settings.idle_grace

    def _idle(self, owed: Owed | None) -> bool:
        if self.engine.busy or not self.surfaces.quiet():
            return False
        # from our own wake-up to the instant it is for it is never worth leaving
        return may_leave(owed, self._reactor.clock.wall(), max(self._grace, EARLIEST * self.lead))

    def _grow_old(self) -> None:
        """The backstop against leaks: leave at the next moment without a live run. Deletes nothing."""
        self._aged = True
        self._announce("daemon.max_lifetime", "max_lifetime reached, leaving when no run is live")
        self.consider()

    # leaving -----------------------------------------------------------------------------------------------------

    def _probe(self) -> None:
        if self._idle(self.engine.owed):
            self.engine.probe(self._probed)
        else:
            self._timer = self._reactor.later(PROBE_AGAIN, self._probe)

    def _probed(self, owed: Owed | None) -> None:
        if self.stage is not Stage.RUNNING:
            return
        if not self._idle(owed) or owed is None or self.manager is None:
            self._timer = self._reactor.later(PROBE_AGAIN, self.consider)
            return
        reach("leave.before")
        self.stage = Stage.LEAVING
        self._arm(owed.next_wake, lambda: self._wake_armed(owed))

    def _arm(self, instant: int | None, done: Callable[[], None]) -> None:
        """Arm the wake-up and read it back; a manager that fails keeps us here."""
        if self.manager is None:
            done()
            return
        if instant is None:
            self.manager.disarm_wake(lambda value: self._armed_or_stay(value, None, done))
            return
        now = self._reactor.clock.wall()
        wake = max(instant - EARLY * self.lead, now)
        enough = (instant - EARLIEST * self.lead, instant - self.lead) if wake > now + NEAR else (0, 0)
        self.manager.arm_wake(wake, lambda value: self._armed_or_stay(value, wake, done), enough=enough)

    def _armed_or_stay(self, value: int | ManagerError | None, wanted: int | None, done: Callable[[], None]) -> None:
        late = isinstance(value, int) and wanted is not None and value > wanted + self.lead + SECOND
        if isinstance(value, ManagerError) or late:
            why = str(value) if isinstance(value, ManagerError) else "the timer reads back later than it was asked"
            self._not_armed(why)
            return
        self._armed, self._trouble = value, ""
        done()

    def _not_armed(self, why: str) -> None:
        """Stay; or, where there is no way back, fail, so that Restart=on-failure brings the next life."""
        if why != self._trouble:
            self._announce("daemon.wake.failed", f"cannot arm the wake-up: {why}", 4)
        self._trouble = why
        if self.stage is Stage.RELEASED:
            self.failed = True
            self._reactor.stop()
            return
        self.stage = Stage.RUNNING
        self._timer = self._reactor.later(PROBE_AGAIN, self.consider)

    def _wake_armed(self, owed: Owed) -> None:
        """Last chance to turn back: nothing has been given up yet."""
        reach("leave.armed")
        if not self._idle(self.engine.owed):
            self.stage = Stage.RUNNING
            self.consider()
            return
        until = "nothing is planned" if owed.next_wake is None else f"next wake-up {format_instant(owed.next_wake)}"
        self._announce("daemon.idle", f"idle, leaving; {until}")
        self.engine.rest()
        self.notifier.stopping()
        self.surfaces.release(self._released)

    def _released(self) -> None:
        reach("leave.released")
        self.surfaces.stop_accepting()
        self.stage = Stage.RELEASED
        self._last_calls(self._reactor.clock.mono() + LAST_CALLS)

    def _last_calls(self, deadline: int) -> None:
        """Answer what is still in hand, then compare the ledger with the armed wake-up once more."""
        waiting = self.engine.busy or not self.surfaces.quiet()
        if waiting and self._reactor.clock.mono() < deadline:
            self._reactor.later(POLL, lambda: self._last_calls(deadline))
            return
        self.engine.probe(self._checked)

    def _checked(self, owed: Owed | None) -> None:
        now = self._reactor.clock.wall()
        elapsed = self._armed is not None and self._armed <= now  # perhaps while we still counted as active
        if owed is None or owed.due or owed.live or owed.deliveries or elapsed:
            self._arm(now, self._reactor.stop)
        elif owed.next_wake is not None and (self._armed is None or owed.next_wake - self.lead < self._armed):
            self._arm(owed.next_wake, self._reactor.stop)
        else:
            self._reactor.stop()

    # handing over ------------------------------------------------------------------------------------------------

    def hand_over(self, *, again: bool) -> None:
        """End without touching the runs: `again` executes the daemon anew in its place, else the manager starts it."""
        if self.stage is not Stage.RUNNING:
            return  # it ends anyway, and the next life is the new one
        self.stage = Stage.HANDING_OVER
        self.again = again
        if again:
            self._announce("daemon.reexec", "executing crtrd anew, runs go on")
            self.notifier.reloading()
        else:
            self._announce("daemon.stopping", "restarting, runs go on")
            self.notifier.stopping()
        self.engine.rest()
        self._await_calm(self._reactor.clock.mono() + LAST_CALLS)

    def _await_calm(self, deadline: int) -> None:
        """A run on its way to the gate or to its end is not handed over: that takes milliseconds."""
        if self.stage is not Stage.HANDING_OVER:
            return
        if not self._calm() and self._reactor.clock.mono() < deadline:
            self._reactor.later(POLL, lambda: self._await_calm(deadline))
            return
        self.surfaces.stop_accepting()
        self.surfaces.release(lambda: self._last_answers(self._reactor.clock.mono() + LAST_CALLS))

    def _last_answers(self, deadline: int) -> None:
        """Runs may have ended meanwhile: what is not recorded would be nobody's when we execute ourselves anew."""
        waiting = not self._calm() or not self.surfaces.quiet()
        if waiting and self._reactor.clock.mono() < deadline:
            self._reactor.later(POLL, lambda: self._last_answers(deadline))
        elif self.stage is Stage.HANDING_OVER:
            self.handing_over = True
            if not self._calm() and self.notifier.present:  # the manager has what it takes to tell those ends
                self.again, self.failed = False, True
            self._reactor.stop()

    def _calm(self) -> bool:
        supervisor = self.engine.executor.supervisor
        return not self.engine.busy and (supervisor is None or supervisor.calm())

    # stopping ----------------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """SIGTERM: the manager knows whether it will start us again at once (`restart`), and then runs go on."""
        if self.manager is None:
            self.stop()
        else:
            self.manager.ask_job(lambda job: self.hand_over(again=False) if job in RESTARTS else self.stop())

    def stop(self) -> None:
        """Interrupt what runs, settle it, give up the name and end. A second call changes nothing."""
        if self.stage is Stage.STOPPING:
            return
        leaving = self.stage is Stage.RELEASED
        self.stage = Stage.STOPPING
        if leaving:
            return
        self._announce("daemon.stopping", "stopping")
        self.notifier.stopping()
        self.engine.rest()
        self.engine.post(StopBegun(self._reactor.clock.wall()))
        self._reactor.later(STOP_PATIENCE, self._insist)

    def _insist(self) -> None:
        """Long graces and a ledger that is away must not outlast systemd's patience: it would leave commands behind.

        What cannot be recorded now, the next life finds and settles.
        """
        supervisor = self.engine.executor.supervisor
        if supervisor:
            for run_id in supervisor.live():
                supervisor.stop(run_id, LAST_GRACE)
        self._reactor.later(LAST_GRACE + STOP_REST, self._reactor.stop)

    def _stop_when_done(self) -> None:
        owed = self.engine.owed
        if self.engine.busy or owed is None or owed.live or self._ending:
            return
        self._ending = True
        self.surfaces.release(self._reactor.stop)

    def _announce(self, kind: str, message: str, priority: int = 6) -> None:
        self.engine.executor.perform([Announce(kind, message, {}, priority)])
