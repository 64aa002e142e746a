"""The helper's main program: one attempt, read from standard input, its outcome written to standard output.

A process of its own, because it may wait for others as long as it likes: the daemon watches its end and has a deadline.
It dies with the daemon (PR_SET_PDEATHSIG), so that no attempt of an earlier life goes on beside a new one.
"""

import ctypes
import os
import pwd
import signal
import sys
from importlib import import_module

from crtrd.delivery.attempt import Job, Said, failed, load, refused

PR_SET_PDEATHSIG = 1
MODULES = {"mail": "mail", "exec": "exec", "webhook": "webhook", "heartbeat": "webhook", "file": "file"}


def main(parent: int) -> int:
    """`parent`: the daemon's pid; one that is gone already sends no signal any more."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return 1
    job = load(sys.stdin.buffer.read())
    sys.stdout.buffer.write(_attempt(job).dump())
    sys.stdout.buffer.flush()
    return 0


def _attempt(job: Job) -> Said:
    try:
        become(job.uid)
    except KeyError:
        return refused(f"there is no account with uid {job.uid}")
    except OSError as error:
        return failed(f"cannot become uid {job.uid}: {error.strerror}")
    said: Said = import_module(f"crtrd.delivery.{MODULES[job.sink]}").deliver(job)
    return said


def become(uid: int | None) -> None:
    """Everything of that user's: groups, group, user; there is no way back."""
    if uid is None or uid == os.geteuid():
        return
    account = pwd.getpwuid(uid)
    os.initgroups(account.pw_name, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(uid)
    # a change of identity clears it (prctl(2))
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
