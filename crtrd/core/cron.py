"""The armed thing: definition (what its owner wrote) and cron (definition plus what crtrd remembers of it).

Pure data. Texts are turned into definitions in `config`; instants are calculated in `schedule`.
All durations are integer microseconds, all instants integer microseconds since the epoch, UTC.
"""

from enum import StrEnum

from crtrd.values import dataclass, field

MICROSECOND = 1
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 3600 * SECOND


class State(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    FINISHED = "finished"


class PausedBy(StrEnum):
    NOBODY = ""
    USER = "user"
    FAILURE = "failure"
    CRASH = "crash"


class Overlap(StrEnum):
    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    ALLOW = "allow"


class CatchUp(StrEnum):
    LAST = "last"
    NONE = "none"
    ALL = "all"


class OnCrash(StrEnum):
    RECORD = "record"
    RERUN = "rerun"
    ASK = "ask"


class OnOutput(StrEnum):
    ON_FAILURE = "on-failure"
    SILENT = "silent"
    ON_CHANGE = "on-change"
    ALWAYS = "always"


class OnFailure(StrEnum):
    PAUSE = "pause"
    CONTINUE = "continue"


class Survivors(StrEnum):
    KILL = "kill"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Definition:
    """The keys of CONTRACT §4, typed. Tuples of pairs stand for tables so that the whole stays hashable."""

    name: str
    schedule: tuple[str, ...] = ()
    timezone: str = "UTC"
    dst_gap: str = "auto"
    dst_overlap: str = "auto"
    jitter: int = 0
    starts_at: int | None = None
    expires_at: int | None = None
    max_runs: int | None = None
    exclude: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    shell: str | None = None
    stdin: str = ""
    targets: tuple[str, ...] = ()
    target_parallel: int = 1
    profile: str = ""
    user: str = ""
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    umask: int | None = None
    overlap: Overlap = Overlap.SKIP
    queue_limit: int = 1
    parallel: int | None = None
    pool: str = ""
    timeout: int = HOUR
    grace: int = 10 * SECOND
    retries: int = 0
    retry_delay: int = 10 * SECOND
    retry_max_delay: int = HOUR
    success_exit_codes: tuple[int, ...] = (0,)
    held_exit_code: int = 75
    catch_up: CatchUp = CatchUp.LAST
    start_within: int | None = None
    on_crash: OnCrash = OnCrash.RECORD
    on_output: OnOutput = OnOutput.ON_FAILURE
    change_ignore: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ("inbox",)
    alert_after: int | None = None
    on_failure: OnFailure = OnFailure.PAUSE
    pause_after: int = 1
    survivors: Survivors = Survivors.KILL
    resources: tuple[tuple[str, str], ...] = ()
    inherited: tuple[str, ...] = ()
    """Keys whose value is the profile's; not a key itself, nor is the next."""
    pinned: tuple[str, ...] = ()
    """Keys that were given by name with their built-in value: no profile changes them."""


@dataclass(frozen=True, slots=True)
class Cron:
    """One armed definition and its state. A new value replaces the old one; nothing is changed in place."""

    id: str
    definition: Definition
    state: State
    owner: int
    """uid of who armed it."""
    created_at: int
    changed_at: int
    anchor: int
    """Phase of `every`: instants are anchor + k * period. Kept over restarts."""
    considered: int
    """Every instant up to here has been decided. Later than the clock only after the clock was set back."""
    next_at: int | None = None
    """The next wake-up that this cron wants: its next instant. None: only when triggered, paused or finished."""
    paused_by: PausedBy = PausedBy.NOBODY
    note: str = ""
    failures: int = 0
    """Consecutive final failures."""
    runs_counted: int = 0
    """Occurrences that ran, for max_runs."""
    after_end_at: int | None = None
    """Where `every X after end` is due next; None while it runs."""
    last_boot: str = ""
    """Boot id for which @reboot was served."""
    skip_next: tuple[int, ...] = field(default=())
    """Instants that somebody asked to skip."""
    failing_since: int | None = None
    """The first of the failures that no success has followed yet; a resume does not forget them."""
    failing_count: int = 0
    source: str = ""
    """The file that defines it; '' where somebody armed it."""
    damage: str = ""
    """Why the stored definition cannot be read; then `definition` holds nothing but the name, and the stored text
    stays in the ledger as it is."""
    account: str = ""
    """`uid name` of whom it was to run as when it was armed; a uid or name that means another now starts nothing."""
    decided: int = 0
    """How far `considered` was before the clock was set back: a clock that has come past it owes nothing up to here."""

    @property
    def name(self) -> str:
        return self.definition.name


def whose(cron: Cron) -> int | None:
    """The uid of whose own it is: armed by them, and running as them and with nothing more; None for nobody's."""
    mine = cron.account.split(" ")[0] == str(cron.owner) and not cron.definition.profile
    return cron.owner if mine else None


@dataclass(frozen=True, slots=True)
class Departed:
    """A canceled cron that still has live runs: its rules decide how those end. Gone with the last of them."""

    cron: Cron
    delivers: str = ""
    """The one occurrence whose output is still delivered: that of the command which canceled its own cron."""
