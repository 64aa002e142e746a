"""The listening sockets: accepts, says who called, bounds how many may be connected, counts what is at work.

What waits in a listening socket's backlog is not ours yet: after `stop_accepting` it starts the next life.
"""

import contextlib
import errno
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from crtrd.control.access import TOKEN, Caller
from crtrd.control.verbs import Control
from crtrd.loop.reactor import IN, Reactor, Timer

if TYPE_CHECKING:
    from crtrd.trigger.exchange import Exchange
    from crtrd.trigger.request import Request, Response

CONNECTIONS_MOST = 512
ACCEPTS_A_TURN = 64
TCP = "tcp"
PAUSE = 500_000
"""Microseconds without accepting when descriptors have run out: the backlog stays readable, and would spin the loop."""
SHORTAGE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: struct ucred, unix(7)


def turn_away(sockets: list[socket.socket], reason: str) -> None:
    """Answer who waits in the backlog that there is no service: a refused start is not to be asked for at once."""
    import json  # noqa: PLC0415 - not on the path of a good start

    body = json.dumps({"error": {"code": "LedgerUnavailable", "message": reason}}).encode() + b"\n"
    head = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
    for listening in sockets:
        listening.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        with contextlib.suppress(OSError):  # BlockingIOError: nobody is left
            while True:
                connection, _ = listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.setblocking(False)  # noqa: FBT003 - as above
                    connection.send(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)


class TriggerServer:
    """Serves `sockets`, which listen already and stay the caller's to close."""

    def __init__(
        self, reactor: Reactor, control: Control, sockets: list[socket.socket],
        token: Callable[[], str] = lambda: "",
    ) -> None:
        """`token` reads what callers over TCP must show; '' lets none of them in."""
        self._token = token
        self._reactor, self._control, self._sockets = reactor, control, sockets
        self._exchanges: dict[Exchange, None] = {}
        self._paused: Timer | None = None
        self._accepting = False
        for listening in sockets:
            listening.settimeout(0)
        self.resume_accepting()

    def open_requests(self) -> int:
        """Requests being received or answered. A connection that says nothing counts until its deadline closes it."""
        return sum(exchange.at_work for exchange in self._exchanges)

    def stop_accepting(self) -> None:
        """Leave new connections in the backlog; go on with those that are here."""
        self._accepting = False
        self._unwatch()

    def resume_accepting(self) -> None:
        self._accepting = True
        self._watch()

    def close(self) -> None:
        """Close everything that was accepted, and stop."""
        self.stop_accepting()
        for exchange in list(self._exchanges):
            exchange.close()

    def _watch(self) -> None:
        self._paused = None
        if self._accepting:
            for listening in self._sockets:
                self._reactor.watch(listening.fileno(), IN, self._acceptor(listening))

    def _unwatch(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        for listening in self._sockets:
            self._reactor.unwatch(listening.fileno())

    def _acceptor(self, listening: socket.socket) -> Callable[[int], None]:
        return lambda _: self._accept(listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, _ = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in SHORTAGE:
                    self._make_room()
                    self._unwatch()
                    self._paused = self._reactor.later(PAUSE, self._watch)
                    return
                continue  # this one gave up before we got to it, accept(2)
            connection.settimeout(0)
            if len(self._exchanges) >= CONNECTIONS_MOST:
                self._make_room()
            self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        # h11, http and json come with the first client: a life that the timer began needs none of them.
        from crtrd.trigger.exchange import Exchange  # noqa: PLC0415

        exchange = Exchange(self._reactor, connection, caller_of(connection), self._serve, self._forget)
        self._exchanges[exchange] = None

    def _make_room(self) -> None:
        """Close the oldest connection that has not said anything; failing that, the oldest that is not answered."""
        silent = next((each for each in self._exchanges if each.silent), None)
        victim = silent or next(iter(self._exchanges), None)
        if victim is not None:
            victim.close()

    def _forget(self, exchange: "Exchange") -> None:
        self._exchanges.pop(exchange, None)

    def _serve(self, request: "Request", caller: Caller, send: "Callable[[Response], None]") -> None:
        from crtrd.trigger.routes import serve  # noqa: PLC0415

        if caller.via == TCP:
            caller = self._bearer(request)
        self._control.touched()
        serve(self._control, request, caller, send)


    def _bearer(self, request: "Request") -> Caller:
        """Raises Rejected unless the request shows the token."""
        from hmac import compare_digest  # noqa: PLC0415

        from crtrd.trigger.request import unauthorized  # noqa: PLC0415

        word, _, shown = request.headers.get("authorization", "").partition(" ")
        wanted = self._token()
        if not wanted or word.lower() != "bearer" or not compare_digest(shown.strip().encode(), wanted.encode()):
            raise unauthorized()
        return Caller(None, None, TOKEN)


def caller_of(connection: socket.socket) -> Caller:
    """By the kernel's word (SO_PEERCRED); over TCP there is none: nobody, before the token is shown."""
    if connection.family != socket.AF_UNIX:
        return Caller(None, None, TCP)
    try:
        pid, uid, _ = _CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
    except OSError:
        return Caller(None, None, "socket")
    return Caller(uid, pid, "socket")
