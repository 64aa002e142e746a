"""What happens around a start: the plan is looked over, descriptors are made, limits are set on the held child.

Every failure is a LaunchError with its stage; what had been opened until then is closed again.
"""

import errno
import os
import resource
import socket
from collections.abc import Callable
from functools import partial

from crtrd.errors import LaunchError
from crtrd.supervision import faults
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.child import Child
from crtrd.supervision.gate import Spawner, memory_file
from crtrd.supervision.masking import Masking
from crtrd.supervision.output import Stream
from crtrd.supervision.plan import Plan

LinesHook = Callable[[str, str, list[bytes]], object]
"""(run id, "stdout" or "stderr", complete lines); true where some of them wait to be written."""
SPOOLS = {"stdout": "crtrd-spo", "stderr": "crtrd-spe"}
"""What the descriptors of the spools show (/proc/PID/fd)."""
LARGEST = 2 * 1024 * 1024
"""Bytes of arguments and environment together: what execve(2) takes with the usual stack limit is no more."""


def check(plan: Plan) -> None:
    """Refuse what no exec can carry out, or what would run as somebody else than was meant."""
    if not plan.argv or not plan.argv[0]:
        raise LaunchError("command", errno.ENOENT, "it is empty")
    if any("\0" in word for word in plan.argv):
        raise LaunchError("command", errno.EINVAL, "an argument holds a NUL")
    for name, value in plan.env:
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise LaunchError("environment", errno.EINVAL, f"variable {name!r} cannot be given to a process")
    if plan.uid is not None and plan.gid is None:
        raise LaunchError("user", errno.EINVAL, f"no group is known for uid {plan.uid}")
    size = sum(map(len, plan.argv)) + sum(len(name) + len(value) for name, value in plan.env)
    if size > LARGEST:
        raise faults.launch_error("command", errno.E2BIG)


def ask(child: Child, plan: Plan, spawner: Spawner, cgroups: Cgroups | None, lines: LinesHook | None) -> None:
    """Make the child's pipes and cgroup and hand the request to the spawner. Raises LaunchError, nothing left open."""
    if cgroups is not None:
        child.cgroup = cgroups.create(plan.run_id)
    theirs: list[int] = []
    try:
        _open(child, plan, theirs, lines)
    except OSError as error:
        for fd in theirs:
            os.close(fd)
        raise faults.launch_error("pipe", error.errno or 0) from None
    try:
        spawner.start(plan, cgroups.procs_file(child.cgroup) if cgroups is not None else "", theirs)
    except OSError as error:
        raise faults.launch_error("pipe", error.errno or 0) from None
    child.spawner = spawner


def limit(plan: Plan, pid: int) -> None:
    """Set limits, nice value and OOM score of the held child, which is ours and not reaped. Raises LaunchError."""
    try:
        for number, soft, hard in plan.limits:
            resource.prlimit(pid, number, (soft, hard))
        if plan.nice is not None:
            os.setpriority(os.PRIO_PROCESS, pid, plan.nice)
        if plan.oom_score_adj is not None:
            with open(f"/proc/{pid}/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(plan.oom_score_adj))
    except OSError as error:
        raise LaunchError("limits", error.errno or 0, error.strerror or "") from None
    except ValueError as error:
        raise LaunchError("limits", errno.EINVAL, str(error)) from None


def _open(child: Child, plan: Plan, theirs: list[int], lines: LinesHook | None) -> None:
    """The gate and the output pipes; our ends go into `child` at once, the others into `theirs`, in request order."""
    ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    child.gate = ours.detach()
    theirs.append(other.detach())
    os.set_blocking(child.gate, False)
    child.out = _pipe(child.run_id, "stdout", plan.head, theirs, lines)
    child.out.masking = Masking(plan.masks) if plan.masks else None
    child.err = _pipe(child.run_id, "stderr", plan.head, theirs, lines)
    if plan.stdin:
        theirs.append(memory_file("crtrd-stdin", plan.stdin))


def _pipe(run_id: str, name: str, head: int, theirs: list[int], lines: LinesHook | None) -> Stream:
    read, write = os.pipe2(os.O_CLOEXEC)
    theirs.append(write)
    os.set_blocking(read, False)
    stream = Stream(read, head, partial(lines, run_id, name) if lines is not None else None)
    stream.begin_spool(SPOOLS[name])
    return stream
