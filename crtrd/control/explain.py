"""Why an instant of a cron was served, is due, or is not: the past from the ledger, the rest from the schedule.

`source` says which of the two answers. Reasons are the words of core.occurrence.Reason and schedule.explain.
"""

from crtrd.control import views
from crtrd.core.cron import Cron, State
from crtrd.core.timetable import as_shown, fault, timetable
from crtrd.ledger.queries import Queries
from crtrd.schedule.spans import format_instant


def explanation(cron: Cron, instant: int, queries: Queries, now: int) -> views.View:
    row = queries.occurrence_at(cron.id, instant)
    if row is None:
        instant = as_shown(cron, instant)
        row = queries.occurrence_covering(cron.id, instant) if timetable(cron).explain(instant).due else None
    if row is not None:
        return {"source": "ledger", **views.occurrence_view(row, queries.cells(row.id))}
    due, reason, detail = _judge(cron, instant, now)
    return {"source": "schedule", "instant": instant, "due": due, "reason": reason, "detail": detail}


def _judge(cron: Cron, instant: int, now: int) -> tuple[bool, str, str]:  # noqa: PLR0911 - a table
    if why := fault(cron):
        return False, "unusable", why
    verdict = timetable(cron).explain(instant)
    if instant == cron.after_end_at:
        return True, "after-end", "so long after the end of the last run"
    if not verdict.due:
        return False, verdict.reason, verdict.detail
    if instant <= now:
        return _judge_past(cron, instant)
    if cron.state is State.PAUSED:
        return False, "paused", cron.note or f"paused by {cron.paused_by}"
    if cron.state is State.FINISHED:
        return False, "finished", "the cron is finished"
    if instant in cron.skip_next:
        return False, "skip-requested", "somebody asked to leave it out"
    return True, verdict.reason, verdict.detail


def _judge_past(cron: Cron, instant: int) -> tuple[bool, str, str]:
    """The schedule names it, and there is no row."""
    if instant <= cron.created_at:
        return False, "before-armed", f"the cron was armed at {format_instant(cron.created_at)}"
    if cron.state is State.PAUSED and instant > cron.considered:
        return False, "paused", cron.note or f"paused by {cron.paused_by}"
    if instant > cron.considered and cron.state is State.ACTIVE:
        return True, "pending", "it is due and will be decided at once"
    if instant <= cron.changed_at:
        changed = format_instant(cron.changed_at)
        return False, "other-schedule", f"the cron was changed at {changed}; before that another schedule may have held"
    return False, "forgotten", "the ledger has no row of it any more"
