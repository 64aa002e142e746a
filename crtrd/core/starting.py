"""From a pending occurrence to runs at the gate, as far as capacity allows, in fair order.

A run is recorded as *starting* before its child exists; `RunHeld` makes it *running* before the gate opens (I1).
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import Cron, Overlap
from crtrd.core.effects import (
    Announce,
    Effect,
    PutCell,
    PutOccurrence,
    PutRun,
    Spawn,
    TakeLease,
)
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import (
    Cell,
    Occurrence,
    Origin,
    Phase,
    Reason,
    Run,
    Status,
    move,
    run_id,
)
from crtrd.core.overlap import policy
from crtrd.core.owing import plan
from crtrd.core.stopping import settle_waiting
from crtrd.core.timetable import fault


def start_waiting(now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Start whatever is due and may run: called after everything that can free a place or make something due."""
    if limits.max_runs_at_once <= 0:
        return
    tried: set[str] = set()
    most = min(limits.max_runs_at_once, facts.live_count() + limits.starts_at_once)
    while True:
        free, full = most - facts.live_count(), _full_pools(facts, limits)
        if free <= 0:
            break
        waiting = [*facts.unfinished(now), *facts.startable(now, free + len(tried), full)]
        fresh = [each for each in waiting if each.id not in tried]
        if not fresh:
            break
        for occurrence in fresh:
            tried.add(occurrence.id)
            yield from _start_one(occurrence, now, facts, limits)
    if (facts.live_count() >= limits.max_runs_at_once or full) and (left := facts.startable(now, 1)):
        yield deferred(left[0])


def _full_pools(facts: Facts, limits: Limits) -> tuple[str, ...]:
    return tuple(name for name, size in limits.pools if facts.pool_count(name) >= size)


def _start_one(occurrence: Occurrence, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    cron = facts.cron(occurrence.cron_id)
    if occurrence.status is Status.RUNNING:
        if cron is not None:
            yield from start(cron, occurrence, now, facts, limits)
    elif cron is None:
        yield from settle_waiting(occurrence, Status.CANCELED, Reason.CANCELED, "its cron is gone", now, facts)
    elif cron.damage:
        yield from settle_waiting(occurrence, Status.FAILED, Reason.START_FAILED, fault(cron), now, facts)
    elif _blocked(cron, occurrence, facts):
        return
    elif _too_late(cron, occurrence, now, facts):
        detail = "later than start_within"
        yield from settle_waiting(occurrence, Status.MISSED, Reason.DEADLINE, detail, now, facts)
        yield from plan(facts.cron(cron.id) or cron, now, facts)
    else:
        yield from start(cron, occurrence, now, facts, limits)


def deferred(occurrence: Occurrence) -> Announce:
    """No place: said, never lost. The engine lets it through once a minute."""
    event = reports.occurrence_event("accepted", occurrence, "waits for capacity")
    return replace(event, kind="cron.capacity.deferred")


def _blocked(cron: Cron, occurrence: Occurrence, facts: Facts) -> bool:
    """An earlier start of this batch may have taken the cron's only place since `startable` was asked."""
    return policy(cron.definition, occurrence.overlap) is not Overlap.ALLOW and facts.line(cron.id).begun


def _too_late(cron: Cron, occurrence: Occurrence, now: int, facts: Facts) -> bool:
    limit = cron.definition.start_within
    if limit is None or occurrence.origin is not Origin.SCHEDULE or now - occurrence.instant <= limit:
        return False
    return all(cell.attempts == 0 for cell in facts.cells(occurrence.id))


def _free_places(cron: Cron, facts: Facts, limits: Limits) -> int:
    """Free places for this cron: of all runs, and of its pool where that has a limit."""
    free = limits.max_runs_at_once - facts.live_count()
    size = dict(limits.pools).get(cron.definition.pool)
    return free if size is None else min(free, size - facts.pool_count(cron.definition.pool))


def start(cron: Cron, occurrence: Occurrence, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Begin as many cells of the occurrence as its cron and the free places allow."""
    cells = [cell for cell in facts.cells(occurrence.id) if cell.status is Status.PENDING and cell.due_at <= now]
    beside = cron.definition.target_parallel - len(facts.live_runs(occurrence.id))
    places = min(_free_places(cron, facts, limits), beside)
    if not cells or places <= 0:
        return
    if occurrence.status is Status.PENDING:
        occurrence = move(occurrence, Status.RUNNING, now, Reason.NONE, occurrence.detail)
        yield PutOccurrence(occurrence)
        yield TakeLease(occurrence.id)
        occurrence = facts.occurrence(occurrence.id) or occurrence
    for cell in cells[:places]:
        yield from _begin(cron, occurrence, cell, now)


def _begin(cron: Cron, occurrence: Occurrence, cell: Cell, now: int) -> Iterator[Effect]:
    attempt = cell.attempts + 1
    run = Run(
        id=run_id(occurrence.id, cell.target, attempt), occurrence_id=occurrence.id, cron_id=cron.id,
        cron_name=cron.name, target=cell.target, attempt=attempt, trigger=occurrence.origin,
        scheduled_at=occurrence.instant, phase=Phase.STARTING, out_of_band=occurrence.origin is Origin.MANUAL,
        fence=occurrence.fence, created_at=now,
    )
    yield PutCell(replace(cell, status=Status.RUNNING, attempts=attempt))
    yield PutRun(run)
    yield Spawn(run, cron)
