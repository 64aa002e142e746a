"""Who is calling: asks the bus for each sender's uid and pid once and remembers them until the sender leaves.

Calls of one sender wait here for the answer, in their order. Who cannot be identified, because they left or the bus
would not say, is nobody (uid None) and is refused by control. Sans-IO: `ask` and `tell` are the connection's.
"""

from collections.abc import Callable
from functools import partial

from jeepney import MessageType
from jeepney.bus_messages import MatchRule, message_bus
from jeepney.low_level import Message

from crtrd.control.access import Caller
from crtrd.dbus.values import plain

REMEMBERED = 256
"""Senders kept at once: a system bus allows 512 match rules to a connection (dbus-daemon(1))."""
NOBODY = Caller(None, None, "bus")

Then = Callable[[Caller], None]


class Callers:
    """Identities by unique bus name. A unique name is never given to another connection while the bus lives."""

    def __init__(
        self, ask: Callable[[Message, Callable[[Message], None]], object], tell: Callable[[Message], None],
        next_do: Callable[[list[Callable[[], None]]], None],
    ) -> None:
        """`next_do` does what it is given, in order and before anything else that has arrived."""
        self._ask, self._tell, self._next_do = ask, tell, next_do
        self._known: dict[str, Caller] = {}
        self._asking: dict[str, list[Then]] = {}

    def identify(self, sender: str | None, then: Then) -> None:
        """Call `then` with who `sender` is: at once when known, else after the bus said."""
        if not sender:
            return then(NOBODY)
        if sender in self._known:
            return then(self._known[sender])
        if sender in self._asking:
            return self._asking[sender].append(then)
        self._asking[sender] = [then]
        # The rule first: who leaves between the two is noticed.
        self._tell(message_bus.AddMatch(_leaving(sender)))
        self._ask(message_bus.GetConnectionCredentials(sender), lambda reply: self._learned(sender, reply))
        return None

    def left(self, sender: str) -> None:
        """The bus says that `sender` is gone: nothing of it is kept, its waiting calls are nobody's."""
        if self._known.pop(sender, None) is not None:
            self._tell(message_bus.RemoveMatch(_leaving(sender)))

    def forget_all(self) -> None:
        """The connection is gone and with it everybody's name; nobody waits for an answer any more."""
        waiting = [then for thens in self._asking.values() for then in thens]
        self._known.clear()
        self._asking.clear()
        for then in waiting:
            then(NOBODY)

    def _learned(self, sender: str, reply: Message) -> None:
        caller = _caller(sender, reply)
        if caller is NOBODY:
            self._tell(message_bus.RemoveMatch(_leaving(sender)))
        else:
            self._known[sender] = caller
            if len(self._known) > REMEMBERED:
                self.left(next(iter(self._known)))
        self._next_do([partial(then, caller) for then in self._asking.pop(sender, [])])


def _caller(sender: str, reply: Message) -> Caller:
    if reply.header.message_type is not MessageType.method_return:
        return NOBODY
    match reply.body:
        case (dict() as credentials,):
            said = plain("a{sv}", credentials)
        case _:
            return NOBODY
    match said:
        case {"UnixUserID": int() as uid, "ProcessID": int() as pid}:
            return Caller(uid, pid, "bus", sender)
        case {"UnixUserID": int() as uid}:
            return Caller(uid, None, "bus", sender)
        case _:
            return NOBODY


def _leaving(sender: str) -> MatchRule:
    rule = MatchRule(
        type="signal", sender="org.freedesktop.DBus", interface="org.freedesktop.DBus", member="NameOwnerChanged"
    )
    rule.add_arg_condition(0, sender)
    return rule
