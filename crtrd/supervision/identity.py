"""Which process is it, and is it still that one? The only module that knows psutil.

The proof is boot id, pid and start ticks (proc_pid_stat(5) field 22): a reused pid has other ticks, and ticks do not
move when the clock is set, as psutil's create_time does. psutil is asked only whether it sees the same process.
"Cannot tell" is an answer of its own: it allows neither a signal nor a second start (I6).
"""

import os
from enum import StrEnum

from crtrd.core.occurrence import Identity
from crtrd.values import dataclass

DEAD_STATES = frozenset("ZXx")


class Proof(StrEnum):
    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat that tell processes apart."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    start_ticks: int


def read_stat(pid: int) -> Stat:
    """Raises OSError: ENOENT or ESRCH where no such process is visible."""
    fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 4096)
    finally:
        os.close(fd)
    start, end = data.index(b"(") + 1, data.rindex(b")")  # a name may hold anything, brackets too
    rest = data[end + 2 :].split(None, 20)
    name = data[start:end].decode("utf-8", "replace")
    return Stat(pid, name, chr(rest[0][0]), int(rest[1]), int(rest[2]), int(rest[3]), int(rest[19]))


def identify(pid: int, boot_id: str) -> Identity:
    """The identity of a process that exists. Raises OSError."""
    return Identity(boot_id, pid, read_stat(pid).start_ticks)


def prove(identity: Identity, boot_id: str) -> Proof:
    """Whether the process of `identity` is alive in this boot. A zombie is gone: it executes nothing any more."""
    if identity.boot_id != boot_id:
        return Proof.GONE
    ours = _look(identity)
    if ours is Proof.ALIVE and _psutil_disagrees(identity.pid):
        # It may have ended between the two looks; if the first one still says alive, nobody can tell.
        return Proof.UNKNOWN if _look(identity) is Proof.ALIVE else Proof.GONE
    return ours


def is_zombie(identity: Identity) -> bool:
    """Whether that very process has ended and waits for its parent to take the status (boot id compared before)."""
    try:
        stat = read_stat(identity.pid)
    except (OSError, ValueError, IndexError):
        return False
    return stat.state == "Z" and stat.start_ticks == identity.start_ticks


def _look(identity: Identity) -> Proof:
    try:
        stat = read_stat(identity.pid)
    except (FileNotFoundError, ProcessLookupError):
        return Proof.UNKNOWN if _is_hidden(identity.pid) else Proof.GONE
    except (OSError, ValueError, IndexError):
        return Proof.UNKNOWN
    if stat.start_ticks != identity.start_ticks or stat.state in DEAD_STATES:
        return Proof.GONE
    return Proof.ALIVE


def _is_hidden(pid: int) -> bool:
    """Whether the pid exists though /proc does not show it (hidepid=2, no /proc). Signal 0 delivers nothing."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _psutil_disagrees(pid: int) -> bool:
    import psutil  # noqa: PLC0415 - 22 ms, and only recovery comes here

    try:
        return psutil.Process(pid).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.AccessDenied:
        return False
    except psutil.NoSuchProcess:
        return True


def descendants(pid: int) -> tuple[Stat, ...]:
    """The tree below a living process. A walk over all of /proc, so only for a stop, and only without a cgroup."""
    import psutil  # noqa: PLC0415

    found = []
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return ()
    for child in children:
        try:
            found.append(read_stat(child.pid))
        except (OSError, ValueError, IndexError):
            continue
    return tuple(found)
