"""Events of the daemon as they arrive at a subscriber."""

import pytest

from crtrd import names
from crtrd.dbus.signals import RULES
from crtrd.dbus.values import cron_path, plain, run_path
from tests.dbus.standin import NOON

pytestmark = pytest.mark.bus


def heard(peer, member):
    return [body for name, body, _ in peer.signals if name == member]


@pytest.fixture
def listener(world):
    peer = world.peer()
    peer.subscribe()
    return peer


def test_a_cron_and_its_run(world, listener):
    caller = world.peer()
    cron_id, _ = world.call("Arm", "a{sv}", {"name": ("s", "tick")}, peer=caller)
    occurrence, (run,) = world.call("Run", "sa{sv}", "tick", {}, peer=caller)
    world.call("Cancel", "sa{sv}", "tick", {}, peer=caller)
    run_id = run.rpartition("/")[2]
    world.until(lambda: len(heard(listener, "CronChanged")) == 2)
    assert heard(listener, "CronChanged") == [
        (cron_id, cron_path(cron_id), "armed"), (cron_id, cron_path(cron_id), "canceled")]
    assert heard(listener, "RunStarted") == [(cron_id, run_id, run_path(run_id))]
    assert heard(listener, "RunSettled") == [(cron_id, run_id, "success")]
    assert heard(listener, "OccurrenceSettled") == [(cron_id, occurrence, "success", "")]
    assert [body[0] for body in heard(listener, "InterfacesAdded")] == [cron_path(cron_id), run]
    assert heard(listener, "InterfacesRemoved") == [(cron_path(cron_id), [names.CRON_INTERFACE])]
    kind, message, fields = heard(listener, "Event")[2]
    assert (kind, message) == ("cron.run.settled", "tick ended")
    assert plain("a{sv}", fields)["CRTRD_RUN_ID"] == run_id


def test_changes_of_one_turn_are_one_signal(world, listener):
    for _ in range(5):
        world.control.announce("cron.paused", CRTRD_CRON_ID="a" * 32)
    world.until(lambda: len(heard(listener, "PropertiesChanged")) == 2)
    changed = [(path, body[0]) for name, body, path in listener.signals if name == "PropertiesChanged"]
    assert changed == [(names.BUS_PATH, names.MANAGER_INTERFACE), (cron_path("a" * 32), names.CRON_INTERFACE)]
    invalidated = heard(listener, "PropertiesChanged")[1][2]
    assert "State" in invalidated
    assert "Id" not in invalidated
    world.turn()
    assert len(heard(listener, "PropertiesChanged")) == 2


def test_every_rule_can_be_sent_with_and_without_fields(world, listener):
    for kind in RULES:
        world.control.announce(kind)
        world.control.announce(kind, CRTRD_CRON_ID="c" * 32, CRTRD_RUN_ID="r" * 32, CRTRD_OCCURRENCE_ID="o" * 32,
                               CRTRD_RESULT="held", CRTRD_REASON="", CRTRD_STATUS="missed", CRTRD_DURATION_USEC=NOON)
    world.until(lambda: len(heard(listener, "Event")) == 2 * len(RULES))
    assert {body[2] for body in heard(listener, "RunSettled")} == {"", "held", "unobserved", "abandoned"}
    assert (("c" * 32, "o" * 32, "missed", "")) in heard(listener, "OccurrenceSettled")


def test_events_from_before_the_name_are_told_after_it(bus, world):
    service = world.new_service()  # a second one, which has never owned the name
    world.control.announce("daemon.boot_migration.applied", CRTRD_MIGRATION="state-modes", CRTRD_FIXED=2)
    listener = world.peer()
    listener.subscribe()
    world.service.release(service.start)
    world.until(lambda: heard(listener, "BootMigrationApplied"))
    ((step, details),) = heard(listener, "BootMigrationApplied")
    assert (step, details["CRTRD_FIXED"]) == ("state-modes", ("x", 2))
    service.close()
