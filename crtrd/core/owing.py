"""Which instants are owed, and the row that each of them gets: catch-up, skip requests, deadline, overlap.

Every owed instant gets exactly one row (I2). After long absences the newest `KEEP` instants have rows of their own;
all older ones share one row, whose `covers` says how many they are (bounded work for millions of missed instants).
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import MINUTE, CatchUp, Cron, State
from crtrd.core.effects import Effect, PutCell, PutCron, PutOccurrence, PutRun, StopRun
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
from crtrd.core.timetable import next_instant, timetable
from crtrd.schedule.spans import format_instant

KEEP = 100
ON_TIME = MINUTE  # an instant served within cron's own granularity is on time, not caught up


def owe_due(cron: Cron, now: int, facts: Facts, why_missed: Reason) -> Iterator[Effect]:
    """Decide every instant of an active cron up to `now` and plan its next wake-up."""
    schedule = timetable(cron)
    span = schedule.span(cron.considered, now, KEEP)
    instants, older = list(span.newest), span.count - len(span.newest)
    if cron.after_end_at is not None and cron.after_end_at <= now:
        instants = sorted({*instants, cron.after_end_at})
        cron = replace(cron, after_end_at=None)
    if older > 0:
        first = schedule.next_after(cron.considered) or now
        yield from _coalesced(cron, first, instants[0], older, now, facts)
    known = facts.known(occurrence_id(cron.id, Origin.SCHEDULE, each, "") for each in instants)
    skips = set(cron.skip_next)
    cron = replace(cron, considered=now, skip_next=tuple(each for each in cron.skip_next if each > now))
    yield PutCron(cron)
    for instant in instants:
        if occurrence_id(cron.id, Origin.SCHEDULE, instant, "") not in known:
            yield from _owe_one(cron, instant, instants, now, facts, why_missed, instant in skips, older)
    yield from plan(facts.cron(cron.id) or cron, now, facts)


def _owe_one(
    cron: Cron, instant: int, instants: list[int], now: int, facts: Facts, why: Reason, skip: bool, older: int
) -> Iterator[Effect]:
    definition = cron.definition
    new = scheduled(cron, instant, now)
    wanted = instants if definition.catch_up is CatchUp.ALL else instants[-1:]
    if skip:
        yield from refuse(new, Status.SKIPPED, Reason.SKIP_REQUESTED, "skipped on request", now)
    elif instant not in wanted:
        yield from refuse(new, Status.MISSED, why, f"catch_up is {definition.catch_up}", now)
    elif definition.catch_up is CatchUp.NONE and now - instant > ON_TIME:
        yield from refuse(new, Status.MISSED, why, "catch_up is none", now)
    elif definition.start_within is not None and now - instant > definition.start_within:
        yield from refuse(new, Status.MISSED, Reason.DEADLINE, "later than start_within", now)
    else:
        missed = older + len(instants) - 1
        if missed and definition.catch_up is not CatchUp.ALL:
            new = replace(new, detail=f"makes up for {missed} earlier missed instants")
        if definition.catch_up is CatchUp.ALL and len(instants) > 1:
            yield from accept(cron, replace(new, overlap="queue"), facts, now, queue_freely=True)
        else:
            yield from accept(cron, new, facts, now)


def scheduled(cron: Cron, instant: int, now: int) -> Occurrence:
    """A fresh pending row for an instant of the schedule."""
    return Occurrence(
        id=occurrence_id(cron.id, Origin.SCHEDULE, instant, ""), cron_id=cron.id, cron_name=cron.name,
        origin=Origin.SCHEDULE, instant=instant, key="", status=Status.PENDING, created_at=now, due_at=instant,
    )


def accept(cron: Cron, new: Occurrence, facts: Facts, now: int, *, queue_freely: bool = False) -> Iterator[Effect]:
    """Put a new occurrence before the overlap policy; it ends up pending, or settled with the reason."""
    others = facts.open_occurrences(cron.id)
    verdict = judge(cron.definition, new.overlap, others)
    if verdict.turn is Turn.SKIP and not queue_freely:
        yield from refuse(new, Status.SKIPPED, verdict.reason, verdict.detail, now)
        return
    if verdict.turn is Turn.REPLACE:
        for other in others:
            yield from replace_open(cron, other, facts, now)
    yield PutOccurrence(new)
    targets = (new.target,) if new.target else cron.definition.targets or ("",)
    for target in targets:
        yield PutCell(Cell(new.id, target, Status.PENDING, due_at=new.due_at))
    yield reports.occurrence_event("accepted", new, f"occurrence of {format_instant(new.instant)} accepted")


def replace_open(cron: Cron, other: Occurrence, facts: Facts, now: int) -> Iterator[Effect]:
    """Give way: a live occurrence is stopped and settles when its processes have ended; a waiting one settles now."""
    live = facts.live_runs(other.id)
    for run in live:
        if not run.stopping:
            yield PutRun(replace(run, stopping=Result.REPLACED))
            yield StopRun(run.id, cron.definition.grace)
    if not live:
        gone = move(other, Status.CANCELED, now, Reason.REPLACED, "replaced by a later occurrence")
        yield PutOccurrence(gone)
        yield reports.settled(gone)


def refuse(new: Occurrence, to: Status, reason: Reason, detail: str, now: int) -> Iterator[Effect]:
    """Record an occurrence that does not run, with the reason."""
    row = move(new, to, now, reason, detail)
    yield PutOccurrence(row)
    yield reports.settled(row)


def _coalesced(cron: Cron, first: int, before: int, count: int, now: int, facts: Facts) -> Iterator[Effect]:
    row = replace(scheduled(cron, first, now), covers=count)
    if row.id in facts.known([row.id]):
        return
    detail = f"{count} instants from {format_instant(first)} to before {format_instant(before)}"
    yield from refuse(row, Status.MISSED, Reason.COALESCED, detail, now)


def plan(cron: Cron, now: int, facts: Facts) -> Iterator[Effect]:
    """Set `next_at`; a cron that will never be due again and owes nothing is finished."""
    if cron.state is not State.ACTIVE:
        yield PutCron(replace(cron, next_at=None))
        return
    used_up = cron.definition.max_runs is not None and cron.runs_counted >= cron.definition.max_runs
    upcoming = None if used_up else next_instant(cron, now, facts)
    cron = replace(cron, next_at=upcoming)
    if upcoming is None and _over(cron, used_up=used_up) and not facts.open_occurrences(cron.id):
        cron = replace(cron, state=State.FINISHED)
        yield reports.cron_event("expired", cron, "finished: its schedule has no further instant")
    yield PutCron(cron)


def _over(cron: Cron, *, used_up: bool) -> bool:
    """A triggered cron, one that waits for a boot and one whose next instant hangs on its own end are never over."""
    if used_up:
        return True
    schedule = timetable(cron)
    return bool(cron.definition.schedule) and not schedule.on_boot and schedule.after_end_us is None


def paused_span(cron: Cron, now: int, facts: Facts) -> Iterator[Effect]:
    """On resume: the instants that fell into the pause get their rows, and none of them runs."""
    schedule = timetable(cron)
    span = schedule.span(cron.considered, now, KEEP)
    older = span.count - len(span.newest)
    known = facts.known(occurrence_id(cron.id, Origin.SCHEDULE, each, "") for each in span.newest)
    if older > 0:
        first = schedule.next_after(cron.considered) or now
        row = replace(scheduled(cron, first, now), covers=older)
        if not facts.known([row.id]):
            yield from refuse(row, Status.SKIPPED, Reason.PAUSED, f"{older} instants while paused", now)
    for instant in span.newest:
        row = scheduled(cron, instant, now)
        if row.id not in known:
            yield from refuse(row, Status.SKIPPED, Reason.PAUSED, cron.note or f"paused by {cron.paused_by}", now)
