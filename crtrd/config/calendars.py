"""calendars.d/*.ics: RFC 5545 calendars whose events take instants out of a schedule (the key `exclude`).

The only door to icalendar and recurring_ical_events, imported when there is a calendar to read. Recurring events are
spelled out from `BACK` before the reading to `AHEAD` after it; every start and every reload reads anew.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from crtrd.config.loader import read_bytes
from crtrd.core.timetable import Calendar
from crtrd.errors import ConfigError
from crtrd.names import Places
from crtrd.values import dataclass, field

FOLDER, SUFFIX = "calendars.d", ".ics"
BACK, AHEAD = timedelta(days=731), timedelta(days=3653)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)


@dataclass(slots=True)
class _Found:
    dates: list[tuple[date, date]] = field(default_factory=list)
    stretches: list[tuple[int, int]] = field(default_factory=list)
    local: list[tuple[str, str]] = field(default_factory=list)


def calendar_files(places: Places) -> dict[str, Path]:
    """Calendars by name; the strongest layer wins."""
    found: dict[str, Path] = {}
    for layer in reversed((places.config, *places.vendor)):
        found |= {path.name.removesuffix(SUFFIX): path for path in sorted((layer / FOLDER).glob("*" + SUFFIX))}
    return found


def load_calendars(places: Places, now: int) -> tuple[dict[str, Calendar], list[ConfigError]]:
    """Every calendar that can be read, and the faults of the others. `now` in microseconds since the epoch."""
    calendars: dict[str, Calendar] = {}
    faults: list[ConfigError] = []
    for name, path in calendar_files(places).items():
        try:
            calendars[name] = read_calendar(path, now)
        except ConfigError as error:
            faults.append(error)
    return calendars, faults


def read_calendar(path: Path, now: int) -> Calendar:
    """The events of one file. Raises ConfigError."""
    data = read_bytes(path)
    try:
        import icalendar  # noqa: PLC0415 - a tenth of a second that only hosts with calendars pay
        import recurring_ical_events  # noqa: PLC0415
    except ImportError as error:
        reason = "reading calendars needs icalendar and recurring_ical_events (Debian: python3-recurring-ical-events)"
        raise ConfigError(str(path), "", reason) from error
    moment = _EPOCH + timedelta(microseconds=now)
    try:
        content = icalendar.Calendar.from_ical(data)
        events = recurring_ical_events.of(content).between(moment - BACK, moment + AHEAD)
        return _gathered(events)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, ArithmeticError) as error:
        # neither library has one error of its own for a bad file
        raise ConfigError(str(path), "", f"it is no RFC 5545 calendar: {str(error) or type(error).__name__}") from error


def _gathered(events: object) -> Calendar:
    found = _Found()
    for start, end in _times(events):
        if not isinstance(start, datetime) or not isinstance(end, datetime):
            found.dates.append((start, max(start, end - _DAY)))
        elif start.tzinfo is None or end.tzinfo is None:
            found.local.append((_wall(start), _wall(end)))
        else:
            found.stretches.append((_instant(start), _instant(end)))
    return Calendar(tuple(sorted(found.dates)), tuple(sorted(found.stretches)), tuple(sorted(found.local)))


def _times(events: object) -> Iterator[tuple[date, date]]:
    """(start, end) of each event that takes place. Both dates, or both datetimes."""
    for event in events if isinstance(events, list) else []:
        if str(event.get("STATUS", "")).upper() == "CANCELLED":
            continue
        start = event["DTSTART"].dt
        if "DTEND" in event:
            end = event["DTEND"].dt
        elif "DURATION" in event:
            end = start + event["DURATION"].dt
        else:
            end = start if isinstance(start, datetime) else start + _DAY
        yield start, end


def _wall(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="seconds")


def _instant(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
