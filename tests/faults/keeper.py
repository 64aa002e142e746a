"""A crtrd whose descriptors outlive it, as under systemd: the test stands for the manager's store (FDSTORE=1).

What the real store does is tested on machines; here a daemon can be killed hundreds of times in a few minutes.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading

from tests.instance import Instance

FIRST = 3
LAUNCH = 'LISTEN_PID=$$; export LISTEN_PID; exec "$@"'


class KeptInstance(Instance):
    def __init__(self, home, settings='clock = "internal"\n'):
        super().__init__(home, settings)
        self.stored: dict[str, list[int]] = {}
        self.ready = threading.Event()
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(home / "notify"))
        self._over = False
        self._free = threading.Event()
        self._free.set()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def start(self, *, crash_at="", wait=True, env=None):
        self._settle()
        self.ready.clear()
        names = [name for name, fds in self.stored.items() for _ in fds]
        fds = [fd for fds in self.stored.values() for fd in fds]
        given = {
            **self.env, "NOTIFY_SOCKET": str(self.home / "notify"), "LISTEN_FDS": str(len(fds)),
            "LISTEN_FDNAMES": ":".join(names), "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent", **(env or {}),
        }  # fmt: skip
        if crash_at:
            given["CRTRD_CRASH_AT"] = crash_at

        def place():
            spare = [fd if fd >= FIRST + len(fds) else _above(fd, FIRST + len(fds)) for fd in fds]
            for number, fd in enumerate(spare, FIRST):
                os.dup2(fd, number, inheritable=True)

        self.daemon = subprocess.Popen(
            ["sh", "-c", LAUNCH, "sh", sys.executable, "-m", "crtrd"], env=given, stdout=self.log, stderr=self.log,
            cwd="/", close_fds=False, preexec_fn=place,  # noqa: PLW1509 - calls dup2 alone
        )
        if wait:
            self.wait_for(lambda: self.ended or self.ready.is_set())

    def end(self):
        super().end()
        self._over = True
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", str(self.home / "notify"))
        self._thread.join()
        self._manager.close()
        for name in list(self.stored):
            self._drop(name)

    @contextlib.contextmanager
    def busy(self):
        """The manager takes nothing, and its queue is full."""
        self._free.clear()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, contextlib.suppress(BlockingIOError):
            sender.settimeout(0)
            while True:
                sender.sendto(b"", str(self.home / "notify"))
        try:
            yield
        finally:
            self._free.set()

    def _listen(self):
        while not self._over:
            self._free.wait()
            message, fds, _, _ = socket.recv_fds(self._manager, 4096, 16)
            self._take(message.decode(), fds)

    def _take(self, message, fds):
        words = dict(line.partition("=")[::2] for line in message.splitlines())
        name = words.get("FDNAME", "")
        if message == "SETTLED=1":
            self._settled.set()
        if "FDSTORE" in words:
            for fd in fds:
                os.set_inheritable(fd, False)  # noqa: FBT003
            self.stored.setdefault(name, []).extend(fds)
        elif "FDSTOREREMOVE" in words:
            self._drop(name)
        if "READY" in words:
            self.ready.set()

    def _drop(self, name):
        for fd in self.stored.pop(name, []):
            os.close(fd)

    def _settle(self):
        """Everything that the dead life has sent is taken."""
        self._settled = threading.Event()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as waker, contextlib.suppress(OSError):
            waker.sendto(b"SETTLED=1", str(self.home / "notify"))
        assert self._settled.wait(10)


def _above(fd, least):
    import fcntl  # noqa: PLC0415 - between fork and exec

    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
