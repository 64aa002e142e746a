"""The single consumer of events: it takes what has arrived, lets the core decide, commits, and only then acts.

    post(event) ... post(event)          while a commit is under way, events wait: that is the group commit
         |
    one transaction in the ledger's thread: for each event core.decide, for all core.follow_up -> records put, acts kept
         |  committed
    executor.perform(acts), alarm set to the next wake-up, next batch

When the ledger fails nothing was written and nothing is done: requests are refused, all other events are kept in
their order and decided again when the store is back (with growing waits, said once).
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from crtrd.core import scheduler
from crtrd.core.effects import Act, Announce, Effect, PutDelivery, Record, Refuse, Spawn
from crtrd.core.events import ClockSet, DaemonStarted, Event, LaunchFailed, RunEnded, RunHeld, RunLost, WokeUp
from crtrd.core.facts import Limits
from crtrd.core.idle import Owed
from crtrd.engine.crashpoints import reach
from crtrd.engine.executor import Executor
from crtrd.engine.gathering import Gathering
from crtrd.errors import Code, LedgerError, RequestError
from crtrd.ledger.session import Session
from crtrd.ledger.store import Store
from crtrd.loop.clock import Alarm
from crtrd.loop.reactor import IN, Reactor
from crtrd.values import dataclass

BATCH = 256
RETRY_FIRST, RETRY_LONGEST = 200_000, 10_000_000
OF_RUNS = (RunHeld, RunEnded)
"""Events that come by the hundred in a burst and may wait for one another."""
ALARM_SLACK = 500_000  # when only the reactor's own timer rings, the alarm's descriptor is this late at most


@dataclass(frozen=True, slots=True)
class Decided:
    acts: list[Act]
    owed: Owed
    looked: int


class Engine:
    """Owns the inbox and the alarm. `limits` and `drained` may be set at any time; they hold from the next batch on."""

    def __init__(self, reactor: Reactor, store: Store, executor: Executor, limits: Limits) -> None:
        self.reactor, self.store, self.executor, self.limits = reactor, store, executor, limits
        self.owed: Owed | None = None
        """As of the last commit; None when it could not be asked."""
        self.drained = False
        """True while an administrator wants nothing started."""
        self.resting = False
        """True while leaving or stopping: the time is not looked at any more, the next life serves what comes due."""
        self.after_batch: Callable[[], None] | None = None
        self._looked = 0
        """The instant up to which deliveries and escalations have last been looked at."""
        self._gathering = Gathering()
        self._company = reactor.later(0, lambda: None)
        self._recovering = False
        self._requests: list[Event] = []
        self._inbox: deque[Event] = deque()
        self._somebody_waits = False
        """There is, or may be, more in the inbox than news of runs."""
        self._in_flight: list[Event] = []
        self._failures = 0
        self.trouble = ""
        """Why the ledger cannot be written at the moment."""
        self._pausing = False
        self._alarm = Alarm()
        self._timer = reactor.later(0, lambda: None)
        reactor.watch(self._alarm.fd, IN, lambda _: self._rang())
        reactor.after_turn = self._take_batch

    def post(self, event: Event) -> None:
        """Hand in an event; it will be decided in order, in this turn or after the commit under way."""
        if self._recovering and hasattr(event, "ticket"):
            self._requests.append(event)
        else:
            self._inbox.append(event)
            self._somebody_waits = self._somebody_waits or not isinstance(event, OF_RUNS)

    @property
    def busy(self) -> bool:
        return bool(self._inbox or self._in_flight or self._requests)

    def recover(self) -> None:
        """Decide nothing until `recovered`: what is due or asked must not meet runs that are live only on paper."""
        self._recovering = True

    def recovered(self, boot_id: str) -> None:
        """First what recovery has posted, then the start of this life, then what was asked meanwhile."""
        self._recovering = False
        self._inbox.append(DaemonStarted(self.reactor.clock.wall(), boot_id))
        self._inbox.extend(self._requests)
        self._requests.clear()

    def wake(self) -> None:
        """Have the core look at the time."""
        if not self.resting:
            self.post(WokeUp(self.reactor.clock.wall()))

    def close(self) -> None:
        self.reactor.unwatch(self._alarm.fd)
        self._alarm.close()

    def probe(self, done: Callable[[Owed | None], None]) -> None:
        """Ask the ledger afresh what is owed; None when it cannot say."""
        now, own_clock = self.reactor.clock.wall(), self.limits.own_clock
        self.store.submit(
            lambda session: session.owed(now, own_clock=own_clock),
            lambda value: done(None if isinstance(value, LedgerError) else value))

    # one batch ---------------------------------------------------------------------------------------------------

    def _take_batch(self) -> None:
        if self._in_flight or not self._inbox or self._pausing or self._recovering or self._awaits_company():
            return
        self._in_flight = [self._inbox.popleft() for _ in range(min(len(self._inbox), BATCH))]
        self._somebody_waits = bool(self._inbox)
        limits = without_starts(self.limits) if self.resting or self.drained else self.limits
        limits = replace(limits, deliver=not self.resting)
        batch, now, looked = tuple(self._in_flight), self.reactor.clock.wall(), self._looked
        self.store.submit(lambda session: decide(batch, session, limits, now, looked), self._decided)

    def _awaits_company(self) -> bool:
        """In a burst, for a moment; then a timer makes sure of the next turn."""
        supervisor = self.executor.supervisor
        if supervisor is None or self._somebody_waits:
            return False
        wait = self._gathering.wait(self.reactor.clock.mono(), len(self._inbox), supervisor.count)
        self._company.cancel()
        if wait:
            self._company = self.reactor.later(wait, lambda: None)
        return bool(wait)

    def _decided(self, value: Decided | LedgerError) -> None:
        batch, self._in_flight = self._in_flight, []
        if isinstance(value, LedgerError):
            self._ledger_failed(batch, value)
            return
        reach("commit.after")
        self._gathering.committed(self.reactor.clock.mono(), len(batch))
        if self._failures:
            self._failures, self.trouble = 0, ""
            self.executor.perform([Announce("ledger.available", "the ledger is back", {}, 5)])
        self.owed, self._looked = value.owed, value.looked
        for event in batch:
            if isinstance(event, RunEnded | LaunchFailed | RunLost):
                self.executor.durable(event.run_id)
        self.executor.perform(value.acts)
        if sum(isinstance(act, Spawn) for act in value.acts) >= self.limits.starts_at_once:
            self.wake()  # there may be more: those that are recorded come to their gates meanwhile
        self._set_alarm(None if self.resting else value.owed.next_wake)
        if self.after_batch is not None:
            self.after_batch()

    def _ledger_failed(self, batch: list[Event], error: LedgerError) -> None:
        self.owed = None
        kept = []
        for event in batch:
            ticket = getattr(event, "ticket", None)
            if ticket is not None:
                self.executor.perform([Refuse(ticket, Code.LEDGER_UNAVAILABLE, str(error))])
            elif not isinstance(event, WokeUp):
                kept.append(event)
        self._inbox.extendleft(reversed(kept))
        self.trouble = str(error)
        if not self._failures:
            text = f"{error}; nothing starts until it is back"
            self.executor.perform([Announce("ledger.unavailable", text, {}, 3)])
        self._failures += 1
        self._pausing = True
        delay = min(RETRY_FIRST * 2 ** min(self._failures, 16), RETRY_LONGEST)
        self.reactor.later(delay, self._try_again)

    def _try_again(self) -> None:
        self._pausing = False
        if not self._inbox:
            self.wake()

    # time --------------------------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Start nothing more and look at no instant; what is asked is still decided and answered."""
        self.resting = True
        self._set_alarm(None)

    def _set_alarm(self, instant: int | None) -> None:
        """The alarm follows the wall clock; a timer on the monotonic clock stands behind it."""
        self._alarm.set(instant)
        self._timer.cancel()
        if instant is not None:
            delay = instant - self.reactor.clock.wall()
            self._timer = self.reactor.later(max(delay, 0) + ALARM_SLACK, self.wake)

    def _rang(self) -> None:
        if self._alarm.clock_was_set():
            self.post(ClockSet(self.reactor.clock.wall()))
        else:
            self.wake()


def decide(batch: tuple[Event, ...], session: Session, limits: Limits, now: int, looked: int) -> Decided:
    """Let the core decide a batch inside the open transaction. Runs in the ledger's thread.

    Deliveries that came due after `looked`, when they were looked at last, count as ahead, also those that are due by
    now: so that the alarm rings for them at once where this batch does not look at them.
    """
    session.expect(name for event in batch if (name := getattr(event, "run_id", "")))
    transaction = _Transaction(session)
    for event in batch:
        ticket = getattr(event, "ticket", None)
        if ticket is None:
            transaction.apply(scheduler.decide(event, session, limits))
            continue
        acts = len(transaction.acts)
        try:
            with session.undoable():
                transaction.apply(scheduler.decide(event, session, limits))
        except RequestError as error:
            transaction.acts[acts:] = [Refuse(ticket, error.code, str(error))]
    tells = scheduler.looks(batch, limits, tells=transaction.tells)
    transaction.apply(scheduler.follow_up(batch, now, session, limits, tells=tells))
    looked = now if tells else looked
    owed = session.owed(now, own_clock=limits.own_clock, looked=looked)
    reach("commit.before")
    return Decided(transaction.acts, owed, looked)


class _Transaction:
    """Puts records as they come, so that the next decision sees them, and keeps the acts for after the commit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.acts: list[Act] = []
        self.tells = False

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self._session.put(effect)
                self.tells = self.tells or isinstance(effect, PutDelivery)
            else:
                self.acts.append(effect)


def without_starts(limits: Limits) -> Limits:
    """The same limits for a daemon that starts nothing more."""
    return replace(limits, max_runs_at_once=0)
