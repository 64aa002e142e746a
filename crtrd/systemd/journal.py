"""The journal's client: events and command output as structured entries, sent to journald's native socket.

An entry too large for a datagram goes as a sealed memfd. A journal that is full or away holds the daemon up for a
moment at most; what could not be written is counted, and the count is written as soon as entries pass again. Which
events there are and what they mean is told in events.py and the catalog.
"""

import errno
import fcntl
import os
import select
import socket
from collections.abc import Mapping
from typing import TextIO

from crtrd.core.effects import Announce
from crtrd.loop.clock import Clock
from crtrd.names import SYSLOG_IDENTIFIER
from crtrd.systemd.entry import Field, serialize, to_bytes
from crtrd.systemd.events import LOST, MESSAGE_IDS

SOCKET = "/run/systemd/journal/socket"
STANDSTILL = 100_000
"""Microseconds without journald taking an entry after which it is not waited for until it takes entries again."""
PATIENCE = 1_000_000
"""Microseconds that one call may wait, all its entries together: journald takes some 20000 entries a second."""
BUFFER = 1 << 20
MOST_TOLD = 64
"""Runs that are told of what each has lost; that of further ones is told in one sum."""
INFO, WARNING, ERROR = 6, 4, 3
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_TOO_LARGE = frozenset({errno.EMSGSIZE, errno.ENOBUFS})


class Journal:
    """Owns its socket. Without a journal socket every event is one readable line on `fallback`."""

    def __init__(self, fallback: TextIO | None, path: str = SOCKET) -> None:
        self._fallback = fallback
        self._path = path
        self._clock = Clock()
        self._socket: socket.socket | None = None
        self._level = INFO
        self._deadline = 0
        self._stalled = False
        self.aloud = False
        """Errors stand on `fallback` too: it is somebody's terminal or file, not the journal again."""
        self._missing: dict[tuple[tuple[str, str], ...], int] = {}
        """How many entries of each run (its fields; none for events) could not be written and are not told of yet."""

    @property
    def lost(self) -> int:
        """Entries that could not be written and have not been reported yet."""
        return sum(self._missing.values())

    @property
    def level(self) -> int:
        return self._level

    def set_level(self, level: int) -> None:
        """Events of a priority number above `level` are left out from now on; a command's output never is."""
        self._level = level

    def event(self, announce: Announce) -> None:
        if announce.priority > self._level:
            return
        fields = [
            ("MESSAGE", to_bytes(announce.message)),
            # a kind without an id is a mistake that a test finds; telling of trouble must not make more of it
            ("MESSAGE_ID", MESSAGE_IDS.get(announce.kind, "").encode("ascii")),
            ("PRIORITY", to_bytes(announce.priority)),
            ("SYSLOG_IDENTIFIER", SYSLOG_IDENTIFIER.encode("ascii")),
            ("CRTRD_EVENT", to_bytes(announce.kind)),
            *_own_fields(announce.fields),
        ]
        self._begin()
        self._write(serialize(_that_apply(fields)), f"{announce.kind}: {announce.message}")
        if announce.priority <= ERROR and self._socket is not None and self.aloud:
            self._print(f"{announce.kind}: {announce.message}", "crtrd: ")

    def output(self, identifier: str, stream: str, lines: list[bytes], fields: Mapping[str, str]) -> None:
        """One entry a line of what a command wrote to `stream`, under its cron's name; the bytes as they are."""
        shared = serialize([
            ("PRIORITY", to_bytes(INFO)),
            ("SYSLOG_IDENTIFIER", to_bytes(identifier)),
            ("CRTRD_STREAM", to_bytes(stream)),
            *_that_apply(_own_fields(fields)),
        ])
        self._begin()
        for line in lines:
            self._write(shared + serialize([("MESSAGE", line)]), line, f"{identifier} {stream}: ", fields)

    def close(self) -> None:
        self._disconnect()

    def _begin(self) -> None:
        """Set the call's deadline; tell first of what was lost before."""
        self._deadline = 0 if self._stalled else self._clock.mono() + PATIENCE
        for whose, count in list(self._missing.items()):
            if not self._pass_on(_lost_entry(count, whose), f"{LOST}: {_lost_text(count)}", ""):
                break
            del self._missing[whose]

    def _write(self, entry: bytes, readable: str | bytes, prefix: str = "", of: Mapping[str, str] = {}) -> None:
        if not self._pass_on(entry, readable, prefix):
            whose = tuple(of.items())
            if whose not in self._missing and len(self._missing) >= MOST_TOLD:
                whose = ()
            self._missing[whose] = self._missing.get(whose, 0) + 1

    def _pass_on(self, entry: bytes, readable: str | bytes, prefix: str) -> bool:
        for _ in range(2):
            connection = self._socket or self._connect()
            if connection is None:
                return self._print(readable, prefix)
            try:
                self._send(connection, entry)
            except BlockingIOError:
                return False
            except OSError:
                self._disconnect()  # ECONNREFUSED for ever: journald was started anew and has a new socket
            else:
                self._stalled = False
                return True
        return False

    def _send(self, connection: socket.socket, entry: bytes) -> None:
        """Raises BlockingIOError when journald has not made room before the deadline."""
        while True:
            try:
                connection.send(entry)
            except BlockingIOError:
                self._await_room(connection)
            except OSError as error:
                if error.errno not in _TOO_LARGE:
                    raise
                self._send_memfd(connection, entry)
                return
            else:
                return

    def _send_memfd(self, connection: socket.socket, entry: bytes) -> None:
        """journald maps a file only when its seals say that nobody can change it any more (memfd_create(2))."""
        fd = os.memfd_create("crtrd-journal-entry", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(entry)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            while True:
                try:
                    socket.send_fds(connection, [b""], [fd])
                except BlockingIOError:
                    self._await_room(connection)
                else:
                    return
        finally:
            os.close(fd)

    def _await_room(self, connection: socket.socket) -> None:
        """Return when the socket may take more. A connected datagram socket polls for its peer's queue too."""
        wait = min(self._deadline - self._clock.mono(), STANDSTILL)
        poll = select.poll()
        poll.register(connection, select.POLLOUT)
        if wait <= 0 or not poll.poll(wait / 1000):
            self._stalled, self._deadline = True, 0
            raise BlockingIOError(errno.EAGAIN, "the journal takes no more entries")

    def _connect(self) -> socket.socket | None:
        try:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        except OSError:  # no descriptor is left
            return None
        try:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER)
            connection.connect(self._path)
        except OSError:
            connection.close()
            return None
        self._socket = connection
        return connection

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _print(self, readable: str | bytes, prefix: str) -> bool:
        """A line on the fallback; terminal escapes of a command's output stay visible, not effective."""
        if self._fallback is None:
            return False
        text = readable.decode("utf-8", "backslashreplace") if isinstance(readable, bytes) else readable
        try:
            self._fallback.write(prefix + _printable(text) + "\n")
            self._fallback.flush()
        except OSError:
            return False
        return True


def is_journal(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether the stream leads to the journal: JOURNAL_STREAM has its device and inode, systemd.exec(5)."""
    if stream is None:  # the descriptor was closed when the interpreter started
        return False
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _that_apply(fields: list[Field]) -> list[Field]:
    return [field for field in fields if field[1]]


def _own_fields(fields: Mapping[str, str | int]) -> list[Field]:
    return [(name, to_bytes(value)) for name, value in fields.items()]


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape", "replace").decode() for c in text)


def _lost_text(count: int) -> str:
    return f"lost {count} journal {'entry' if count == 1 else 'entries'} that the journal did not take in time"


def _lost_entry(count: int, whose: tuple[tuple[str, str], ...]) -> bytes:
    return serialize([
        ("MESSAGE", to_bytes(_lost_text(count))),
        ("MESSAGE_ID", MESSAGE_IDS[LOST].encode("ascii")),
        ("PRIORITY", to_bytes(WARNING)),
        ("SYSLOG_IDENTIFIER", SYSLOG_IDENTIFIER.encode("ascii")),
        ("CRTRD_EVENT", to_bytes(LOST)),
        ("CRTRD_LOST", to_bytes(count)),
        *_that_apply(_own_fields(dict(whose))),
    ])
