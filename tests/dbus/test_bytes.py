"""C36 and hostile input: nothing that leaves or arrives breaks the connection, for anybody."""

import struct
from array import array

import pytest
from jeepney import DBusAddress, HeaderFields, new_method_call

from crtrd import names
from crtrd.dbus.framing import BODY_MOST, BrokenStream, Damaged, Framing
from crtrd.dbus.values import clean, cron_path, fit, natural, pack, plain
from tests.dbus.bus import Called
from tests.dbus.standin import NOON

ODD = "\udcff a\0b \ud800 \uffff \u202e \n \x1b[31m ä 🎈"


def call_of(member, signature="", body=(), serial=1):
    address = DBusAddress(names.BUS_PATH, names.BUS_NAME, names.MANAGER_INTERFACE)
    return new_method_call(address, member, signature or None, body).serialise(serial=serial)


def test_clean_leaves_only_what_the_bus_carries():
    cleaned = clean(ODD)
    assert cleaned == "\ufffd a\ufffdb \ufffd \uffff \u202e \n \x1b[31m ä 🎈"
    assert cleaned.encode().decode() == cleaned


@pytest.mark.parametrize(
    ("value", "variant"),
    [
        (True, ("b", True)), (-3, ("x", -3)), (2**70, ("x", 2**63 - 1)), (1.5, ("d", 1.5)), (b"\xff", ("ay", b"\xff")),
        ("x", ("s", "x")), ({}, ("a{sv}", {})), ({"a": "b"}, ("a{ss}", {"a": "b"})),
        ({"a": 1}, ("a{sv}", {"a": ("x", 1)})), ([], ("as", [])), (["a"], ("as", ["a"])), ([1], ("ax", [1])),
        ([{"a": 1}], ("aa{sv}", [{"a": ("x", 1)}])), (["a", 1], ("av", [("s", "a"), ("x", 1)])),
        (object, ("s", "<class 'object'>")),
    ],
)
def test_what_has_no_field_travels_as_what_it_is(value, variant):
    assert natural(value) == variant


def test_fields_have_types_and_what_does_not_fit_falls_back():
    view = {"next": NOON, "exit_code": None, "survivors": "kill", "env": (("A", "b"),), "stdout_head": "no bytes",
            "success_exit_codes": (0, 3), "timeout": True, "pid": -1}
    assert pack(view) == {
        "next": ("t", NOON), "survivors": ("s", "kill"), "env": ("a{ss}", {"A": "b"}), "stdout_head": ("s", "no bytes"),
        "success_exit_codes": ("ai", [0, 3]), "timeout": ("b", True), "pid": ("u", 0),
    }
    with pytest.raises(TypeError):
        fit("as", [1])
    assert plain("a{sv}", pack(view)) == {
        "next": NOON, "survivors": "kill", "env": {"A": "b"}, "stdout_head": "no bytes", "success_exit_codes": [0, 3],
        "timeout": True, "pid": 0,
    }
    assert plain("v", ("a{sv}", {"x": ("v", ("av", [("s", "deep")]))})) == {"x": ["deep"]}


@pytest.mark.bus
def test_odd_bytes_leave_the_connection_alone(world):
    listener = world.peer()
    listener.subscribe()
    unique = world.peers[0].connection.bus_proxy.GetNameOwner(names.BUS_NAME)
    caller = world.peer()
    cron_id, _ = world.call("Arm", "a{sv}", {"name": ("s", "odd")}, peer=caller)
    world.control.crons[cron_id].update(name=ODD, note=ODD, schedule=[ODD], definition={ODD: ODD, "command": [ODD]})
    world.control.head = b"a\0b\xff\xfe" + bytes(range(256))
    _, (run,) = world.call("Run", "sa{sv}", cron_id, {}, peer=caller)
    world.control.runs[run.rpartition("/")[2]]["reason"] = ODD
    world.control.announce(ODD, ODD, CRTRD_CRON=ODD, CRTRD_CRON_ID=ODD, **{ODD: ODD})
    world.control.announce("cron.armed", ODD, CRTRD_CRON_ID=ODD, CRTRD_RUN_ID="")
    (view,) = world.call("GetRun", "s", run.rpartition("/")[2], peer=caller)
    assert view["stdout_head"] == ("ay", world.control.head)
    assert view["reason"] == ("s", clean(ODD))
    views, _ = world.call("ListCrons", "a{sv}us", {}, 0, "", peer=caller)
    assert views[0]["name"] == ("s", clean(ODD))
    world.standard("Properties", "GetAll", "s", names.CRON_INTERFACE, peer=caller, path=cron_path(cron_id))
    world.standard("ObjectManager", "GetManagedObjects", peer=caller)
    with pytest.raises(Called) as caught:
        world.call("GetCron", "s", "no\x1bsuch\uffff", peer=caller)
    assert caught.value.name.endswith("NoSuchCron")
    world.until(lambda: any(name == "Event" and body[0] == clean(ODD) for name, body, _ in listener.signals))
    assert world.service.connected
    assert not world.troubles
    assert caller.connection.bus_proxy.GetNameOwner(names.BUS_NAME) == unique


@pytest.mark.bus
def test_answers_that_cannot_be_sent_are_errors(world):
    world.control.verb_get_run = lambda run: {"id": "x" * (17 << 20)}
    with pytest.raises(Called, match="LimitsExceeded"):
        world.call("GetRun", "s", "x")
    world.control.verb_get_run = lambda run: "no view at all"
    with pytest.raises(Called, match="Failed: cannot answer: internal fault"):
        world.call("GetRun", "s", "x")
    assert "cannot translate the answer to GetRun" in world.troubles[0]
    world.control.verb_next = lambda name, count: ["no instant"]
    with pytest.raises(Called, match="Failed"):
        world.call("Next", "su", "x", 1)
    assert world.call("Reload") == ()
    assert world.service.pending() == 0


@pytest.mark.bus
def test_calls_that_are_too_large_or_too_many(world):
    with pytest.raises(Called, match="LimitsExceeded"):
        world.call("Arm", "a{sv}", {"stdin": ("s", "x" * (BODY_MOST + 10))})
    assert not world.control.calls
    world.control.hold = True
    peer = world.peer()
    serials = [peer.send("Poke", "s", ("x",)) for _ in range(1100)]
    world.until(lambda: len(world.control.held) + len(peer.replies) == 1100)
    assert len(world.control.held) == 1000
    world.control.release_held()
    world.until(lambda: set(serials) <= set(peer.replies))
    names_of = {m.header.fields.get(HeaderFields.error_name) for m in peer.replies.values()}
    assert "org.freedesktop.DBus.Error.LimitsExceeded" in names_of


@pytest.mark.bus
def test_deep_and_odd_arguments(world):
    deep = ("s", "x")
    for _ in range(25):
        deep = ("v", deep)
    for body in ({"x": deep}, {"": ("av", [])}, {"a\u202e": ("a{iv}", {1: ("s", "x")})}, {"x": ("(sv)", ("a", deep))}):
        with pytest.raises(Called) as caught:
            world.call("Arm", "a{sv}", body)
        assert caught.value.name.endswith("InvalidDefinition")
    assert not world.troubles


def collect(framing, data, step):
    found = []
    for start in range(0, len(data), step):
        found += framing.feed(data[start : start + step])
    return found


@pytest.mark.parametrize("step", [1, 7, 16, 100_000_000])
def test_framing_goes_on_after_a_bad_message(step):
    good = call_of("Poke", "s", ("x",))
    bad_text = bytearray(call_of("Poke", "s", ("xyzz",)))
    bad_text[-3] = 0xFF
    missing_fd = new_method_call(
        DBusAddress(names.BUS_PATH, names.BUS_NAME, names.MANAGER_INTERFACE), "Kill", "u", (300,)).serialise(serial=9)
    missing_fd = missing_fd.replace(b"\x01u\0", b"\x01h\0")
    unknown_type = bytearray(call_of("Poke"))
    unknown_type[1] = 77
    size = BODY_MOST + 1 if step > 1 else 1
    large = call_of("Arm", "ay", (b"x" * size,), serial=3)
    found = collect(Framing(), good + bytes(bad_text) + missing_fd + bytes(unknown_type) + large + good, step)
    damaged = [isinstance(message, Damaged) for message in found]
    assert damaged == [False, True, True, True, step > 1, False]
    assert found[1].header.fields[HeaderFields.member] == "Poke"
    assert found[3].header is None
    if step > 1:
        assert (found[4].too_large, found[4].header.serial) == (True, 3)


def test_framing_gives_up_on_what_is_no_bus():
    with pytest.raises(BrokenStream):
        list(Framing().feed(b"HTTP/1.1 400 Bad Request\r\n"))
    huge_header = bytearray(call_of("Poke"))
    struct.pack_into("<I", huge_header, 12, 1 << 25)
    with pytest.raises(BrokenStream):
        list(Framing().feed(bytes(huge_header)))


def test_descriptors_that_came_along_stand_as_none():
    address = DBusAddress(names.BUS_PATH, names.BUS_NAME, names.MANAGER_INTERFACE)
    call = new_method_call(address, "Poke", "a{sv}", ({"ProcessFD": ("h", 0), "UnixUserID": ("u", 5)},))
    (message,) = Framing().feed(call.serialise(serial=1, fds=array("i")))
    assert plain("a{sv}", message.body[0]) == {"ProcessFD": None, "UnixUserID": 5}
