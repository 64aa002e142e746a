"""Transient units as data: which properties with which D-Bus types. Pure; manager.py is the one that sends them.

pystemd knows only some of these properties (no AccuracyUSec or PIDs in any version so far), hence a table of
our own with exactly those that crtrd uses (org.freedesktop.systemd1(5)).
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

SIGNATURES: Mapping[str, bytes] = {
    "Description": b"s",
    "CollectMode": b"s",
    # systemd.timer(5); without Unit=, which cannot be set over the bus: see wake_timer
    "TimersCalendar": b"a(ss)",
    "AccuracyUSec": b"t",
    "RemainAfterElapse": b"b",
    "WakeSystem": b"b",
    # systemd.scope(5)
    "PIDs": b"au",
    "Slice": b"s",
    "Delegate": b"b",
    "RuntimeMaxUSec": b"t",
    "OOMPolicy": b"s",
    # systemd.resource-control(5)
    "CPUQuotaPerSecUSec": b"t",
    "CPUWeight": b"t",
    "IOWeight": b"t",
    "MemoryMax": b"t",
    "MemoryHigh": b"t",
    "MemoryLow": b"t",
    "MemorySwapMax": b"t",
    "TasksMax": b"t",
}
INFINITY = (1 << 64) - 1
LATEST = 7_258_118_399_999_999
"""2199-12-31 23:59:59.999999 UTC: systemd's calendar ends there. Whoever wants to sleep longer wakes up once before."""

Value = str | int | bool | Sequence[int] | Sequence[tuple[str, str]]
Property = tuple[str, bytes, Value]


def property_list(values: Mapping[str, Value]) -> list[Property]:
    """Raises ValueError for a property that is not in the table or a value not of its type."""
    return [(name, _signature(name, value), value) for name, value in values.items()]


def wake_timer(instant: int) -> list[Property]:
    """A timer that starts the service once at `instant`, microseconds since the epoch.

    OnCalendar= follows CLOCK_REALTIME through every step of the clock. AccuracyUSec: the default of a minute would
    let the manager put the wake-up off. WakeSystem stays off: a cron does not turn a sleeping laptop on.
    Which service is not said here because the bus does not let it be said (neither Unit= nor Triggers=): the
    installed drop-in crtrd-wake.timer.d/*.conf says it.
    """
    return property_list({
        "Description": "Wake-up of crtrd for its next instant",
        "TimersCalendar": [("OnCalendar", calendar_text(instant))],
        "AccuracyUSec": 1,
        "RemainAfterElapse": False,
        "WakeSystem": False,
        "CollectMode": "inactive-or-failed",
    })


def scope(pid: int, values: Mapping[str, str | int]) -> list[Property]:
    """A scope that holds the process `pid`; a failed one goes away by itself."""
    return property_list({"PIDs": [pid], "CollectMode": "inactive-or-failed", **values})


def calendar_text(instant: int) -> str:
    """systemd.time(7), exact to the microsecond and independent of the host's time zone."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f UTC")


def unit_path(name: str) -> bytes:
    """The object path of a unit: every byte that is no letter or digit escaped, as sd_bus_path_encode(3) does."""
    escaped = "".join(
        chr(byte) if chr(byte).isalnum() and byte < 128 and not (index == 0 and chr(byte).isdigit()) else f"_{byte:02x}"  # noqa: PLR2004  ASCII ends at 127
        for index, byte in enumerate(name.encode())
    )
    return b"/org/freedesktop/systemd1/unit/" + escaped.encode("ascii")


def _signature(name: str, value: Value) -> bytes:
    signature = SIGNATURES.get(name, b"")
    kinds: Mapping[bytes, type] = {b"s": str, b"t": int, b"b": bool}
    expected = kinds.get(signature, list)
    if not signature or not isinstance(value, expected) or (signature == b"t" and not _is_uint64(value)):
        message = f"cannot set unit property {name!r} to {value!r}: unknown or not of type {signature.decode()!r}"
        raise ValueError(message)
    return signature


def _is_uint64(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= INFINITY
