"""Files that decide when crons are due, apart from crtrd.toml: cron files, calendars, zone files.

At every start and reload they are compared with what the ledger remembers of them, and only what is not the same is
read; zone files are watched while the daemon lives. Decides nothing: what was read goes to the core as events.
"""

from collections.abc import Callable

from crtrd.config.calendars import load_calendars
from crtrd.config.cronfiles import Read
from crtrd.config.hostdata import host_mark, zone_folders
from crtrd.core import host
from crtrd.core.events import HostChanged
from crtrd.core.timetable import use_host
from crtrd.engine.cronloads import AGAIN, CronLoads, announce_faults
from crtrd.engine.engine import Engine
from crtrd.errors import ConfigError, LedgerError, RequestError
from crtrd.loop.reactor import IN
from crtrd.loop.watcher import Watcher
from crtrd.names import Places

SETTLING = 2_000_000
"""An upgrade of the zone files replaces hundreds of them: look once they have been left alone for so long."""


class HostFiles:
    """`begin` once, after the start was posted and before its batch is decided."""

    def __init__(self, engine: Engine, places: Places, read: Read) -> None:
        self._engine, self._places = engine, places
        self._reactor = engine.reactor
        self.crons = CronLoads(engine, places, read)
        self._mark = ""
        self._watcher = Watcher()
        self._timer = self._reactor.later(0, lambda: None)

    def begin(self) -> None:
        """Hand in what changed while no daemon looked: after the first batch, which may have somebody waiting.

        What that batch serves is served by the files as they are now; only what is planned for later can be stale.
        """
        self._use_host()
        self._reactor.soon(self._compare)

    def _compare(self) -> None:
        self._mark = host_mark(self._places)
        if self._recall(host.MARK) != self._mark:
            self._plan_anew(self._mark)
        self.crons.compare()
        self._watcher.add(zone_folders())
        if self._watcher.fd >= 0:
            self._reactor.watch(self._watcher.fd, IN, lambda _: self._zones_touched())

    def reload(self, done: Callable[[object], None]) -> None:
        """Read everything again. `done` gets what became of the cron files, once that is durable, or a RequestError."""
        self._watcher.add(zone_folders())
        faults = self._use_host()
        self._post_if_changed(host_mark(self._places))
        self.crons.load(done, faults)

    def close(self) -> None:
        if self._watcher.fd >= 0:
            self._reactor.unwatch(self._watcher.fd)
        self._watcher.close()

    def _recall(self, key: str) -> str | None:
        try:
            return self._engine.store.queries.recall(key)
        except LedgerError:
            return None

    # zones and calendars -----------------------------------------------------------------------------------------

    def _use_host(self) -> list[ConfigError]:
        """Have schedules compiled from the files as they are now; returns the faults of calendars, which are told."""
        calendars, faults = load_calendars(self._places, self._reactor.clock.wall())
        use_host(calendars)
        announce_faults(self._engine, faults, "")
        return faults

    def _zones_touched(self) -> None:
        self._watcher.drain()
        self._timer.cancel()
        self._timer = self._reactor.later(SETTLING, self._look)

    def _look(self) -> None:
        self._watcher.add(zone_folders())
        mark = host_mark(self._places)
        if mark != self._mark:
            self._use_host()
        self._post_if_changed(mark)

    def _post_if_changed(self, mark: str) -> None:
        if mark != self._mark:
            self._mark = mark
            self._plan_anew(mark)

    def _plan_anew(self, mark: str, after: str = "") -> None:
        """Some crons at a time, until all are planned or the files have changed again."""
        def planned(last: object) -> None:
            if mark != self._mark or self._engine.resting:
                return
            if isinstance(last, RequestError):
                self._reactor.later(AGAIN, lambda: self._plan_anew(mark, after))
            elif last:
                self.crons.when_heard(lambda: self._plan_anew(mark, str(last)))

        ticket = self._engine.executor.ticket(planned, own=True)
        self._engine.post(HostChanged(self._reactor.clock.wall(), mark, ticket, after))
