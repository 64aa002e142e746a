"""The pace of retention: step by step through the ledger, each about as long as others may wait for it.

How many rows go in a step follows from how long the one before took, its commit included: rows whose ids lie all over
an index take ten times as long as those that lie together. Between two steps whatever else waits for the ledger has
its turn, and a daemon that has something to do rests longer between them.
"""

from collections.abc import Callable

from crtrd.errors import LedgerError
from crtrd.ledger.retention import BEGIN, CHUNK, Keep, Place, Pruned
from crtrd.ledger.session import Session
from crtrd.ledger.store import Store
from crtrd.loop.reactor import Reactor

FIRST, AGAIN = 10_000_000, 86_400_000_000
GOAL = 25_000
"""Microseconds that a step is to take."""
LEAST, MOST = 50, 1000
"""Rows of one kind in a step."""
REST = 4
"""A step is followed by a rest of a fourth of its time,"""
REST_BUSY = 50_000
"""or of so many microseconds while something runs."""
LEAP, PROBATION, NOTED = 32 * AGAIN, AGAIN, AGAIN // 24
SEEN, DOUBTED = "forgetting.seen", "forgetting.doubted"


class Forgetting:
    """`begin` once. `keep` says what stays, `busy` whether others want the ledger."""

    def __init__(
        self, reactor: Reactor, store: Store, *, keep: Callable[[], Keep], busy: Callable[[], bool]
    ) -> None:
        self._reactor, self._store, self._keep, self._busy = reactor, store, keep, busy
        self.most = CHUNK

    def begin(self) -> None:
        self._reactor.later(FIRST, self._step)

    def _step(self, start: Place = BEGIN) -> None:
        clock, keep, most = self._reactor.clock, self._keep(), self.most
        begun, now = clock.mono(), clock.wall()

        def work(session: Session) -> Pruned:
            nonlocal begun
            begun = clock.mono()  # not when it was handed in: it may have waited for others
            if start == BEGIN and not _trusts(session, now):
                return Pruned(0, None)
            return session.prune(keep, now, start, most)

        self._store.submit(work, lambda step: self._pruned(step, clock.mono() - begun))

    def _pruned(self, step: Pruned | LedgerError, took: int) -> None:
        if not isinstance(step, Pruned) or step.onward is None:
            self._reactor.later(AGAIN, self._step)
            return
        onward = step.onward
        self.most = paced(self.most, step.gone, took)
        rest = REST_BUSY if self._busy() else took // REST
        self._reactor.later(rest, lambda: self._step(onward))


def _trusts(session: Session, now: int) -> bool:
    """Whether the clock is one to forget by: a year that a bad battery makes up would leave nothing of the history.

    One that is far ahead of when it was last looked at has a day to be put right, over several lives if need be.
    """
    seen, doubted = (int(session.recall(mark) or 0) for mark in (SEEN, DOUBTED))
    stood = doubted and doubted + PROBATION <= now <= doubted + PROBATION + LEAP
    if seen and now > seen + LEAP and not stood:
        if not doubted <= now <= doubted + PROBATION + LEAP:
            session.remember(DOUBTED, str(now))
        return False
    if not seen <= now < seen + NOTED:  # short lives need not write each time
        session.remember(SEEN, str(now))
    if doubted:
        session.remember(DOUBTED, "0")
    return True


def paced(most: int, gone: int, took: int) -> int:
    """How many rows the next step may delete, where `gone` of `most` took so many microseconds; at most twice as many.

    A step that found little to delete tells nothing of the pace.
    """
    if gone < most:
        return most
    return max(min(gone * GOAL // max(took, 1), most * 2, MOST), LEAST)
