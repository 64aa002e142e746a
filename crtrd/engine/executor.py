"""Carries out the core's acts, after their commit: children, answers, announcements. What comes of them is an event.

Owns the tickets of waiting callers and the timeout timers of released runs. Decides nothing.
"""

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, assert_never

from crtrd.core import reports
from crtrd.core.effects import (
    Act,
    Announce,
    Answer,
    CloseGate,
    Deliver,
    Escalate,
    LookAfter,
    OpenGate,
    Refuse,
    SignalRun,
    Spawn,
    StopRun,
)
from crtrd.core.events import (
    DeliveryEnded,
    Event,
    LaunchFailed,
    ProfileFollowed,
    RunEnded,
    RunHeld,
    RunLost,
    TimeoutReached,
)
from crtrd.engine.context import Contexts
from crtrd.engine.crashpoints import reach
from crtrd.errors import LaunchError, RequestError
from crtrd.loop.reactor import Reactor, Timer
from crtrd.supervision.faults import Shortage

if TYPE_CHECKING:
    from crtrd.engine.output import OutputLog
    from crtrd.engine.scopes import Scopes
    from crtrd.supervision.supervisor import Supervisor

if TYPE_CHECKING:
    from crtrd.core.delivery import Delivery

MINUTE = 60_000_000
Listener = Callable[[Announce], None]
Reply = Callable[[object], None]


class Executor:
    """`post` hands events to the engine; `supervisor` is given later because its reports go through `report`."""

    def __init__(self, reactor: Reactor, contexts: Contexts, *, head: int) -> None:
        self.reactor, self.contexts, self.head = reactor, contexts, head
        self.post: Callable[[Event], None] = lambda _: None
        self.supervisor: Supervisor | None = None
        self.output: OutputLog | None = None
        self.scopes: Scopes | None = None
        self.live: Callable[[], None] = lambda: None
        """Called when a run has become live: the heartbeat of its lease."""
        self.deliver: Callable[[Delivery], None] = lambda _: None
        """Makes an attempt; the worker's, once there is one."""
        self.escalate: Callable[[str], None] = lambda _: None
        """Has a person told."""
        self.look_after: Callable[[str], None] = lambda _: None
        """Sees how that fares."""
        self.listeners: list[Listener] = []
        self._tickets: dict[int, Reply] = {}
        self._own: set[int] = set()
        self._numbers = itertools.count(1)
        self._timeouts: dict[str, Timer] = {}
        self._deferred_said: int | None = None

    def ticket(self, reply: Reply, *, own: bool = False) -> int:
        """A number under which `reply` gets the answer (a value or a RequestError), once.

        `own`: it is a room of ours that waits, nobody outside.
        """
        number = next(self._numbers)
        if own:
            self._own.add(number)
        self._tickets[number] = reply
        return number

    @property
    def unanswered(self) -> int:
        return len(self._tickets)

    def report(self, event: Event) -> None:
        """What supervision or a courier saw: on to the engine."""
        if isinstance(event, DeliveryEnded):
            reach("deliver.taken")
        if isinstance(event, RunEnded | LaunchFailed | RunLost):
            reach("ended.before")
            if timer := self._timeouts.pop(event.run_id, None):
                timer.cancel()
            if self.output:
                self.output.end(event.run_id)
            if self.scopes:
                self.scopes.forget(event.run_id)
        if isinstance(event, RunHeld) and self.scopes:
            self.scopes.place(event, self.post, self.report)
        else:
            self.post(event)

    def durable(self, run_id: str) -> None:
        if self.supervisor:
            self.supervisor.durable(run_id)

    def perform(self, acts: Iterable[Act]) -> None:
        with self.contexts.together():
            for act in acts:
                self._perform(act)

    def _perform(self, act: Act) -> None:  # noqa: PLR0912 - one arm per act
        supervisor = self.supervisor
        match act:
            case Announce():
                self._announce(act)
            case Answer(ticket, value):
                self._reply(ticket, value)
            case Refuse(ticket, code, message):
                self._reply(ticket, RequestError(code, message))
            case Spawn():
                self._spawn(act)
            case OpenGate(run_id, timeout):
                reach("gate.before")
                self.time_out_after(run_id, timeout)
                if supervisor:
                    supervisor.release(run_id)
                reach("gate.after")
            case CloseGate(run_id):
                if supervisor:
                    supervisor.withhold(run_id)
            case StopRun(run_id, grace):
                if supervisor:
                    supervisor.stop(run_id, grace)
            case SignalRun(run_id, signal):
                if supervisor:
                    supervisor.signal(run_id, signal)
            case Deliver(delivery):
                reach("deliver.before")
                self.deliver(delivery)
            case Escalate(escalation_id):
                self.escalate(escalation_id)
            case LookAfter(escalation_id):
                self.look_after(escalation_id)
            case _:
                assert_never(act)

    def time_out_after(self, run_id: str, delay: int) -> None:
        """The run is live: report TimeoutReached after `delay` microseconds of the monotonic clock."""
        self.live()
        clock = self.reactor.clock
        timer = self.reactor.later(delay, lambda: self.post(TimeoutReached(clock.wall(), run_id)))
        self._timeouts[run_id] = timer

    def _spawn(self, act: Spawn) -> None:
        reach("spawn.before")
        try:
            context = self.contexts.of(act.run, act.cron, head=self.head)
            if self.scopes and (why := self.scopes.lacking(context.resources)):
                raise LaunchError("limits", 0, why)
        except LaunchError as error:
            now, shortage = self.reactor.clock.wall(), isinstance(error, Shortage)
            self.post(LaunchFailed(now, act.run.id, error.stage, error.errno, str(error), shortage))
            return
        if context.changes:  # decided before the run is held, so it holds for this run too
            self.post(ProfileFollowed(self.reactor.clock.wall(), act.cron.id, context.changes))
        if context.fallen_back:
            self._announce(reports.profile_missing(act.cron, act.run))
        if self.output:
            self.output.begin(act.run)
        if self.scopes:
            self.scopes.want(act.run.id, context.scope)
        if self.supervisor:
            self.supervisor.start(context.plan)
        reach("spawn.after")

    def _reply(self, ticket: int, value: object) -> None:
        reply = self._tickets.pop(ticket, None)
        if ticket in self._own:
            self._own.remove(ticket)
            if reply:
                reply(value)
            return
        reach("answer.before")
        if reply:
            reply(value)
        reach("answer.after")

    def _announce(self, event: Announce) -> None:
        if event.kind == "cron.capacity.deferred":
            now = self.reactor.clock.mono()
            if self._deferred_said is not None and now - self._deferred_said < MINUTE:
                return
            self._deferred_said = now
        for listener in self.listeners:
            listener(event)
