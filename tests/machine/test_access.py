"""Who may what, on a real bus with a real polkit: every method and property as a user (C59), owners, the socket."""

import json

import pytest

from crtrd import names
from crtrd.dbus.manager import METHODS, PROPERTIES

pytestmark = pytest.mark.machine
ARGUMENTS = {  # one of each type, about a cron that root armed
    "s": "secret", "a{sv}": "0", "u": "1", "t": "0", "b": "true", "i": "15", "at": "0",
}
OPEN = {"Calendar", "ListCrons", "ListOccurrences", "ListRuns", "ListOutbox", "ListEscalations"}
"""What a stranger gets an answer to: a calculation, and lists of nothing."""
RULE = """polkit.addRule(function(action, subject) {
    if (action.id == "org.crtrd.Crtrd1.run" && subject.user == "alice") return polkit.Result.YES;
});
"""
TRIGGER = ("curl -s -o /dev/null -w '%{http_code}' --unix-socket /run/crtrd/trigger.sock"
           " -X POST http://x/v1/crons/NAME/trigger")


def busctl(machine, user, verb, *words):
    command = ["busctl", "--system", "--json=short", "--allow-interactive-authorization=no", verb, names.BUS_NAME]
    return machine.run_as(user, [*command, *words], check=False)


def call(machine, user, method, *arguments):
    words = (names.BUS_PATH, names.MANAGER_INTERFACE, method.member.name)
    return busctl(machine, user, "call", *words, *filter(None, [method.member.signature]), *arguments)


@pytest.fixture
def guarded(machine):
    """A machine where root has armed `secret`, and it has run."""
    machine.run("systemctl start crtrd.socket")
    machine.run(["crtrctl", "arm", "secret", "--shell", "echo treasure"])
    machine.run("crtrctl run secret --wait")
    return machine


def test_every_method_as_alice(guarded):
    before = guarded.run("crtrctl show secret").stdout
    for method in METHODS:
        name = method.member.name
        arguments = [ARGUMENTS.get(argument.signature, "0") for argument in method.member.takes]
        if name.startswith("List"):
            arguments = ["0", "0", ""]
        if name == "Calendar":
            arguments = ["1", "schedule", "as", "1", "@daily", "0", "1"]
        done = call(guarded, "alice", method, *arguments)
        if name in OPEN:
            assert done.returncode == 0, (name, done)
        elif name == "Arm":
            assert "InvalidDefinition" in done.stderr or "name" in done.stderr, done
        else:
            assert done.returncode != 0, (name, done)
            assert "may not" in done.stderr, (name, done)
        assert "treasure" not in done.stdout + done.stderr
        assert "secret" not in done.stdout
    assert guarded.run("crtrctl show secret").stdout == before


def test_every_property_as_alice(guarded):
    for entry in PROPERTIES:
        done = busctl(guarded, "alice", "get-property", names.BUS_PATH, names.MANAGER_INTERFACE, entry.name)
        assert "may not" in done.stderr, (entry, done)
    run = json.loads(guarded.run("crtrctl runs secret --json=short").stdout)[0]
    for path, interface in ((f"cron/{run['cron_id']}", names.CRON_INTERFACE),
                            (f"run/{run['id']}", names.RUN_INTERFACE)):
        words = (f"{names.BUS_PATH}/{path}", "org.freedesktop.DBus.Properties", "GetAll", "s", interface)
        done = busctl(guarded, "alice", "call", *words)
        assert "may not" in done.stderr, (path, done)
    words = (names.BUS_PATH, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    managed = busctl(guarded, "alice", "call", *words)
    assert (managed.returncode, run["cron_id"] in managed.stdout) == (0, False)
    assert run["cron_id"] not in busctl(guarded, "alice", "tree").stdout


def test_alice_has_crons_of_her_own(guarded):
    alice = lambda words, **more: guarded.run_as("alice", f"crtrctl --system {words}", **more)  # noqa: E731
    alice("arm mine --shell 'id -un; id -u'")
    assert alice("run mine --wait").stdout == "alice\n1000\n"
    assert "mine" in alice("list").stdout
    assert "secret" not in alice("list").stdout
    assert alice("runs --json=short").stdout.count("cron_name") == 1
    assert alice("change mine --user root", check=False).returncode == 5
    assert alice("arm more --user root -- id", check=False).returncode == 5
    assert guarded.run_as("bob", "crtrctl --system show mine", check=False).returncode == 5
    assert alice("cancel mine").returncode == 0
    (run,) = json.loads(alice("runs mine --json=short").stdout)  # what is remembered of it stays hers
    assert alice(f"run-info {run['id']}").stdout
    assert guarded.run_as("bob", f"crtrctl --system run-info {run['id']}", check=False).returncode == 5


def test_polkit_is_asked_and_without_it_only_root_may(guarded):
    run = ["crtrctl", "--system", "run", "secret"]
    assert guarded.run_as("alice", run, check=False).returncode == 5
    guarded.write("/etc/polkit-1/rules.d/10-crtrd.rules", RULE)
    guarded.run("systemctl restart polkit.service")
    assert guarded.run_as("alice", run).returncode == 0
    assert guarded.run_as("alice", ["crtrctl", "--system", "pause", "secret"], check=False).returncode == 5
    assert guarded.run_as("bob", run, check=False).returncode == 5
    guarded.run("systemctl mask --runtime --now polkit.service")
    assert guarded.run_as("alice", run, check=False).returncode == 5
    assert guarded.run(["crtrctl", "run", "secret"]).returncode == 0
    denied = [entry for entry in guarded.journal("-u", "crtrd.service") if entry.get("CRTRD_EVENT") == "auth.denied"]
    assert {entry["CRTRD_CALLER_UID"] for entry in denied} == {"1000", "1001"}


def test_nobody_else_takes_the_name(guarded):
    guarded.run("systemctl stop crtrd.service")
    words = ["busctl", "--system", "call", "org.freedesktop.DBus", "/", "org.freedesktop.DBus", "RequestName", "su",
             names.BUS_NAME, "4"]
    assert guarded.run_as("alice", words, check=False).returncode != 0


def test_the_socket_goes_by_the_peers_credentials(guarded):
    assert guarded.run_as("alice", TRIGGER.replace("NAME", "secret"), check=False).stdout == "000"  # may not connect
    guarded.run("usermod -a -G crtrd alice")
    guarded.run_as("alice", ["crtrctl", "--system", "arm", "mine", "--", "true"])
    assert guarded.run_as("alice", TRIGGER.replace("NAME", "secret")).stdout == "403"
    assert guarded.run_as("alice", TRIGGER.replace("NAME", "mine")).stdout not in {"000", "403"}
    assert guarded.run(TRIGGER.replace("NAME", "secret")).stdout not in {"000", "403"}


def test_callers_that_vanish_change_nothing(guarded):
    """A thousand calls whose callers are gone before anybody could say who they were."""
    guarded.write("/tmp/vanish.py", VANISH)
    guarded.run_as("alice", ["python3", "/tmp/vanish.py"])
    listed = json.loads(guarded.run("crtrctl list --json=short").stdout)
    assert [(cron["name"], cron["state"]) for cron in listed] == [("secret", "active")]
    assert guarded.unit("crtrd.service")["NRestarts"] == "0"


VANISH = """
from jeepney import DBusAddress, new_method_call
from jeepney.io.blocking import open_dbus_connection
manager = DBusAddress("/org/crtrd/Crtrd1", "org.crtrd.Crtrd1", "org.crtrd.Crtrd1.Manager")
for number in range(1000):
    connection = open_dbus_connection("SYSTEM")
    connection.send(new_method_call(manager, "Pause", "ss", ("secret", "x")))
    connection.close()
"""
