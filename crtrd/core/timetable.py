"""From a cron to its compiled schedule, and the questions that the core asks of it. Compiled ones are cached."""

import math
from collections.abc import Iterator, Mapping
from datetime import date
from functools import lru_cache
from operator import attrgetter
from typing import Any

from crtrd.core.cron import SECOND, Cron, Definition
from crtrd.core.facts import Facts
from crtrd.core.occurrence import Origin, occurrence_id
from crtrd.errors import ScheduleError
from crtrd.schedule.spans import parse_instant, parse_span
from crtrd.schedule.spec import Schedule, compile_schedule, is_fixed
from crtrd.schedule.zone import forget_zones
from crtrd.values import dataclass

UNUSABLE = "its schedule cannot be used"
"""How the note of a cron begins that was parked for its schedule, and resumes by itself when it can be used again."""
SEARCH_LIMIT = 1000  # instants already in the ledger that may be stepped over after the clock was set back


@dataclass(frozen=True, slots=True)
class Calendar:
    """What a calendar takes out: local dates (ends included), stretches [start, end), and such in local time."""

    dates: tuple[tuple[date, date], ...] = ()
    stretches: tuple[tuple[int, int], ...] = ()
    local: tuple[tuple[str, str], ...] = ()


_calendars: dict[str, Calendar] = {}


def use_host(calendars: Mapping[str, Calendar]) -> None:
    """Zone files and calendars are read anew from here on: what was compiled from the old ones is forgotten.

    As with the zones themselves, what the host has is handed in from outside; the core opens no file.
    """
    _calendars.clear()
    _calendars.update(calendars)
    forget_zones()
    _compiled.cache_clear()


def has_calendar(name: str) -> bool:
    return name in _calendars


def compiled(definition: Definition, anchor: int, salt: str) -> Schedule:
    """The schedule of a definition; raises ScheduleError or ValueError when it cannot be used."""
    found = _found(definition, anchor, salt)
    if isinstance(found, Schedule):
        return found
    raise found.with_traceback(None)


_when = attrgetter(
    "schedule", "timezone", "dst_gap", "dst_overlap", "jitter", "starts_at", "expires_at", "exclude")
"""All that a schedule hangs on: to hash a whole definition, with ten thousand variables perhaps, takes longer."""


def _found(definition: Definition, anchor: int, salt: str) -> Schedule | ScheduleError | ValueError:
    """Most schedules say the same whoever has them: one that is compiled serves all that are spelled alike."""
    when = _when(definition)
    for text in definition.schedule:
        if "~" in text or text.lstrip()[:5].lower() == "every":
            return _compiled(when, anchor, salt)
    return _compiled(when, anchor, salt) if definition.jitter else _compiled(when, 0, "")


@lru_cache(maxsize=1024)
def _compiled(when: tuple[Any, ...], anchor: int, salt: str) -> Schedule | ScheduleError | ValueError:
    """Refusals are kept too: to find that a schedule never matches takes long."""
    texts, timezone, gap, overlap, jitter, starts, expires, exclude = when
    try:
        dates, stretches = _excluded(exclude, timezone)
        return compile_schedule(
            texts, timezone=timezone, anchor=anchor, salt=salt, dst_gap=gap, dst_overlap=overlap, jitter_us=jitter,
            starts_at=starts, expires_at=expires, excludes=stretches, exclude_dates=dates,
        )
    except (ScheduleError, ValueError) as error:
        return error.with_traceback(None)


@lru_cache(maxsize=1)
def _never() -> Schedule:
    return compile_schedule(())


def timetable(cron: Cron) -> Schedule:
    """The schedule of a cron; one without any instant where the stored one cannot be used (see `fault`)."""
    found = _found(cron.definition, cron.anchor, cron.id)
    return found if isinstance(found, Schedule) else _never()


def earlier_anchor(cron: Cron, now: int) -> int:
    """The anchor moved to not after `now` by whole periods, so that the phase of every `every` stays."""
    if cron.anchor <= now:
        return cron.anchor
    spans = [text.split(maxsplit=1)[1] for text in cron.definition.schedule if text.startswith("every ")]
    periods = [parse_span(span) for span in spans if not span.endswith("after end")] if not fault(cron) else []
    together = math.lcm(*periods) if periods else 1
    return cron.anchor - -(-(cron.anchor - now) // together) * together


def fault(cron: Cron) -> str:
    """Why a stored cron cannot be served, '' when it can: written by another version, by hand, or for other zones."""
    if cron.damage:
        return f"its stored definition cannot be read: {cron.damage}"
    found = _found(cron.definition, cron.anchor, cron.id)
    return "" if isinstance(found, Schedule) else f"{UNUSABLE}: {found}"


def one_shot(definition: Definition) -> bool:
    return bool(definition.schedule) and is_fixed(definition.schedule)


def _excluded(exclude: tuple[str, ...], timezone: str) -> tuple[list[tuple[date, date]], list[tuple[int, int]]]:
    """Local dates, and stretches of instants, that `exclude` takes out. Raises ScheduleError or ValueError."""
    dates: list[tuple[date, date]] = []
    stretches: list[tuple[int, int]] = []
    for text in exclude:
        if not names_calendar(text):
            dates.append(excluded_days(text))
            continue
        calendar = _calendars.get(text)
        if calendar is None:
            raise ScheduleError(text, "exclude", f"there is no calendar {text}.ics in calendars.d", "exclude")
        dates += calendar.dates
        stretches += calendar.stretches
        for start, end in calendar.local:
            stretches.append((parse_instant(start, timezone), parse_instant(end, timezone)))
    return dates, [(start, end) for start, end in stretches if start < end]


def names_calendar(text: str) -> bool:
    """Whether an element of `exclude` is a name, not a date."""
    return not text[:1].isdigit() and ".." not in text


def excluded_days(text: str) -> tuple[date, date]:
    """`2026-12-24` or `2026-12-24..2027-01-01`; raises ValueError."""
    first, dots, last = text.partition("..")
    start = date.fromisoformat(first.strip())
    end = date.fromisoformat(last.strip()) if dots else start
    if end < start:
        message = f"{end} is before {start}"
        raise ValueError(message)
    return start, end


def instants_ahead(cron: Cron) -> Iterator[int]:
    """The instants that the cron will serve: without those that somebody asked to skip, which only get their row."""
    instant = cron.next_at
    while instant is not None:
        if instant not in cron.skip_next:
            yield instant
        instant = timetable(cron).next_after(instant)


def as_shown(cron: Cron, instant: int) -> int:
    """The instant of the schedule within this second, as tables show it without its fraction; else `instant` itself."""
    if instant % SECOND:
        return instant
    near = (timetable(cron).next_after(instant - 1), cron.after_end_at)
    return min((each for each in near if each is not None and instant <= each < instant + SECOND), default=instant)


def next_instant(cron: Cron, ends: int | None, now: int, facts: Facts | None) -> int | None:
    """The first instant after `now` that has no row yet; only after a step back of the clock can one have a row.

    `ends`: its next one after an end. Without facts nothing has a row.
    """
    instant = timetable(cron).next_after(now) if facts is None else unknown_after(cron, now, facts)
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
