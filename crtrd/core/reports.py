"""The sentences and fields of the events that the core announces (CONTRACT §8). No decision is taken here."""

from crtrd.core.cron import Cron
from crtrd.core.effects import Announce
from crtrd.core.occurrence import Occurrence, Result, Run
from crtrd.schedule.spans import format_instant, format_span

WARNING, NOTICE, INFO = 4, 5, 6

HOW: dict[Result, str] = {
    Result.SUCCESS: "succeeded", Result.EXIT_CODE: "failed", Result.SIGNAL: "was killed", Result.TIMEOUT: "timed out",
    Result.OOM_KILL: "ran out of memory", Result.START_FAILED: "could not start", Result.HELD: "is held",
    Result.CANCELED: "was canceled", Result.REPLACED: "was replaced", Result.INTERRUPTED: "was interrupted",
    Result.UNOBSERVED: "was lost sight of", Result.ABANDONED: "was abandoned",
}


def cron_event(what: str, cron: Cron, message: str, caller: int | None = None, priority: int = INFO) -> Announce:
    """`cron.<what>`; `caller` is the uid of who asked for it."""
    fields: dict[str, str | int] = {"CRTRD_CRON_ID": cron.id, "CRTRD_CRON": cron.name}
    if caller is not None:
        fields["CRTRD_CALLER_UID"] = caller
    return Announce(f"cron.{what}", f"{cron.name}: {message}", fields, priority)


def occurrence_event(what: str, occurrence: Occurrence, message: str, priority: int = INFO) -> Announce:
    """`cron.occurrence.<what>`"""
    fields: dict[str, str | int] = {
        "CRTRD_CRON_ID": occurrence.cron_id, "CRTRD_CRON": occurrence.cron_name,
        "CRTRD_OCCURRENCE_ID": occurrence.id, "CRTRD_STATUS": occurrence.status, "CRTRD_REASON": occurrence.reason,
        "CRTRD_SCHEDULED_AT": format_instant(occurrence.instant),
    }
    text = f"{occurrence.cron_name}: {message}"
    return Announce(f"cron.occurrence.{what}", text, fields, priority)


def settled(occurrence: Occurrence) -> Announce:
    """The one event that every occurrence ends with; its kind tells those that never ran apart."""
    what = occurrence.status if occurrence.status in {"skipped", "missed"} else "settled"
    words = [f"occurrence of {format_instant(occurrence.instant)} {occurrence.status}"]
    if occurrence.reason:
        words.append(f"({occurrence.reason})")
    if occurrence.detail:
        words.append(f"- {occurrence.detail}")
    quiet = occurrence.status in {"success", "skipped", "canceled"}
    return occurrence_event(what, occurrence, " ".join(words), INFO if quiet else NOTICE)


def late(occurrence: Occurrence, now: int) -> Announce:
    over = format_span(max(now - occurrence.instant, 0))
    return occurrence_event("late", occurrence, f"{occurrence.status} {over} after its instant", WARNING)


def run_fields(run: Run) -> dict[str, str | int]:
    fields: dict[str, str | int] = {
        "CRTRD_CRON_ID": run.cron_id, "CRTRD_CRON": run.cron_name, "CRTRD_OCCURRENCE_ID": run.occurrence_id,
        "CRTRD_RUN_ID": run.id, "CRTRD_ATTEMPT": run.attempt,
    }
    if run.target:
        fields["CRTRD_TARGET"] = run.target
    if run.result is not None:
        fields |= {"CRTRD_RESULT": run.result, "CRTRD_REASON": run.reason}
    if run.exit_code is not None:
        fields["CRTRD_EXIT_CODE"] = run.exit_code
    if run.duration is not None:
        fields["CRTRD_DURATION_USEC"] = run.duration
    return fields


def run_started(run: Run) -> Announce:
    pid = run.identity.pid if run.identity else 0
    message = f"{_run(run)} started, pid {pid}, due {format_instant(run.scheduled_at)}"
    return Announce("cron.run.started", message, run_fields(run))


def profile_missing(cron: Cron, run: Run) -> Announce:
    message = f"{_run(run)}: profile {cron.definition.profile} is gone, it runs as its owner"
    return Announce("cron.profile.missing", message, run_fields(run), WARNING)


def run_ended(run: Run) -> Announce:
    """`cron.run.settled`, or the kinds of its own that held and unobserved runs have."""
    result = run.result or Result.UNOBSERVED
    kind = {Result.HELD: "held", Result.UNOBSERVED: "unobserved", Result.ABANDONED: "abandoned"}.get(result, "settled")
    took = f" after {format_span(run.duration)}" if run.duration is not None else ""
    why = f": {run.reason}" if run.reason else ""
    left = f"; outlived by {', '.join(run.survivors)}" if run.survivors else ""
    quiet = result in {Result.SUCCESS, Result.HELD, Result.CANCELED, Result.REPLACED}
    message = f"{_run(run)} {HOW[result]}{took}{why}{left}"
    return Announce(f"cron.run.{kind}", message, run_fields(run), INFO if quiet else WARNING)


def run_late(run: Run, how: str) -> Announce:
    """An abandoned run has ended after all."""
    return Announce("cron.run.late", f"{_run(run)} ended after it was abandoned ({how}); nothing is changed by it",
                    run_fields(run), INFO)


def _run(run: Run) -> str:
    target = f" [{run.target}]" if run.target else ""
    again = f" (attempt {run.attempt})" if run.attempt > 1 else ""
    return f"{run.cron_name}{target}: run {run.id[:8]}{again}"
