"""From a cron to its compiled schedule, and the questions that the core asks of it. Compiled ones are cached."""

from datetime import date
from functools import lru_cache

from crtrd.core.cron import Cron, Definition
from crtrd.core.facts import Facts
from crtrd.core.occurrence import Origin, occurrence_id
from crtrd.schedule.spec import Schedule, compile_schedule, is_fixed

SEARCH_LIMIT = 1000  # instants already in the ledger that may be stepped over after the clock was set back


@lru_cache(maxsize=4096)
def compiled(definition: Definition, anchor: int, salt: str) -> Schedule:
    """The schedule of a definition; raises ScheduleError when it cannot be used."""
    return compile_schedule(
        definition.schedule, timezone=definition.timezone, anchor=anchor, salt=salt, dst_gap=definition.dst_gap,
        dst_overlap=definition.dst_overlap, jitter_us=definition.jitter, starts_at=definition.starts_at,
        expires_at=definition.expires_at, exclude_dates=tuple(excluded_days(text) for text in definition.exclude),
    )


def timetable(cron: Cron) -> Schedule:
    return compiled(cron.definition, cron.anchor, cron.id)


def one_shot(definition: Definition) -> bool:
    return bool(definition.schedule) and is_fixed(definition.schedule)


def excluded_days(text: str) -> tuple[date, date]:
    """`2026-12-24` or `2026-12-24..2027-01-01`; raises ValueError."""
    first, _, last = text.partition("..")
    start = date.fromisoformat(first.strip())
    end = date.fromisoformat(last.strip()) if last else start
    if end < start:
        message = f"{end} is before {start}"
        raise ValueError(message)
    return start, end


def next_instant(cron: Cron, now: int, facts: Facts) -> int | None:
    """The first instant after `now` that has no row yet; only after a step back of the clock can one have a row."""
    schedule = timetable(cron)
    instant = schedule.next_after(now)
    for _ in range(SEARCH_LIMIT):
        if instant is None:
            break
        name = occurrence_id(cron.id, Origin.SCHEDULE, instant, "")
        if not facts.known([name]):
            break
        instant = schedule.next_after(instant)
    ends = cron.after_end_at
    return min((each for each in (instant, ends) if each is not None), default=None)
