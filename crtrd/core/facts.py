"""What the core may ask about the past while it decides: a read-only view of the ledger, and the limits in force.

The ledger's session is the real one; it sees what earlier events of the same batch have put, committed or not.
"""

from collections.abc import Collection, Iterable
from typing import Protocol

from crtrd.core.cron import Cron, Departed
from crtrd.core.delivery import Delivery, Escalation, Queue, Told
from crtrd.core.occurrence import Cell, Key, Line, Occurrence, Run
from crtrd.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings that decide: from crtrd.toml, and the boot this daemon life belongs to."""

    boot_id: str
    max_runs_at_once: int = 32
    """0: start nothing (leaving, stopping, drained)."""
    own_clock: bool = True
    """False: `clock = "external"`, instants of schedules are not served, only requests."""
    pools: tuple[tuple[str, int], ...] = field(default=())
    deliver: bool = True
    """False: no attempt to deliver begins (leaving, stopping)."""
    starts_at_once: int = 64
    """Runs that one look begins at most, where more are due: these are on their way while the next look decides."""
    crons_at_once: int = 128
    """Crons whose instants one wake-up decides at most; it is followed by another one where more are due."""


class Facts(Protocol):
    def cron(self, cron_id: str) -> Cron | None: ...

    def find_cron(self, name_or_id: str) -> Cron | None: ...

    def departed(self, cron_id: str) -> Departed | None:
        """What a canceled cron left behind for its live runs."""

    def crons_due(self, now: int, limit: int = -1) -> list[Cron]:
        """Active crons whose `next_at` has come, earliest first; all of them where `limit` is negative."""

    def crons_on_boot(self) -> list[Cron]:
        """Active crons that may have `@reboot` in their schedule: asked only when the daemon starts."""

    def crons_unplanned(self) -> list[Cron]:
        """Active crons that have a schedule and no `next_at`: asked only when the daemon starts."""

    def crons_scheduled(self, after: str, limit: int) -> list[Cron]:
        """Crons that are active and have a schedule, and those that were parked because theirs was of no use; by name,
        of the names later than `after`."""

    def crons_from_files(self, after: str, upto: str) -> list[Cron]:
        """Crons that a file defines, of the names later than `after` up to `upto` ('': to the last), by name."""

    def crons_named(self, names: Collection[str]) -> list[Cron]: ...

    def crons_ahead(self, now: int) -> list[Cron]:
        """Active crons that were considered later than `now`, and those whose next instant hangs on their own end:
        what a step back of the clock may have left in the other time."""

    def occurrence(self, occurrence_id: str) -> Occurrence | None: ...

    def known(self, occurrence_ids: Iterable[str]) -> set[str]:
        """Which of these ids have a row."""

    def covered(self, cron_id: str, after: int, before: int) -> int:
        """How many instants strictly between the two the cron's scheduled rows stand for."""

    def open_occurrences(self, cron_id: str) -> list[Occurrence]:
        """Pending, running and held ones, oldest first. Thousands may wait: to know how many, ask `line`."""

    def line(self, cron_id: str) -> Line:
        """The same, in short."""

    def startable(self, now: int, limit: int, without: Collection[str] = ()) -> list[Occurrence]:
        """Pending, due, not waiting for another occurrence of their cron, and in none of the pools `without`.

        Fair order: due first, first served.
        """

    def unfinished(self, now: int) -> list[Occurrence]:
        """Running ones, not giving way, with cells that are pending and due."""

    def postponed(self, now: int) -> list[Occurrence]:
        """Pending and running ones that have a pending cell not due before later than `now`."""

    def held_over(self, now: int) -> list[Occurrence]:
        """Held ones whose expiry (their `due_at`, where it is not 0) has come."""

    def reruns(self, occurrence: Occurrence) -> list[Occurrence]:
        """Those that were asked for to finish this one, oldest first."""

    def cells(self, occurrence_id: str) -> list[Cell]: ...

    def run(self, run_id: str) -> Run | None: ...

    def last_run(self, occurrence_id: str) -> Run | None: ...

    def live_runs(self, occurrence_id: str = "") -> list[Run]:
        """Runs that are starting or running; of one occurrence where it is named."""

    def live_count(self) -> int: ...

    def pool_count(self, pool: str) -> int:
        """Live runs of crons in this pool."""

    def delivery(self, delivery_id: str) -> Delivery | None: ...

    def deliveries_due(self, now: int, limit: int) -> list[Delivery]:
        """The first due row of every queue that waits for nothing and has no attempt under way, oldest first."""

    def deliveries_beyond(self, at: int) -> list[Delivery]:
        """Pending ones that are not tried before later than `at`."""

    def sending(self) -> list[Delivery]: ...

    def queue(self, name: str) -> Queue: ...

    def queues_beyond(self, at: int) -> list[Queue]: ...

    def told(self, cron_id: str, target: str, sink: str) -> Told | None: ...

    def telling(self, cron_id: str, target: str, sink: str) -> Delivery | None:
        """The newest open delivery to the sink that tells an output of this cron and target."""

    def late(self, now: int) -> list[Occurrence]:
        """Open ones whose alarm is due."""

    def last_runs(self, cron_id: str, limit: int) -> list[Run]:
        """Newest first."""

    def escalation(self, escalation_id: str) -> Escalation | None: ...

    def open_escalations(self) -> list[Escalation]: ...

    def watched_escalations(self) -> list[Escalation]:
        """Those whose unit is to be looked at again."""

    def trigger_key(self, cron_id: str, key: str, since: int) -> Key | None:
        """What this key led to, where it was first used after `since`."""
