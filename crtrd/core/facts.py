"""What the core may ask about the past while it decides: a read-only view of the ledger, and the limits in force.

The ledger's session is the real one; it sees what earlier events of the same batch have put, committed or not.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from crtrd.core.cron import Cron
from crtrd.core.occurrence import Cell, Occurrence, Run


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings that decide: from crtrd.toml, and the boot this daemon life belongs to."""

    boot_id: str
    max_runs_at_once: int = 32
    """0: start nothing (leaving, stopping, drained)."""
    own_clock: bool = True
    """False: `clock = "external"`, instants of schedules are not served, only requests."""
    pools: tuple[tuple[str, int], ...] = field(default=())


class Facts(Protocol):
    def cron(self, cron_id: str) -> Cron | None: ...

    def find_cron(self, name_or_id: str) -> Cron | None: ...

    def crons_due(self, now: int) -> list[Cron]:
        """Active crons whose `next_at` has come, earliest first."""

    def crons_scheduled(self) -> list[Cron]:
        """Every active cron that has a schedule: asked only when the clock was set or the daemon starts."""

    def crons_ahead(self, now: int) -> list[Cron]:
        """Active crons that were considered later than `now`: the clock was set back."""

    def occurrence(self, occurrence_id: str) -> Occurrence | None: ...

    def known(self, occurrence_ids: Iterable[str]) -> set[str]:
        """Which of these ids have a row."""

    def open_occurrences(self, cron_id: str) -> list[Occurrence]:
        """Pending, running and held ones, oldest first."""

    def startable(self, now: int, limit: int) -> list[Occurrence]:
        """Pending, due, and not waiting for another occurrence of their cron; fair order: due first, first served."""

    def cells(self, occurrence_id: str) -> list[Cell]: ...

    def run(self, run_id: str) -> Run | None: ...

    def last_run(self, occurrence_id: str) -> Run | None: ...

    def live_runs(self, occurrence_id: str = "") -> list[Run]:
        """Runs that are starting or running; of one occurrence where it is named."""

    def live_count(self) -> int: ...

    def pool_count(self, pool: str) -> int:
        """Live runs of crons in this pool."""
