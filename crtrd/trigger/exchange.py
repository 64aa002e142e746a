"""One accepted connection from its first byte to its close: receiving, answering, sending, draining.

    receiving --request complete--> answering --answer--> sending --all sent--> draining --> closed
        `--rejected, deadline---------------------------------^

Every state has a deadline, so nobody holds a connection by doing nothing. A client that has shut down its sending
side still gets its answer.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from http import HTTPStatus

from crtrd.control.access import Caller
from crtrd.loop.reactor import IN, OUT, Reactor, Timer
from crtrd.trigger.request import Reader, Rejected, Request, Response

SECOND = 1_000_000
RECEIVE_WITHIN = 10 * SECOND
ANSWER_WITHIN = 60 * SECOND
SEND_WITHIN = 10 * SECOND
DRAIN_WITHIN = SECOND
READ_SIZE = 1 << 16

Serve = Callable[[Request, Caller, Callable[[Response], None]], None]


class Stage(Enum):
    RECEIVING = "receiving"
    ANSWERING = "answering"
    SENDING = "sending"
    DRAINING = "draining"
    CLOSED = "closed"


class Exchange:
    """Owns `connection` and closes it. `serve` gets the request; `closed` hears of the end, once."""

    def __init__(
        self, reactor: Reactor, connection: socket.socket, caller: Caller, serve: Serve,
        closed: Callable[["Exchange"], None],
    ) -> None:
        self.stage = Stage.RECEIVING
        self.caller = caller
        self._reactor, self._socket, self._serve, self._closed = reactor, connection, serve, closed
        self._reader = Reader()
        self._out = b""
        self._watched = 0
        self._timer: Timer = reactor.later(RECEIVE_WITHIN, self._too_slow)
        self._watch(IN)

    @property
    def silent(self) -> bool:
        """Connected, and not a byte has come."""
        return self.stage is Stage.RECEIVING and not self._reader.begun

    @property
    def at_work(self) -> bool:
        """A request is being received, answered or its answer sent."""
        return self.stage in {Stage.RECEIVING, Stage.ANSWERING, Stage.SENDING}

    def close(self) -> None:
        if self.stage is Stage.CLOSED:
            return
        self.stage = Stage.CLOSED
        self._timer.cancel()
        self._reactor.unwatch(self._socket.fileno())
        self._socket.close()
        self._closed(self)

    def _watch(self, events: int) -> None:
        """`events` 0: while nothing of this client matters, not even its going away wakes us."""
        if events == self._watched:
            return
        self._watched = events
        if events:
            self._reactor.watch(self._socket.fileno(), events, self._happened)
        else:
            self._reactor.unwatch(self._socket.fileno())

    def _happened(self, _: int) -> None:
        match self.stage:
            case Stage.RECEIVING:
                self._receive()
            case Stage.SENDING:
                self._send()
            case Stage.DRAINING:
                self._drain()
            case _:
                pass

    def _move(self, stage: Stage, within: int, on_deadline: Callable[[], None]) -> None:
        self.stage = stage
        self._timer.cancel()
        self._timer = self._reactor.later(within, on_deadline)

    # Receiving

    def _receive(self) -> None:
        try:
            data = self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not data and not self._reader.begun:
            self.close()
            return
        try:
            request = self._reader.feed(data)
        except Rejected as rejected:
            self._answer(rejected.response)
            return
        if request is None:
            self._out += self._reader.interim()
            with suppress(OSError):
                self._out = self._out[self._socket.send(self._out) :] if self._out else b""
            return
        self._ask(request)

    def _ask(self, request: Request) -> None:
        self._move(Stage.ANSWERING, ANSWER_WITHIN, self._no_answer)
        self._watch(0)
        try:
            self._serve(request, self.caller, self._answer)
        except Rejected as rejected:
            self._answer(rejected.response)

    def _too_slow(self) -> None:
        if self.silent:
            self.close()
            return
        message = f"cannot read the request: it was not complete in {RECEIVE_WITHIN // SECOND} seconds"
        self._answer(Rejected(HTTPStatus.REQUEST_TIMEOUT, "Timeout", message).response)

    def _no_answer(self) -> None:
        message = f"cannot answer: nothing came in {ANSWER_WITHIN // SECOND} seconds"
        self._answer(Rejected(HTTPStatus.SERVICE_UNAVAILABLE, "Timeout", message, ("Retry-After", "5")).response)

    # Answering

    def _answer(self, response: Response) -> None:
        """The first answer is sent; one that comes after the deadline or the client's end is dropped."""
        if self.stage not in {Stage.RECEIVING, Stage.ANSWERING}:
            return
        self._out += self._reader.write(response)
        self._move(Stage.SENDING, SEND_WITHIN, self.close)
        self._send()

    def _send(self) -> None:
        try:
            while self._out:
                self._out = self._out[self._socket.send(self._out, socket.MSG_NOSIGNAL) :]
        except BlockingIOError:
            self._watch(OUT)
            return
        except OSError:
            self.close()
            return
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        # Closing with something unread would reset the connection and take the answer back from a slow reader.
        self._move(Stage.DRAINING, DRAIN_WITHIN, self.close)
        self._watch(IN)

    def _drain(self) -> None:
        try:
            if self._socket.recv(READ_SIZE):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.close()
