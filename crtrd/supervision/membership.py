"""Whether a process is one of a run's: asked for callers that say so of themselves."""

import os

from crtrd.core.occurrence import Phase, Run
from crtrd.supervision.identity import read_stat


def belongs(pid: int | None, run: Run) -> bool:
    """Whether the process `pid` is in the live run's cgroup; where it has none, in its session or marked by its id.

    A caller whose pid is not known (None) is taken at its word: only a command of the run has been told the id.
    """
    if run.phase is not Phase.RUNNING or run.identity is None:
        return False
    if pid is None:
        return True
    try:
        if run.cgroup:
            where = _cgroup(pid)
            return where == run.cgroup or where.startswith(run.cgroup + "/")
        return read_stat(pid).session == run.identity.pid or _is_marked(pid, run.id)
    except (OSError, ValueError, IndexError):
        return False


def _cgroup(pid: int) -> str:
    with open(f"/proc/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as lines:
        return next((line[3:].rstrip("\n") for line in lines if line.startswith("0::")), "")


def _is_marked(pid: int, run_id: str) -> bool:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"CRTR_RUN_ID=" + os.fsencode(run_id) in file.read().split(b"\0")
