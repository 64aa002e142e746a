"""The helper's main program: makes attempts, one at a time, each in a child of its own that is forked from it.

It may wait for others as long as it likes, so it is a process of its own; that it is kept for the next attempt saves
the start of an interpreter. Through its control socket (descriptor 0, SOCK_SEQPACKET) come, for each attempt, the kind
of sink and the seconds it may take, with the job in a memory file; back goes the attempt's word. The job itself is read
only in the child, which becomes the cron's owner before it does anything for them. It is killed with all that it began,
in its process group or out of it (those become the helper's children, PR_SET_CHILD_SUBREAPER), at its end, at its
deadline, and when the daemon is gone (then the socket is at its end): so that no attempt of an earlier life goes on
beside a new one.
"""

import ctypes
import json
import os
import pwd
import select
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType

from crtrd.delivery.attempt import Job, Said, children, failed, load, refused

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
MODULES = {"mail": "mail", "exec": "exec", "webhook": "webhook", "heartbeat": "webhook", "file": "file"}
ORDER_MOST, WORD_MOST = 1024, 32 * 1024


def main(parent: int) -> int:
    """`parent`: the daemon's pid; one that is gone already needs nothing any more."""
    if os.getppid() != parent:
        return 1
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = socket.socket(fileno=0)
    while True:
        order, fds, _, _ = socket.recv_fds(control, ORDER_MOST, 1)
        if not fds:
            return 0
        sink, seconds = json.loads(order)
        module = import_module(f"crtrd.delivery.{MODULES[sink]}")  # here, so that the next attempt has it
        word = _make(module, fds[0], seconds, control)
        os.close(fds[0])
        if word is None:
            return 0
        control.send(word)


def _make(module: ModuleType, message: int, seconds: float, control: socket.socket) -> bytes | None:
    """The word of one attempt; None when the daemon is gone."""
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    child = os.fork()
    if not child:
        os.close(read)
        control.close()
        _attempt(module, message, write)
    os.close(write)
    with suppress(OSError):
        os.setpgid(child, child)  # the child does it too: whoever is first
    pidfd = os.pidfd_open(child)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(control, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(seconds * 1000)}
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # it is not reaped yet, so the number is still its own, and the group's
    _, status = os.waitpid(child, 0)
    os.close(pidfd)
    _end_the_rest()
    word = _all(read)
    if control.fileno() in ready:
        return None
    if word or pidfd not in ready:
        return word or failed(f"no answer within {seconds:g} s").dump()
    return failed(f"the attempt ended with status {os.waitstatus_to_exitcode(status)}").dump()


def _end_the_rest() -> None:
    """What left the group has no parent but us now; each that ends may leave us its own children in turn."""
    with suppress(ChildProcessError):
        while True:
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)  # nobody else reaps it
            os.waitpid(-1, 0)


def _all(read: int) -> bytes:
    try:
        return os.read(read, WORD_MOST)
    except BlockingIOError:  # somebody outside of the group still has the other end
        return b""
    finally:
        os.close(read)


def _attempt(module: ModuleType, message: int, write: int) -> None:
    """In the child; never returns."""
    try:
        parent = os.getppid()
        os.setpgid(0, 0)
        _die_with_parent(parent)
        with os.fdopen(os.dup(message), "rb") as file:
            job = load(file.read())
        os.write(write, (_become(job.uid, parent) or _deliver(module, job)).dump())
        os._exit(0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        raise
    finally:
        os._exit(1)


def _deliver(module: ModuleType, job: Job) -> Said:
    said: Said = module.deliver(job)
    return said


def _become(uid: int | None, parent: int) -> Said | None:
    """What to say where that cannot be done."""
    try:
        become(uid)
    except KeyError:
        return refused(f"there is no account with uid {uid}")
    except OSError as error:
        return failed(f"cannot become uid {uid}: {error.strerror}")
    _die_with_parent(parent)  # a change of identity clears it (prctl(2))
    return None


def _die_with_parent(parent: int) -> None:
    """A parent that has gone before it is asked for sends no signal any more."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become(uid: int | None) -> None:
    """Everything of that user's: groups, group, user; there is no way back."""
    if uid is None or uid == os.geteuid():
        return
    account = pwd.getpwuid(uid)
    os.initgroups(account.pw_name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(uid)
