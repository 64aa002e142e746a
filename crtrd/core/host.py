"""Zone files and calendars that changed under armed crons: NEXT is calculated anew, and nothing is counted twice.

A cron whose zone or calendar is gone is parked with the reason; when it is back the cron goes on by itself, and what
came due meanwhile is caught up as after downtime. What was decided under the old data stays decided.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core import reports
from crtrd.core.cron import Cron, PausedBy, State
from crtrd.core.effects import Answer, Effect, PutCron, Remember
from crtrd.core.events import HostChanged
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import Reason
from crtrd.core.owing import owe_due, park, plan
from crtrd.core.timetable import fault, next_instant
from crtrd.schedule.spans import format_instant

PORTION = 500
"""Crons that one event plans anew: the ledger is soon there for others."""
MARK = "host"
"""Where the ledger remembers what zone files and calendars looked like when the schedules were planned."""


def host_changed(event: HostChanged, facts: Facts, limits: Limits) -> Iterator[Effect]:
    crons = facts.crons_scheduled(event.after, PORTION)
    for cron in crons:
        why = fault(cron)
        if cron.state is State.ACTIVE and why:
            yield from park(cron, why)
        elif cron.state is State.ACTIVE:
            yield from _plan_anew(cron, event.at, facts, limits)
        elif not why:
            yield from _go_on(cron, event.at, facts, limits)
    last = crons[-1].name if len(crons) == PORTION else ""
    if not last:
        yield Remember(MARK, event.mark)
    if event.ticket is not None:
        yield Answer(event.ticket, last)


def _plan_anew(cron: Cron, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """What lay before the planned instant has been decided: the new data must not find instants there."""
    decided = now if cron.next_at is None else min(now, cron.next_at - 1)
    moved = replace(cron, considered=max(cron.considered, decided))
    if cron.next_at is not None and cron.next_at <= now and limits.own_clock:
        yield from owe_due(moved, now, facts, Reason.DOWNTIME)
        return
    upcoming = next_instant(cron, cron.after_end_at, now, facts)
    if upcoming == cron.next_at:
        return
    yield PutCron(moved)
    yield from plan(moved, now, facts)
    text = "never" if upcoming is None else format_instant(upcoming)
    yield reports.cron_event("changed", moved, f"zone files or calendars changed: next is now {text}")


def _go_on(cron: Cron, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    active = replace(cron, state=State.ACTIVE, paused_by=PausedBy.NOBODY, note="")
    yield PutCron(active)
    yield reports.cron_event("resumed", active, "its schedule can be used again")
    if limits.own_clock:
        yield from owe_due(active, now, facts, Reason.DOWNTIME)
    else:
        yield from plan(active, now, facts)
