"""The heartbeat of leases: while a run is live its lease is renewed at a third of its time; otherwise nothing ticks."""

from crtrd.ledger.store import Store
from crtrd.loop.reactor import Reactor, Timer
from crtrd.supervision.supervisor import Supervisor


class Heartbeat:
    """`begin` when a run becomes live; it stops by itself. `ttl` in microseconds."""

    def __init__(self, reactor: Reactor, store: Store, supervisor: Supervisor, ttl: int) -> None:
        self._reactor, self._store, self._supervisor, self.ttl = reactor, store, supervisor, ttl
        self._timer: Timer | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._timer = self._reactor.later(self.ttl // 3, self._beat)

    def _beat(self) -> None:
        self._timer = None
        if self._supervisor.live():
            self._store.submit(lambda session: session.renew_leases(), lambda _: None)
            self.begin()
