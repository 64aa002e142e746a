"""`resources`: systemd's own names and values (systemd.resource-control(5), systemd.exec(5)), checked and counted out.

Each name is applied in one of two ways: by the spawn (Nice, LimitX, OOMScoreAdjust), or by a transient scope of the
service manager, which needs a controller of the control groups. What is asked for in percent is of the host's own
size, which the caller brings along.
"""

import re
import resource
from collections.abc import Callable, Iterable, Mapping

from crtrd.values import dataclass

INFINITY = (1 << 64) - 1
UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
MOST_PERCENT = 100_000
SIZE = re.compile(r"(\d{1,18})(?:\.(\d{1,9}))?\s*([KMGTPB]?)", re.ASCII)
PERCENT = re.compile(r"(\d{1,6})(?:\.(\d{1,2}))?%", re.ASCII)
SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Host:
    """What shares are counted of: bytes of memory, and tasks that can exist."""

    memory: int
    tasks: int


def _size(text: str, whole: int) -> int:
    if text == "infinity":
        return INFINITY
    if share := PERCENT.fullmatch(text):
        return _at_least_one(whole * _hundredths(share) // 10_000, text)
    found = SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is no size such as 512M, 50% or infinity")
    unit = UNITS[found[3]]
    return _at_least_one(int(found[1]) * unit + unit * int(found[2] or 0) // 10 ** len(found[2] or ""), text)


def _count(text: str, whole: int) -> int:
    if text == "infinity":
        return INFINITY
    if share := PERCENT.fullmatch(text):
        return _at_least_one(whole * _hundredths(share) // 10_000, text)
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise ValueError(f"{text!r} is no number such as 100, 10% or infinity")
    return _at_least_one(int(text), text)


def _quota(text: str, _: int) -> int:
    """CPU time for each second of wall time, microseconds; over 100% is more than one processor."""
    share = PERCENT.fullmatch(text)
    if not share:
        raise ValueError(f"{text!r} is no share such as 50% or 200%")
    return _at_least_one(SECOND * _hundredths(share) // 10_000, text)


def _weight(text: str, _: int) -> int:
    return _whole(text, 1, 10_000)


def _hundredths(share: re.Match[str]) -> int:
    value = int(share[1]) * 100 + int((share[2] or "").ljust(2, "0"))
    if value > MOST_PERCENT * 100:
        raise ValueError(f"{share[0]!r} is too much")
    return value


def _at_least_one(value: int, text: str) -> int:
    if not 0 < value < INFINITY:
        raise ValueError(f"{text!r} is out of range")
    return value


def _whole(text: str, low: int, high: int) -> int:
    if not re.fullmatch(r"[+-]?\d{1,9}", text, re.ASCII) or not low <= int(text) <= high:
        raise ValueError(f"{text!r} is no whole number from {low} to {high}")
    return int(text)


@dataclass(frozen=True, slots=True)
class Scoped:
    """A resource that the service manager applies."""

    unit_property: str
    controller: str
    read: Callable[[str, int], int]
    whole: Callable[[Host], int]


SCOPED: Mapping[str, Scoped] = {
    "MemoryMax": Scoped("MemoryMax", "memory", _size, lambda host: host.memory),
    "MemoryHigh": Scoped("MemoryHigh", "memory", _size, lambda host: host.memory),
    "CPUQuota": Scoped("CPUQuotaPerSecUSec", "cpu", _quota, lambda _: 0),
    "CPUWeight": Scoped("CPUWeight", "cpu", _weight, lambda _: 0),
    "IOWeight": Scoped("IOWeight", "io", _weight, lambda _: 0),
    "TasksMax": Scoped("TasksMax", "pids", _count, lambda host: host.tasks),
}
SPAWNED = ("Nice", "LimitNOFILE", "OOMScoreAdjust")
NAMES = (*SCOPED, *SPAWNED)
LIMITS: Mapping[str, int] = {
    f"Limit{name}": getattr(resource, f"RLIMIT_{name}")
    for name in ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "NICE", "NOFILE", "NPROC", "RSS",
                 "RTPRIO", "RTTIME", "SIGPENDING", "STACK")
}
"""All that a profile may limit (setrlimit(2))."""
IN_BYTES = frozenset({"AS", "CORE", "DATA", "FSIZE", "MEMLOCK", "MSGQUEUE", "RSS", "STACK"})


def check(name: str, value: str) -> None:
    """Raise ValueError with a sentence that starts with the name."""
    if name not in NAMES:
        raise ValueError(f"{name if name.isprintable() else ascii(name)} is no resource; there are {', '.join(NAMES)}")
    try:
        if name in SCOPED:
            SCOPED[name].read(value, INFINITY >> 1)
        elif name == "LimitNOFILE":
            read_limit(name, value)
        else:
            read_number(name, value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_number(name: str, value: str) -> int:
    """`Nice` or `OOMScoreAdjust`. Raises ValueError."""
    return _whole(value, -20, 19) if name == "Nice" else _whole(value, -1000, 1000)


def read_limit(name: str, value: str) -> tuple[int, int]:
    """(soft, hard) of `N`, `SOFT:HARD` or `infinity`. Raises ValueError."""
    soft, colon, hard = value.partition(":")
    first = _limit(name, soft)
    second = _limit(name, hard) if colon else first
    if second != resource.RLIM_INFINITY and (first == resource.RLIM_INFINITY or first > second):
        raise ValueError(f"{value!r}: the soft limit is above the hard one")
    return first, second


def _limit(name: str, text: str) -> int:
    if text == "infinity":
        return resource.RLIM_INFINITY
    if name.removeprefix("Limit") in IN_BYTES and (found := SIZE.fullmatch(text)) and not found[2]:
        return min(int(found[1]) * UNITS[found[3]], (1 << 63) - 1)
    if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
        raise ValueError(f"{text!r} is no limit such as 1024, 512:1024 or infinity")
    return int(text)


def scope_properties(resources: Iterable[tuple[str, str]], host: Host) -> tuple[tuple[str, int], ...]:
    """What a transient scope has to be given: (unit property, value). Empty where none is needed."""
    return tuple(
        (SCOPED[name].unit_property, SCOPED[name].read(value, SCOPED[name].whole(host)))
        for name, value in resources if name in SCOPED
    )


def controllers(resources: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Which controller each of the scoped resources needs."""
    return {name: SCOPED[name].controller for name, _ in resources if name in SCOPED}
