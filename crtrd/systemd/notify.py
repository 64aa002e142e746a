"""What the daemon tells the service manager: sd_notify(3) through sdnotify, and its file descriptor store.

The object takes NOTIFY_SOCKET and WATCHDOG_* out of the environment so that no child can speak in the daemon's name.
Where there is no manager every method does nothing. Receiving stored descriptors is activation.py's work.
"""

import os
import socket
import warnings
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence

import sdnotify

from crtrd.loop.clock import Clock
from crtrd.loop.openfiles import close_all
from crtrd.loop.reactor import OUT, Reactor
from crtrd.values import dataclass

PATIENCE = 1.0
"""Seconds to wait for a manager whose queue is full, where there is no loop to go on with meanwhile."""
FD_NAME_LIMIT = 255
STATUS_LIMIT = 512
"""The manager cuts a whole notification at 4096 bytes (PIPE_BUF); a status is one line for people."""

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


@dataclass(slots=True)
class _Unsent:
    """A message for which the manager's queue had no room. Owns `fds`, copies."""

    message: str
    fds: list[int]
    sent: Callable[[], None]


class Notifier:
    """Every method returns True when the kernel has queued the message for the manager.

    False: there is no manager, or it is gone; or it is busy and its queue full (unix(7), max_dgram_qlen), and then,
    once there is a loop, the message waits here for its turn. `environ` is os.environ: sdnotify looks there itself.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._given = {name: environ[name] for name in _VARIABLES if name in environ}
        self._notifier = _connect() if self._given.get("NOTIFY_SOCKET") else None
        self.watchdog_usec = _watchdog(self._given)
        self._reactor: Reactor | None = None
        self._unsent: deque[_Unsent] = deque()
        for name in self._given:
            del environ[name]

    def attach(self, reactor: Reactor) -> None:
        """From now on nothing waits for the manager here; the loop tells when it has room."""
        self._reactor = reactor
        if self._notifier is not None:
            self._notifier.socket.settimeout(0)

    @property
    def present(self) -> bool:
        return self._notifier is not None

    @property
    def environment(self) -> dict[str, str]:
        """What was taken out of the environment: whoever executes the daemon anew in its place hands it on."""
        return dict(self._given)

    def ready(self, status: str) -> bool:
        return self._tell(f"READY=1\nSTATUS={_line(status)}")

    def status(self, text: str) -> bool:
        return self._tell(f"STATUS={_line(text)}")

    def alive(self) -> bool:
        return self._tell("WATCHDOG=1")

    def stopping(self) -> bool:
        return self._tell("STOPPING=1")

    def extend_start(self, microseconds: int) -> bool:
        """The start takes longer: no time-out within the next so many microseconds (sd_notify(3))."""
        return self._tell(f"EXTEND_TIMEOUT_USEC={microseconds}\nSTATUS=waiting for the ledger")

    def reloading(self) -> bool:
        # Type=notify-reload (systemd 253) wants the time, older managers ignore it; `ready` ends the reload.
        return self._tell(f"RELOADING=1\nMONOTONIC_USEC={Clock().mono()}")

    def store_fds(self, name: str, fds: Sequence[int], sent: Callable[[], None] = lambda: None) -> bool:
        """Give the manager copies of `fds`, which stay the caller's; they come back in the next life's LISTEN_FDS.

        All of them or none. `sent` is called once the kernel has queued them for the manager, or nobody is there.
        FDPOLL=0: the manager would otherwise drop a pipe as soon as its writer is gone, with the output still in it.
        """
        return self._tell(f"FDSTORE=1\nFDNAME={_fd_name(name)}\nFDPOLL=0", fds, sent)

    def drop_fds(self, name: str) -> bool:
        """Forget every stored descriptor of this name."""
        return self._tell(f"FDSTOREREMOVE=1\nFDNAME={_fd_name(name)}")

    def flush(self) -> None:
        """The last look before the process ends or executes another program: waits a little for a busy manager."""
        if self._notifier is not None and self._unsent:
            self._notifier.socket.settimeout(PATIENCE)
            self._send_on()

    def close(self) -> None:
        if self._notifier is not None:
            self._forget_unsent()
            self._notifier.socket.close()
            self._notifier = None

    def _tell(self, message: str, fds: Sequence[int] = (), sent: Callable[[], None] = lambda: None) -> bool:
        message.encode("ascii")  # sdnotify would send Latin-1; whatever is not ASCII here is a bug
        if self._unsent:  # in order: what is to be dropped may still wait to be stored
            return self._keep(message, fds, sent)
        try:
            told = self._send(message, fds)
        except BlockingIOError:
            return self._keep(message, fds, sent)
        sent()
        return told

    def _send(self, message: str, fds: Sequence[int]) -> bool:
        """Raises BlockingIOError where there is no room and a loop that can wait for it."""
        if self._notifier is None:
            return False
        try:
            if fds:
                socket.send_fds(self._notifier.socket, [message.encode("ascii")], fds)
            else:
                self._notifier.notify(message)
        except BlockingIOError:
            if self._reactor is not None:
                raise
            return False
        except OSError:
            return False
        return True

    def _keep(self, message: str, fds: Sequence[int], sent: Callable[[], None]) -> bool:
        copies: list[int] = []
        try:
            copies.extend(os.dup(fd) for fd in fds)
        except OSError:  # no descriptors left: a run that a crash may cost its output, rather than none
            close_all(copies)
            sent()
            return False
        self._unsent.append(_Unsent(message, copies, sent))
        if self._reactor is not None and self._notifier is not None and len(self._unsent) == 1:
            self._reactor.watch(self._notifier.socket.fileno(), OUT, lambda _: self._send_on())
        return False

    def _send_on(self) -> None:
        while self._unsent:
            first = self._unsent[0]
            try:
                self._send(first.message, first.fds)
            except BlockingIOError:
                return
            self._unsent.popleft()
            close_all(first.fds)
            first.sent()
        self._forget_unsent()

    def _forget_unsent(self) -> None:
        if self._reactor is not None and self._notifier is not None:
            self._reactor.unwatch(self._notifier.socket.fileno())
        while self._unsent:
            close_all(self._unsent.popleft().fds)


def _connect() -> sdnotify.SystemdNotifier | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # sdnotify leaves an unconnected socket behind
        try:
            notifier = sdnotify.SystemdNotifier(debug=True)  # without debug it swallows every error, also later ones
        except OSError:  # an address that is not a usable unix socket
            return None
    notifier.socket.settimeout(PATIENCE)
    return notifier


def _watchdog(given: dict[str, str]) -> int | None:
    """sd_watchdog_enabled(3): WATCHDOG_PID, where it is set, must name this process."""
    usec, pid = given.get("WATCHDOG_USEC", ""), given.get("WATCHDOG_PID")
    if not (usec.isdecimal() and usec.isascii() and int(usec) > 0) or (pid is not None and pid != str(os.getpid())):
        return None
    return int(usec)


def _line(text: str) -> str:
    """One line of printable ASCII."""
    shown = " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")
    return "".join(letter if letter.isprintable() else "?" for letter in shown)[:STATUS_LIMIT]


def _fd_name(name: str) -> str:
    """The manager ignores a message with an invalid name without a word (sd_notify(3), FDNAME=): refuse it here."""
    if not (0 < len(name) <= FD_NAME_LIMIT and name.isascii() and name.isprintable() and ":" not in name):
        message = f"cannot store a descriptor as {name!r}: not 1 to 255 printable ASCII characters without a colon"
        raise ValueError(message)
    return name
