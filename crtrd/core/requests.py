"""What callers ask for: each request is decided whole, or refused whole with a code and a sentence.

Who may ask is `control`'s matter. Answers are acts, so they go out only once the decision is durable (I7).
"""

from collections.abc import Iterator
from dataclasses import fields, replace

from crtrd.core import reports
from crtrd.core.cron import SECOND, Cron, Definition, Departed, PausedBy, State, whose
from crtrd.core.effects import (
    Answer,
    DropCron,
    Effect,
    PutCell,
    PutCron,
    PutDeparted,
    PutOccurrence,
    PutRun,
    SignalRun,
)
from crtrd.core.events import (
    ArmRequested,
    CancelRequested,
    ChangeRequested,
    DispatchRequested,
    KillRequested,
    PauseRequested,
    PokeRequested,
    ProfileFollowed,
    ResumeRequested,
    SkipRequested,
)
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import (
    GIVING_WAY,
    SETTLED,
    Occurrence,
    Origin,
    Phase,
    Reason,
    Result,
    Status,
    move,
    occurrence_id,
    short,
)
from crtrd.core.owing import accept, paused_span, plan, refuse, scheduled, used_up
from crtrd.core.sinks import triggers
from crtrd.core.stopping import settle_paused, settle_waiting, stop_runs
from crtrd.core.timetable import as_shown, compiled, fault, instants_ahead, timetable
from crtrd.errors import Code, RequestError, ScheduleError
from crtrd.schedule.spans import format_instant

WHEN = frozenset({"schedule", "timezone", "dst_gap", "dst_overlap", "jitter", "starts_at", "expires_at", "max_runs",
                  "exclude"})
"""The fields that decide when a cron is due: a change of one brings a finished cron back to life."""


def arm(event: ArmRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    definition = event.definition
    if (other := facts.find_cron(definition.name)) is not None and other.name == definition.name:
        message = f"cannot arm {definition.name!r}: a cron of that name exists; change or cancel that one"
        raise RequestError(Code.CRON_EXISTS, message)
    anchor = event.at - event.at % SECOND
    cron = Cron(
        id=event.cron_id, definition=definition, state=State.ACTIVE, owner=event.caller, created_at=event.at,
        changed_at=event.at, anchor=anchor, considered=event.at, last_boot=limits.boot_id, account=event.account,
    )
    _check_schedule(cron, f"cannot arm {definition.name!r}")
    yield from admit(cron, event.at, facts, caller=event.caller)
    yield Answer(event.ticket, facts.cron(cron.id) or cron)


def admit(cron: Cron, now: int, facts: Facts, *, caller: int) -> Iterator[Effect]:
    """Put a new cron that can be used, and plan it."""
    _check_circle(cron.definition, f"cannot arm {cron.name!r}", facts)
    yield from plan(cron, now, facts, new=True)
    armed = facts.cron(cron.id) or cron
    if armed.state is State.FINISHED:
        raise RequestError(Code.INVALID_DEFINITION, f"cannot arm {cron.name!r}: schedule: no instant lies ahead")
    if armed.next_at is not None:
        upcoming = f"next {format_instant(armed.next_at)}"
    else:
        upcoming = "next after the next boot" if timetable(armed).on_boot else "only when triggered"
    yield reports.cron_event("armed", armed, f"armed, {upcoming}", caller)


def _check_circle(definition: Definition, what: str, facts: Facts) -> None:
    """A cron that triggers itself by its sinks, by whatever way, would never end."""
    todo, seen = triggers(definition.sinks), {definition.name}
    while todo:
        name = todo.pop()
        if name == definition.name:
            raise RequestError(Code.INVALID_DEFINITION, f"{what}: sinks: by cron sinks it would trigger itself")
        other = None if name in seen else facts.find_cron(name)
        seen.add(name)
        if other is not None:
            todo += triggers(other.definition.sinks)


def _check_schedule(cron: Cron, what: str) -> None:
    try:
        compiled(cron.definition, cron.anchor, cron.id)
    except ScheduleError as error:
        raise RequestError(Code.INVALID_DEFINITION, f"{what}: {error.where}: {error.reason}") from error
    except ValueError as error:
        raise RequestError(Code.INVALID_DEFINITION, f"{what}: {error}") from error


def change(event: ChangeRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    old = intact(_loose(named(event.cron, facts), "change"), "change")
    definition = replace(old.definition, **event.changes)  # type: ignore[arg-type]
    yield from redefine(old, definition, event.at, facts, limits, caller=event.caller, account=event.account)
    yield Answer(event.ticket, facts.cron(old.id) or old)


def redefine(
    old: Cron, definition: Definition, now: int, facts: Facts, limits: Limits, *, caller: int,
    account: str | None = None,
) -> Iterator[Effect]:
    """Never fires at once and counts no phantom misses: the new schedule is considered up to now."""
    if old.state is State.PAUSED:
        yield from paused_span(old, now, facts)
    cron = replace(old, definition=definition, damage="", changed_at=now, considered=max(now, old.considered))
    if definition.schedule != old.definition.schedule:
        cron = replace(cron, anchor=now - now % SECOND, after_end_at=None, last_boot=limits.boot_id, decided=0)
    if account is not None:
        cron = replace(cron, account=account)
    revived = old.state is State.FINISHED and timing_differs(definition, old.definition)
    if old.state is State.PAUSED and old.paused_by is PausedBy.FAILURE and fault(old):
        revived, cron = True, replace(cron, paused_by=PausedBy.NOBODY, note="")  # it was parked for what is mended now
    _check_schedule(cron, f"cannot change {cron.name!r}")
    _check_circle(definition, f"cannot change {cron.name!r}", facts)
    cron = replace(cron, state=State.ACTIVE if revived else cron.state)
    yield PutCron(cron)
    yield from plan(cron, now, facts)
    changed = facts.cron(cron.id) or cron
    if cron.state is State.ACTIVE and changed.state is State.FINISHED and not used_up(changed, facts):
        message = f"cannot change {cron.name!r}: schedule: no instant lies ahead"
        raise RequestError(Code.INVALID_DEFINITION, message)
    yield from _expire_held(changed, facts)
    differing = [each.name for each in fields(definition) if getattr(definition, each.name) != getattr(
        old.definition, each.name)]
    yield reports.cron_event("changed", cron, f"changed: {', '.join(sorted(differing)) or 'nothing'}", caller)


def follow_profile(event: ProfileFollowed, facts: Facts) -> Iterator[Effect]:
    """Policies only, never when it is due: nothing has to be planned anew."""
    cron = facts.cron(event.cron_id)
    if cron is not None and not cron.damage:
        cron = replace(cron, definition=replace(cron.definition, **event.changes))  # type: ignore[arg-type]
        yield PutCron(cron)
        what = ", ".join(sorted(event.changes.keys() - {"inherited"}))
        yield reports.cron_event("changed", cron, f"follows profile {cron.definition.profile}: {what}")


def timing_differs(new: Definition, old: Definition) -> bool:
    return any(getattr(new, field) != getattr(old, field) for field in WHEN)


def _expire_held(cron: Cron, facts: Facts) -> Iterator[Effect]:
    """What is held waits for a poke or for the expiry, which may have been changed."""
    for occurrence in facts.open_occurrences(cron.id):
        due = cron.definition.expires_at or 0
        if occurrence.status is Status.HELD and occurrence.due_at != due:
            yield PutOccurrence(replace(occurrence, due_at=due))


def named(name_or_id: str, facts: Facts) -> Cron:
    cron = facts.find_cron(name_or_id)
    if cron is None:
        raise RequestError(Code.NO_SUCH_CRON, f"cannot find cron {name_or_id!r}: no cron has that name or id")
    return cron


def intact(cron: Cron, verb: str) -> Cron:
    if cron.damage:
        raise RequestError(Code.INVALID_STATE, f"cannot {verb} {cron.name!r}: {fault(cron)}; cancel it and arm it anew")
    return cron


def _loose(cron: Cron, verb: str) -> Cron:
    """What a file defines is changed and removed there."""
    if cron.source:
        message = f"cannot {verb} {cron.name!r}: {cron.source} defines it; edit that and run crtrctl daemon-reload"
        raise RequestError(Code.INVALID_STATE, message)
    return cron


def cancel(event: CancelRequested, facts: Facts) -> Iterator[Effect]:
    """A command that cancels its own cron finishes in any case, and its output is delivered."""
    cron = _loose(named(event.cron, facts), "cancel")
    own = facts.run(event.run_id) if event.run_id else None
    itself = own.occurrence_id if own and own.cron_id == cron.id and own.phase is Phase.RUNNING else ""
    yield from remove(cron, event.at, facts, kill=event.kill, caller=event.caller, itself=itself)
    yield Answer(event.ticket, None)


def remove(
    cron: Cron, now: int, facts: Facts, *, kill: bool, caller: int, itself: str = ""
) -> Iterator[Effect]:
    """Remove the cron. What waits is canceled; what runs is left alone and keeps its history, unless `kill`.

    `itself`: the occurrence whose command asked for it.
    """
    left = False
    for occurrence in facts.open_occurrences(cron.id):
        live = facts.live_runs(occurrence.id)
        left = left or bool(live)
        if not live:
            detail = "its cron was canceled"
            yield from settle_waiting(occurrence, Status.CANCELED, Reason.CANCELED, detail, now, facts)
        elif kill and occurrence.id != itself:
            yield from stop_runs(occurrence, live, Result.CANCELED, cron)
        else:
            for run in live:
                if run.phase is Phase.STARTING and not run.stopping:
                    yield PutRun(replace(run, stopping=Result.CANCELED))
    yield DropCron(cron.id, cron.name, whose(cron))
    if left:
        yield PutDeparted(Departed(cron, itself))
    yield reports.cron_event("canceled", cron, "canceled", caller)


def pause(event: PauseRequested, facts: Facts) -> Iterator[Effect]:
    cron = named(event.cron, facts)
    if cron.state is State.FINISHED:
        raise RequestError(Code.INVALID_STATE, f"cannot pause {cron.name!r}: it is finished")
    cron = replace(cron, state=State.PAUSED, paused_by=PausedBy.USER, note=event.note, next_at=None)
    yield PutCron(cron)
    yield from settle_paused(cron, event.at, facts)
    note = f": {event.note}" if event.note else ""
    yield reports.cron_event("paused", cron, f"paused{note}", event.caller)
    yield Answer(event.ticket, None)


def resume(event: ResumeRequested, facts: Facts, limits: Limits) -> Iterator[Effect]:
    cron = named(event.cron, facts)
    if cron.state is not State.PAUSED:
        raise RequestError(Code.INVALID_STATE, f"cannot resume {cron.name!r}: it is {cron.state}, not paused")
    if why := fault(cron):
        raise RequestError(Code.INVALID_STATE, f"cannot resume {cron.name!r}: {why}")
    yield from paused_span(cron, event.at, facts)
    yield from _paused_boot(cron, event.at, facts, limits)
    cron = replace(
        cron, state=State.ACTIVE, paused_by=PausedBy.NOBODY, note="", failures=0, last_boot=limits.boot_id,
        considered=max(event.at, cron.considered), after_end_at=None,
    )
    yield PutCron(cron)
    yield from plan(cron, event.at, facts)
    yield reports.cron_event("resumed", cron, "resumed", event.caller)
    yield Answer(event.ticket, facts.cron(cron.id) or cron)


def _paused_boot(cron: Cron, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """A boot that fell into the pause is over: its row says so, and @reboot waits for the next one."""
    if timetable(cron).on_boot and cron.last_boot != limits.boot_id:
        row = scheduled(cron, now, now, f"boot:{limits.boot_id}")
        if not facts.known([row.id]):
            yield from refuse(row, Status.SKIPPED, Reason.PAUSED, cron.note or f"paused by {cron.paused_by}", now)


def skip(event: SkipRequested, facts: Facts) -> Iterator[Effect]:
    """Ask for one future instant to be skipped; it will get its row when it comes. Or take that back."""
    if event.undo:
        yield from _unskip(event, facts)
        return
    cron = named(event.cron, facts)
    instant = as_shown(cron, event.instant) if event.instant else next(instants_ahead(cron), None)
    if instant is None:
        raise RequestError(Code.INVALID_STATE, f"cannot skip an instant of {cron.name!r}: it has no next one")
    ahead = instant > event.at and (instant == cron.next_at or timetable(cron).explain(instant).due)
    if not ahead:
        what = format_instant(instant)
        raise RequestError(Code.INVALID_ARGUMENT, f"cannot skip {what} of {cron.name!r}: not an instant ahead")
    if instant not in cron.skip_next:
        cron = replace(cron, skip_next=tuple(sorted({*cron.skip_next, instant})))
        yield PutCron(cron)
        yield reports.cron_event("changed", cron, f"will skip {format_instant(instant)}", event.caller)
    yield Answer(event.ticket, instant)


def _unskip(event: SkipRequested, facts: Facts) -> Iterator[Effect]:
    """Take back requests to skip, of one instant or all; their instants are still planned, for their rows."""
    cron = named(event.cron, facts)
    gone = {as_shown(cron, event.instant)} if event.instant else set(cron.skip_next)
    if not gone & set(cron.skip_next):
        what = format_instant(event.instant) if event.instant else "an instant"
        raise RequestError(Code.INVALID_STATE, f"cannot take back a skip of {cron.name!r}: {what} is not to be skipped")
    cron = replace(cron, skip_next=tuple(each for each in cron.skip_next if each not in gone))
    yield PutCron(cron)
    what = ", ".join(map(format_instant, sorted(gone)))
    yield reports.cron_event("changed", cron, f"will not skip {what} after all", event.caller)
    yield Answer(event.ticket, None)


def poke(event: PokeRequested, facts: Facts) -> Iterator[Effect]:
    """Make held occurrences due now. One that is running may still turn out held: then it is due at once again."""
    cron = named(event.cron, facts)
    poked = 0
    for occurrence in facts.open_occurrences(cron.id):
        if occurrence.status is Status.HELD:
            row = replace(move(occurrence, Status.PENDING, event.at, detail="poked"), due_at=event.at)
        elif occurrence.status is Status.RUNNING and occurrence.reason not in GIVING_WAY:
            row = replace(occurrence, reason=Reason.POKED)
        elif any(cell.status is Status.HELD for cell in facts.cells(occurrence.id)):
            row = replace(occurrence, due_at=min(event.at, occurrence.due_at))  # others of its cells wait for a retry
        else:
            continue
        poked += 1
        yield PutOccurrence(row)
        for cell in facts.cells(occurrence.id):
            if cell.status is Status.HELD:
                yield PutCell(replace(cell, status=Status.PENDING, due_at=event.at))
    if poked:
        yield reports.cron_event("poked", cron, f"poked, {poked} open", event.caller)
    yield Answer(event.ticket, poked)


def dispatch(event: DispatchRequested, facts: Facts) -> Iterator[Effect]:
    """An occurrence on request. It obeys the overlap policy and always has a row, also when it is skipped."""
    cron = intact(named(event.cron, facts), "run")
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
        raise RequestError(Code.INVALID_STATE, f"cannot kill run {short(run.id)}: it is not running")
    yield SignalRun(run.id, event.signal)
    yield Answer(event.ticket, None)
