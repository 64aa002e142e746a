"""What the kernel counts of a control group's limits (cgroups(7)): kills for want of memory, limits that were met.

A run's own group tells exactly, as long as it is there and has the controllers. The group above outlives it and counts
what is below it too, but others as well: what it has counted during the run is the second choice.
"""

import os

from crtrd.values import dataclass

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Counters:
    """UNKNOWN where nobody counts."""

    oom_kills: int = UNKNOWN
    ooms: int = UNKNOWN
    """How often a limit of memory could not be kept otherwise."""
    refused_tasks: int = UNKNOWN

    @property
    def hits(self) -> tuple[str, ...]:
        """Limits that were met, by systemd's names."""
        counts = {"MemoryMax": self.ooms, "TasksMax": self.refused_tasks}
        return tuple(name for name, count in counts.items() if count > 0)

    def since(self, before: "Counters") -> "Counters":
        return Counters(
            _risen(self.oom_kills, before.oom_kills), _risen(self.ooms, before.ooms),
            _risen(self.refused_tasks, before.refused_tasks),
        )  # fmt: skip

    def or_else(self, other: "Counters") -> "Counters":
        """These, and the other's where these are unknown."""
        return Counters(
            _known(self.oom_kills, other.oom_kills), _known(self.ooms, other.ooms),
            _known(self.refused_tasks, other.refused_tasks),
        )  # fmt: skip


class Around:
    """What the group around the runs has counted, read once for many runs that begin or end together."""

    def __init__(self) -> None:
        self._folder, self._at, self._counted = "", -1, Counters()

    def read(self, folder: str, now: int, since: int) -> Counters:
        """As it was at some moment from `since` to `now`, microseconds of one clock."""
        if folder != self._folder or self._at < since:
            self._folder, self._at, self._counted = folder, now, read(folder)
        return self._counted


def read(folder: str) -> Counters:
    memory, tasks = _words(folder + "/memory.events"), _words(folder + "/pids.events")
    return Counters(memory.get("oom_kill", UNKNOWN), memory.get("oom", UNKNOWN), tasks.get("max", UNKNOWN))


def _risen(now: int, before: int) -> int:
    return UNKNOWN if UNKNOWN in {now, before} else max(now - before, 0)


def _known(own: int, other: int) -> int:
    return other if own == UNKNOWN else own


def _words(file: str) -> dict[str, int]:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        lines = os.read(fd, 4096).decode("ascii", "replace").splitlines()
    except OSError:  # ENODEV: removed meanwhile
        return {}
    finally:
        os.close(fd)
    pairs = [line.split() for line in lines]
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}  # noqa: PLR2004
