"""The daemon's place on the bus: takes the name, serves calls, sends signals, comes back when the bus does.

    away -> connecting -> connected -> owner -> releasing -> connected, name given up
      ^________________________|_________|___________|         (resume: back to owner)

Everything that arrives is dispatched, also what arrives before the reply to RequestName or ReleaseName: the call that
activated us waits in front of the one, the last racing calls in front of the other. Whether to exit is not decided
here; runs do not depend on anything here.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from jeepney import HeaderFields, MessageFlag, MessageType
from jeepney.bus_messages import DBusNameFlags, MatchRule, message_bus
from jeepney.low_level import Message

from crtrd import names
from crtrd.control.access import Caller
from crtrd.control.verbs import Control
from crtrd.core.effects import Announce
from crtrd.dbus.answer import ERRORS
from crtrd.dbus.callers import Callers
from crtrd.dbus.connection import Connection
from crtrd.dbus.dispatch import Dispatcher
from crtrd.dbus.framing import Damaged
from crtrd.dbus.polkit import Polkit
from crtrd.dbus.signals import Object, changed_objects, comings_and_goings, invalidated, signals
from crtrd.dbus.wire import Signal
from crtrd.errors import Code
from crtrd.loop.reactor import Reactor, Timer

FIRST_RETRY = 250_000
LAST_RETRY = 3_000_000
"""Microseconds between attempts: well below the 5 s within which we are back after the bus."""
NAME_RETRY = 5_000_000
EARLY_EVENTS = 64
"""Events from before the first name is owned (boot migrations) that are still told."""
PRIMARY_OWNER, ALREADY_OWNER = 1, 4

DBUS = "org.freedesktop.DBus"


class BusService:
    """`on_trouble` gets a sentence when something is wrong, once for each new reason; `on_owned` when all is well."""

    def __init__(
        self, reactor: Reactor, control: Control, *, address: str | None, user: bool, name: str = names.BUS_NAME
    ) -> None:
        self.on_trouble: Callable[[str], None] = lambda text: None
        self.on_owned: Callable[[], None] = lambda: None
        self._reactor, self._control, self._name = reactor, control, name
        self._address = address or ("SESSION" if user else "SYSTEM")
        self._connection: Connection | None = None
        self._dispatcher = Dispatcher(control, self._report, reactor.soon)
        self._callers = Callers(self._ask, self._send_quietly, self._next_do)
        self.polkit = Polkit(reactor, self._ask, self._send_quietly)
        self._wanted = self._owned = self._closed = False
        self._releasing: Callable[[], None] | None = None
        self._retry: Timer | None = None
        self._delay = FIRST_RETRY
        self._trouble = ""
        self._changed: dict[Object, None] = {}
        self._early: deque[Announce] | None = deque(maxlen=EARLY_EVENTS)
        control.subscribe(self._announce)

    @property
    def connected(self) -> bool:
        """True while we own the name."""
        return self._owned

    def pending(self) -> int:
        """Calls whose reply is not out: being answered, not dispatched, or answered and not yet written to the bus."""
        busy = self._connection is not None and self._connection.busy
        return self._dispatcher.pending + int(busy)

    @property
    def unsent(self) -> int:
        """Bytes that the bus has not taken yet."""
        return self._connection.unsent if self._connection is not None else 0

    def start(self) -> None:
        """Connect and take the name, for as long as it takes; `on_owned` says when."""
        self._wanted = True
        self._connect()

    def release(self, done: Callable[[], None]) -> None:
        """Give the name up; `done` once the bus has confirmed and all that came before is dispatched.

        `done` is not called when `resume` comes first.
        """
        self._wanted, self._releasing = False, done
        self._cancel_retry()
        if self._connection is not None and self._connection.ready:
            self._connection.ask(message_bus.ReleaseName(self._name), self._released)
        else:
            self._reactor.soon(self._finish_release)

    def resume(self) -> None:
        """Take the name again: new work cancelled the exit."""
        self._wanted, self._releasing = True, None
        if self._connection is None:
            self._connect()
        elif self._connection.ready:
            self._request_name()

    def close(self) -> None:
        """Leave the bus. What was answered has been delivered; may take 0.2 s."""
        self._closed, self._wanted, self._owned = True, False, False
        self._cancel_retry()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # Connection and name

    def _connect(self) -> None:
        self._retry = None
        if self._closed or self._connection is not None:
            return
        connection = Connection(
            self._reactor, self._address, on_ready=self._ready, on_message=self._received, on_lost=self._lost
        )
        self._connection = connection
        connection.start()

    def _ready(self) -> None:
        self._ask(message_bus.Hello(), self._greeted)
        rule = MatchRule(type="signal", sender=DBUS, interface=DBUS, member="NameOwnerChanged")
        rule.add_arg_condition(0, self._name)
        self._send_quietly(message_bus.AddMatch(rule))
        if self._wanted:
            self._request_name()

    def _greeted(self, reply: Message) -> None:
        if reply.header.message_type is MessageType.error:
            self._say(f"cannot use the bus: {_error_text(reply)}")

    def _request_name(self) -> None:
        self._cancel_retry()
        self._ask(message_bus.RequestName(self._name, DBusNameFlags.do_not_queue), self._named)

    def _named(self, reply: Message) -> None:
        if not self._wanted:
            return
        refused = reply.header.message_type is MessageType.error
        if not refused and reply.body[0] in {PRIMARY_OWNER, ALREADY_OWNER}:
            self._own()
            return
        reason = _error_text(reply) if refused else "another process owns it; trying again"
        self._say(f"cannot take the bus name {self._name}: {reason}")
        self._later(NAME_RETRY, self._request_name)

    def _own(self) -> None:
        self._owned, self._trouble, self._delay = True, "", FIRST_RETRY
        early, self._early = self._early or deque(), None
        for event in early:
            self._announce(event)
        self.on_owned()

    def _released(self, _: Message) -> None:
        if not self._wanted:
            self._owned = False
        self._finish_release()

    def _finish_release(self) -> None:
        done, self._releasing = self._releasing, None
        if done is not None:
            done()

    def _lost(self, reason: str) -> None:
        self._connection, self._owned = None, False
        self._changed.clear()
        self._callers.forget_all()
        self.polkit.forget_all()
        if self._releasing is not None:
            self._finish_release()  # the name is as gone as it can be
        if self._wanted and self._connection is None:
            self._say(f"cannot reach the bus: {reason}; trying again")
            self._later(self._delay, self._connect)
            self._delay = min(self._delay * 2, LAST_RETRY)

    def _later(self, delay: int, callback: Callable[[], None]) -> None:
        self._cancel_retry()
        self._retry = self._reactor.later(delay, callback)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # Messages

    def _received(self, message: Message) -> None:
        if self._connection is None:
            return
        if isinstance(message, Damaged):
            self._refuse_damaged(message, self._connection)
        elif message.header.message_type is MessageType.method_call:
            self._called(message, self._connection)
        elif message.header.message_type is MessageType.signal:
            self._bus_signal(message)

    def _called(self, call: Message, connection: Connection) -> None:
        self._control.touched()
        # The reply belongs to this connection: on the next one the same unique name is somebody else.
        answer = self._dispatcher.accept(call, connection.send)

        interactive = bool(call.header.flags & MessageFlag.allow_interactive_authorization)

        def go_on(caller: Caller) -> None:
            self._dispatcher.handle(answer, replace(caller, interactive=True) if interactive else caller)

        self._callers.identify(call.header.fields.get(HeaderFields.sender), go_on)

    def _refuse_damaged(self, message: Damaged, connection: Connection) -> None:
        header = message.header
        if header is None or header.message_type is not MessageType.method_call:
            return
        self._control.touched()
        code = Code.LIMIT_EXCEEDED if message.too_large else Code.INVALID_ARGUMENT
        self._dispatcher.accept(message, connection.send).error(ERRORS[code], f"cannot read the call: {message.reason}")

    def _bus_signal(self, message: Message) -> None:
        fields = message.header.fields
        if fields.get(HeaderFields.sender) != DBUS or fields.get(HeaderFields.member) != "NameOwnerChanged":
            return
        match message.body:
            case (self._name, str(), str() as owner):
                self._owner_changed(owner)
            case (str() as gone, str(), ""):
                self._callers.left(gone)
                self.polkit.left(gone)
            case _:
                pass

    def _owner_changed(self, owner: str) -> None:
        """Somebody gave the name up, or took it from us: ask for it again rather than wait for the timer."""
        if self._wanted and not owner and not self._owned:
            self._request_name()

    def _announce(self, event: Announce) -> None:
        if not self._owned:
            if self._early is not None:
                self._early.append(event)
            return
        for signal in (*comings_and_goings(event), *signals(event)):
            self._tell(signal)
        if not self._changed:
            self._reactor.soon(self._tell_changes)
        self._changed.update(dict.fromkeys(changed_objects(event)))

    def _tell_changes(self) -> None:
        """One PropertiesChanged for each object, however many events of one transaction touched it."""
        changed, self._changed = self._changed, {}
        for each in changed:
            self._tell(invalidated(each))

    # Sending

    def _send(self, message: Message) -> None:
        if self._connection is not None:
            self._connection.send(message)

    def _tell(self, signal: Signal) -> None:
        if self._connection is not None:
            self._connection.tell(signal)

    def _next_do(self, pieces: list[Callable[[], None]]) -> None:
        if self._connection is not None:
            self._connection.next_do(pieces)

    def _send_quietly(self, message: Message) -> None:
        """For what nobody answers."""
        if message.header.message_type is MessageType.method_call:
            message.header.flags |= MessageFlag.no_reply_expected
        self._send(message)

    def _ask(self, message: Message, then: Callable[[Message], None]) -> bool:
        """False: there is no connection, and `then` will not be called. Nor is it when the connection is lost."""
        if self._connection is None or not self._connection.open:
            return False
        self._connection.ask(message, then)
        return True

    def _say(self, text: str) -> None:
        if text != self._trouble:
            self._trouble = text
            self.on_trouble(text)

    def _report(self, text: str) -> None:
        self.on_trouble(text)


def _error_text(reply: Message) -> str:
    name = reply.header.fields.get(HeaderFields.error_name, "")
    return str(reply.body[0]) if reply.body else str(name)
