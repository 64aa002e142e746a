"""One life of a connection to a bus: connect, authenticate, receive, send, all without blocking the reactor.

Knows nothing of our objects. A connection that is lost stays lost: `service` makes the next one. What was waiting to
be sent is gone with it; nothing is ever sent twice.
"""

import itertools
import os
import select
import socket
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from jeepney import HeaderFields, MessageType
from jeepney.auth import BEGIN, AuthenticationError, Authenticator
from jeepney.bus import get_bus
from jeepney.low_level import Message, SizeLimitError

from crtrd.dbus import wire
from crtrd.dbus.answer import MESSAGE_MOST, TooLarge
from crtrd.dbus.framing import BrokenStream, Framing
from crtrd.loop.reactor import HUP, IN, OUT, Reactor

CONNECT_WITHIN = 5_000_000
"""Microseconds from connect to the end of authentication."""
LINGER_MS = 200
"""How long `close` waits for the bus to have read our last replies."""
UNSENT_MOST = 64 << 20
READ_SIZE = 1 << 16
READS_A_TURN = 8
SLICE = 20_000
"""Microseconds of one turn in which messages are dispatched: a flood of calls leaves the loop to others."""

SMALL = 1 << 14
"""Bytes up to which an answer leaves with those that come right after it: a system call costs more than an answer."""

Reply = Callable[[Message], None]


class _Piece:
    """Bytes to send, and descriptors (ours to close) that go with the first of them, unix(7)."""

    __slots__ = ("data", "fds")

    def __init__(self, data: memoryview, fds: list[int]) -> None:
        self.data, self.fds = data, fds

    def pass_on(self, to: socket.socket) -> bool:
        """Send what the socket takes; True when nothing is left."""
        if self.fds:
            sent = socket.send_fds(to, [self.data], self.fds, socket.MSG_NOSIGNAL)
            self.close()
        else:
            sent = to.send(self.data, socket.MSG_NOSIGNAL)
        self.data = self.data[sent:]
        return not self.data

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.fds = []


class Connection:
    """`on_ready` once, then `on_message` for everything but replies to our own calls, `on_lost` at most once."""

    def __init__(
        self, reactor: Reactor, address: str, *,
        on_ready: Callable[[], None], on_message: Callable[[Message], None], on_lost: Callable[[str], None],
    ) -> None:
        self._reactor, self._address = reactor, address
        self._on_ready, self._on_message, self._on_lost = on_ready, on_message, on_lost
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._authenticator = Authenticator(enable_fds=True)
        self._framing = Framing()
        self._out: deque[_Piece] = deque()
        self._unsent = 0
        """Bytes in `_out`."""
        self._arrivals: deque[Message | Callable[[], None]] = deque()
        """Received and not yet dispatched; while there are any, nothing more is read."""
        self._told: list[bytes] = []
        """Signals, and answers while others are still to be given, that are to be joined to one piece of `_out`."""
        self._dispatching = False
        self._serials = itertools.count(1)
        self._waiting: dict[int, Reply] = {}
        self._deadline = reactor.later(CONNECT_WITHIN, lambda: self._lose("no answer in time"))
        self._watched_for = 0
        self.open = True
        self.ready = False

    def start(self) -> None:
        """Connect. A failure comes back as `on_lost`, possibly before this returns."""
        try:
            self._socket.connect(get_bus(self._address))
        except (OSError, KeyError, ValueError, RuntimeError) as error:  # jeepney: no address, none that is unix:
            return self._lose(os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error))
        self._write(self._authenticator.data_to_send())
        return self._watch()

    def send(self, message: Message) -> int:
        """Queue `message`; its serial. Raises TooLarge or what jeepney raises when it cannot be spelled."""
        serial = next(self._serials)
        fds = array("i")
        try:
            data = wire.serialise(message, serial, fds)
        except SizeLimitError as error:
            raise TooLarge(str(error)) from error
        if len(data) > MESSAGE_MOST:
            text = f"a message of {len(data)} bytes"
            raise TooLarge(text)
        if self.open:
            self._write(data, fds)
        return serial

    def tell(self, signal: wire.Signal) -> None:
        """Queue a signal: it leaves with all the others of this turn, and before whatever is sent after it."""
        if not self.open:
            return
        if not self._told:
            self._reactor.soon(self._pass_on_told)
        self._told.append(signal.serialise(next(self._serials)))

    def ask(self, message: Message, then: Reply) -> None:
        """Send a call and give its reply, return or error, to `then`. Never called when the connection is lost."""
        if self.open:
            self._waiting[self.send(message)] = then

    def next_do(self, pieces: list[Callable[[], None]]) -> None:
        """Do these before what has arrived after them. Only from what is being dispatched."""
        self._arrivals.extendleft(reversed(pieces))

    @property
    def busy(self) -> bool:
        """Something that came is not dispatched yet, or something that was said is not out."""
        return bool(self._arrivals or self._out or self._told)

    @property
    def unsent(self) -> int:
        """Bytes that are queued. Signals of this turn do not count yet."""
        return self._unsent

    def close(self) -> None:
        """Leave in peace: what was said has been read by the bus when this returns, or `LINGER_MS` are over.

        Without the wait, bytes that we have not read would reset the connection and our last replies with it.
        """
        if not self.open:
            return
        self._join_told()
        rest, self._out = self._out, deque()
        self._drop()
        with suppress(OSError):
            self._socket.settimeout(LINGER_MS / 1000)
            for piece in rest:
                while not piece.pass_on(self._socket):
                    pass
            self._socket.shutdown(socket.SHUT_WR)
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            while poll.poll(LINGER_MS) and self._socket.recv(READ_SIZE):
                pass
        for piece in rest:
            piece.close()
        self._socket.close()

    def _drop(self) -> None:
        self.open = self.ready = False
        self._deadline.cancel()
        self._reactor.unwatch(self._socket.fileno())
        self._forget_unsent()
        self._waiting.clear()
        self._arrivals.clear()

    def _lose(self, reason: str) -> None:
        if self.open:
            self._drop()
            self._socket.close()
            self._on_lost(reason)

    def _lose_soon(self, reason: str) -> None:
        """Not at once: who sends is in the middle of something."""
        self._forget_unsent()
        self._reactor.soon(lambda: self._lose(reason))

    def _forget_unsent(self) -> None:
        for piece in self._out:
            piece.close()
        self._out.clear()
        self._told.clear()
        self._unsent = 0

    def _watch(self) -> None:
        wanted = (0 if self._arrivals else IN) | (OUT if self._out else 0)
        if self.open and wanted != self._watched_for:
            self._watched_for = wanted
            self._reactor.watch(self._socket.fileno(), wanted, self._happened)

    def _happened(self, events: int) -> None:
        if events & OUT:
            self._flush()
        if self.open and not self._arrivals and events & (IN | HUP | select.EPOLLERR):
            self._read()

    def _write(self, data: bytes, fds: Iterable[int] = ()) -> None:
        if fds:
            self._join_told()
            self._queue(data, fds)
        elif self._dispatching and self._arrivals and len(data) <= SMALL:
            self._told.append(data)
        else:
            told, self._told = self._told, []
            self._queue(b"".join((*told, data)))

    def _pass_on_told(self) -> None:
        if self.open:
            self._join_told()

    def _join_told(self) -> None:
        """One write for many signals: the system call costs more than the signal."""
        if self._told:
            told, self._told = self._told, []
            self._queue(b"".join(told))

    def _queue(self, data: bytes, fds: Iterable[int] = ()) -> None:
        idle = not self._out
        self._out.append(_Piece(memoryview(data), [os.dup(fd) for fd in fds]))
        self._unsent += len(data)
        if idle:
            self._flush()
        elif self._unsent > UNSENT_MOST:
            self._lose_soon("the bus does not read")

    def _flush(self) -> None:
        try:
            while self._out:
                before = len(self._out[0].data)
                done = self._out[0].pass_on(self._socket)
                self._unsent -= before - len(self._out[0].data)
                if done:
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose_soon(os.strerror(error.errno or 0))
        self._watch()

    def _read(self) -> None:
        for _ in range(READS_A_TURN):
            try:
                data = self._socket.recv(READ_SIZE)
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(os.strerror(error.errno or 0))
                break
            if not data:
                self._lose("the bus closed the connection")
                break
            try:
                self._received(data)
            except (AuthenticationError, BrokenStream) as error:
                self._lose(str(error))
            if not self.open or self._arrivals or len(data) < READ_SIZE:
                break

    def _received(self, data: bytes) -> None:
        if not self.ready:
            self._authenticator.feed(data)
            if not self._authenticator.authenticated:
                return self._write(self._authenticator.data_to_send())
            self._deadline.cancel()
            self._write(BEGIN)
            self.ready = True
            return self._on_ready()
        try:
            self._arrivals.extend(self._framing.feed(data))
        finally:
            self._dispatch()
        return None

    def _dispatch(self) -> None:
        """What arrived, in order; what takes longer than a slice goes on in the next turn."""
        end = self._reactor.clock.mono() + SLICE
        self._dispatching = True
        try:
            while self._arrivals and self.open:
                arrival = self._arrivals.popleft()
                if callable(arrival):
                    arrival()
                else:
                    self._arrived(arrival)
                if self._arrivals and self._reactor.clock.mono() >= end:
                    self._reactor.soon(self._dispatch)
                    break
        finally:
            self._dispatching = False
        self._pass_on_told()
        self._watch()

    def _arrived(self, message: Message) -> None:
        kind = message.header.message_type if message.header is not None else None
        if kind in {MessageType.method_return, MessageType.error}:
            then = self._waiting.pop(message.header.fields.get(HeaderFields.reply_serial, 0), None)
            if then is not None:
                then(message)
            return
        self._on_message(message)
