"""The helper processes: starts them, gives them attempts, hears what came of each. Never waits but for their end.

    started -> at work -> idle -> at work ...        idle for KEPT: ended, as are those that are more than KEPT_MOST
                  |                                  late, though it has a deadline of its own: killed with all it began
                  '-> ended: its attempt has failed

An attempt is forked from a helper (send.py), so that one which waits for its next attempt makes it without a start of
its own. A helper serves one owner and never another. Which attempts are made at the same time, and in which order, is
the core's; a helper that is idle keeps nobody awake and ends with the daemon.
"""

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from crtrd.delivery.attempt import Job, Said, children, failed, said
from crtrd.loop import openfiles
from crtrd.loop.reactor import IN, Reactor, Timer

ROOT = str(Path(__file__).parents[2])
START = ("import sys; sys.path.insert(0, sys.argv[1]); from crtrd.delivery.send import main; "
         "sys.exit(main(int(sys.argv[2])))")
"""-I keeps PYTHONPATH and the folder it starts in out of it; so it is told where crtrd lies."""
KEPT = 10_000_000
"""Microseconds that an idle helper stays."""
KEPT_MOST = 8
GRACE = 5.0
"""Seconds that a helper has beyond the deadline of its attempt to say that it was missed."""
WORD_MOST = 32 * 1024
PASSED_ON = ("PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
DEFAULTED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Done = Callable[[Said], None]


class Helpers:
    """All of them. Each `done` is called once, in the loop, unless `close` comes first."""

    def __init__(self, reactor: Reactor, environ: Mapping[str, str]) -> None:
        self._reactor, self._environ = reactor, environ
        self._idle: list[Helper] = []
        self._working: set[Helper] = set()

    def attempt(self, job: Job, done: Done) -> None:
        """Raises OSError where no process can be had."""
        message = _in_memory(job)
        try:
            while (helper := self._idle_for(job.uid)) is not None:
                with suppress(OSError):  # it has just died: the next one, then
                    helper.begin(job, message, done)
                    self._working.add(helper)
                    return
                helper.end()
            helper = Helper(self._reactor, self._environ, job.uid, self._rested, self._ended)
            self._working.add(helper)
            helper.begin(job, message, done)
        finally:
            os.close(message)

    def close(self) -> None:
        """End them all, and what they are at; nothing is reported."""
        for helper in (*self._idle, *self._working):
            helper.end()
        self._idle.clear()
        self._working.clear()

    def _idle_for(self, uid: int | None) -> "Helper | None":
        found = next((helper for helper in reversed(self._idle) if helper.uid == uid), None)
        if found is not None:
            self._idle.remove(found)
        return found

    def _rested(self, helper: "Helper") -> None:
        self._working.discard(helper)
        self._idle.append(helper)
        if len(self._idle) > KEPT_MOST:
            self._idle.pop(0).end()

    def _ended(self, helper: "Helper") -> None:
        self._working.discard(helper)
        if helper in self._idle:
            self._idle.remove(helper)


class Helper:
    """One process, for attempts of `uid`. `rested` and `ended` tell its owner what it may be used for."""

    def __init__(
        self, reactor: Reactor, environ: Mapping[str, str], uid: int | None, rested: Callable[["Helper"], None],
        ended: Callable[["Helper"], None],
    ) -> None:
        """Raises OSError where no process can be had."""
        self.uid = uid
        self._reactor, self._rested, self._gone = reactor, rested, ended
        self._done: Done | None = None
        self._late = ""
        self.pid, self._control = _start(environ, uid)
        self._pidfd = os.pidfd_open(self.pid)
        reactor.watch(self._pidfd, IN, lambda _: self._ended())
        reactor.watch(self._control.fileno(), IN, lambda _: self._heard())
        self._timer: Timer = reactor.later(KEPT, lambda: None)

    def begin(self, job: Job, message: int, done: Done) -> None:
        """Raises OSError where it takes no attempt any more."""
        socket.send_fds(self._control, [json.dumps([job.sink, job.timeout]).encode("ascii")], [message])
        self._done = done
        self._timer.cancel()
        self._timer = self._reactor.later(int((job.timeout + GRACE) * 1_000_000), lambda: self._too_late(job.timeout))

    def end(self) -> None:
        """Kill it and what it is at; nothing is reported. Idempotent."""
        if self._control.fileno() < 0:
            return
        self._kill()
        self._take_end()

    def _heard(self) -> None:
        """An attempt is over, and the next may begin."""
        word = self._word()
        if not word:
            self._reactor.unwatch(self._control.fileno())  # it ends, as is seen next
            return
        done, self._done = self._done, None
        if done is None:
            self._kill()  # what it says out of turn nobody can understand
            return
        self._timer.cancel()
        self._timer = self._reactor.later(KEPT, self._unused)
        self._rested(self)
        done(_judged(word, "the helper said something else"))

    def _word(self) -> bytes:
        with suppress(OSError):
            return self._control.recv(WORD_MOST)
        return b""

    def _unused(self) -> None:
        self._gone(self)
        self.end()

    def _too_late(self, seconds: float) -> None:
        """It has not even said so itself: it hangs, or was stopped."""
        self._late = f"no answer within {seconds:g} s"
        self._kill()

    def _kill(self) -> None:
        """With what it is at. It is stopped first: then it takes no end of a child's, whose number is its own still."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGSTOP)
            if _stopped(self.pid):
                _end_children(self.pid)
            os.killpg(self.pid, signal.SIGKILL)

    def _ended(self) -> None:
        word, done = self._word(), self._done
        self._kill()
        status = self._take_end()
        self._gone(self)
        if done is not None:
            done(_judged(word, self._late or f"the helper ended with status {status}"))

    def _take_end(self) -> int:
        self._timer.cancel()
        self._reactor.unwatch(self._pidfd)
        self._reactor.unwatch(self._control.fileno())
        _, status = os.waitpid(self.pid, 0)
        os.close(self._pidfd)
        self._control.close()
        return os.waitstatus_to_exitcode(status)


def _judged(word: bytes, otherwise: str) -> Said:
    with suppress(ValueError, KeyError, TypeError):
        return said(word)
    return failed(otherwise)


def _stopped(pid: int) -> bool:
    """Stopped or ended. Hardly ever more than one look, and never longer than a tenth of a second."""
    for _ in range(50):
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return True
        select.select([], [], [], 0.002)
    return False


def _end_children(pid: int) -> None:
    """Of a stopped helper, which takes no end: a number stays its child's. Again while some have left it their own."""
    seen: set[int] = set()
    for _ in range(50):
        new = set(children(pid)) - seen
        for child in new:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
        if not new and all(_is_dead(child) for child in seen):
            return
        seen |= new
        select.select([], [], [], 0.002)


def _is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] in {b"Z", b"X"}
    except OSError:
        return True


def _in_memory(job: Job) -> int:
    """The job in a memory file, at its beginning: it may be longer than a socket takes, and stands in no argv."""
    message = os.memfd_create("crtrd-attempt", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(message), "wb") as file:
        file.write(job.dump())
    os.lseek(message, 0, os.SEEK_SET)
    return message


def _start(environ: Mapping[str, str], uid: int | None) -> tuple[int, socket.socket]:
    """(pid, our end of its control socket). Both are the caller's. It has a process group of its own."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        actions = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                   (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        argv = [sys.executable, "-I", "-c", START, ROOT, str(os.getpid()), "" if uid is None else str(uid)]
        env = {key: environ[key] for key in PASSED_ON if key in environ} | {"LANG": "C.UTF-8"}
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=actions, setpgroup=0, setsigmask=(),
                             setsigdef=DEFAULTED)
        openfiles.give_back(pid)
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.settimeout(0)
    return pid, ours
