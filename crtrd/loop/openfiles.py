"""Open descriptors: closed many at a time, and how many the process may have.

A live run takes eight, and the usual 1024 would be used up by some 120. The daemon takes what it may have, the hard
limit; processes that it starts get back what it was started with, as a soft limit beyond 1024 breaks programs that use
select(2) (systemd.exec(5), LimitNOFILE=).
"""

import os
import resource
from collections.abc import Iterable

_given: list[tuple[int, int]] = []


def take_all() -> None:
    """The soft limit becomes the hard one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        _given[:] = [(soft, hard)]


def close_all(fds: Iterable[int]) -> None:
    """Descriptors that are the caller's."""
    for fd in fds:
        os.close(fd)


def give_back(pid: int = 0) -> None:
    """The child PID, or this process itself, gets the limit that we were started with."""
    for limits in _given:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
