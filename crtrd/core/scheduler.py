"""The door of the core: `decide(event) -> effects` for each event of a batch, then `follow_up` once for all of it.

Effects come lazily, and the engine applies each *record* to its open transaction before it asks for the next effect;
so `facts` always shows what has been decided so far, by this event and by earlier ones of the batch. A RequestError
that is raised undoes what this event has put (the engine wraps each request in a savepoint) and refuses the request.
"""

from collections.abc import Collection, Iterator
from dataclasses import replace

from crtrd.core import (
    backfill,
    escalation,
    files,
    host,
    outbox,
    reports,
    requests,
    running,
    telling,
    triggering,
)
from crtrd.core.cron import Cron, Definition, State
from crtrd.core.effects import Answer, Effect, PutCell, PutCron, PutOccurrence, StopRun
from crtrd.core.events import (
    ArmRequested,
    BackfillRequested,
    CancelRequested,
    ChangeRequested,
    ClockSet,
    CronFilesRead,
    DaemonStarted,
    Deciding,
    DeliveryDiscardRequested,
    DeliveryEnded,
    DeliveryRetryRequested,
    DispatchRequested,
    EscalationEnded,
    EscalationTold,
    Event,
    HostChanged,
    KillRequested,
    LaunchFailed,
    PauseRequested,
    PokeRequested,
    ProfileFollowed,
    RerunRequested,
    ResumeRequested,
    RunEnded,
    RunHeld,
    RunLost,
    RunWedged,
    SkipRequested,
    StopBegun,
    Telling,
    TimeoutReached,
    TriggerRequested,
    WokeUp,
)
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import Occurrence, Origin, Reason, Result, Status, occurrence_id
from crtrd.core.owing import accept, owe_due, plan, scheduled
from crtrd.core.rerun import rerun
from crtrd.core.retry import longest_wait
from crtrd.core.starting import start_waiting
from crtrd.core.stopping import grace_of, settle_waiting, stop_runs
from crtrd.core.timetable import earlier_anchor, timetable

LOOKING = (WokeUp, ClockSet, DaemonStarted, DeliveryEnded, DeliveryRetryRequested)
"""Events after which a delivery may be due, or its queue free, that they have not recorded themselves."""


STARTING_BY_THEMSELVES = (StopBegun, DispatchRequested, RerunRequested)
"""Events after which nothing else is to be started."""


def decide(event: Event, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Decide one event. Raises RequestError where a request is refused."""
    if isinstance(event, Telling):
        return _decide_telling(event, limits.boot_id, facts)
    return _decide(event, facts, limits)


def looks(batch: Collection[Event], limits: Limits, *, tells: bool) -> bool:
    """Whether deliveries are to be looked at after this batch; `tells`: it has put one."""
    return limits.deliver and (tells or any(isinstance(event, LOOKING) for event in batch))


def follow_up(
    batch: Collection[Event], now: int, facts: Facts, limits: Limits, *, tells: bool
) -> Iterator[Effect]:
    """What free places and deliveries are used for once the whole batch is decided; `tells`: what `looks` has said.

    Once for all of them: looking for what may start costs the more the more waits, and hundreds of ends come together.
    """
    stops = any(isinstance(event, StopBegun) for event in batch)
    if not stops and not all(isinstance(event, STARTING_BY_THEMSELVES) for event in batch):
        yield from start_waiting(now, facts, limits)
    if tells:
        yield from outbox.deliver_due(now, facts)


def _decide(event: Deciding, facts: Facts, limits: Limits) -> Iterator[Effect]:  # noqa: PLR0912, PLR0915 - one arm per event
    if isinstance(event, ChangeRequested | CancelRequested | PauseRequested | SkipRequested):
        yield from _owe_first(event.cron, event.at, facts, limits)
    match event:
        case WokeUp():
            yield from _owe_all(event.at, facts, limits, Reason.DOWNTIME, limits.crons_at_once)
            yield from _alarm(event.at, facts)
            yield from escalation.look_after(event.at, facts)
        case ClockSet():
            yield from _replan(event.at, facts)
            yield from _owe_all(event.at, facts, limits, Reason.CLOCK_JUMP)
        case DaemonStarted():
            yield from _daemon_started(event, facts, limits)
        case ProfileFollowed():
            yield from requests.follow_profile(event, facts)
        case RunHeld():
            yield from running.run_held(event, facts)
        case LaunchFailed():
            yield from running.launch_failed(event, facts)
        case RunEnded():
            yield from running.run_ended(event, facts)
        case RunLost():
            yield from running.run_lost(event, facts)
        case RunWedged():
            yield from running.run_wedged(event, facts)
        case TimeoutReached():
            yield from running.timeout_reached(event, facts)
        case StopBegun():
            yield from _interrupt_all(facts)
        case ArmRequested():
            yield from requests.arm(event, facts, limits)
        case ChangeRequested():
            yield from requests.change(event, facts, limits)
        case CancelRequested():
            yield from requests.cancel(event, facts)
        case PauseRequested():
            yield from requests.pause(event, facts)
        case ResumeRequested():
            yield from requests.resume(event, facts, limits)
        case SkipRequested():
            yield from requests.skip(event, facts)
        case PokeRequested():
            yield from requests.poke(event, facts)
        case DispatchRequested():
            yield from _dispatch(event, facts, limits)
        case RerunRequested():
            yield from _rerun(event, facts, limits)
        case KillRequested():
            yield from requests.kill(event, facts)
        case TriggerRequested():
            yield from triggering.trigger(event, facts)
        case BackfillRequested():
            yield from backfill.backfill(event, facts)
        case CronFilesRead() | HostChanged():
            yield from _files_changed(event, facts, limits)


def _files_changed(event: CronFilesRead | HostChanged, facts: Facts, limits: Limits) -> Iterator[Effect]:
    if isinstance(event, CronFilesRead):
        yield from files.cron_files_read(event, facts, limits)
    else:
        yield from host.host_changed(event, facts, limits)


def _decide_telling(event: Telling, boot_id: str, facts: Facts) -> Iterator[Effect]:
    match event:
        case EscalationEnded():
            yield from escalation.ended(event, boot_id, facts)
        case EscalationTold():
            yield from escalation.tell(event, facts)
        case DeliveryEnded():
            yield from outbox.ended(event, facts)
        case DeliveryRetryRequested():
            yield from outbox.retry(event, facts)
        case DeliveryDiscardRequested():
            yield from outbox.discard(event, facts)


def _owe_all(
    now: int, facts: Facts, limits: Limits, why_missed: Reason, at_most: int = -1
) -> Iterator[Effect]:
    for occurrence in facts.held_over(now):
        yield from settle_waiting(occurrence, Status.MISSED, Reason.DEADLINE, "held until expires_at", now, facts)
        if cron := facts.cron(occurrence.cron_id):
            yield from plan(cron, now, facts)
    for cron in facts.crons_due(now, at_most) if limits.own_clock else ():
        yield from owe_due(cron, now, facts, why_missed)


def _alarm(now: int, facts: Facts) -> Iterator[Effect]:
    """Each late occurrence gives its alarm once."""
    for occurrence in facts.late(now):
        yield PutOccurrence(replace(occurrence, alert_at=None))
        if cron := facts.cron(occurrence.cron_id):
            yield reports.late(occurrence, now)
            yield from telling.late(cron, occurrence, now)


def _owe_first(name: str, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """What came due before the request belongs to the cron as it was, also when its wake-up is decided after it."""
    cron = facts.find_cron(name)
    if cron and limits.own_clock and cron.state is State.ACTIVE and cron.next_at is not None and cron.next_at <= now:
        yield from owe_due(cron, now, facts, Reason.DOWNTIME)


def _replan(now: int, facts: Facts) -> Iterator[Effect]:
    """After a step back: what was planned in the other time is planned anew; rows already there are stepped over."""
    yield from outbox.bring_forward(now, facts)
    for occurrence in facts.postponed(now):
        yield from _bring_forward(occurrence, now, facts)
    for cron in facts.crons_ahead(now):
        moved = replace(cron, considered=min(cron.considered, now), anchor=earlier_anchor(cron, now),
                        decided=max(cron.decided, cron.considered) if cron.considered > now else cron.decided)
        yield PutCron(moved)
        yield from plan(moved, now, facts)


def _bring_forward(occurrence: Occurrence, now: int, facts: Facts) -> Iterator[Effect]:
    """Nothing waits longer from now than its own delay; whether the clock was set at all need not be known."""
    cron = facts.cron(occurrence.cron_id)
    definition = cron.definition if cron else Definition("")
    for cell in facts.cells(occurrence.id):
        if cell.status is Status.PENDING:
            due = min(cell.due_at, now + longest_wait(definition, cell))
            if due != cell.due_at:
                yield PutCell(replace(cell, due_at=due))
    waiting = [cell.due_at for cell in facts.cells(occurrence.id) if cell.status is Status.PENDING]
    if occurrence.status is Status.PENDING and waiting and min(waiting) != occurrence.due_at:
        yield PutOccurrence(replace(occurrence, due_at=min(waiting)))


def _daemon_started(event: DaemonStarted, facts: Facts, limits: Limits) -> Iterator[Effect]:
    yield from outbox.take_back(event.at, facts)
    yield from escalation.begin_again(event.boot_id, facts)
    yield from _replan(event.at, facts)
    if limits.own_clock:
        for cron in facts.crons_on_boot():
            if cron.last_boot != event.boot_id:
                yield from _booted(cron, event, facts)
    for cron in facts.crons_unplanned():
        yield from plan(cron, event.at, facts)
    yield from _owe_all(event.at, facts, limits, Reason.DOWNTIME)
    yield from _alarm(event.at, facts)
    yield from escalation.look_after(event.at, facts)


def _booted(cron: Cron, event: DaemonStarted, facts: Facts) -> Iterator[Effect]:
    """@reboot: once per boot id. Arming stores the boot id too, so a fresh cron waits for the next boot."""
    yield PutCron(replace(cron, last_boot=event.boot_id))
    definition = cron.definition
    early = definition.starts_at is not None and event.at < definition.starts_at
    late = definition.expires_at is not None and event.at >= definition.expires_at
    if not timetable(cron).on_boot or early or late:
        return
    new = scheduled(cron, event.at, event.at, f"boot:{event.boot_id}")
    if not facts.known([new.id]):
        yield from accept(cron, new, facts, event.at)


def _dispatch(event: DispatchRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    yield from requests.dispatch(event, facts)
    cron = requests.named(event.cron, facts)
    name = occurrence_id(cron.id, event.origin, event.instant, event.key)
    yield from _start_and_answer(name, event, facts, limits)


def _rerun(event: RerunRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    yield from rerun(event, facts)
    old = facts.occurrence(event.occurrence_id)
    name = occurrence_id(old.cron_id, Origin.MANUAL, old.instant, event.key) if old else ""
    yield from _start_and_answer(name, event, facts, limits)


def _start_and_answer(
    name: str, event: DispatchRequested | RerunRequested, facts: Facts, limits: Limits
) -> Iterator[Effect]:
    """Start at once what may start, so that the answer can name the runs."""
    yield from start_waiting(event.at, facts, limits)
    occurrence = facts.occurrence(name)
    runs = tuple(run.id for run in facts.live_runs(occurrence.id)) if occurrence else ()
    yield Answer(event.ticket, (occurrence, runs))


def _interrupt_all(facts: Facts) -> Iterator[Effect]:
    """Every live run is stopped; a second stop of one that is being stopped already can only shorten its grace."""
    runs = facts.live_runs()
    for name in dict.fromkeys(run.occurrence_id for run in runs):
        mine = [run for run in runs if run.occurrence_id == name]
        cron, occurrence = running.rules(mine[0].cron_id, facts), facts.occurrence(name)
        for run in mine:
            if run.stopping:
                yield StopRun(run.id, grace_of(cron))
        if occurrence is not None:
            yield from stop_runs(occurrence, mine, Result.INTERRUPTED, cron)
