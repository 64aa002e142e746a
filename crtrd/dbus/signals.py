"""Which bus signals an event of the daemon becomes. One table; pure: an Announce in, signals out."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from crtrd import names
from crtrd.core.effects import Announce
from crtrd.dbus import objects
from crtrd.dbus.interface import OBJECT_MANAGER, PROPERTIES
from crtrd.dbus.manager import SIGNALS
from crtrd.dbus.values import clean, cron_path, pack, run_path
from crtrd.dbus.wire import Signal
from crtrd.values import dataclass

Fields = Mapping[str, str | int]
Object = tuple[str, str]
"""Path and interface."""

SIGNATURES = {signal.name: signal.signature for signal in SIGNALS}
MANAGER_OBJECT: Object = (names.BUS_PATH, names.MANAGER_INTERFACE)


def _text(fields: Fields, *keys: str) -> str:
    return clean(next((str(fields[key]) for key in keys if fields.get(key)), ""))


def _cron(fields: Fields) -> str:
    return _text(fields, "CRTRD_CRON_ID")


def _run(fields: Fields) -> str:
    return _text(fields, "CRTRD_RUN_ID")


@dataclass(frozen=True, slots=True)
class Rule:
    """`signal` with what `body` takes of the event's fields; the word is `what`, where the kind itself says it."""

    signal: str
    body: Callable[[Fields, str], tuple[object, ...]]
    what: str = ""


def _cron_changed(fields: Fields, what: str) -> tuple[object, ...]:
    return _cron(fields), cron_path(_cron(fields)), what


def _run_started(fields: Fields, _: str) -> tuple[object, ...]:
    return _cron(fields), _run(fields), run_path(_run(fields))


def _run_settled(fields: Fields, what: str) -> tuple[object, ...]:
    return _cron(fields), _run(fields), _text(fields, "CRTRD_RESULT") or what


def _occurrence_settled(fields: Fields, what: str) -> tuple[object, ...]:
    status = _text(fields, "CRTRD_STATUS", "CRTRD_RESULT") or what
    return _cron(fields), _text(fields, "CRTRD_OCCURRENCE_ID"), status, _text(fields, "CRTRD_REASON")


def _escalated(fields: Fields, _: str) -> tuple[object, ...]:
    return _cron(fields), _text(fields, "CRTRD_ESCALATION_ID", "CRTRD_OCCURRENCE_ID")


def _migrated(fields: Fields, _: str) -> tuple[object, ...]:
    return _text(fields, "CRTRD_MIGRATION", "CRTRD_STEP"), pack(fields)


RULES: dict[str, Rule] = {
    **{
        f"cron.{what}": Rule("CronChanged", _cron_changed, what)
        for what in ("armed", "changed", "canceled", "paused", "resumed", "poked", "expired")
    },
    "cron.run.started": Rule("RunStarted", _run_started),
    "cron.run.settled": Rule("RunSettled", _run_settled),
    "cron.run.held": Rule("RunSettled", _run_settled, "held"),
    "cron.run.unobserved": Rule("RunSettled", _run_settled, "unobserved"),
    "cron.run.abandoned": Rule("RunSettled", _run_settled, "abandoned"),
    "cron.occurrence.settled": Rule("OccurrenceSettled", _occurrence_settled),
    "cron.occurrence.skipped": Rule("OccurrenceSettled", _occurrence_settled, "skipped"),
    "cron.occurrence.missed": Rule("OccurrenceSettled", _occurrence_settled, "missed"),
    "cron.failure.escalated": Rule("Escalated", _escalated),
    "daemon.boot_migration.applied": Rule("BootMigrationApplied", _migrated),
}


def signals(event: Announce) -> Iterator[Signal]:
    """The Manager's signals for one event: its own where it has one, and `Event` always."""
    rule = RULES.get(event.kind)
    if rule is not None:
        yield _signal(MANAGER_OBJECT, rule.signal, SIGNATURES[rule.signal], rule.body(event.fields, rule.what))
    body = (clean(event.kind), clean(event.message), pack(event.fields))
    yield _signal(MANAGER_OBJECT, "Event", SIGNATURES["Event"], body)


def changed_objects(event: Announce) -> Iterator[Object]:
    """The objects whose properties the event may have changed."""
    if not event.kind.startswith(("cron.", "outbox.")):
        return
    yield MANAGER_OBJECT
    if event.kind not in {"cron.armed", "cron.canceled"} and _cron(event.fields):
        yield cron_path(_cron(event.fields)), names.CRON_INTERFACE
    if event.kind.startswith("cron.run.") and event.kind != "cron.run.started" and _run(event.fields):
        yield run_path(_run(event.fields)), names.RUN_INTERFACE


def invalidated(changed: Object) -> Signal:
    """PropertiesChanged without values: who wants them asks, and is asked who they are."""
    path, interface = changed
    gone = list(_invalidated_by(interface))
    return _signal((path, PROPERTIES), "PropertiesChanged", "sa{sv}as", (interface, {}, gone))


@lru_cache(maxsize=16)
def _invalidated_by(interface: str) -> tuple[str, ...]:
    declared = next(entry for entry in objects.OWN.values() if entry.name == interface)
    return tuple(entry.name for entry in declared.properties if entry.emits == "invalidates")


def comings_and_goings(event: Announce) -> Iterator[Signal]:
    """ObjectManager's signals. The properties are left to be asked for."""
    root = (names.BUS_PATH, OBJECT_MANAGER)
    match event.kind:
        case "cron.armed":
            body: tuple[object, ...] = (cron_path(_cron(event.fields)), {names.CRON_INTERFACE: {}})
            yield _signal(root, "InterfacesAdded", "oa{sa{sv}}", body)
        case "cron.canceled":
            body = (cron_path(_cron(event.fields)), [names.CRON_INTERFACE])
            yield _signal(root, "InterfacesRemoved", "oas", body)
        case "cron.run.started":
            body = (run_path(_run(event.fields)), {names.RUN_INTERFACE: {}})
            yield _signal(root, "InterfacesAdded", "oa{sa{sv}}", body)
        case _:
            pass


def _signal(emitter: Object, member: str, signature: str, body: tuple[object, ...]) -> Signal:
    path, interface = emitter
    return Signal(path, interface, member, signature, body)
