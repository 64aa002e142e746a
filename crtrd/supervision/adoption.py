"""A run of an earlier life of the daemon: is it still there, and what can still be heard of it?"""

import errno
import os
from collections.abc import Callable, Sequence

from crtrd.core.occurrence import Identity
from crtrd.loop.clock import Clock
from crtrd.supervision.exit_status import pid_of
from crtrd.supervision.identity import Proof, is_zombie, prove, read_stat
from crtrd.supervision.masking import Masking
from crtrd.supervision.output import Stream

REAPED = -1


def take(identity: Identity | None, boot_id: str, kept: int, *, zombies: bool) -> tuple[Proof, int]:
    """The proof, and with ALIVE a pidfd of that very process: the one that was kept, or a new one.

    A kept pidfd is proof enough that the process is ours even when it has ended: its end can still be told.
    So it is of a zombie where `zombies` says that its parent was kept, too.
    """
    if identity is None or identity.boot_id != boot_id:
        return Proof.GONE, -1
    if kept >= 0 and pid_of(kept) in {identity.pid, REAPED}:
        return Proof.ALIVE, kept
    proof = _prove(identity, boot_id, zombies=zombies)
    if proof is not Proof.ALIVE:
        return proof, -1
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError as error:
        return (Proof.GONE if error.errno == errno.ESRCH else Proof.UNKNOWN), -1
    proof = _prove(identity, boot_id, zombies=zombies)  # again: now that it is held its pid cannot be reused
    if proof is not Proof.ALIVE:
        os.close(pidfd)
        pidfd = -1
    return proof, pidfd


def _prove(identity: Identity, boot_id: str, *, zombies: bool) -> Proof:
    proof = prove(identity, boot_id)
    if proof is Proof.GONE and zombies and is_zombie(identity):
        return Proof.ALIVE
    return proof


def started_mono(identity: Identity, clock: Clock) -> int:
    """When it was started, on the monotonic clock; start ticks count CLOCK_BOOTTIME (proc_pid_stat(5))."""
    age = clock.boot() - identity.start_ticks * 1_000_000 // os.sysconf("SC_CLK_TCK")
    return clock.mono() - max(age, 0)


def parent_of(identity: Identity) -> int:
    """The pid of its parent, 0 where it cannot be told any more."""
    try:
        stat = read_stat(identity.pid)
    except (OSError, ValueError, IndexError):
        return 0
    return stat.parent if stat.start_ticks == identity.start_ticks else 0


def stream(
    fd: int, spool: int, head: int, lines: Callable[[list[bytes]], object] | None, masks: Sequence[str] = ()
) -> Stream | None:
    """A stream whose pipe or spool was kept, with what an earlier life has read of it. Owns both."""
    if fd < 0 and spool < 0:
        return None
    if fd >= 0:
        os.set_blocking(fd, False)
    found = Stream(fd, head, lines)
    found.masking = Masking(masks) if masks else None
    if spool >= 0:
        found.go_on(spool)
    return found
