"""Occurrences, cells and runs: their states, the one table of legal moves, and the words for how things ended.

    pending -> running -> success | partial | failed | unobserved | canceled | abandoned
       |  ^       |
       |  +- held <+     held: the command said "not now"; a poke makes it pending again
       +-> skipped | missed | canceled | failed

A settled occurrence never moves (I4). `move` raises `IllegalMove` and changes nothing; the ledger holds the
same rule a second time in a trigger.
"""

import hashlib
from dataclasses import replace
from enum import StrEnum

from crtrd.values import dataclass


class Status(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    HELD = "held"
    SUCCESS = "success"
    PARTIAL = "partial"
    FAILED = "failed"
    UNOBSERVED = "unobserved"
    CANCELED = "canceled"
    ABANDONED = "abandoned"
    SKIPPED = "skipped"
    MISSED = "missed"


MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.RUNNING, Status.SKIPPED, Status.MISSED, Status.CANCELED, Status.FAILED,
                               Status.UNOBSERVED}),
    Status.RUNNING: frozenset({Status.PENDING, Status.HELD, Status.SUCCESS, Status.PARTIAL, Status.FAILED,
                               Status.UNOBSERVED, Status.CANCELED, Status.ABANDONED}),
    Status.HELD: frozenset({Status.PENDING, Status.RUNNING, Status.CANCELED, Status.MISSED, Status.SKIPPED}),
    Status.SUCCESS: frozenset(), Status.PARTIAL: frozenset(), Status.FAILED: frozenset(),
    Status.UNOBSERVED: frozenset(), Status.CANCELED: frozenset(), Status.ABANDONED: frozenset(),
    Status.SKIPPED: frozenset(), Status.MISSED: frozenset(),
}
SETTLED = frozenset(status for status, onward in MOVES.items() if not onward)
OPEN = frozenset(MOVES) - SETTLED


class Origin(StrEnum):
    SCHEDULE = "schedule"
    TRIGGER = "trigger"
    MANUAL = "manual"
    BACKFILL = "backfill"


class Reason(StrEnum):
    """Why an occurrence stands where it stands. Words are the contract, `detail` is for people."""

    NONE = ""
    OVERLAP = "overlap"
    DEADLINE = "deadline"
    DOWNTIME = "downtime"
    CLOCK_JUMP = "clock-jump"
    PAUSED = "paused"
    SKIP_REQUESTED = "skip-requested"
    EXCLUDED = "excluded"
    OUTSIDE_WINDOW = "outside-window"
    COALESCED = "coalesced"
    REPLACED = "replaced"
    CAPACITY = "capacity"
    QUEUE_FULL = "queue-full"
    RETRY = "retry"
    CRASH = "crash"
    TIMEOUT = "timeout"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    OOM_KILL = "oom-kill"
    START_FAILED = "start-failed"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"
    HELD = "held"
    POKED = "poked"


GIVING_WAY = frozenset({Reason.REPLACED, Reason.CANCELED, Reason.INTERRUPTED})
"""Reasons of a running occurrence that is being stopped: none of its cells begins any more."""


class Result(StrEnum):
    """How one run ended; systemd's words where it has them."""

    SUCCESS = "success"
    EXIT_CODE = "exit-code"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    OOM_KILL = "oom-kill"
    START_FAILED = "start-failed"
    HELD = "held"
    CANCELED = "canceled"
    REPLACED = "replaced"
    INTERRUPTED = "interrupted"
    UNOBSERVED = "unobserved"
    ABANDONED = "abandoned"


class Phase(StrEnum):
    """Where one run stands: recorded and not yet released, released, over."""

    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class IllegalMove(Exception):
    """A bug: the caller asked for a move that MOVES does not have."""


@dataclass(frozen=True, slots=True)
class Line:
    """How many occurrences of a cron are open, and the oldest of them; '' and None where there are none."""

    count: int = 0
    pending: int = 0
    oldest: str = ""
    status: Status | None = None

    @property
    def begun(self) -> bool:
        """Whether any is running or held."""
        return self.pending < self.count


@dataclass(frozen=True, slots=True)
class Occurrence:
    id: str
    cron_id: str
    cron_name: str
    origin: Origin
    instant: int
    """Scheduled instant; for triggers and manual runs the moment of acceptance."""
    key: str
    """Tells occurrences of one instant apart where the instant is not the identity (manual, trigger)."""
    status: Status
    created_at: int
    due_at: int
    """Not to be started before (retry delay, queue): microseconds since the epoch."""
    label: str = ""
    reason: Reason = Reason.NONE
    """While it runs: what its end is to lead to (GIVING_WAY, or POKED: start the held cells again at once)."""
    detail: str = ""
    settled_at: int | None = None
    covers: int = 1
    """How many owed instants this row stands for; more than one only where old ones were coalesced."""
    fence: int = 0
    target: str = ""
    """A manual run of one target only."""
    overlap: str = ""
    """Overlap policy named by the caller instead of the cron's."""
    alert_at: int | None = None
    """When an alarm is due should it not be settled by then; None: no alarm, or it was given."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One target of one occurrence. `attempts` counts runs begun.

    `shortages` of them failed for want of something of ours, `excused` ones were held or lost; neither uses up a retry.
    """

    occurrence_id: str
    target: str
    status: Status
    attempts: int = 0
    shortages: int = 0
    due_at: int = 0
    excused: int = 0
    place: int = 0
    """Cells start, and are shown, in the order in which the cron names its targets."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, proven by what a reused pid cannot have: boot id, pid, start ticks (proc_pid_stat(5) field 22)."""

    boot_id: str
    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Output:
    """One stream of one run: its first bytes, and count and hash of all of them."""

    head: bytes = b""
    total: int = 0
    sha256: str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    """'' where nobody knows it: more output than a spool holds, over a crash."""
    masked: str = ""
    """Hash of all of it after `change_ignore`; '' where nothing is masked."""

    @property
    def truncated(self) -> bool:
        return self.total > len(self.head)


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    occurrence_id: str
    cron_id: str
    cron_name: str
    target: str
    attempt: int
    trigger: Origin
    scheduled_at: int
    phase: Phase
    out_of_band: bool
    fence: int
    created_at: int
    identity: Identity | None = None
    cgroup: str = ""
    """Path below the cgroup mount, '' where there is none."""
    started_at: int | None = None
    finished_at: int | None = None
    duration: int | None = None
    """Microseconds of the monotonic clock; None when nobody saw it end."""
    stopping: str = ""
    """A Result that a stop in progress will give this run: timeout, canceled, replaced, interrupted."""
    result: Result | None = None
    reason: str = ""
    exit_code: int | None = None
    signal: int | None = None
    stdout: Output = Output()
    stderr: Output = Output()
    survivors: tuple[str, ...] = ()
    delivered: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The claim of one daemon life on an occurrence. `until` counts CLOCK_BOOTTIME microseconds of `boot_id`."""

    occurrence_id: str
    owner: str
    boot_id: str
    until: int
    fence: int


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key and what it led to."""

    cron_id: str
    key: str
    arguments: str
    occurrence_id: str
    at: int


def move(occurrence: Occurrence, to: Status, now: int, reason: Reason = Reason.NONE, detail: str = "") -> Occurrence:
    """The occurrence after a legal move; `now` becomes `settled_at` where the move settles it."""
    if to not in MOVES[occurrence.status]:
        message = f"cannot move occurrence {occurrence.id}: {occurrence.status} -> {to} is not in MOVES"
        raise IllegalMove(message)
    settled = now if to in SETTLED else None
    return replace(occurrence, status=to, reason=reason, detail=detail, settled_at=settled)


def derive_id(*parts: str | int) -> str:
    """32 hex digits from the parts: any number of clocks that name the same thing meet in one id (I2)."""
    text = "\x1f".join(str(part) for part in parts)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


def short(name: str) -> str:
    """An id as people are shown it: its first 12 digits, by which it is found again."""
    return name[:12]


def occurrence_id(cron_id: str, origin: Origin, instant: int, key: str) -> str:
    """Derived from (cron, origin, instant or key): a key, where there is one, is the identity."""
    return derive_id("occurrence", cron_id, origin, key if key else instant)


def rerun_label(occurrence: str) -> str:
    """The label of a manual occurrence that finishes another one; nobody can name labels of manual ones."""
    return f"rerun of {occurrence}"


def run_id(occurrence: str, target: str, attempt: int) -> str:
    return derive_id("run", occurrence, target, attempt)
