"""What a daemon that may not serve says on the bus before it ends, so that who called waits no 25 s for nothing.

Blocking, with jeepney's own small loop: nothing else lives in the process. `trigger.server.turn_away` is the same for
the socket.
"""

import contextlib

from jeepney import MessageFlag, MessageType, new_error
from jeepney.bus_messages import DBusNameFlags, message_bus
from jeepney.io.blocking import DBusConnection, open_dbus_connection

from crtrd import names
from crtrd.dbus.answer import ERRORS
from crtrd.errors import Code
from crtrd.loop.clock import Clock

SECOND = 1_000_000
QUIET = 0.3
"""Seconds without a call after which nobody is expected any more."""
LONGEST = 2.0
"""Seconds for all of it: a client that asks again and again must not keep a useless daemon."""


def turn_away(reason: str, address: str | None, *, user: bool) -> None:
    """Take the name, answer every call that waits with LedgerUnavailable, and go. Trouble with the bus is nobody's."""
    bus = address or ("SESSION" if user else "SYSTEM")
    take = message_bus.RequestName(names.BUS_NAME, DBusNameFlags.do_not_queue)
    with contextlib.suppress(OSError, ValueError), open_dbus_connection(bus) as connection:
        connection.send(take)  # the call that had us started comes before the reply to this
        _answer(connection, reason)


def _answer(connection: DBusConnection, reason: str) -> None:
    clock = Clock()
    end = clock.mono() + LONGEST * SECOND
    while (left := end - clock.mono()) > 0:
        message = connection.receive(timeout=min(QUIET, left / SECOND))
        header = message.header
        if header.message_type is MessageType.method_call and not header.flags & MessageFlag.no_reply_expected:
            connection.send(new_error(message, ERRORS[Code.LEDGER_UNAVAILABLE], "s", (reason,)))
