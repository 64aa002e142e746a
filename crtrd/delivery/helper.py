"""Starts the helper process of one attempt and hears of its end. Never waits: its end is a descriptor of the loop.

The message goes to it in a memory file, its word comes back in a pipe that is read when it has ended. It has its own
process group; what is left of that is killed at its end and at the deadline.
"""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from crtrd.delivery.attempt import Job, Said, failed, said
from crtrd.loop.reactor import IN, Reactor, Timer

ROOT = str(Path(__file__).parents[2])
START = ("import sys; sys.path.insert(0, sys.argv[1]); from crtrd.delivery.send import main; "
         "sys.exit(main(int(sys.argv[2])))")
"""-I keeps PYTHONPATH and the folder it starts in out of it; so it is told where crtrd lies."""
WORD_MOST = 32 * 1024
PASSED_ON = ("PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
DEFAULTED = (signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Helper:
    """One attempt under way. `done` is called once, in the loop, unless `close` comes first."""

    def __init__(self, reactor: Reactor, job: Job, environ: Mapping[str, str], done: Callable[[Said], None]) -> None:
        """Raises OSError where no process can be had."""
        self._reactor, self._done = reactor, done
        self._late = f"no answer within {job.timeout:g} s"
        self._killed = False
        self._pid, self._word = _start(job, environ)
        self._pidfd = os.pidfd_open(self._pid)
        reactor.watch(self._pidfd, IN, lambda _: self._ended())
        self._timer: Timer = reactor.later(int(job.timeout * 1_000_000), self._too_late)

    def close(self) -> None:
        """Kill what is under way; nothing is reported."""
        self._kill()
        self._take_end()

    def _too_late(self) -> None:
        self._killed = True
        self._kill()

    def _kill(self) -> None:
        """The leader is not reaped yet, so its number is still its own, and the group's."""
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)

    def _ended(self) -> None:
        self._kill()
        word = os.read(self._word, WORD_MOST)
        status = self._take_end()
        self._done(self._judged(word, status))

    def _take_end(self) -> int:
        self._timer.cancel()
        self._reactor.unwatch(self._pidfd)
        _, status = os.waitpid(self._pid, 0)
        os.close(self._pidfd)
        os.close(self._word)
        return os.waitstatus_to_exitcode(status)

    def _judged(self, word: bytes, status: int) -> Said:
        with suppress(ValueError, KeyError, TypeError):
            return said(word)
        return failed(self._late if self._killed else f"the helper ended with status {status}")


def _start(job: Job, environ: Mapping[str, str]) -> tuple[int, int]:
    """(pid, the pipe with its word). Both are the caller's."""
    message = os.memfd_create("crtrd-attempt", os.MFD_CLOEXEC)
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.write(message, job.dump())
        os.lseek(message, 0, os.SEEK_SET)
        os.set_blocking(write, True)
        actions = [(os.POSIX_SPAWN_DUP2, message, 0), (os.POSIX_SPAWN_DUP2, write, 1),
                   (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        argv = [sys.executable, "-I", "-c", START, ROOT, str(os.getpid()), job.sink, job.id]
        env = {key: environ[key] for key in PASSED_ON if key in environ} | {"LANG": "C.UTF-8"}
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=actions, setpgroup=0, setsigmask=(),
                             setsigdef=DEFAULTED)
    except OSError:
        os.close(read)
        raise
    finally:
        os.close(message)
        os.close(write)
    return pid, read
