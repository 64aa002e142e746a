"""The descriptors that the service manager passes at start: listening sockets and stored ones (sd_listen_fds(3)).

Takes them out of the environment; and passes them on in the same way when the daemon executes itself anew. Storing
descriptors is notify.py's work; what a socket is for, the caller's.
"""

import fcntl
import os
from collections.abc import Mapping, MutableMapping, Sequence

from crtrd.errors import ManagerError

FIRST = 3
UNNAMED = "unknown"
_VARIABLES = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")


def take_listen_fds(environ: MutableMapping[str, str]) -> dict[str, list[int]]:
    """Name -> descriptors, in the order they were passed. The caller owns them; they are close-on-exec from now on.

    Empty where nothing was passed, or passed to another process (LISTEN_PID). Raises ManagerError when what the
    environment says cannot be: then nothing is known about any descriptor and none is touched.
    """
    taken = {name: environ.pop(name) for name in _VARIABLES if name in environ}
    if taken.get("LISTEN_PID") != str(os.getpid()):
        return {}
    count = _count(taken.get("LISTEN_FDS", ""))
    names = taken.get("LISTEN_FDNAMES", "").split(":")
    found: dict[str, list[int]] = {}
    for index, fd in enumerate(range(FIRST, FIRST + count)):
        name = names[index] if index < len(names) else ""
        try:
            os.set_inheritable(fd, False)  # noqa: FBT003  the standard library's own signature
        except OSError as error:
            message = f"cannot take descriptor {fd} from the service manager: {error.strerror}"
            raise ManagerError(message) from error
        found.setdefault(name or UNNAMED, []).append(fd)
    return found


def pass_listen_fds(named: Mapping[str, Sequence[int]], environ: MutableMapping[str, str]) -> None:
    """The opposite, for the program that this very process is about to execute.

    Afterwards the descriptors from FIRST on are these; whatever had such a number is gone, so nothing but execve(2) may
    follow.
    """
    names = [name for name, fds in named.items() for _ in fds]
    above = FIRST + len(names)
    spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fds in named.values() for fd in fds]
    for place, fd in enumerate(spare, FIRST):
        os.dup2(fd, place, inheritable=True)
    environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=":".join(names))


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 1 << 20:
        message = f"cannot take descriptors from the service manager: LISTEN_FDS={text!r} is not a count"
        raise ManagerError(message)
    return int(text)
