"""What the daemon tells the service manager: sd_notify(3) through sdnotify, and its file descriptor store.

The object takes NOTIFY_SOCKET and WATCHDOG_* out of the environment so that no child can speak in the daemon's name.
Where there is no manager every method does nothing. Receiving stored descriptors is activation.py's work.
"""

import os
import socket
import warnings
from collections.abc import MutableMapping

import sdnotify

from crtrd.loop.clock import Clock

PATIENCE = 1.0
"""Seconds to wait for a manager whose queue is full; the loop must not hang with it."""
FD_NAME_LIMIT = 255
STATUS_LIMIT = 512
"""The manager cuts a whole notification at 4096 bytes (PIPE_BUF); a status is one line for people."""

_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class Notifier:
    """Every method returns True when the kernel has queued the message for the manager, False otherwise.

    `environ` is os.environ: sdnotify looks there itself.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._given = {name: environ[name] for name in _VARIABLES if name in environ}
        self._notifier = _connect() if self._given.get("NOTIFY_SOCKET") else None
        self.watchdog_usec = _watchdog(self._given)
        for name in self._given:
            del environ[name]

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

    def store_fd(self, name: str, fd: int) -> bool:
        """Give the manager a duplicate of `fd`, which stays the caller's; it comes back in the next life's LISTEN_FDS.

        FDPOLL=0: the manager would otherwise drop a pipe as soon as its writer is gone, with the output still in it.
        """
        if self._notifier is None:
            return False
        message = f"FDSTORE=1\nFDNAME={_fd_name(name)}\nFDPOLL=0".encode("ascii")
        try:
            socket.send_fds(self._notifier.socket, [message], [fd])
        except OSError:
            return False
        return True

    def drop_fd(self, name: str) -> bool:
        """Forget every stored descriptor of this name."""
        return self._tell(f"FDSTOREREMOVE=1\nFDNAME={_fd_name(name)}")

    def close(self) -> None:
        if self._notifier is not None:
            self._notifier.socket.close()
            self._notifier = None

    def _tell(self, message: str) -> bool:
        if self._notifier is None:
            return False
        message.encode("ascii")  # sdnotify would send Latin-1; whatever is not ASCII here is a bug
        try:
            self._notifier.notify(message)
        except OSError:
            return False
        return True


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
