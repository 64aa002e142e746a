"""Which instants are owed, and the row that each of them gets: catch-up, skip requests, deadline, overlap.

Every owed instant gets exactly one row (I2). After long absences the newest `KEEP` instants have rows of their own;
all older ones share one row, whose `covers` says how many they are (bounded work for millions of missed instants).
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import MINUTE, CatchUp, Cron, PausedBy, State
from crtrd.core.effects import Effect, PutCell, PutCron, PutOccurrence
from crtrd.core.facts import Facts
from crtrd.core.occurrence import (
    Cell,
    Occurrence,
    Origin,
    Reason,
    Result,
    Status,
    move,
    occurrence_id,
)
from crtrd.core.overlap import Turn, judge
from crtrd.core.stopping import settle_waiting, stop_runs
from crtrd.core.timetable import fault, next_instant, timetable, unknown_after
from crtrd.schedule.spans import format_instant
from crtrd.values import dataclass

KEEP = 100
ON_TIME = MINUTE  # an instant served within cron's own granularity is on time, not caught up


@dataclass(frozen=True, slots=True)
class Owing:
    """One look at the time: the instants that it found, ascending, and what they have in common."""

    now: int
    instants: tuple[int, ...]
    older: int
    """How many instants before these were found too."""
    why_missed: Reason


def undecided(cron: Cron, now: int) -> int:
    """After which instant those begin that are still to be decided.

    A clock that was far back for a while (no battery, and the network comes later) has missed nothing of what it had
    already been through: not what ran and was forgotten since, nor what lay before the cron was armed.
    """
    return max(cron.considered, cron.decided) if cron.decided <= now else cron.considered


def owe_due(cron: Cron, now: int, facts: Facts, why_missed: Reason) -> Iterator[Effect]:
    """Decide every instant of an active cron up to `now` and plan its next wake-up.

    Where its schedule cannot be used nothing is decided: what came due is found when it can be used again.
    """
    if not cron.damage and (why := fault(cron)):
        yield from park(cron, why)
        return
    start = undecided(cron, now)
    span = timetable(cron).span(start, now, KEEP)
    instants, older = span.newest, span.count - len(span.newest)
    if cron.after_end_at is not None and cron.after_end_at <= now:
        instants = tuple(sorted({*instants, cron.after_end_at}))
    if older > 0:
        yield from coalesced(cron, start, span.newest[0], older, now, facts)
    known = facts.known(occurrence_id(cron.id, Origin.SCHEDULE, each, "") for each in instants)
    skips, owing = set(cron.skip_next), Owing(now, instants, older, why_missed)
    cron = replace(
        cron, considered=now, skip_next=tuple(each for each in cron.skip_next if each > now),
        after_end_at=None if cron.after_end_at in instants else cron.after_end_at,
    )
    yield PutCron(cron)
    for instant in instants:
        if occurrence_id(cron.id, Origin.SCHEDULE, instant, "") not in known:
            yield from _owe_one(cron, instant, owing, facts, skip=instant in skips)
    yield from plan(facts.cron(cron.id) or cron, now, facts)


def _owe_one(cron: Cron, instant: int, owing: Owing, facts: Facts, *, skip: bool) -> Iterator[Effect]:
    definition, now = cron.definition, owing.now
    new = scheduled(cron, instant, now)
    catches_all = definition.catch_up is CatchUp.ALL
    if skip:
        yield from refuse(new, Status.SKIPPED, Reason.SKIP_REQUESTED, "skipped on request", now)
    elif used_up(cron, facts):
        yield from refuse(new, Status.SKIPPED, Reason.OUTSIDE_WINDOW, "max_runs is used up", now)
    elif not catches_all and instant != owing.instants[-1]:
        yield from refuse(new, Status.MISSED, owing.why_missed, f"catch_up is {definition.catch_up}", now)
    elif definition.catch_up is CatchUp.NONE and now - instant > ON_TIME:
        yield from refuse(new, Status.MISSED, owing.why_missed, "catch_up is none", now)
    elif definition.start_within is not None and now - instant > definition.start_within:
        yield from refuse(new, Status.MISSED, Reason.DEADLINE, "later than start_within", now)
    elif catches_all and len(owing.instants) > 1:
        yield from accept(cron, replace(new, overlap="queue"), facts, now, queue_freely=True)
    else:
        missed = owing.older + len(owing.instants) - 1
        what = "makes up for" if definition.catch_up is CatchUp.LAST else "runs on time after"
        detail = f"{what} {missed} earlier missed instants" if missed else ""
        yield from accept(cron, replace(new, detail=detail), facts, now)


def scheduled(cron: Cron, instant: int, now: int, key: str = "") -> Occurrence:
    """A fresh pending row for an instant of the schedule."""
    return Occurrence(
        id=occurrence_id(cron.id, Origin.SCHEDULE, instant, key), cron_id=cron.id, cron_name=cron.name,
        origin=Origin.SCHEDULE, instant=instant, key=key, status=Status.PENDING, created_at=now, due_at=instant,
    )


def accept(
    cron: Cron, new: Occurrence, facts: Facts, now: int, *, queue_freely: bool = False, only: tuple[str, ...] = ()
) -> Iterator[Effect]:
    """Put a new occurrence before the overlap policy; it ends up pending, or settled with the reason.

    `only`: the targets that it is for, where it is not for all.
    """
    verdict = judge(cron.definition, new.overlap, facts.line(cron.id))
    if verdict.turn is Turn.SKIP and not queue_freely:
        yield from refuse(new, Status.SKIPPED, verdict.reason, verdict.detail, now)
        return
    if verdict.turn is Turn.REPLACE:
        for other in facts.open_occurrences(cron.id):
            yield from replace_open(cron, other, facts, now)
    after = cron.definition.alert_after
    new = replace(new, alert_at=None if after is None or new.origin is Origin.MANUAL else new.instant + after)
    yield PutOccurrence(new)
    targets = only or ((new.target,) if new.target else cron.definition.targets or ("",))
    for place, target in enumerate(targets):
        yield PutCell(Cell(new.id, target, Status.PENDING, due_at=new.due_at, place=place))
    yield reports.occurrence_event("accepted", new, f"occurrence of {format_instant(new.instant)} accepted")


def replace_open(cron: Cron, other: Occurrence, facts: Facts, now: int) -> Iterator[Effect]:
    """Give way: a live occurrence is stopped and settles when its processes have ended; a waiting one settles now."""
    live = facts.live_runs(other.id)
    if live:
        yield from stop_runs(other, live, Result.REPLACED, cron)
    else:
        detail = "replaced by a later occurrence"
        yield from settle_waiting(other, Status.CANCELED, Reason.REPLACED, detail, now, facts)


def refuse(new: Occurrence, to: Status, reason: Reason, detail: str, now: int) -> Iterator[Effect]:
    """Record a new occurrence that does not run, with the reason."""
    row = move(new, to, now, reason, detail)
    yield PutOccurrence(row)
    yield reports.settled(row)


def coalesced(
    cron: Cron, after: int, before: int, count: int, now: int, facts: Facts, why: Reason = Reason.COALESCED
) -> Iterator[Effect]:
    """One row for the `count` instants after `after` to before `before`.

    Some of them can have rows already, where the clock was set back: those are not counted again.
    """
    first = unknown_after(cron, after, facts)
    count -= facts.covered(cron.id, after, before)
    if first is None or first >= before or count <= 0:
        return
    detail = f"{count} instants from {format_instant(first)} to before {format_instant(before)}"
    to = Status.SKIPPED if why is Reason.PAUSED else Status.MISSED
    yield from refuse(replace(scheduled(cron, first, now), covers=count), to, why, detail, now)


# planning --------------------------------------------------------------------------------------------------------


def plan(cron: Cron, now: int, facts: Facts, *, new: bool = False) -> Iterator[Effect]:
    """Set `next_at`; a cron that will never be due again and owes nothing is finished. A `new` one has no rows yet."""
    if cron.state is not State.ACTIVE:
        yield PutCron(replace(cron, next_at=None))
        return
    if why := fault(cron):
        yield from park(cron, why)
        return
    ends, done = _after_end(cron, now, facts), used_up(cron, facts)
    upcoming = None if done else next_instant(cron, ends, now, None if new else facts)
    cron = replace(cron, after_end_at=ends, next_at=upcoming)
    if upcoming is None and _over(cron, now, done=done) and not facts.line(cron.id).count:
        cron = replace(cron, state=State.FINISHED)
        yield reports.cron_event("expired", cron, "finished: its schedule has no further instant")
    yield PutCron(cron)


def park(cron: Cron, note: str) -> Iterator[Effect]:
    """A stored cron that this version or this host cannot serve stops itself and no other."""
    paused = replace(cron, state=State.PAUSED, paused_by=PausedBy.FAILURE, note=note, next_at=None)
    yield PutCron(paused)
    yield reports.cron_event("paused", paused, f"paused: {note}", priority=reports.WARNING)


def used_up(cron: Cron, facts: Facts) -> bool:
    """Whether max_runs is reached, counting the occurrences that are still to run or running."""
    most = cron.definition.max_runs
    if most is None:
        return False
    still = sum(each.origin is Origin.SCHEDULE for each in facts.open_occurrences(cron.id))
    return cron.runs_counted + still >= most


def _after_end(cron: Cron, now: int, facts: Facts) -> int | None:
    """When `every X after end` is due: never later than X from now, whatever was done to the clock.

    Outside of its window, or on days that are excluded, it is due as soon as they are over.
    """
    period = timetable(cron).after_end_us
    if period is None or any(each.origin is Origin.SCHEDULE for each in facts.open_occurrences(cron.id)):
        return None
    ahead = now + period if cron.after_end_at is None else min(cron.after_end_at, now + period)
    return timetable(cron).first_allowed(ahead)


def _over(cron: Cron, now: int, *, done: bool) -> bool:
    """Without a next instant: a cron that is only triggered is never over, nor one that waits for a boot."""
    if done:
        return True
    expires = cron.definition.expires_at
    waits_for_boot = timetable(cron).on_boot and (expires is None or now < expires)
    return bool(cron.definition.schedule) and not waits_for_boot


def paused_span(cron: Cron, now: int, facts: Facts) -> Iterator[Effect]:
    """At the end of a pause: the instants that fell into it get their rows, and none of them runs."""
    start = undecided(cron, now)
    span = timetable(cron).span(start, now, KEEP)
    instants, older = set(span.newest), span.count - len(span.newest)
    if cron.after_end_at is not None and cron.after_end_at <= now:
        instants.add(cron.after_end_at)
    if older > 0:
        yield from coalesced(cron, start, span.newest[0], older, now, facts, Reason.PAUSED)
    known = facts.known(occurrence_id(cron.id, Origin.SCHEDULE, each, "") for each in instants)
    for instant in sorted(instants):
        row = scheduled(cron, instant, now)
        if row.id not in known:
            yield from refuse(row, Status.SKIPPED, Reason.PAUSED, cron.note or f"paused by {cron.paused_by}", now)
