"""Whether a settled run is told, and as what: one table. Pure; how a message looks and travels is not known here.

    on_output     failed    success, silent    success, output        success, output as last told
    silent        -         -                  -                      -
    on-failure    failed    -                  -                      -
    on-change     failed    - (remembered)     changed                -
    always        failed    -                  output                 output

Above the table: a run that was stopped on request tells nothing; nor does one whose cron was canceled meanwhile,
unless the run itself did that (its last words). What was told is what a sink has *taken*: the first output of a cron is
a change from nothing, one whose delivery failed has not been told, and A, B, A are three changes. An empty output is
remembered and never delivered. A run out of band is compared, and changes nothing of what is remembered.
"""

from enum import StrEnum

from crtrd.core.cron import OnOutput
from crtrd.core.occurrence import Result
from crtrd.values import dataclass


class Kind(StrEnum):
    """What a delivery tells."""

    FAILED = "failed"
    CHANGED = "changed"
    OUTPUT = "output"
    RECOVERED = "recovered"
    LATE = "late"
    ESCALATED = "escalated"
    STARTED = "started"
    SUCCEEDED = "succeeded"


FAILURES = frozenset({Result.EXIT_CODE, Result.SIGNAL, Result.TIMEOUT, Result.OOM_KILL, Result.START_FAILED,
                      Result.UNOBSERVED, Result.ABANDONED})


@dataclass(frozen=True, slots=True)
class Case:
    """All that decides. `told` is what the sink was last told, '' for nothing; `output` the hash of this one."""

    on_output: OnOutput
    result: Result
    empty: bool
    output: str
    told: str
    out_of_band: bool = False
    canceled: bool = False
    by_itself: bool = False
    """Its cron was canceled by this very run."""


@dataclass(frozen=True, slots=True)
class Verdict:
    kind: Kind | None = None
    """None: nothing is delivered."""
    remembers: bool = False
    """The output becomes what was last told: at once where nothing is delivered, otherwise when it is taken."""


NOTHING = Verdict()


def judge(case: Case) -> Verdict:
    if case.on_output is OnOutput.SILENT or (case.canceled and not case.by_itself):
        return NOTHING
    if case.result in FAILURES:
        return Verdict(Kind.FAILED)
    if case.result is not Result.SUCCESS or case.on_output is OnOutput.ON_FAILURE:
        return NOTHING
    if case.on_output is OnOutput.ALWAYS:
        return NOTHING if case.empty else Verdict(Kind.OUTPUT)
    if case.output and case.output == case.told:  # '' is unknown, see Output
        return NOTHING
    remembers = not case.out_of_band
    return Verdict(None, remembers) if case.empty else Verdict(Kind.CHANGED, remembers)
