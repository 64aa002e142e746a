"""The exit status of a process that is no child of ours, from its pidfd (PIDFD_GET_INFO, kernel 6.15 and later)."""

import fcntl
import os
import struct

_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11  # _IOWR(0xFF, 11, 64 bytes), the first version of the struct
_INFO_EXIT = 1 << 3
_STATUS_AT = 60  # offset of exit_code in struct pidfd_info


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
