"""The object tree: which path is which object, what interfaces it has, and its properties from control's views.

Objects are not kept: a cron or run exists on the bus when control knows it at the moment of the call.
"""

from collections.abc import Mapping
from enum import Enum

from crtrd import names
from crtrd.dbus.interface import OBJECTS, STANDARD, Interface, Property, node_children
from crtrd.dbus.manager import MANAGER
from crtrd.dbus.values import Variant, clean, fit, pack
from crtrd.values import dataclass

RUNS_KEPT = 100
"""Settled runs that stay visible as objects: the newest so many."""

CRON = Interface(
    names.CRON_INTERFACE,
    properties=(
        Property("Id", "s", "const"), Property("Name", "s", "const"), Property("State", "s"), Property("PausedBy", "s"),
        Property("Note", "s"), Property("Owner", "u", "const"), Property("Schedule", "as"), Property("Timezone", "s"),
        Property("Next", "t"), Property("Skips", "at"), Property("Held", "u"), Property("Running", "u"),
        Property("LastStatus", "s"),
        Property("LastAt", "t"), Property("LastRun", "s"), Property("LastResult", "s"), Property("Failures", "u"),
        Property("Source", "s"),
        Property("CreatedAt", "t", "const"), Property("ChangedAt", "t"), Property("Definition", "a{sv}"),
    ),
)
RUN = Interface(
    names.RUN_INTERFACE,
    properties=(
        Property("Id", "s", "const"), Property("CronId", "s", "const"), Property("CronName", "s", "const"),
        Property("OccurrenceId", "s", "const"), Property("Target", "s", "const"), Property("Attempt", "u", "const"),
        Property("Trigger", "s", "const"), Property("Phase", "s"), Property("ScheduledAt", "t", "const"),
        Property("StartedAt", "t"), Property("FinishedAt", "t"), Property("DurationUs", "t"), Property("Result", "s"),
        Property("Reason", "s"),
        Property("ExitCode", "i"), Property("Signal", "i"), Property("Pid", "u"), Property("OutOfBand", "b", "const"),
        Property("StdoutBytes", "t"), Property("StdoutTruncated", "b"), Property("StderrBytes", "t"),
        Property("StderrTruncated", "b"), Property("Survivors", "as"), Property("Delivered", "s"),
    ),
)

LOG_CONTROL = Interface(  # org.freedesktop.LogControl1(5), as `systemctl log-level UNIT` uses it
    names.LOG_INTERFACE,
    properties=(
        Property("LogLevel", "s", "false", "readwrite"), Property("LogTarget", "s", "false", "readwrite"),
        Property("SyslogIdentifier", "s", "const"),
    ),
)
OTHERS = (LOG_CONTROL,)


class Kind(Enum):
    WAY = "a node that only leads to ours"
    ROOT = "/"
    MANAGER = "manager"
    CRONS = "cron"
    RUNS = "run"
    CRON = "cron/ID"
    RUN = "run/ID"
    LOG = "log control"


INTERFACES: dict[Kind, tuple[Interface, ...]] = {
    Kind.WAY: STANDARD,
    Kind.ROOT: (*STANDARD, OBJECTS),
    Kind.MANAGER: (*STANDARD, OBJECTS, MANAGER),
    Kind.CRONS: STANDARD,
    Kind.RUNS: STANDARD,
    Kind.CRON: (*STANDARD, CRON),
    Kind.RUN: (*STANDARD, RUN),
    Kind.LOG: (*STANDARD, LOG_CONTROL),
}
OWN: dict[Kind, Interface] = {Kind.MANAGER: MANAGER, Kind.CRON: CRON, Kind.RUN: RUN, Kind.LOG: LOG_CONTROL}
"""The interface of ours that each kind of object has; the others are everybody's and have no properties."""

EMPTY: dict[str, object] = {"s": "", "t": 0, "u": 0, "i": 0, "b": False, "as": [], "at": [], "a{sv}": {}}
"""What a property reads as when the view has no value: properties, unlike fields of a{sv}, cannot be absent."""


@dataclass(frozen=True, slots=True)
class Node:
    kind: Kind
    id: str = ""
    children: tuple[str, ...] = ()


def locate(path: str) -> Node | None:
    """What lives at `path`. For crons and runs only the spelling is known here."""
    if path == "/":
        return Node(Kind.ROOT, children=node_children(path))
    if path == names.BUS_PATH:
        return Node(Kind.MANAGER, children=node_children(path))
    if path == names.LOG_PATH:
        return Node(Kind.LOG)
    below = path.removeprefix(names.BUS_PATH + "/")
    match below.split("/") if below != path else []:
        case ["cron" | "run" as kind]:
            return Node(Kind(kind))
        case ["cron" | "run" as kind, object_id]:
            return Node(Kind(kind + "/ID"), object_id)
        case _:
            children = node_children(path)
            return Node(Kind.WAY, children=children) if children else None


def manager_properties(values: Mapping[str, object]) -> dict[str, Variant]:
    return {entry.name: _property(entry, values.get(entry.name)) for entry in MANAGER.properties}


def log_properties(level: str) -> dict[str, Variant]:
    return {"LogLevel": ("s", level), "LogTarget": ("s", "journal"), "SyslogIdentifier": ("s", names.SYSLOG_IDENTIFIER)}


def cron_properties(view: Mapping[str, object]) -> dict[str, Variant]:
    """The properties of one cron. Whatever of the view has no property of its own goes into Definition."""
    found = {entry.name: _property(entry, view.get(field_of(entry.name))) for entry in CRON.properties}
    spoken = {field_of(entry.name) for entry in CRON.properties}
    rest = {name: value for name, value in view.items() if name not in spoken}
    definition = view.get("definition")
    if isinstance(definition, Mapping):
        rest.update(definition)
    found["Definition"] = ("a{sv}", pack(rest))
    return found


def run_properties(view: Mapping[str, object]) -> dict[str, Variant]:
    return {entry.name: _property(entry, view.get(field_of(entry.name))) for entry in RUN.properties}


def field_of(property_name: str) -> str:
    """`LastStatus` is the view's `last_status`."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in property_name).lstrip("_")


def _property(entry: Property, value: object) -> Variant:
    if value is None:
        return entry.signature, EMPTY[entry.signature]
    try:
        return entry.signature, fit(entry.signature, value)
    except TypeError:
        return entry.signature, clean(str(value)) if entry.signature == "s" else EMPTY[entry.signature]
