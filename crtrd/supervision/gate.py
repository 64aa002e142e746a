"""The daemon's side of the spawner (`spawner.py`): start it, ask it, hear its answers, notice its end.

Only messages and descriptors; what they mean for a run is `supervisor.py`'s matter. The spawner is started at the
first need and lives until its control socket is closed here, which also closes it for a daemon that was killed.
"""

import contextlib
import errno
import fcntl
import marshal
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable, Sequence

from crtrd.loop import openfiles
from crtrd.loop.reactor import IN, OUT, Reactor
from crtrd.supervision.exit_status import has_ended, pid_of
from crtrd.supervision.plan import Plan

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spawner.py")
CONTROL = 3
INLINE = 61_440
"""As in spawner.py: a larger message travels in a memfd."""
ANSWER = 4096
ENVIRONMENT = {"LD_BIND_NOW": "1"}
"""The spawner's: without it each of its children would look the same functions up again, ld.so(8)."""
LAST_WAIT = 1.0
"""Seconds that a spawner may take to leave when its control socket is closed; it needs about a millisecond."""

Answered = Callable[[str, int, "int | str"], None]


class Spawner:
    """One spawner process. `answered(token, errno, status or stage)`, `lost(self)` when it is gone unasked."""

    def __init__(
        self,
        reactor: Reactor,
        answered: Answered,
        lost: Callable[["Spawner"], None],
        inherited: tuple[str, int, int] | None = None,
    ) -> None:
        """Start one, or go on with one of an earlier life by its (name, control socket, pidfd). Raises OSError."""
        self._reactor = reactor
        self._answered, self._lost = answered, lost
        self._unsent: deque[tuple[bytes, list[int]]] = deque()
        self.tokens: set[str] = set()
        """Runs whose child is, or may be, a child of this spawner."""
        self.name, control, self.pidfd = (os.urandom(16).hex(), *_launch()) if inherited is None else inherited
        """In place of a run id where its descriptors are kept: several of earlier lives may be there at once."""
        self._control: socket.socket | None = socket.socket(fileno=control)
        self._control.settimeout(0)
        reactor.watch(control, IN, self._ready)

    @property
    def pid(self) -> int:
        return pid_of(self.pidfd) or -1

    @property
    def control(self) -> int:
        """The descriptor to be kept with `pidfd` for a later life; -1 when it is closed."""
        return self._control.fileno() if self._control is not None else -1

    def start(self, plan: Plan, procs_file: str, fds: Sequence[int]) -> None:
        """Ask for a child; takes over `fds` (gate, out, err, stdin if any) and closes them once sent."""
        message, owned = _request(plan, procs_file), list(fds)
        if len(message) > INLINE:
            try:
                owned.append(memory_file("crtrd-request", message))
            except OSError:
                openfiles.close_all(owned)
                raise
            message = b"@"
        self.tokens.add(plan.run_id)
        self._send(message, owned)

    def reap(self, token: str) -> None:
        """Ask for the wait status of a child that has ended."""
        self._send(marshal.dumps(("reap", token), 4), [])

    def forget(self, token: str) -> None:
        """The child is to be reaped whenever it ends; nobody asks how."""
        self.tokens.discard(token)
        self._send(marshal.dumps(("forget", token), 4), [])

    def close(self) -> None:
        """Let it go and reap it, waiting. Its children live on, or end at their closed gates."""
        if self.pidfd >= 0:
            self._drop_control()
            self._reactor.unwatch(self.pidfd)
            self._reap()

    def detach(self) -> tuple[int, int]:
        """Leave it as it is; (control socket, pidfd) are the caller's now, for a later life of the daemon."""
        control, pidfd = self.control, self.pidfd
        if self._control is not None:
            self._reactor.unwatch(control)
            self._control.detach()
        self._control, self.pidfd = None, -1
        return control, pidfd

    def discard(self) -> None:
        """End one that has no child to lose, even if it hangs. `lost` is told when it is gone."""
        self._drop_control()
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self._reactor.watch(self.pidfd, IN, lambda _: self._discarded())

    def _discarded(self) -> None:
        if has_ended(self.pidfd):
            self._reactor.unwatch(self.pidfd)
            self._reap()
            self._lost(self)

    def _reap(self) -> None:
        _await_end(self.pidfd)
        os.close(self.pidfd)
        self.pidfd = -1

    def _send(self, message: bytes, fds: list[int]) -> None:
        self._unsent.append((message, fds))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent and self._control is not None:
            message, fds = self._unsent[0]
            try:
                socket.send_fds(self._control, [message], fds, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                self._reactor.watch(self._control.fileno(), IN | OUT, self._ready)
                return
            except OSError as error:
                if error.errno == errno.ETOOMANYREFS:  # unix(7): too many descriptors of ours are in flight
                    self._reactor.later(10_000, self._flush)
                    return
                self._die()
                return
            self._unsent.popleft()
            openfiles.close_all(fds)

    def _ready(self, events: int) -> None:
        if self._control is None:
            return
        if events & OUT:
            self._reactor.watch(self._control.fileno(), IN, self._ready)
            self._flush()
        while self._control is not None:
            try:
                message = self._control.recv(ANSWER)
            except BlockingIOError:
                return
            except OSError:
                message = b""
            if not message:
                self._die()
                return
            self._answered(*marshal.loads(message))  # noqa: S302 - from our own child

    def _die(self) -> None:
        if self._control is not None:
            self._drop_control()
            self._reap()
            self._lost(self)

    def _drop_control(self) -> None:
        if self._control is not None:
            self._reactor.unwatch(self._control.fileno())
            self._control.close()
            self._control = None
        while self._unsent:
            openfiles.close_all(self._unsent.popleft()[1])


def memory_file(name: str, data: bytes) -> int:
    """A memfd that holds `data`, at its start; the caller closes it. Raises OSError."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


def encode(text: str) -> bytes:
    """Bytes as they came in, whatever locale the daemon has."""
    return text.encode("utf-8", "surrogateescape")


def _request(plan: Plan, procs_file: str) -> bytes:
    words = tuple(encode(word) for word in plan.argv)
    env = {encode(name): encode(value) for name, value in plan.env}
    return marshal.dumps((
        "start", plan.run_id,
        words, env, encode(plan.cwd or "/"), plan.umask, plan.uid, plan.gid, plan.groups or (), encode(procs_file),
        bool(plan.stdin),
    ), 4)  # fmt: skip


def _launch() -> tuple[int, int]:
    """Start the program: (our end of the control socket, pidfd)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        pid = _spawn(theirs.fileno())
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            ours.close()  # it ends by that
            os.waitpid(pid, 0)
            raise
        return ours.detach(), pidfd


def _spawn(control: int) -> int:
    """With no environment of ours, and in a session of its own: no terminal's Ctrl-C reaches it."""
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, control, CONTROL),
    ]
    # A SIGCHLD that we inherited as ignored would take away the spawner's end, too (sigaction(2)).
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.posix_spawn(
        sys.executable, [sys.executable, "-I", "-S", "-E", PROGRAM], ENVIRONMENT,
        file_actions=actions, setsid=True, setsigmask=[], setsigdef=signal.valid_signals() - {9, 19},
    )  # fmt: skip
    openfiles.give_back(pid)
    return pid


def _await_end(pidfd: int) -> None:
    """Until the spawner has ended, and reaped if it is our child; one that does not leave by itself is killed."""
    if not has_ended(pidfd, LAST_WAIT):
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        has_ended(pidfd, LAST_WAIT)
    with contextlib.suppress(ChildProcessError):  # the child of an earlier life is init's now
        os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
