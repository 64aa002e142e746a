"""Instants and spans in the words of systemctl, and texts made harmless for a terminal. Pure: `now` comes in."""

import re
from datetime import UTC, datetime, tzinfo

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
MONTH, YEAR = 2_629_800 * SECOND, 31_557_600 * SECOND
_UNITS = (
    (YEAR, "y"), (MONTH, "month"), (DAY, "day"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (1000, "ms"), (1, "us"),
)
_LAST = 253402300799 * SECOND
"""The last second that a datetime can be."""

# C0 and C1 controls, and the marks that turn the direction of text around (terminal escapes and "Trojan source").
_HARMFUL = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
_LAST_OF_LATIN_1 = 0xFF
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def harmless(text: str, keep: str = "") -> str:
    """`text` with everything that a terminal would obey spelled out; characters in `keep` stay."""
    return _HARMFUL.sub(lambda found: found[0] if found[0] in keep else _spelled(found[0]), text)


def _spelled(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code <= _LAST_OF_LATIN_1 else f"\\u{code:04x}"


def span(microseconds: int, parts: int = 2) -> str:
    """A duration as systemd writes it, its largest `parts` units: `1h 30min`."""
    rest, words = abs(microseconds), []
    for size, unit in _UNITS:
        count, left = divmod(rest, size)
        if count:
            plural = "s" if unit in {"month", "day"} and count > 1 else ""
            space = " " if unit in {"month", "day"} else ""
            words.append(f"{count}{space}{unit}{plural}")
            rest = left
    return " ".join(words[:parts]) or "0s"


def plural(noun: str) -> str:
    """More than one of it: of `cron`, `delivery`."""
    return noun[:-1] + "ies" if noun.endswith("y") else noun + "s"


def counted(count: int, noun: str) -> str:
    """`1 delivery`, `2 deliveries`."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def folded(text: str, width: int, indent: int = 4) -> str:
    """A long line at its spaces, what follows indented; a word that is too long stays whole."""
    lines: list[str] = []
    left = width
    for word in text.split(" "):
        size = len(_COLOUR.sub("", word))
        if lines and size + 1 <= left:
            lines[-1] += " " + word
            left -= size + 1
        else:
            left = width - size - (indent if lines else 0)
            lines.append(" " * indent + word if lines else word)
    return "\n".join(lines)


def short(name: object) -> str:
    """An id as it is shown: 12 digits, which every verb takes for the whole."""
    return str(name or "")[:12]


def relative(instant: int | None, now: int, parts: int = 2) -> str:
    """`in 5s`, `2min ago`; `-` for never. In its largest `parts` units."""
    if not instant:
        return "-"
    distance = instant - now
    if abs(distance) < SECOND:
        return "now"
    rough = span(distance // SECOND * SECOND if distance > 0 else -(-distance // SECOND) * SECOND, parts)
    return f"in {rough}" if distance > 0 else f"{rough} ago"


def moment(instant: int, zone: tzinfo | None = UTC) -> datetime:
    """The datetime of an instant; what lies beyond the year 9999 is its last second."""
    seconds, rest = divmod(min(max(instant, 0), _LAST), SECOND)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).astimezone(zone)


def rfc3339(instant: int) -> str:
    """UTC with Z; the fraction only where there is one."""
    text = moment(instant).replace(tzinfo=None).isoformat()
    return text.rstrip("0") + "Z" if "." in text else text + "Z"


def calendar_time(instant: int, zone: tzinfo | None = None) -> str:
    """`Mon 2026-11-30 12:00:00 UTC`, in the caller's zone unless told otherwise."""
    return moment(instant, zone).strftime("%a %Y-%m-%d %H:%M:%S %Z")


def day_time(instant: int | None, zone: tzinfo | None = None) -> str:
    """`2026-11-30 12:00:00`; `-` for never."""
    return moment(instant, zone).strftime("%Y-%m-%d %H:%M:%S") if instant else "-"
