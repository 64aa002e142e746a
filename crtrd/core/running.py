"""What becomes of a run once its child exists, and of its cell, occurrence and cron when it has ended.

    RunHeld -> identity recorded, gate opened      LaunchFailed -> result start-failed, retried or final
    TimeoutReached -> stopping = timeout           RunEnded -> result; then cell; then, with its last run, occurrence

The first cause wins: a run that is being stopped for a timeout ends as `timeout` whatever its exit status is.
"""

from collections.abc import Iterator
from dataclasses import replace
from errno import errorcode

from crtrd.core import escalation, reports, telling
from crtrd.core.cron import Cron, Departed, OnCrash, OnFailure, PausedBy, State
from crtrd.core.effects import (
    CloseGate,
    DropDeparted,
    DropLease,
    Effect,
    OpenGate,
    PutCell,
    PutCron,
    PutOccurrence,
    PutRun,
    StopRun,
)
from crtrd.core.events import Ending, LaunchFailed, RunEnded, RunHeld, RunLost, RunWedged, TimeoutReached
from crtrd.core.facts import Facts
from crtrd.core.occurrence import (
    GIVING_WAY,
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
    run_id,
)
from crtrd.core.owing import plan
from crtrd.core.retry import SHORTAGE_LIMIT, retry_delay, shortage_delay
from crtrd.core.stopping import grace_of, settle_paused
from crtrd.core.timetable import one_shot
from crtrd.schedule.spans import format_span

NOT_SEEN = Ending(None, None, oom=False, duration=None, stdout=Output(), stderr=Output())
FAILURES = frozenset({Result.EXIT_CODE, Result.SIGNAL, Result.TIMEOUT, Result.OOM_KILL, Result.START_FAILED})
WORST_FIRST = (Status.FAILED, Status.UNOBSERVED, Status.ABANDONED, Status.CANCELED)
UNMENDABLE = frozenset({"profile", "environment"})
"""Stages of a start that fail alike at every attempt until somebody acts: said once, no retry is used on them."""
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
        yield from telling.run_started(cron, run, event.at)


def launch_failed(event: LaunchFailed, facts: Facts) -> Iterator[Effect]:
    """Nothing was executed. A shortage of ours is tried again and counts for nothing."""
    run = facts.run(event.run_id)
    if run is None or run.phase is Phase.ENDED:
        return
    cell = _cell(run, facts)
    if event.shortage and cell is not None:
        yield PutCell(replace(cell, shortages=cell.shortages + 1))
    name = errorcode.get(event.errno, "")
    told = event.message if name in event.message else f"{event.message} ({name})"
    failed = run if run.stopping else replace(run, result=Result.START_FAILED, reason=told)
    hopeless = event.stage in UNMENDABLE
    yield from _conclude(failed, NOT_SEEN, event.at, facts, shortage=event.shortage, hopeless=hopeless)


def timeout_reached(event: TimeoutReached, facts: Facts) -> Iterator[Effect]:
    run = facts.run(event.run_id)
    if run is None or run.phase is Phase.ENDED or run.stopping:
        return
    yield PutRun(replace(run, stopping=Result.TIMEOUT))
    yield StopRun(run.id, grace_of(rules(run.cron_id, facts)))


def run_ended(event: RunEnded, facts: Facts) -> Iterator[Effect]:
    run = facts.run(event.run_id)
    if run is not None and run.phase is not Phase.ENDED:
        yield from _conclude(run, event.ending, event.at, facts)
    elif run is not None and run.result is Result.ABANDONED:
        yield reports.run_late(run, _how(event.ending))


def run_wedged(event: RunWedged, facts: Facts) -> Iterator[Effect]:
    """Given up: its lease goes with its occurrence, and what it does later moves nothing."""
    run = facts.run(event.run_id)
    if run is not None and run.phase is not Phase.ENDED:
        given_up = replace(run, result=Result.ABANDONED, reason="killed, and does not die")
        yield from _conclude(given_up, event.ending, event.at, facts)


def run_lost(event: RunLost, facts: Facts) -> Iterator[Effect]:
    """Recovery found no such process. Never released: as if it had not been tried. Released: by `on_crash`."""
    run = facts.run(event.run_id)
    if run is None or run.phase is Phase.ENDED:
        return
    cell, cron = _cell(run, facts), facts.cron(run.cron_id)
    again = not event.executed or (cron is not None and cron.definition.on_crash is OnCrash.RERUN)
    again = again and not run.stopping
    if again and cell is not None:
        yield PutCell(replace(cell, excused=cell.excused + 1))
    if event.executed:
        lost = replace(run, result=Result.UNOBSERVED, reason="its end was not observed")
    else:
        result = Result(run.stopping) if run.stopping else Result.INTERRUPTED
        lost = replace(run, result=result, reason="crtrd ended before the command was released")
    yield from _conclude(lost, NOT_SEEN, event.at, facts, again=again)


def rules(cron_id: str, facts: Facts) -> Cron | None:
    """The cron, or what a canceled one has left behind: by this the end of a run is judged."""
    if (cron := facts.cron(cron_id)) is not None:
        return cron
    departed = facts.departed(cron_id)
    return departed.cron if departed else None


def classify(run: Run, ending: Ending, cron: Cron | None) -> tuple[Result, str]:  # noqa: PLR0911 - a table
    """The result of a run and the sentence for it."""
    if run.result is not None:
        return run.result, run.reason
    if run.stopping:
        return Result(run.stopping), _how(ending)
    if ending.exit_code is None and ending.signal is None:
        return Result.UNOBSERVED, "its end was not observed"
    if ending.oom:
        limited = "MemoryMax was reached" if "MemoryMax" in ending.hits else "the host had none left"
        return Result.OOM_KILL, f"killed for want of memory: {limited}"
    if ending.signal is not None:
        return Result.SIGNAL, _how(ending)
    held = cron.definition.held_exit_code if cron else 75
    if ending.exit_code == held:
        return Result.HELD, _last_line(ending)
    good = cron.definition.success_exit_codes if cron else (0,)
    return (Result.SUCCESS, "") if ending.exit_code in good else (Result.EXIT_CODE, _how(ending))


def _how(ending: Ending) -> str:
    words = [f"{name} was reached" for name in ending.hits]
    if ending.signal is not None:
        words.insert(0, f"signal {ending.signal}")
    elif ending.exit_code is not None:
        words.insert(0, f"exit status {ending.exit_code}")
    return "; ".join(words)


def _last_line(ending: Ending) -> str:
    """What the command gives as its reason for "not now"."""
    lines = (ending.last_line or ending.stderr.head).decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:200] if lines else "not now"


def _cell(run: Run, facts: Facts) -> Cell | None:
    return next((cell for cell in facts.cells(run.occurrence_id) if cell.target == run.target), None)


def _conclude(
    run: Run, ending: Ending, now: int, facts: Facts, *, shortage: bool = False, again: bool = False,
    hopeless: bool = False,
) -> Iterator[Effect]:
    """Record the end of a run, then carry it on to its cell and its occurrence."""
    cron = facts.cron(run.cron_id)
    result, reason = classify(run, ending, rules(run.cron_id, facts))
    run = replace(
        run, phase=Phase.ENDED, result=result, reason=reason, finished_at=now, duration=ending.duration,
        exit_code=ending.exit_code, signal=ending.signal, stdout=ending.stdout, stderr=ending.stderr,
        survivors=ending.survivors,
    )
    yield PutRun(run)
    yield reports.run_ended(run)
    occurrence, cell = facts.occurrence(run.occurrence_id), _cell(run, facts)
    over, final = False, cron is None or occurrence is None or occurrence.reason in GIVING_WAY
    if cell is not None:
        due = None if final or hopeless else _due_again(run, cell, cron, now, shortage=shortage, again=again)
        status = CELL_STATUS[result] if due is None else Status.PENDING
        excused = cell.excused + (result is Result.HELD)
        yield PutCell(replace(cell, status=status, due_at=cell.due_at if due is None else due, excused=excused))
        over = due is None
    left = facts.departed(run.cron_id)
    if occurrence is not None and occurrence.status is Status.RUNNING and not facts.live_runs(occurrence.id):
        yield from _carry_on(occurrence, run, cron, now, facts, final=final)
    if over:
        yield from _tell(cron, left, run, now, facts)


def _tell(cron: Cron | None, left: Departed | None, run: Run, now: int, facts: Facts) -> Iterator[Effect]:
    """A run that is not tried again has its say, also where it was itself that canceled its cron. After what became
    of its occurrence: should that have paused the cron, people are told more."""
    if cron is not None:
        yield from telling.run_settled(cron, run, now, facts)
    elif left is not None and left.delivers == run.occurrence_id:
        yield from telling.run_settled(left.cron, run, now, facts, canceled=True)


def _due_again(run: Run, cell: Cell, cron: Cron | None, now: int, *, shortage: bool, again: bool) -> int | None:
    """When this cell is to be tried again; None when its end is final."""
    if again:
        return now
    if cron is None or run.result not in FAILURES or (run.out_of_band and not shortage):
        return None
    delay = shortage_delay(cell) if shortage else retry_delay(cron.definition, cell)
    return None if delay is None else now + delay


def _carry_on(
    occurrence: Occurrence, run: Run, cron: Cron | None, now: int, facts: Facts, *, final: bool
) -> Iterator[Effect]:
    """With no live run left: wait for what is still pending, or hold, or settle."""
    for cell in facts.cells(occurrence.id):
        if final and cell.status in {Status.PENDING, Status.HELD}:
            yield PutCell(replace(cell, status=Status.CANCELED))
        elif cell.status is Status.HELD and occurrence.reason is Reason.POKED:
            yield PutCell(replace(cell, status=Status.PENDING, due_at=now))
    cells = facts.cells(occurrence.id)
    if pending := [cell for cell in cells if cell.status is Status.PENDING]:
        due = min(cell.due_at for cell in pending)
        wait = f"next attempt in {format_span(due - now)}" if due > now else occurrence.detail
        reason = Reason.RETRY if any(cell.attempts for cell in pending) else Reason.NONE
        yield PutOccurrence(replace(move(occurrence, Status.PENDING, now, reason, wait), due_at=due))
        yield DropLease(occurrence.id)
    elif any(cell.status is Status.HELD for cell in cells):
        expires = (cron.definition.expires_at if cron else None) or 0
        yield PutOccurrence(replace(move(occurrence, Status.HELD, now, Reason.HELD, run.reason), due_at=expires))
        yield DropLease(occurrence.id)
    else:
        yield from _settle(occurrence, cells, cron, now, facts)


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
    occurrence: Occurrence, cells: list[Cell], cron: Cron | None, now: int, facts: Facts
) -> Iterator[Effect]:
    status = outcome(cells)
    reason, detail = _cause(occurrence, cells, status, facts)
    settled = move(occurrence, status, now, reason, detail)
    yield PutOccurrence(settled)
    yield DropLease(occurrence.id)
    yield reports.settled(settled)
    if cron is not None:
        failed = [cell for cell in cells if cell.status is Status.FAILED]
        ours = bool(failed) and all(cell.shortages > SHORTAGE_LIMIT for cell in failed)
        yield from _after(cron, settled, now, facts, ours=ours)
    elif facts.departed(occurrence.cron_id) and not facts.line(occurrence.cron_id).count:
        yield DropDeparted(occurrence.cron_id)


def _cause(occurrence: Occurrence, cells: list[Cell], status: Status, facts: Facts) -> tuple[Reason, str]:
    """Why it settles as it does: the first of the worst cells says so, in the words of its last run."""
    if status is Status.SUCCESS:
        return Reason.NONE, occurrence.detail
    worst = WORST_FIRST if status is not Status.CANCELED else (Status.CANCELED,)
    cell = next(cell for kind in worst for cell in cells if cell.status is kind)
    run = facts.run(run_id(occurrence.id, cell.target, cell.attempts)) if cell.attempts else None
    if status is Status.CANCELED and (run is None or run.result not in REASONS or run.result is Result.HELD):
        gone = "its cron was canceled" if occurrence.reason not in GIVING_WAY else occurrence.detail
        return (occurrence.reason if occurrence.reason in GIVING_WAY else Reason.CANCELED), gone
    if run is None or run.result is None:
        return Reason.EXIT_CODE, f"{cell.target} {cell.status}"
    where = f"{cell.target}: " if cell.target else ""
    return REASONS.get(run.result, Reason.CANCELED), where + run.reason


def _after(cron: Cron, settled: Occurrence, now: int, facts: Facts, *, ours: bool) -> Iterator[Effect]:
    """What the end of an occurrence does to its cron: failure count, pause, end of a one-shot, next after end.

    `ours`: it failed only for shortages of ours, which is never counted as the cron's failure.
    """
    if settled.origin is not Origin.MANUAL and not ours:
        before = cron
        lost = any(cell.status is Status.UNOBSERVED for cell in facts.cells(settled.id))
        cron, events = _judge(cron, settled, now, lost=lost)
        yield from events
        if cron.state is State.PAUSED and before.state is State.ACTIVE:
            yield from escalation.begin(cron, settled, now, facts)
            yield from settle_paused(cron, now, facts)
    if settled.origin is Origin.SCHEDULE:
        cron = replace(cron, runs_counted=cron.runs_counted + 1, after_end_at=None)
    yield PutCron(cron)
    yield from plan(cron, now, facts)


def _judge(cron: Cron, settled: Occurrence, now: int, *, lost: bool) -> tuple[Cron, list[Effect]]:
    """`lost`: nobody knows what became of one of its cells, which by itself is no failure."""
    definition = cron.definition
    if settled.status is Status.SUCCESS:
        return replace(cron, failures=0, failing_since=None, failing_count=0), _recovered(cron, settled, now)
    if lost and (definition.on_crash is OnCrash.ASK or one_shot(definition)):
        return _pause(cron, PausedBy.CRASH, "its last run was lost sight of; it is not run again by itself")
    if settled.status in {Status.FAILED, Status.PARTIAL} and settled.reason is not Reason.CRASH:
        cron = replace(cron, failures=cron.failures + 1, failing_count=cron.failing_count + 1,
                       failing_since=now if cron.failing_since is None else cron.failing_since)
        if definition.on_failure is OnFailure.PAUSE and cron.failures >= definition.pause_after:
            note = f"{settled.reason}: {settled.detail}" if settled.detail else str(settled.reason)
            return _pause(cron, PausedBy.FAILURE, note)
        return cron, []
    return cron, []


def _recovered(cron: Cron, settled: Occurrence, now: int) -> list[Effect]:
    count, since = cron.failing_count, cron.failing_since
    if not count or since is None:
        return []
    times = "failure" if count == 1 else "failures"
    event = reports.cron_event("recovered", cron, f"succeeded again after {count} {times}")
    return [event, *telling.recovered(cron, settled, count, since, now)]


def _pause(cron: Cron, by: PausedBy, note: str) -> tuple[Cron, list[Effect]]:
    if cron.state is not State.ACTIVE:
        return cron, []
    paused = replace(cron, state=State.PAUSED, paused_by=by, note=note, next_at=None)
    message = f"paused by {by}: {note}; crtrctl run {cron.name} tries it, crtrctl resume {cron.name} resumes it"
    return paused, [reports.cron_event("paused", paused, message, priority=reports.WARNING)]
