"""`handle(event) -> effects`: the one door of the core.

Effects come lazily, and the engine applies each *record* to its open transaction before it asks for the next effect;
so `facts` always shows what has been decided so far, by this event and by earlier ones of the batch. A RequestError
that is raised undoes what this event has put (the engine wraps each request in a savepoint) and refuses the request.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports, requests, running
from crtrd.core.cron import Cron, PausedBy, State
from crtrd.core.effects import Answer, Effect, PutCron, PutRun, StopRun
from crtrd.core.events import (
    ArmRequested,
    CancelRequested,
    ChangeRequested,
    ClockSet,
    DaemonStarted,
    DispatchRequested,
    Event,
    KillRequested,
    LaunchFailed,
    PauseRequested,
    PokeRequested,
    ResumeRequested,
    RunEnded,
    RunHeld,
    RunLost,
    SkipRequested,
    StopBegun,
    TimeoutReached,
    WokeUp,
)
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import Occurrence, Origin, Reason, Result, Status, occurrence_id
from crtrd.core.owing import accept, owe_due, plan
from crtrd.core.starting import start_waiting
from crtrd.core.timetable import timetable
from crtrd.errors import ScheduleError


def handle(event: Event, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Decide one event. Raises RequestError where a request is refused."""
    yield from _decide(event, facts, limits)
    if not isinstance(event, StopBegun | DispatchRequested):
        yield from start_waiting(event.at, facts, limits)


def _decide(event: Event, facts: Facts, limits: Limits) -> Iterator[Effect]:  # noqa: PLR0912 - one arm per event
    match event:
        case WokeUp():
            yield from _owe_all(event.at, facts, limits, Reason.DOWNTIME)
        case ClockSet():
            yield from _replan(event.at, facts)
            yield from _owe_all(event.at, facts, limits, Reason.CLOCK_JUMP)
        case DaemonStarted():
            yield from _daemon_started(event, facts, limits)
        case RunHeld():
            yield from running.run_held(event, facts)
        case LaunchFailed():
            yield from running.launch_failed(event, facts)
        case RunEnded():
            yield from running.run_ended(event, facts)
        case RunLost():
            yield from running.run_lost(event, facts)
        case TimeoutReached():
            yield from running.timeout_reached(event, facts)
        case StopBegun():
            yield from _interrupt_all(facts)
        case ArmRequested():
            yield from requests.arm(event, facts, limits)
        case ChangeRequested():
            yield from requests.change(event, facts)
        case CancelRequested():
            yield from requests.cancel(event, facts)
        case PauseRequested():
            yield from requests.pause(event, facts)
        case ResumeRequested():
            yield from requests.resume(event, facts)
        case SkipRequested():
            yield from requests.skip(event, facts)
        case PokeRequested():
            yield from requests.poke(event, facts)
        case DispatchRequested():
            yield from _dispatch(event, facts, limits)
        case KillRequested():
            yield from requests.kill(event, facts)


def _owe_all(now: int, facts: Facts, limits: Limits, why_missed: Reason) -> Iterator[Effect]:
    for cron in facts.crons_due(now) if limits.own_clock else ():
        try:
            timetable(cron)
        except (ScheduleError, ValueError) as error:
            yield from _park(cron, f"its schedule cannot be used: {error}")
            continue
        yield from owe_due(cron, now, facts, why_missed)


def _park(cron: Cron, note: str) -> Iterator[Effect]:
    """A stored schedule that this version or this host cannot use stops its own cron and no other."""
    paused = replace(cron, state=State.PAUSED, paused_by=PausedBy.FAILURE, note=note, next_at=None)
    yield PutCron(paused)
    yield reports.cron_event("paused", paused, f"paused: {note}", priority=reports.WARNING)


def _replan(now: int, facts: Facts) -> Iterator[Effect]:
    """After a step back: what was planned in the other time is planned anew; rows already there are stepped over."""
    for cron in facts.crons_ahead(now):
        try:
            timetable(cron)
        except (ScheduleError, ValueError) as error:
            yield from _park(cron, f"its schedule cannot be used: {error}")
            continue
        moved = replace(cron, considered=now, after_end_at=now if cron.after_end_at else None)
        yield PutCron(moved)
        yield from plan(moved, now, facts)


def _daemon_started(event: DaemonStarted, facts: Facts, limits: Limits) -> Iterator[Effect]:
    yield from _replan(event.at, facts)
    for cron in facts.crons_scheduled():
        if cron.last_boot != event.boot_id:
            yield from _booted(cron, event, facts)
    yield from _owe_all(event.at, facts, limits, Reason.DOWNTIME)


def _booted(cron: Cron, event: DaemonStarted, facts: Facts) -> Iterator[Effect]:
    """@reboot: once per boot id. Arming stores the boot id too, so a fresh cron waits for the next boot."""
    yield PutCron(replace(cron, last_boot=event.boot_id))
    if not timetable(cron).on_boot:
        return
    key = f"boot:{event.boot_id}"
    new = Occurrence(
        id=occurrence_id(cron.id, Origin.SCHEDULE, event.at, key), cron_id=cron.id, cron_name=cron.name,
        origin=Origin.SCHEDULE, instant=event.at, key=key, status=Status.PENDING, created_at=event.at, due_at=event.at,
    )
    if not facts.known([new.id]):
        yield from accept(cron, new, facts, event.at)


def _dispatch(event: DispatchRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Start at once what may start, so that the answer can name the runs."""
    yield from requests.dispatch(event, facts)
    yield from start_waiting(event.at, facts, limits)
    cron = requests.named(event.cron, facts)
    occurrence = facts.occurrence(occurrence_id(cron.id, event.origin, event.instant, event.key))
    runs = tuple(run.id for run in facts.live_runs(occurrence.id)) if occurrence else ()
    yield Answer(event.ticket, (occurrence, runs))


def _interrupt_all(facts: Facts) -> Iterator[Effect]:
    for run in facts.live_runs():
        cron = facts.cron(run.cron_id)
        if not run.stopping:
            yield PutRun(replace(run, stopping=Result.INTERRUPTED))
        yield StopRun(run.id, cron.definition.grace if cron else 0)


