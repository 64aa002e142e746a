"""What a pending occurrence waits for, for people: looked up when somebody asks, never stored."""

from crtrd.core.cron import Overlap
from crtrd.core.occurrence import Occurrence, Status, short
from crtrd.core.overlap import policy
from crtrd.engine.engine import Engine
from crtrd.ledger.queries import Queries
from crtrd.schedule.spans import format_instant


def detail(row: Occurrence, engine: Engine, queries: Queries) -> str:
    """The row's own detail, or the first thing that is in its way."""
    return row.detail if row.detail or row.status is not Status.PENDING else _in_the_way(row, engine, queries)


def _in_the_way(row: Occurrence, engine: Engine, queries: Queries) -> str:  # noqa: PLR0911 - a table
    cron = queries.cron(row.cron_id)
    if cron is None:
        return ""
    if engine.drained:
        return "waits until crtrd is undrained"
    if row.due_at > engine.reactor.clock.wall():
        return f"waits until {format_instant(row.due_at)}"
    earlier = queries.begun(cron.id)
    if earlier and policy(cron.definition, row.overlap) is not Overlap.ALLOW:
        return f"waits for occurrence {short(earlier)}"
    pool, limits = cron.definition.pool, engine.limits
    size = dict(limits.pools).get(pool)
    if size is not None and queries.pool_count(pool) >= size:
        return f"waits for a place in pool {pool}, which has {size}"
    if queries.live_count() >= limits.max_runs_at_once:
        return f"waits for a place: {limits.max_runs_at_once} runs at once are allowed"
    return ""
