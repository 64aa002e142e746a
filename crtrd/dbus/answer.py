"""One call and its one answer: the only funnel from values, refusals and faults to reply and error messages.

Every reply passes here, so here stands which error name a refusal has, that callers who want no reply get none, and
that what cannot be sent becomes an error instead of a broken connection.
"""

import struct
from collections.abc import Callable

from jeepney import HeaderFields, Message, MessageFlag, new_error, new_method_return

from crtrd import names
from crtrd.dbus.values import clean
from crtrd.errors import Code, RequestError

FREEDESKTOP_ERROR = "org.freedesktop.DBus.Error."
MESSAGE_MOST = 16 << 20
"""Half of what a system bus accepts before it cuts the connection (dbus-daemon(1), max_message_size)."""
TEXT_MOST = 4096
"""Longest error text that leaves, in characters."""

ERRORS: dict[Code, str] = {
    Code.NO_SUCH_CRON: names.ERROR_PREFIX + "NoSuchCron",
    Code.NO_SUCH_RUN: names.ERROR_PREFIX + "NoSuchRun",
    Code.NO_SUCH_OCCURRENCE: names.ERROR_PREFIX + "NoSuchOccurrence",
    Code.CRON_EXISTS: names.ERROR_PREFIX + "CronExists",
    Code.INVALID_DEFINITION: names.ERROR_PREFIX + "InvalidDefinition",
    Code.INVALID_STATE: names.ERROR_PREFIX + "InvalidState",
    Code.INVALID_ARGUMENT: FREEDESKTOP_ERROR + "InvalidArgs",
    Code.CONFLICT: names.ERROR_PREFIX + "Conflict",
    Code.LEDGER_UNAVAILABLE: names.ERROR_PREFIX + "LedgerUnavailable",
    Code.SHUTTING_DOWN: names.ERROR_PREFIX + "ShuttingDown",
    Code.ACCESS_DENIED: FREEDESKTOP_ERROR + "AccessDenied",
    Code.INTERACTION_REQUIRED: FREEDESKTOP_ERROR + "InteractiveAuthorizationRequired",
    Code.LIMIT_EXCEEDED: FREEDESKTOP_ERROR + "LimitsExceeded",
}

# What goes wrong in translating a value to or from the bus. A fault of ours, but one that can change nothing.
TRANSLATION_FAULTS = (TypeError, ValueError, KeyError, IndexError, AttributeError, RecursionError, struct.error)


Send = Callable[[Message], object]
"""Takes a message for the bus; raises TooLarge or a translation fault when it cannot be spelled."""


class TooLarge(ValueError):
    """The message would be larger than what the bus carries."""


class Answer:
    """The answer to one call. Exactly one of `give`, `refuse`, `fail` and `error` counts, the first."""

    def __init__(self, call: Message, send: Send, on_trouble: Callable[[str], None]) -> None:
        self.call = call
        self.done: Callable[[], None] = lambda: None
        self._send = send
        self._on_trouble = on_trouble
        self._open = True

    def give(self, signature: str, body: tuple[object, ...]) -> None:
        if not self._settle():
            return
        reply = new_method_return(self.call, signature or None, body)
        try:
            self._out(reply)
        except TooLarge:
            self._out(_error(self.call, ERRORS[Code.LIMIT_EXCEEDED], "cannot answer: the reply would be too large"))
        except (*TRANSLATION_FAULTS, UnicodeError) as fault:
            self._out(self._fault(fault))
        self.done()

    def refuse(self, refusal: RequestError) -> None:
        self.error(ERRORS[refusal.code], str(refusal))

    def fail(self, fault: Exception) -> None:
        """Answer for a fault of ours in translating; it is reported, not shown."""
        if self._settle():
            self._out(self._fault(fault))
            self.done()

    def error(self, name: str, text: str) -> None:
        if self._settle():
            self._out(_error(self.call, name, text))
            self.done()

    def _settle(self) -> bool:
        """True for the first answer only."""
        was_open, self._open = self._open, False
        return was_open

    def _out(self, message: Message) -> None:
        if not self.call.header.flags & MessageFlag.no_reply_expected:
            self._send(message)

    def _fault(self, fault: Exception) -> Message:
        member = self.call.header.fields.get(HeaderFields.member)
        self._on_trouble(f"cannot translate the answer to {member}: {type(fault).__name__}: {fault}")
        return _error(self.call, FREEDESKTOP_ERROR + "Failed", "cannot answer: internal fault, see the journal")


def _error(call: Message, name: str, text: str) -> Message:
    return new_error(call, name, "s", (clean(text[:TEXT_MOST]),))
