"""The authority on the system bus: asks polkit whether a caller may, without waiting. Sans-IO, as `callers` is.

Whatever is not a clear yes is a no: an error, a polkit that is not there, a caller that has left meanwhile, no answer
in time. polkit knows the caller by its unique name, which nobody else can get, so there is no race for a pid
(org.freedesktop.PolicyKit1.Authority, "system-bus-name").
"""

import itertools
from collections.abc import Callable

from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.low_level import Message

from crtrd.control.access import ACTIONS, Caller, Need, Verdict
from crtrd.loop.reactor import Reactor, Timer
from crtrd.values import dataclass

AUTHORITY = DBusAddress(
    "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1", "org.freedesktop.PolicyKit1.Authority")
ALLOW_USER_INTERACTION = 1
WITHIN, WITHIN_INTERACTIVE = 25_000_000, 180_000_000
"""Microseconds for an answer; with a person to type a password it may take longer."""

Then = Callable[[Verdict], None]


@dataclass(slots=True)
class Question:
    sender: str
    then: Then
    deadline: Timer


class Polkit:
    """`ask` and `tell` are the connection's."""

    def __init__(
        self, reactor: Reactor, ask: Callable[[Message, Callable[[Message], None]], bool],
        tell: Callable[[Message], None],
    ) -> None:
        self._reactor, self._ask, self._tell = reactor, ask, tell
        self._open: dict[str, Question] = {}
        """By cancellation id."""
        self._numbers = itertools.count(1)

    def check(self, need: Need, caller: Caller, then: Then) -> None:
        """Give the verdict to `then`, once. Callers without a name on the bus are refused at once."""
        if not caller.name:
            return then(Verdict.REFUSED)
        name = f"crtrd{next(self._numbers)}"
        flags = ALLOW_USER_INTERACTION if caller.interactive else 0
        subject = ("system-bus-name", {"name": ("s", caller.name)})
        body: tuple[object, ...] = (subject, ACTIONS[need], {}, flags, name)
        message = new_method_call(AUTHORITY, "CheckAuthorization", "(sa{sv})sa{ss}us", body)
        within = WITHIN_INTERACTIVE if caller.interactive else WITHIN
        deadline = self._reactor.later(within, lambda: self._give_up(name))
        self._open[name] = Question(caller.name, then, deadline)
        if not self._ask(message, lambda reply: self._close(name, verdict_of(reply))):
            return self._close(name, Verdict.REFUSED)
        return None

    def left(self, sender: str) -> None:
        """The caller is gone: its questions are withdrawn, the dialog of an interactive one closes."""
        for name in [name for name, question in self._open.items() if question.sender == sender]:
            self._give_up(name)

    def forget_all(self) -> None:
        """The bus is gone and everybody on it."""
        for name in list(self._open):
            self._close(name, Verdict.REFUSED)

    def _give_up(self, name: str) -> None:
        self._tell(new_method_call(AUTHORITY, "CancelCheckAuthorization", "s", (name,)))
        self._close(name, Verdict.REFUSED)

    def _close(self, name: str, verdict: Verdict) -> None:
        question = self._open.pop(name, None)
        if question is not None:
            question.deadline.cancel()
            question.then(verdict)


def verdict_of(reply: Message) -> Verdict:
    """From `(bba{ss})`: is authorised, is a challenge, details."""
    if reply.header.message_type is not MessageType.method_return:
        return Verdict.REFUSED
    match reply.body:
        case ((True, _, _),):
            return Verdict.ALLOWED
        case ((False, True, _),):
            return Verdict.CHALLENGE
        case _:
            return Verdict.REFUSED
