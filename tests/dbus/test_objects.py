"""The object tree: introspection, properties, ObjectManager, and that declarations and tables agree."""

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from jeepney.low_level import parse_signature

from crtrd import names
from crtrd.control import views
from crtrd.core.occurrence import Origin, Phase, Run
from crtrd.dbus import managed
from crtrd.dbus.manager import MANAGER, METHODS
from crtrd.dbus.objects import CRON, INTERFACES, RUN, cron_properties, field_of
from crtrd.dbus.values import FIELD_TYPES, cron_path, plain, run_path
from tests.dbus.bus import Called

pytestmark = pytest.mark.bus

CONTRACT = {
    "Arm": ("a{sv}", "so"), "Change": ("sa{sv}", ""), "Cancel": ("sa{sv}", ""), "Pause": ("ss", ""),
    "Resume": ("s", ""), "Skip": ("st", ""), "Unskip": ("st", ""), "Poke": ("s", "u"), "Run": ("sa{sv}", "sao"),
    "Trigger": ("sa{sv}", "sss"), "Rerun": ("s", "s"), "Backfill": ("stta{sv}", "u"),
    "Kill": ("si", ""), "Next": ("su", "at"), "Calendar": ("a{sv}tu", "at"),
    "Explain": ("st", "a{sv}"), "GetCron": ("s", "o"), "GetRun": ("s", "a{sv}"),
    "ListCrons": ("a{sv}us", "aa{sv}s"), "ListOccurrences": ("a{sv}us", "aa{sv}s"), "ListRuns": ("a{sv}us", "aa{sv}s"),
    "ListOutbox": ("a{sv}us", "aa{sv}s"), "ListEscalations": ("a{sv}us", "aa{sv}s"),
    "DeliverEscalation": ("s", ""), "ReadInbox": ("ssu", "aa{sv}s"), "AckInbox": ("ss", ""),
    "OpenOutput": ("s", "h"), "GetOccurrence": ("s", "a{sv}"), "RetryDelivery": ("s", ""), "DiscardDelivery": ("s", ""),
    "Drain": ("b", ""), "Reload": ("", ""), "Reexecute": ("", ""),
}

SIGNALLED = {
    "CronChanged": "sos", "RunStarted": "sso", "RunSettled": "sss", "OccurrenceSettled": "ssss", "Escalated": "ss",
    "BootMigrationApplied": "sa{sv}", "Event": "ssa{sv}",
}
READ = {
    "Version": "s", "InstanceId": "s", "State": "s", "CronCount": "u", "ActiveCount": "u", "HeldCount": "u",
    "OutboxPending": "u", "NextWakeUSec": "t", "StartedUSec": "t",
}


def arm(world, name="tick"):
    return world.call("Arm", "a{sv}", {"name": ("s", name), "command": ("as", ["true"])})[0]


def introspect(world, path):
    (xml,) = world.standard("Introspectable", "Introspect", path=path)
    return ET.fromstring(xml)


def test_signatures_are_the_contracts():
    assert {m.member.name: (m.member.signature, m.member.reply_signature) for m in METHODS} == CONTRACT


def test_signals_and_properties_are_the_contracts():
    assert {entry.name: entry.signature for entry in MANAGER.signals} == SIGNALLED
    assert {entry.name: entry.signature for entry in MANAGER.properties} == READ
    assert {entry.access for kind in INTERFACES.values() for each in kind if "crtrd" in each.name
            for entry in each.properties} == {"read"}


def test_introspection_says_what_is_declared(world):
    tree = introspect(world, names.BUS_PATH)
    found = {node.get("name"): node for node in tree.findall("interface")}
    assert list(found) == [entry.name for entry in INTERFACES[next(k for k in INTERFACES if k.value == "manager")]]
    manager = found[names.MANAGER_INTERFACE]
    methods = {
        node.get("name"): tuple(
            "".join(arg.get("type") for arg in node.findall("arg") if arg.get("direction") == direction)
            for direction in ("in", "out"))
        for node in manager.findall("method")
    }
    assert methods == CONTRACT
    assert {node.get("name") for node in manager.findall("signal")} == {entry.name for entry in MANAGER.signals}
    assert [node.get("name") for node in manager.findall("property")] == [entry.name for entry in MANAGER.properties]
    assert all(arg.get("name") for arg in manager.iter("arg"))
    for node in manager.findall("property"):
        assert node.find("annotation").get("value") in {"const", "invalidates", "false"}
    assert [node.get("name") for node in tree.findall("node")] == ["cron", "run"]


@pytest.mark.parametrize("interface", [MANAGER, CRON, RUN])
def test_every_declared_signature_can_be_parsed(interface):
    members = [*interface.methods, *interface.signals]
    signatures = [a.signature for entry in members for a in (*entry.takes, *entry.gives)]
    for signature in [*signatures, *(entry.signature for entry in interface.properties), *FIELD_TYPES.values()]:
        rest = list(signature)
        parse_signature(rest)
        assert not rest


def test_tree_leads_to_every_object(world):
    cron_id = arm(world)
    run_id = world.call("Run", "sa{sv}", "tick", {})[1][0].rpartition("/")[2]
    path = "/"
    for part in ["org", "crtrd", "Crtrd1", "cron", cron_id]:
        assert part in [node.get("name") for node in introspect(world, path).findall("node")]
        path = f"{path.rstrip('/')}/{part}"
    assert [node.get("name") for node in introspect(world, path).findall("interface")][-1] == names.CRON_INTERFACE
    assert [node.get("name") for node in introspect(world, f"{names.BUS_PATH}/run").findall("node")] == [run_id]
    world.control.allowed.clear()
    assert not introspect(world, f"{names.BUS_PATH}/cron").findall("node")


def test_properties(world):
    cron_id = arm(world)
    _, (run,) = world.call("Run", "sa{sv}", "tick", {"target": ("s", "x")})
    (values,) = world.standard("Properties", "GetAll", "s", names.MANAGER_INTERFACE)
    assert {name: variant[0] for name, variant in values.items()} == {
        entry.name: entry.signature for entry in MANAGER.properties}
    assert world.standard("Properties", "Get", "ss", names.MANAGER_INTERFACE, "CronCount") == (("u", 1),)
    (values,) = world.standard("Properties", "GetAll", "s", names.CRON_INTERFACE, path=cron_path(cron_id))
    assert {name: variant[0] for name, variant in values.items()} == {
        entry.name: entry.signature for entry in CRON.properties}
    assert plain("v", values["Definition"]) == {"command": ["true"]}
    (values,) = world.standard("Properties", "GetAll", "s", "", path=run)
    assert (values["Target"], values["Result"], values["ExitCode"]) == (("s", "x"), ("s", "success"), ("i", 0))
    assert world.standard("Properties", "GetAll", "s", "org.freedesktop.DBus.Peer") == ({},)


@pytest.mark.parametrize(
    ("call", "body", "where", "error"),
    [
        ("Get ss", (names.MANAGER_INTERFACE, "Nope"), {}, "UnknownProperty"),
        ("Get ss", ("org.example.X", "Version"), {}, "UnknownInterface"),
        ("Set ssv", (names.MANAGER_INTERFACE, "State", ("s", "x")), {}, "PropertyReadOnly"),
        ("Set ssv", (names.MANAGER_INTERFACE, "Nope", ("s", "x")), {}, "UnknownProperty"),
        ("GetAll s", (names.CRON_INTERFACE,), {"path": cron_path("0" * 32)}, "NoSuchCron"),
        ("GetAll s", (names.RUN_INTERFACE,), {"path": run_path("0" * 32)}, "NoSuchRun"),
    ],
)
def test_properties_that_are_not_there(world, call, body, where, error):
    with pytest.raises(Called) as caught:
        world.standard("Properties", *call.split(), *body, **where)
    assert caught.value.name.endswith("." + error)


def test_managed_objects(world):
    ids = {arm(world, f"c{index}") for index in range(5)}
    _, (run,) = world.call("Run", "sa{sv}", "c1", {})
    (found,) = world.standard("ObjectManager", "GetManagedObjects")
    assert set(found) == {run, *map(cron_path, ids)}
    assert found[run][names.RUN_INTERFACE]["CronName"] == ("s", "c1")
    (found,) = world.standard("ObjectManager", "GetManagedObjects", path="/")
    assert found[names.BUS_PATH][names.MANAGER_INTERFACE]["CronCount"] == ("u", 5)


def test_many_managed_objects_are_told_over_many_turns(world, monkeypatch):
    """Each turn asks for a few crons, and whoever calls meanwhile is answered in between."""
    monkeypatch.setattr(managed, "CRONS_A_TURN", 2)
    ids = {arm(world, f"c{index}") for index in range(400)}
    second = world.peer()
    world.standard("Peer", "Ping", peer=second)
    asked = []
    listing = world.control.verb_list_crons
    world.control.verb_list_crons = lambda wanted, limit, cursor: asked.append(limit) or listing(wanted, limit, cursor)
    first = world.peers[0]
    where = {"path": names.BUS_PATH, "interface": "org.freedesktop.DBus.ObjectManager"}
    serial = first.send("GetManagedObjects", "", (), **where)
    world.until(lambda: asked)
    ping = second.send("Ping", "", (), path=names.BUS_PATH, interface="org.freedesktop.DBus.Peer")
    world.until(lambda: ping in second.replies or serial in first.replies)
    assert serial not in first.replies
    world.until(lambda: serial in first.replies)
    assert set(first.result(serial)[0]) == set(map(cron_path, ids))
    assert asked == [2] * 200


def test_more_managed_objects_than_a_message_holds_are_given_up_early(world, monkeypatch):
    monkeypatch.setattr(managed, "CRONS_A_TURN", 2)
    monkeypatch.setattr(managed, "MESSAGE_MOST", 4000)
    for index in range(40):
        arm(world, f"c{index}")
    asked = []
    listing = world.control.verb_list_crons
    world.control.verb_list_crons = lambda wanted, limit, cursor: asked.append(limit) or listing(wanted, limit, cursor)
    with pytest.raises(Called, match=r"LimitsExceeded.*ListCrons"):
        world.standard("ObjectManager", "GetManagedObjects")
    assert len(asked) < 10


def test_peer(world):
    assert world.standard("Peer", "Ping", path="/org") == ()
    world.control.allowed.clear()
    assert world.standard("Peer", "Ping") == ()
    if not Path("/etc/machine-id").exists():
        pytest.skip("the rest needs a machine id")
    assert len(world.standard("Peer", "GetMachineId")[0]) == 32


def test_views_of_control_have_a_type_for_every_number():
    """A number that is not in the table would travel as `x` today and as something else after an addition."""
    run = Run("1", "2", "3", "n", "", 1, Origin.MANUAL, 5, Phase.ENDED, out_of_band=False, fence=1, created_at=1,
              started_at=1, finished_at=1, duration=1, exit_code=0, signal=1)
    view = views.run_view(run)
    numbers = {name for name, value in view.items() if isinstance(value, int | bytes | list)}
    assert numbers <= set(FIELD_TYPES)
    assert {field_of(entry.name) for entry in RUN.properties} <= set(view)


def test_odd_property_values_fall_back():
    values = cron_properties({"id": "x", "owner": "root", "note": 7, "schedule": "no list", "next": -5, "held": 2**40})
    assert (values["Owner"], values["Note"], values["Schedule"]) == (("u", 0), ("s", "7"), ("as", []))
    assert (values["Next"], values["Held"]) == (("t", 0), ("u", 2**32 - 1))


def test_busctl_reads_it(world):
    if shutil.which("busctl") is None:
        pytest.skip("busctl is not installed")
    cron_id = arm(world)
    where = ["busctl", f"--address={world.bus.address}"]
    commands = [
        [*where, "introspect", names.BUS_NAME, names.BUS_PATH],
        [*where, "tree", names.BUS_NAME],
        [*where, "call", names.BUS_NAME, names.BUS_PATH, names.MANAGER_INTERFACE, "ListCrons", "a{sv}us", "0", "5", ""],
        [*where, "get-property", names.BUS_NAME, cron_path(cron_id), names.CRON_INTERFACE, "Name"],
    ]
    with ThreadPoolExecutor(1) as pool:
        answers = []
        for command in commands:
            job = pool.submit(subprocess.run, command, capture_output=True, text=True, timeout=10)
            world.until(job.done)
            assert job.result().returncode == 0, job.result().stderr
            answers.append(job.result().stdout)
    assert ".ListCrons" in answers[0]
    assert cron_id in answers[1]
    assert '"name" s "tick"' in answers[2]
    assert answers[3] == 's "tick"\n'
