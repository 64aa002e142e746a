"""How bus interfaces are declared, and the introspection XML that comes of the declarations.

The members themselves stand in `manager` and `objects`; the interfaces that every object of every service has stand
here. Nothing in here sends or answers.
"""

from collections.abc import Iterable
from typing import Literal

from crtrd import names
from crtrd.values import dataclass

PEER = "org.freedesktop.DBus.Peer"
INTROSPECTABLE = "org.freedesktop.DBus.Introspectable"
PROPERTIES = "org.freedesktop.DBus.Properties"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"

EMITS_CHANGED = "org.freedesktop.DBus.Property.EmitsChangedSignal"
DOCTYPE = (
    '<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"\n'
    ' "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">\n'
)


@dataclass(frozen=True, slots=True)
class Argument:
    name: str
    signature: str


@dataclass(frozen=True, slots=True)
class Member:
    """A method or a signal. `takes` are a method's inputs or a signal's values."""

    name: str
    takes: tuple[Argument, ...]
    gives: tuple[Argument, ...]
    signature: str
    reply_signature: str


@dataclass(frozen=True, slots=True)
class Property:
    """Read-only but for those of LogControl1: what changes, changes through methods."""

    name: str
    signature: str
    emits: Literal["invalidates", "const", "false"] = "invalidates"
    access: Literal["read", "readwrite"] = "read"


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    methods: tuple[Member, ...] = ()
    signals: tuple[Member, ...] = ()
    properties: tuple[Property, ...] = ()


def arguments(text: str) -> tuple[Argument, ...]:
    """`"s name, a{sv} options"` as arguments."""
    return tuple(Argument(name, signature) for signature, name in (part.split() for part in text.split(",") if part))


def member(name: str, takes: str = "", gives: str = "") -> Member:
    inward, outward = arguments(takes), arguments(gives)
    return Member(name, inward, outward, _signature(inward), _signature(outward))


def _signature(of: tuple[Argument, ...]) -> str:
    return "".join(argument.signature for argument in of)


STANDARD = (
    Interface(PEER, (member("Ping"), member("GetMachineId", "", "s machine_uuid"))),
    Interface(INTROSPECTABLE, (member("Introspect", "", "s xml_data"),)),
    Interface(
        PROPERTIES,
        (
            member("Get", "s interface_name, s property_name", "v value"),
            member("GetAll", "s interface_name", "a{sv} properties"),
            member("Set", "s interface_name, s property_name, v value"),
        ),
        (member("PropertiesChanged", "s interface_name, a{sv} changed, as invalidated"),),
    ),
)
OBJECTS = Interface(
    OBJECT_MANAGER,
    (member("GetManagedObjects", "", "a{oa{sa{sv}}} objects"),),
    (
        member("InterfacesAdded", "o object_path, a{sa{sv}} interfaces"),
        member("InterfacesRemoved", "o object_path, as interfaces"),
    ),
)


def to_xml(interfaces: Iterable[Interface], children: Iterable[str]) -> str:
    """The introspection of one object: its interfaces and the names of the nodes below it."""
    lines = [DOCTYPE + "<node>"]
    for interface in interfaces:
        lines.append(f' <interface name="{_escaped(interface.name)}">')
        for method in interface.methods:
            lines += _member_xml("method", method)
        for signal in interface.signals:
            lines += _member_xml("signal", signal)
        for entry in interface.properties:
            lines += _property_xml(entry)
        lines.append(" </interface>")
    lines += [f' <node name="{_escaped(child)}"/>' for child in children]
    return "\n".join([*lines, "</node>", ""])


def _member_xml(kind: str, entry: Member) -> list[str]:
    inward = ' direction="in"' if kind == "method" else ""
    takes = [f'   <arg{inward} type="{_escaped(a.signature)}" name="{_escaped(a.name)}"/>' for a in entry.takes]
    gives = [f'   <arg direction="out" type="{_escaped(a.signature)}" name="{_escaped(a.name)}"/>' for a in entry.gives]
    if not takes and not gives:
        return [f'  <{kind} name="{_escaped(entry.name)}"/>']
    return [f'  <{kind} name="{_escaped(entry.name)}">', *takes, *gives, f"  </{kind}>"]


def _property_xml(entry: Property) -> list[str]:
    return [
        f'  <property name="{_escaped(entry.name)}" type="{_escaped(entry.signature)}" access="{entry.access}">',
        f'   <annotation name="{EMITS_CHANGED}" value="{entry.emits}"/>',
        "  </property>",
    ]


def _escaped(text: str) -> str:
    """For a quoted attribute. xml.sax would bring urllib and http into every cold start."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def node_children(path: str) -> tuple[str, ...]:
    """The names below `path` on the way to our objects, and below the root of our objects."""
    if path == names.BUS_PATH:
        return ("cron", "run")
    prefix = "/" if path == "/" else path + "/"
    ours = (names.BUS_PATH, names.LOG_PATH)
    return tuple(dict.fromkeys(each.removeprefix(prefix).split("/")[0] for each in ours if each.startswith(prefix)))
