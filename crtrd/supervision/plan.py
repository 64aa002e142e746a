"""What it takes to start one run: plain data, made by the engine from a cron and its profile. Decides nothing."""


from crtrd.core.cron import Survivors
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything about one child. None means: as the daemon itself is."""

    run_id: str
    argv: tuple[str, ...]
    """Executed without a shell; bytes that are no UTF-8 as surrogates (PEP 383). argv[0] is looked up in env's PATH."""
    env: tuple[tuple[str, str], ...] = ()
    """The whole environment of the child, nothing is added."""
    cwd: str = ""
    """'' is '/'. Entered as the child's user."""
    stdin: bytes = b""
    """b'' is /dev/null."""
    umask: int = 0o022
    uid: int | None = None
    gid: int | None = None
    """Must be given where uid is."""
    groups: tuple[int, ...] | None = None
    """Supplementary groups; with a uid, None means none at all: never the daemon's."""
    nice: int | None = None
    limits: tuple[tuple[int, int, int], ...] = ()
    """(resource.RLIMIT_x, soft, hard)."""
    oom_score_adj: int | None = None
    survivors: Survivors = Survivors.KILL
    grace: int = 10_000_000
    """Microseconds between SIGTERM and SIGKILL where a stop names none."""
    head: int = 4096
    """Bytes of each stream that are kept."""
    masks: tuple[str, ...] = ()
    """Regular expressions that are masked before standard output is compared."""
    text_name: str = ""
    """Syslog identifier of the output."""
