"""What a failed start means, in words: stage and errno to a sentence, and whether the shortage is ours. Pure."""

import errno
import os

from crtrd.errors import LaunchError

SHORTAGES = frozenset({
    errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.ENOBUFS, errno.ETOOMANYREFS,
    errno.EDQUOT,
})
"""What another moment may mend: retried with backoff, never counted as the cron's own failure."""


class Shortage(LaunchError):
    """The daemon lacks something that another moment may bring."""


def launch_error(stage: str, number: int, detail: str = "") -> LaunchError:
    """The error for a system call that failed with `number` while `stage` was being done."""
    kind = Shortage if number in SHORTAGES else LaunchError
    return kind(stage, number, _reason(stage, number, detail))


def _reason(stage: str, number: int, detail: str) -> str:
    text = os.strerror(number) if number else ""
    if stage == "interpreter":
        what = f"interpreter {detail!r}" if detail else "the program's loader"
        return f"{what}: {text}"
    if number == errno.ENOEXEC:
        return f"{detail!r} is no program: it has no '#!' line and is no binary of this machine"
    if number == errno.E2BIG:
        return "arguments and environment are too long"
    if stage == "user" and number == errno.EPERM:
        return "the daemon may not become this user"
    return ": ".join(part for part in (repr(detail) if detail else "", text) if part)
