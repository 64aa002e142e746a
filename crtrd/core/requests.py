"""What callers ask for: each request is decided whole, or refused whole with a code and a sentence.

Who may ask is `control`'s matter. Answers are acts, so they go out only once the decision is durable (I7).
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import SECOND, Cron, PausedBy, State
from crtrd.core.effects import (
    Answer,
    DropCron,
    Effect,
    PutCell,
    PutCron,
    PutOccurrence,
    PutRun,
    SignalRun,
    StopRun,
)
from crtrd.core.events import (
    ArmRequested,
    CancelRequested,
    ChangeRequested,
    DispatchRequested,
    KillRequested,
    PauseRequested,
    PokeRequested,
    ResumeRequested,
    SkipRequested,
)
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import (
    SETTLED,
    Occurrence,
    Origin,
    Phase,
    Reason,
    Result,
    Status,
    move,
    occurrence_id,
)
from crtrd.core.owing import accept, paused_span, plan
from crtrd.core.timetable import compiled, one_shot, timetable
from crtrd.errors import Code, RequestError, ScheduleError
from crtrd.schedule.spans import format_instant


def arm(event: ArmRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    definition = event.definition
    if (other := facts.find_cron(definition.name)) is not None and other.name == definition.name:
        message = f"cannot arm {definition.name!r}: a cron of that name exists"
        raise RequestError(Code.CRON_EXISTS, message)
    anchor = event.at - event.at % SECOND
    cron = Cron(
        id=event.cron_id, definition=definition, state=State.ACTIVE, owner=event.caller, created_at=event.at,
        changed_at=event.at, anchor=anchor, considered=event.at, last_boot=limits.boot_id,
    )
    cron = _with_first(cron, event.at, f"cannot arm {definition.name!r}")
    yield PutCron(cron)
    yield from plan(cron, event.at, facts)
    armed = facts.cron(cron.id) or cron
    if armed.state is State.FINISHED:
        raise RequestError(Code.INVALID_DEFINITION, f"cannot arm {cron.name!r}: schedule: no instant lies ahead")
    upcoming = "only when triggered" if armed.next_at is None else f"next {format_instant(armed.next_at)}"
    yield reports.cron_event("armed", armed, f"armed, {upcoming}", event.caller)
    yield Answer(event.ticket, armed)


def _with_first(cron: Cron, now: int, what: str) -> Cron:
    """Check the schedule and plan `every X after end`, whose first instant lies one period ahead."""
    try:
        schedule = compiled(cron.definition, cron.anchor, cron.id)
    except (ScheduleError, ValueError) as error:
        raise RequestError(Code.INVALID_DEFINITION, f"{what}: {error}") from error
    if schedule.after_end_us is None:
        return replace(cron, after_end_at=None)
    return replace(cron, after_end_at=cron.after_end_at or now + schedule.after_end_us)


def change(event: ChangeRequested, facts: Facts) -> Iterator[Effect]:
    """Never fires at once and counts no phantom misses: the new schedule is considered up to now."""
    cron = named(event.cron, facts)
    definition = replace(cron.definition, **event.changes)  # type: ignore[arg-type]
    rescheduled = definition.schedule != cron.definition.schedule
    cron = replace(
        cron, definition=definition, changed_at=event.at, considered=max(event.at, cron.considered),
        anchor=event.at - event.at % SECOND if rescheduled else cron.anchor,
        after_end_at=None if rescheduled else cron.after_end_at,
        state=State.ACTIVE if rescheduled and cron.state is State.FINISHED else cron.state,
    )
    cron = _with_first(cron, event.at, f"cannot change {cron.name!r}")
    yield PutCron(cron)
    yield from plan(cron, event.at, facts)
    yield reports.cron_event("changed", cron, f"changed: {', '.join(sorted(event.changes))}", event.caller)
    yield Answer(event.ticket, facts.cron(cron.id) or cron)


def named(name_or_id: str, facts: Facts) -> Cron:
    cron = facts.find_cron(name_or_id)
    if cron is None:
        raise RequestError(Code.NO_SUCH_CRON, f"cannot find cron {name_or_id!r}: no cron has that name or id")
    return cron


def cancel(event: CancelRequested, facts: Facts) -> Iterator[Effect]:
    """Remove the cron. What waits is canceled; what runs is left alone and keeps its history, unless `kill`."""
    cron = named(event.cron, facts)
    for occurrence in facts.open_occurrences(cron.id):
        live = facts.live_runs(occurrence.id)
        for run in live:
            if event.kill or run.phase is Phase.STARTING:
                yield PutRun(replace(run, stopping=run.stopping or Result.CANCELED))
            if event.kill and run.phase is Phase.RUNNING:
                yield StopRun(run.id, cron.definition.grace)
        if not live:
            yield from _cancel_waiting(occurrence, event.at)
    yield DropCron(cron.id)
    yield reports.cron_event("canceled", cron, "canceled", event.caller)
    yield Answer(event.ticket, None)


def _cancel_waiting(occurrence: Occurrence, now: int) -> Iterator[Effect]:
    row = move(occurrence, Status.CANCELED, now, Reason.CANCELED, "its cron was canceled")
    yield PutOccurrence(row)
    yield reports.settled(row)


def pause(event: PauseRequested, facts: Facts) -> Iterator[Effect]:
    cron = named(event.cron, facts)
    if cron.state is State.FINISHED:
        raise RequestError(Code.INVALID_STATE, f"cannot pause {cron.name!r}: it is finished")
    cron = replace(cron, state=State.PAUSED, paused_by=PausedBy.USER, note=event.note, next_at=None)
    yield PutCron(cron)
    note = f": {event.note}" if event.note else ""
    yield reports.cron_event("paused", cron, f"paused{note}", event.caller)
    yield Answer(event.ticket, None)


def resume(event: ResumeRequested, facts: Facts) -> Iterator[Effect]:
    cron = named(event.cron, facts)
    if cron.state is not State.PAUSED:
        raise RequestError(Code.INVALID_STATE, f"cannot resume {cron.name!r}: it is {cron.state}, not paused")
    yield from paused_span(cron, event.at, facts)
    lost_one_shot = cron.paused_by is PausedBy.CRASH and one_shot(cron.definition)
    cron = replace(
        cron, state=State.FINISHED if lost_one_shot else State.ACTIVE, paused_by=PausedBy.NOBODY, note="",
        failures=0, considered=max(event.at, cron.considered),
    )
    after_end = timetable(cron).after_end_us
    if after_end is not None and not facts.open_occurrences(cron.id):
        cron = replace(cron, after_end_at=event.at + after_end)
    yield PutCron(cron)
    yield from plan(cron, event.at, facts)
    yield reports.cron_event("resumed", cron, "resumed", event.caller)
    yield Answer(event.ticket, facts.cron(cron.id) or cron)


def skip(event: SkipRequested, facts: Facts) -> Iterator[Effect]:
    """Ask for one future instant to be skipped; it will get its row when it comes."""
    cron = named(event.cron, facts)
    upcoming = cron.next_at
    while event.instant == 0 and upcoming in cron.skip_next and upcoming is not None:
        upcoming = timetable(cron).next_after(upcoming)
    instant = event.instant or upcoming
    if instant is None:
        raise RequestError(Code.INVALID_STATE, f"cannot skip an instant of {cron.name!r}: it has no next one")
    ahead = instant > event.at and (instant == cron.next_at or timetable(cron).explain(instant).due)
    if not ahead:
        what = format_instant(instant)
        raise RequestError(Code.INVALID_ARGUMENT, f"cannot skip {what} of {cron.name!r}: not an instant ahead")
    cron = replace(cron, skip_next=tuple(sorted({*cron.skip_next, instant})))
    yield PutCron(cron)
    yield reports.cron_event("changed", cron, f"will skip {format_instant(instant)}", event.caller)
    yield Answer(event.ticket, instant)


def poke(event: PokeRequested, facts: Facts) -> Iterator[Effect]:
    """Make held occurrences due now. One that is running may still turn out held: it is not touched."""
    cron = named(event.cron, facts)
    poked = 0
    for occurrence in facts.open_occurrences(cron.id):
        if occurrence.status is Status.HELD:
            poked += 1
            yield PutOccurrence(replace(move(occurrence, Status.PENDING, event.at, detail="poked"), due_at=event.at))
            for cell in facts.cells(occurrence.id):
                if cell.status is Status.HELD:
                    yield PutCell(replace(cell, status=Status.PENDING, due_at=event.at))
    if poked:
        yield reports.cron_event("poked", cron, f"poked, {poked} held", event.caller)
    yield Answer(event.ticket, poked)


def dispatch(event: DispatchRequested, facts: Facts) -> Iterator[Effect]:
    """An occurrence on request. It obeys the overlap policy and always has a row, also when it is skipped."""
    cron = named(event.cron, facts)
    if event.target and event.target not in cron.definition.targets:
        message = f"cannot run {cron.name!r} for target {event.target!r}: it has no such target"
        raise RequestError(Code.INVALID_ARGUMENT, message)
    if event.origin is not Origin.MANUAL and cron.state is not State.ACTIVE:
        raise RequestError(Code.INVALID_STATE, f"cannot trigger {cron.name!r}: it is {cron.state}")
    name = occurrence_id(cron.id, event.origin, event.instant, event.key)
    if facts.occurrence(name) is None:
        new = Occurrence(
            id=name, cron_id=cron.id, cron_name=cron.name, origin=event.origin, instant=event.instant, key=event.key,
            status=Status.PENDING, created_at=event.at, due_at=event.at, label=event.label, target=event.target,
            overlap=event.overlap,
        )
        yield from accept(cron, new, facts, event.at)


def kill(event: KillRequested, facts: Facts) -> Iterator[Effect]:
    run = facts.run(event.run_id)
    if run is None:
        raise RequestError(Code.NO_SUCH_RUN, f"cannot find run {event.run_id!r}: no run has that id")
    occurrence = facts.occurrence(run.occurrence_id)
    if run.phase is not Phase.RUNNING or occurrence is None or occurrence.status in SETTLED:
        raise RequestError(Code.INVALID_STATE, f"cannot kill run {run.id}: it is not running")
    yield SignalRun(run.id, event.signal)
    yield Answer(event.ticket, None)
