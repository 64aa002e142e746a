"""A length of time as people and programs write it, for cron definitions and crtrd.toml alike; microseconds.

What is too short or too long for its key is the caller's to say.
"""

from math import isfinite

from crtrd.schedule.spans import parse_span

SECOND = 1_000_000
LONGEST = 100 * 366 * 86400 * SECOND
MOST_SECONDS = 1e12  # more than LONGEST, little enough to be multiplied


def read_length(value: object) -> int | None:
    """A systemd time span, or a number of seconds; None for what is neither. Raises ScheduleError for a bad span."""
    if isinstance(value, str):
        return parse_span(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        return None
    return round(max(min(value, MOST_SECONDS), -1) * SECOND)
