"""From a cron to its compiled schedule, and the questions that the core asks of it. Compiled ones are cached."""

from datetime import date
from functools import lru_cache

from crtrd.core.cron import Cron, Definition
from crtrd.core.facts import Facts
from crtrd.core.occurrence import Origin, occurrence_id
from crtrd.errors import ScheduleError
from crtrd.schedule.spec import Schedule, compile_schedule, is_fixed

SEARCH_LIMIT = 1000  # instants already in the ledger that may be stepped over after the clock was set back


def compiled(definition: Definition, anchor: int, salt: str) -> Schedule:
    """The schedule of a definition; raises ScheduleError or ValueError when it cannot be used."""
    found = _compiled(definition, anchor, salt)
    if isinstance(found, Schedule):
        return found
    raise found.with_traceback(None)


@lru_cache(maxsize=4096)
def _compiled(definition: Definition, anchor: int, salt: str) -> Schedule | ScheduleError | ValueError:
    """Refusals are kept too: to find that a schedule never matches takes long."""
    try:
        return compile_schedule(
            definition.schedule, timezone=definition.timezone, anchor=anchor, salt=salt, dst_gap=definition.dst_gap,
            dst_overlap=definition.dst_overlap, jitter_us=definition.jitter, starts_at=definition.starts_at,
            expires_at=definition.expires_at, exclude_dates=tuple(excluded_days(text) for text in definition.exclude),
        )
    except (ScheduleError, ValueError) as error:
        return error.with_traceback(None)


@lru_cache(maxsize=1)
def _never() -> Schedule:
    return compile_schedule(())


def timetable(cron: Cron) -> Schedule:
    """The schedule of a cron; one without any instant where the stored one cannot be used (see `fault`)."""
    found = _compiled(cron.definition, cron.anchor, cron.id)
    return found if isinstance(found, Schedule) else _never()


def fault(cron: Cron) -> str:
    """Why a stored cron cannot be served, '' when it can: written by another version, by hand, or for other zones."""
    if cron.damage:
        return f"its stored definition cannot be read: {cron.damage}"
    found = _compiled(cron.definition, cron.anchor, cron.id)
    return "" if isinstance(found, Schedule) else f"its schedule cannot be used: {found}"


def one_shot(definition: Definition) -> bool:
    return bool(definition.schedule) and is_fixed(definition.schedule)


def excluded_days(text: str) -> tuple[date, date]:
    """`2026-12-24` or `2026-12-24..2027-01-01`; raises ValueError."""
    first, dots, last = text.partition("..")
    start = date.fromisoformat(first.strip())
    end = date.fromisoformat(last.strip()) if dots else start
    if end < start:
        message = f"{end} is before {start}"
        raise ValueError(message)
    return start, end


def next_instant(cron: Cron, now: int, facts: Facts) -> int | None:
    """The first instant after `now` that has no row yet; only after a step back of the clock can one have a row."""
    instant = unknown_after(cron, now, facts)
    ends = cron.after_end_at
    return min((each for each in (instant, ends) if each is not None), default=None)


def unknown_after(cron: Cron, after: int, facts: Facts) -> int | None:
    """The first instant of the schedule after `after` without a row (or one with a row, at the search limit)."""
    schedule = timetable(cron)
    instant = schedule.next_after(after)
    for _ in range(SEARCH_LIMIT):
        if instant is None or not facts.known([occurrence_id(cron.id, Origin.SCHEDULE, instant, "")]):
            break
        instant = schedule.next_after(instant)
    return instant
