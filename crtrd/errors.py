"""Errors by who must act. Messages read "cannot <verb> <object>: <reason>".

How a child ended and why an occurrence was skipped are data (core.occurrence), never exceptions.
A bug raises something else and ends the daemon: the ledger makes a restart safe.
"""

from enum import StrEnum

SHOWN = 80  # characters of a refused text that a message repeats


class CrtrdError(Exception):
    """Root of every error that crtrd raises on purpose."""


class ScheduleError(CrtrdError):
    """A schedule text that cannot be accepted: `field` names the part at fault, `reason` says why.

    `what` is what the text is, where it is not a schedule with fields.
    """

    def __init__(self, text: str, field: str, reason: str, what: str = "") -> None:
        shown = text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
        where = f"{what} {shown!r}" if what else f"schedule {shown!r}: {field}"
        super().__init__(f"cannot use {where}: {reason}")
        self.where = where
        self.text, self.field, self.reason = text, field, reason


class ConfigError(CrtrdError):
    """The administrator must act: a file or definition is wrong. The last good one stays in force."""

    def __init__(self, path: str, key: str, reason: str) -> None:
        where = f"{path}: {key}" if path and key else path or key
        super().__init__(f"cannot accept {where}: {reason}")
        self.path, self.key, self.reason = path, key, reason


class Code(StrEnum):
    """What a caller did wrong or met. One total table per surface maps each code outward."""

    NO_SUCH_CRON = "NoSuchCron"
    NO_SUCH_RUN = "NoSuchRun"
    NO_SUCH_OCCURRENCE = "NoSuchOccurrence"
    CRON_EXISTS = "CronExists"
    INVALID_DEFINITION = "InvalidDefinition"
    INVALID_STATE = "InvalidState"
    INVALID_ARGUMENT = "InvalidArgument"
    CONFLICT = "Conflict"
    LEDGER_UNAVAILABLE = "LedgerUnavailable"
    SHUTTING_DOWN = "ShuttingDown"
    ACCESS_DENIED = "AccessDenied"
    INTERACTION_REQUIRED = "InteractionRequired"
    LIMIT_EXCEEDED = "LimitExceeded"


class RequestError(CrtrdError):
    """The caller must act. `code` is stable across bus, socket and command line."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class LaunchError(CrtrdError):
    """This run cannot start. An outcome of the run, never a guess and never another user.

    `stage` says what was being done (`user`, `cwd`, `command`, `interpreter`, `cgroup`, `fork`, `pipe`, `limits`),
    `errno` is the system's number, 0 where no system call failed.
    """

    def __init__(self, stage: str, errno: int, reason: str) -> None:
        super().__init__(f"cannot start {stage}: {reason}")
        self.stage, self.errno, self.reason = stage, errno, reason


class ManagerError(CrtrdError):
    """The service manager or the bus is away. Retried with backoff; runs go on."""


class LedgerError(CrtrdError):
    """We cannot remember: start nothing more, keep what ended, write it when the store is back."""


class LedgerRefused(LedgerError):
    """This crtrd may not use that ledger, now or later, until an administrator acts."""


class LedgerSpoiled(LedgerError):
    """The open file is damaged, or not the ledger any more: this life is over, the next one looks at what is there."""

    def __init__(self, message: str, *, damaged: bool = False) -> None:
        super().__init__(message)
        self.damaged = damaged


class LeaseLost(LedgerError):
    """Another life has claimed the ledger: this one is over, and touches nothing any more."""
