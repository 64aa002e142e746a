"""The exit status of a process that is no child of ours: nobody tells it twice, and it is never guessed.

Once its parent has reaped it, its pidfd tells (PIDFD_GET_INFO, kernel 6.15 and later); until then /proc does.
"""

import fcntl
import os
import select
import struct
from pathlib import Path

from crtrd.core.occurrence import Identity

_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, 64 bytes), the first version of the struct
_INFO_EXIT = 1 << 3
_STATUS_AT = 60  # offset of exit_code in struct pidfd_info


def has_ended(pidfd: int, seconds: float = 0) -> bool:
    """Whether the process of `pidfd` has ended, waiting at most so long. pidfds have no read(2) to ask.

    The loop's word is not enough: a descriptor closed and opened anew within one turn may get the old one's event.
    """
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def exit_status(pidfd: int) -> int | None:
    """The wait status once its parent has reaped the process; None before that and where the kernel tells none."""
    info = bytearray(80)
    struct.pack_into("<Q", info, 0, _INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _GET_INFO, info)
    except OSError:  # ENOTTY before 6.13, ESRCH when reaped before 6.15
        return None
    if not struct.unpack_from("<Q", info, 0)[0] & _INFO_EXIT:
        return None
    status: int = struct.unpack_from("<i", info, _STATUS_AT)[0]
    return status


def zombie_status(identity: Identity) -> int | None:
    """The wait status while the process is a zombie that its parent has not reaped (proc_pid_stat(5), field 52).

    The field reads 0 without the right to trace the process, so a 0 is believed only where that right shows.
    """
    try:
        fields = Path(f"/proc/{identity.pid}/stat").read_bytes().rpartition(b") ")[2].split()
        if fields[0] != b"Z" or int(fields[19]) != identity.start_ticks:
            return None
        status = int(fields[49])
        if not status:
            os.readlink(f"/proc/{identity.pid}/ns/user")  # EACCES without that right (proc_pid_ns(5))
    except (OSError, ValueError, IndexError):
        return None
    return status


def pid_of(pidfd: int) -> int | None:
    """The pid that the descriptor stands for, -1 once reaped; None where `pidfd` is no pidfd (proc_pid_fdinfo(5))."""
    try:
        with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as lines:
            return next((int(line[4:]) for line in lines if line.startswith("Pid:")), None)
    except (OSError, ValueError):
        return None


def split(status: int | None) -> tuple[int | None, int | None]:
    """(exit code, signal) of a wait status; exactly one is set unless nobody saw the end."""
    if status is None:
        return None, None
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None
