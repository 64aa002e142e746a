"""Every method of the Manager through a real bus and a real client; refusals by their names."""

import pytest

from crtrd import names
from crtrd.dbus.answer import ERRORS
from crtrd.dbus.manager import METHODS
from crtrd.dbus.values import plain
from crtrd.errors import Code, RequestError
from tests.dbus.bus import Called
from tests.dbus.standin import NOON

pytestmark = pytest.mark.bus


def arm(world, name="tick", **keys):
    definition = {"name": ("s", name), "command": ("as", ["true"]), "schedule": ("as", ["every 1m"]), **keys}
    return world.call("Arm", "a{sv}", definition)


def test_arm_and_list(world):
    cron_id, path = arm(world, env=("a{ss}", {"A": "b"}))
    assert path == f"{names.BUS_PATH}/cron/{cron_id}"
    views, onward = world.call("ListCrons", "a{sv}us", {}, 0, "")
    view = plain("a{sv}", views[0])
    assert onward == ""
    assert (view["name"], view["next"], view["schedule"]) == ("tick", NOON, ["every 1m"])
    assert views[0]["next"][0] == "t"
    assert "last_run" not in view
    assert world.control.calls[0][1] == (
        {"name": "tick", "command": ["true"], "schedule": ["every 1m"], "env": {"A": "b"}},
    )
    assert world.control.touches == 2


def test_every_method_answers(world):
    cron_id, _ = arm(world)
    occurrence, runs = world.call("Run", "sa{sv}", "tick", {"target": ("s", "")})
    run_id = runs[0].rpartition("/")[2]
    assert len(occurrence) == 32
    calls = {
        "Change": ("sa{sv}", "tick", {"timeout": ("s", "5s")}), "Pause": ("ss", "tick", "why"),
        "Resume": ("s", "tick"), "Skip": ("st", "tick", 0), "Unskip": ("st", "tick", 0), "Poke": ("s", "tick"),
        "Kill": ("si", run_id, 15),
        "Rerun": ("s", occurrence), "Backfill": ("stta{sv}", "tick", 1, NOON, {}), "Next": ("su", "tick", 3),
        "Calendar": ("a{sv}tu", {"schedule": ("as", ["@daily"])}, NOON, 2),
        "Explain": ("st", "tick", NOON), "GetCron": ("s", "tick"), "GetRun": ("s", run_id),
        "GetOccurrence": ("s", occurrence),
        "ListCrons": ("a{sv}us", {}, 10, ""), "ListOccurrences": ("a{sv}us", {"cron": ("s", "tick")}, 10, ""),
        "ListRuns": ("a{sv}us", {"cron": ("s", "tick")}, 10, ""), "Trigger": ("sa{sv}", "tick", {}),
        "ListOutbox": ("a{sv}us", {}, 10, ""), "ListEscalations": ("a{sv}us", {}, 10, ""),
        "ReadInbox": ("ssu", "root", "", 10), "AckInbox": ("ss", "root", ""), "RetryDelivery": ("s", "d" * 32),
        "DiscardDelivery": ("s", "d" * 32), "DeliverEscalation": ("s", "e" * 32),
        "Drain": ("b", True), "Reload": ("",), "Reexecute": ("",), "Cancel": ("sa{sv}", cron_id, {}),
    }
    answers = {member: world.call(member, *arguments) for member, arguments in calls.items()}
    assert {"Arm", "Run", "OpenOutput", *calls} == {method.member.name for method in METHODS}
    assert answers["Poke"] == (1,)
    assert answers["Backfill"] == (3,)
    assert answers["Next"] == ([NOON, NOON + 60_000_000, NOON + 120_000_000],)
    assert answers["Trigger"][0] == "accepted"
    assert len(answers["Rerun"][0]) == 32
    assert answers["GetCron"] == (f"{names.BUS_PATH}/cron/{cron_id}",)
    assert plain("a{sv}", answers["GetRun"][0])["stdout_head"] == b"hello\n"
    assert plain("aa{sv}", answers["ListOccurrences"][0])[0]["cells"][0]["attempts"] == 1
    assert answers["ListOutbox"][0][0]["next_attempt_at"] == ("t", NOON)
    assert answers["ReadInbox"][1] == "a" * 32
    assert not world.control.crons


@pytest.mark.parametrize("code", Code)
def test_each_refusal_has_its_name(world, code):
    def refuse(name):
        raise RequestError(code, "cannot poke x: because")

    world.control.verb_poke = refuse
    with pytest.raises(Called) as caught:
        world.call("Poke", "s", "x")
    assert (caught.value.name, caught.value.text) == (ERRORS[code], "cannot poke x: because")


@pytest.mark.parametrize(
    ("member", "where", "error"),
    [
        ("Nonsense", {}, "UnknownMethod"),
        ("Ping", {"interface": "org.example.Other"}, "UnknownInterface"),
        ("Arm", {"path": "/org/crtrd/Crtrd1/cron/a/b"}, "UnknownObject"),
        ("Arm", {"path": "/elsewhere"}, "UnknownObject"),
        ("Arm", {"path": "/org"}, "UnknownInterface"),
        ("Arm", {}, "InvalidArgs"),
    ],
)
def test_what_does_not_exist(world, member, where, error):
    with pytest.raises(Called) as caught:
        world.call(member, **where)
    assert caught.value.name == f"org.freedesktop.DBus.Error.{error}"


def test_interface_may_be_left_out(world):
    assert world.call("Reload", interface=None) == ()


def test_no_reply_where_none_is_wanted(world):
    peer = world.peer()
    peer.send("Poke", "s", ("nobody",), flags=1)
    serial = peer.send("Reload")
    world.until(lambda: serial in peer.replies)
    assert list(peer.replies) == [serial]
    assert world.service.pending() == 0


def test_strangers_are_refused_before_anything(world):
    """As somebody else: every method, every property, every object; nothing is learnt and nothing happens."""
    arm(world)
    world.control.allowed.clear()
    world.control.calls.clear()
    for method in METHODS:
        empty = {"s": "x", "u": 0, "t": 0, "i": 0, "b": False, "a{sv}": {}}
        body = [empty[argument.signature] for argument in method.member.takes]
        with pytest.raises(Called) as caught:
            world.call(method.member.name, method.member.signature, *body)
        assert caught.value.name == "org.freedesktop.DBus.Error.AccessDenied"
    with pytest.raises(Called, match="AccessDenied"):
        world.call("Arm", "s", "wrong arguments")
    manager, cron = names.MANAGER_INTERFACE, f"{names.BUS_PATH}/cron/{'0' * 32}"
    for member, signature, body in (
        ("Get", "ss", (manager, "Version")), ("GetAll", "s", (manager,)), ("Set", "ssv", (manager, "State", ("s", "x")))
    ):
        with pytest.raises(Called, match="AccessDenied"):
            world.standard("Properties", member, signature, *body)
    with pytest.raises(Called, match="AccessDenied"):
        world.standard("Properties", "GetAll", "s", names.CRON_INTERFACE, path=cron)
    with pytest.raises(Called, match="AccessDenied"):
        world.standard("ObjectManager", "GetManagedObjects")
    assert next(iter(world.control.crons.values()))["state"] == "active"


def test_a_caller_that_left_is_nobody(world):
    """Send and disconnect at once: the bus is asked who it was when nobody is there any more."""
    for _ in range(50):
        peer = world.peer()
        peer.send("Pause", "ss", ("x", ""))
        world.peers.remove(peer)
        peer.close()
    world.call("Reload", peer=world.peer())
    callers = [caller for verb, _, caller in world.control.calls if verb == "pause"]
    assert len(callers) == 50
    assert {caller.uid for caller in callers} == {None}
    assert world.service.pending() == 0
    world.until(lambda: len(world.service._callers._known) == 1)


def test_caller_is_identified_once(world):
    peer = world.peer()
    for _ in range(3):
        world.call("Reload", peer=peer)
    assert {(caller.uid is not None, caller.via) for _, _, caller in world.control.calls} == {(True, "bus")}
    assert len(world.service._callers._known) == 1
    world.peers.remove(peer)
    peer.close()
    world.until(lambda: not world.service._callers._known)


def test_late_answers(world):
    world.control.hold = True
    peer = world.peer()
    serials = [peer.send("Poke", "s", ("x",)) for _ in range(5)]
    world.until(lambda: len(world.control.held) == 5)
    assert world.service.pending() == 5
    world.control.release_held()
    world.until(lambda: set(serials) <= set(peer.replies))
    assert world.service.pending() == 0


def test_pages_stay_below_a_mebibyte(world):
    world.control.head = b"\xff" * 4096
    arm(world)
    for _ in range(700):
        world.control.verb_run("tick", {"target": ""})
    seen, cursor, pages = [], "", 0
    while True:
        views, cursor = world.call("ListRuns", "a{sv}us", {}, 1000, cursor)
        assert sum(len(view["stdout_head"][1]) for view in views) < 1 << 20
        seen += [view["id"][1] for view in views]
        pages += 1
        if not cursor:
            break
    assert pages > 3
    assert seen == list(world.control.runs)
