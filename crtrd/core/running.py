"""What becomes of a run once its child exists, and of its cell, occurrence and cron when it has ended.

    RunHeld -> identity recorded, gate opened      LaunchFailed -> result start-failed, retried or final
    TimeoutReached -> stopping = timeout           RunEnded -> result; then cell; then, with its last run, occurrence

The first cause wins: a run that is being stopped for a timeout ends as `timeout` whatever its exit status is.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import Cron, OnCrash, OnFailure, PausedBy, State
from crtrd.core.effects import (
    CloseGate,
    DropLease,
    Effect,
    OpenGate,
    PutCell,
    PutCron,
    PutOccurrence,
    PutRun,
    StopRun,
)
from crtrd.core.events import Ending, LaunchFailed, RunEnded, RunHeld, RunLost, TimeoutReached
from crtrd.core.facts import Facts
from crtrd.core.occurrence import (
    Cell,
    Occurrence,
    Origin,
    Output,
    Phase,
    Reason,
    Result,
    Run,
    Status,
    move,
)
from crtrd.core.owing import plan
from crtrd.core.retry import retry_delay, shortage_delay
from crtrd.core.timetable import one_shot, timetable
from crtrd.schedule.spans import format_span

NOT_SEEN = Ending(None, None, oom=False, duration=None, stdout=Output(), stderr=Output())
FAILURES = frozenset({Result.EXIT_CODE, Result.SIGNAL, Result.TIMEOUT, Result.OOM_KILL, Result.START_FAILED})
GAVE_WAY = frozenset({Result.CANCELED, Result.REPLACED, Result.INTERRUPTED})
CELL_STATUS: dict[Result, Status] = {
    Result.SUCCESS: Status.SUCCESS, Result.HELD: Status.HELD, Result.UNOBSERVED: Status.UNOBSERVED,
    Result.ABANDONED: Status.ABANDONED, Result.CANCELED: Status.CANCELED, Result.REPLACED: Status.CANCELED,
    Result.INTERRUPTED: Status.CANCELED, **dict.fromkeys(FAILURES, Status.FAILED),
}
REASONS: dict[Result, Reason] = {
    Result.EXIT_CODE: Reason.EXIT_CODE, Result.SIGNAL: Reason.SIGNAL, Result.TIMEOUT: Reason.TIMEOUT,
    Result.OOM_KILL: Reason.OOM_KILL, Result.START_FAILED: Reason.START_FAILED, Result.CANCELED: Reason.CANCELED,
    Result.REPLACED: Reason.REPLACED, Result.INTERRUPTED: Reason.INTERRUPTED, Result.UNOBSERVED: Reason.CRASH,
    Result.ABANDONED: Reason.CRASH,
}
"""Why an occurrence did not succeed, from the result of its last run."""


def run_held(event: RunHeld, facts: Facts) -> Iterator[Effect]:
    """The identity becomes durable with this record; only the act after it opens the gate (I1)."""
    run = facts.run(event.run_id)
    cron = facts.cron(run.cron_id) if run else None
    if run is None or run.phase is not Phase.STARTING:
        yield CloseGate(event.run_id)
    elif run.stopping or cron is None:
        yield CloseGate(event.run_id)
        run = replace(run, stopping=run.stopping or Result.CANCELED)
        yield from _conclude(run, NOT_SEEN, event.at, facts)
    else:
        run = replace(run, phase=Phase.RUNNING, identity=event.identity, cgroup=event.cgroup, started_at=event.at)
        yield PutRun(run)
        yield OpenGate(run.id, cron.definition.timeout)
        yield reports.run_started(run)


def launch_failed(event: LaunchFailed, facts: Facts) -> Iterator[Effect]:
    """Nothing was executed. A shortage of ours is tried again and counts for nothing."""
    run = facts.run(event.run_id)
    if run is None or run.phase is Phase.ENDED:
        return
    cell = _cell(run, facts)
    if event.shortage and cell is not None:
        yield PutCell(replace(cell, shortages=cell.shortages + 1))
    failed = run if run.stopping else replace(run, result=Result.START_FAILED, reason=event.message)
    yield from _conclude(failed, NOT_SEEN, event.at, facts, shortage=event.shortage)


def timeout_reached(event: TimeoutReached, facts: Facts) -> Iterator[Effect]:
    run = facts.run(event.run_id)
    cron = facts.cron(run.cron_id) if run else None
    if run is None or run.phase is Phase.ENDED or run.stopping:
        return
    yield PutRun(replace(run, stopping=Result.TIMEOUT))
    yield StopRun(run.id, cron.definition.grace if cron else 0)


def run_ended(event: RunEnded, facts: Facts) -> Iterator[Effect]:
    run = facts.run(event.run_id)
    if run is not None and run.phase is not Phase.ENDED:
        yield from _conclude(run, event.ending, event.at, facts)


def run_lost(event: RunLost, facts: Facts) -> Iterator[Effect]:
    """Recovery found no such process. Never released: as if it had not been tried. Released: by `on_crash`."""
    run = facts.run(event.run_id)
    if run is None or run.phase is Phase.ENDED:
        return
    cell, cron = _cell(run, facts), facts.cron(run.cron_id)
    again = not event.executed or (cron is not None and cron.definition.on_crash is OnCrash.RERUN)
    again = again and not run.stopping
    if again and cell is not None:
        yield PutCell(replace(cell, shortages=cell.shortages + 1))
    reason = "crtrd ended before the command was released" if not event.executed else "its end was not observed"
    lost = replace(run, result=Result.UNOBSERVED if event.executed else Result.INTERRUPTED, reason=reason)
    yield from _conclude(lost, NOT_SEEN, event.at, facts, again=again)


def classify(run: Run, ending: Ending, cron: Cron | None) -> tuple[Result, str]:
    """The result of a run and the sentence for it."""
    if run.result is not None:
        return run.result, run.reason
    if run.stopping:
        return Result(run.stopping), _how(ending)
    if ending.exit_code is None and ending.signal is None:
        return Result.UNOBSERVED, "its end was not observed"
    if ending.oom:
        return Result.OOM_KILL, "killed for want of memory"
    if ending.signal is not None:
        return Result.SIGNAL, _how(ending)
    held = cron.definition.held_exit_code if cron else 75
    if ending.exit_code == held:
        return Result.HELD, _last_line(ending.stderr)
    good = cron.definition.success_exit_codes if cron else (0,)
    return (Result.SUCCESS, "") if ending.exit_code in good else (Result.EXIT_CODE, _how(ending))


def _how(ending: Ending) -> str:
    if ending.signal is not None:
        return f"signal {ending.signal}"
    return "" if ending.exit_code is None else f"exit status {ending.exit_code}"


def _last_line(stderr: Output) -> str:
    lines = stderr.head.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "not now"


def _cell(run: Run, facts: Facts) -> Cell | None:
    return next((cell for cell in facts.cells(run.occurrence_id) if cell.target == run.target), None)


def _conclude(
    run: Run, ending: Ending, now: int, facts: Facts, *, shortage: bool = False, again: bool = False
) -> Iterator[Effect]:
    """Record the end of a run, then carry it on to its cell and its occurrence."""
    cron = facts.cron(run.cron_id)
    result, reason = classify(run, ending, cron)
    run = replace(
        run, phase=Phase.ENDED, result=result, reason=reason, finished_at=now, duration=ending.duration,
        exit_code=ending.exit_code, signal=ending.signal, stdout=ending.stdout, stderr=ending.stderr,
        survivors=ending.survivors,
    )
    yield PutRun(run)
    yield reports.run_ended(run)
    cell = _cell(run, facts)
    if cell is not None:
        due = _due_again(run, cell, cron, now, shortage=shortage, again=again)
        status = CELL_STATUS[result] if due is None else Status.PENDING
        yield PutCell(replace(cell, status=status, due_at=cell.due_at if due is None else due))
    occurrence = facts.occurrence(run.occurrence_id)
    if occurrence is not None and occurrence.status is Status.RUNNING:
        yield from _carry_on(occurrence, run, cron, now, facts)


def _due_again(run: Run, cell: Cell, cron: Cron | None, now: int, *, shortage: bool, again: bool) -> int | None:
    """When this cell is to be tried again; None when its end is final."""
    if again:
        return now
    if cron is None or run.result not in FAILURES or run.out_of_band:
        return None
    delay = shortage_delay(cell) if shortage else retry_delay(cron.definition, cell)
    return None if delay is None else now + delay


def _carry_on(occurrence: Occurrence, run: Run, cron: Cron | None, now: int, facts: Facts) -> Iterator[Effect]:
    """With no live run left: wait for what is still pending, or hold, or settle."""
    if facts.live_runs(occurrence.id):
        return
    cells = facts.cells(occurrence.id)
    pending = [cell for cell in cells if cell.status is Status.PENDING]
    if run.result in GAVE_WAY and run.stopping:
        for cell in pending:
            yield PutCell(replace(cell, status=Status.CANCELED))
        cells, pending = facts.cells(occurrence.id), []
    if pending:
        due = min(cell.due_at for cell in pending)
        wait = f"next attempt in {format_span(due - now)}" if due > now else occurrence.detail
        reason = Reason.RETRY if any(cell.attempts for cell in pending) else Reason.NONE
        yield PutOccurrence(replace(move(occurrence, Status.PENDING, now, reason, wait), due_at=due))
        yield DropLease(occurrence.id)
    elif any(cell.status is Status.HELD for cell in cells):
        yield PutOccurrence(move(occurrence, Status.HELD, now, Reason.HELD, run.reason))
        yield DropLease(occurrence.id)
    else:
        yield from _settle(occurrence, run, cells, cron, now, facts)


def outcome(cells: list[Cell]) -> Status:
    """The status of an occurrence whose cells have all ended."""
    kinds = {cell.status for cell in cells}
    if len(kinds) == 1:
        return kinds.pop()
    if Status.CANCELED in kinds:
        return Status.CANCELED
    if Status.SUCCESS in kinds:
        return Status.PARTIAL
    return Status.FAILED if Status.FAILED in kinds else Status.UNOBSERVED


def _settle(
    occurrence: Occurrence, run: Run, cells: list[Cell], cron: Cron | None, now: int, facts: Facts
) -> Iterator[Effect]:
    status = outcome(cells)
    result = run.result or Result.UNOBSERVED
    reason = Reason.NONE if status is Status.SUCCESS else REASONS.get(result, Reason.NONE)
    detail = run.reason if status is not Status.SUCCESS else occurrence.detail
    settled = move(occurrence, status, now, reason, detail)
    yield PutOccurrence(settled)
    yield DropLease(occurrence.id)
    yield reports.settled(settled)
    if cron is not None:
        yield from _after(cron, settled, now, facts)


def _after(cron: Cron, settled: Occurrence, now: int, facts: Facts) -> Iterator[Effect]:
    """What the end of an occurrence does to its cron: failure count, pause, end of a one-shot, next after end."""
    if settled.origin is not Origin.MANUAL:
        cron, events = _judge(cron, settled)
        yield from events
        if settled.origin is Origin.SCHEDULE:
            cron = replace(cron, runs_counted=cron.runs_counted + 1)
    after_end = timetable(cron).after_end_us
    if after_end is not None and settled.origin is Origin.SCHEDULE:
        cron = replace(cron, after_end_at=now + after_end)
    yield PutCron(cron)
    yield from plan(cron, now, facts)


def _judge(cron: Cron, settled: Occurrence) -> tuple[Cron, list[Effect]]:
    definition = cron.definition
    if settled.status is Status.SUCCESS:
        return replace(cron, failures=0), _recovered(cron)
    if settled.status in {Status.FAILED, Status.PARTIAL}:
        cron = replace(cron, failures=cron.failures + 1)
        if definition.on_failure is OnFailure.PAUSE and cron.failures >= definition.pause_after:
            note = f"{settled.reason}: {settled.detail}" if settled.detail else str(settled.reason)
            return _pause(cron, PausedBy.FAILURE, note)
        return cron, []
    crashed = settled.status is Status.UNOBSERVED
    if crashed and (definition.on_crash is OnCrash.ASK or one_shot(definition)):
        return _pause(cron, PausedBy.CRASH, "its last run was lost sight of; it is not run again by itself")
    return cron, []


def _recovered(cron: Cron) -> list[Effect]:
    if not cron.failures:
        return []
    times = "failure" if cron.failures == 1 else "failures"
    event = reports.cron_event("recovered", cron, f"succeeded again after {cron.failures} {times}")
    return [event]


def _pause(cron: Cron, by: PausedBy, note: str) -> tuple[Cron, list[Effect]]:
    if cron.state is not State.ACTIVE:
        return cron, []
    paused = replace(cron, state=State.PAUSED, paused_by=by, note=note, next_at=None)
    message = f"paused by {by}: {note}; crtrctl run {cron.name} tries it, crtrctl resume {cron.name} resumes it"
    return paused, [reports.cron_event("paused", paused, message, priority=reports.WARNING)]
