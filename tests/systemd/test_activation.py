"""Descriptors are passed to a real child process, as systemd does it: from 3 on, named in the environment."""

import json
import os
import socket
import subprocess
import sys

import pytest

from crtrd.errors import ManagerError
from crtrd.systemd.activation import take_listen_fds

CHILD = """
import json, os
from crtrd.systemd.activation import take_listen_fds
os.environ["LISTEN_PID"] = os.environ["LISTEN_PID"].replace("me", str(os.getpid()))
taken = take_listen_fds(os.environ)
print(json.dumps({
    "taken": taken,
    "kinds": {fd: os.readlink(f"/proc/self/fd/{fd}").split(":")[0] for fds in taken.values() for fd in fds},
    "inheritable": [fd for fds in taken.values() for fd in fds if os.get_inheritable(fd)],
    "left": [name for name in os.environ if name.startswith("LISTEN_")],
}))
"""


def pass_to_child(fds, names, pid="me"):
    """What the child took; it gets `fds` as 3, 4, ... ."""
    shift = [f"exec {3 + i}<&{fd}" for i, fd in enumerate(fds)]
    script = "\n".join([*shift, f'exec "{sys.executable}" -c "$CHILD"'])
    environ = {**os.environ, "CHILD": CHILD, "LISTEN_PID": pid, "LISTEN_FDS": str(len(fds)), "LISTEN_PIDFDID": "7"}
    if names is not None:
        environ["LISTEN_FDNAMES"] = names
    done = subprocess.run(["bash", "-c", script], env=environ, pass_fds=fds, capture_output=True, check=True,
                          timeout=30)
    return json.loads(done.stdout)


@pytest.fixture
def fds(tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "trigger.sock"))
    reader, writer = os.pipe()
    # out of the way of 3, 4 and 5
    moved = [os.dup2(fd, 50 + i) for i, fd in enumerate((listener.fileno(), reader, reader))]
    yield moved
    for fd in (*moved, reader, writer):
        os.close(fd)
    listener.close()


def test_sockets_and_stored_descriptors_come_with_their_names(fds):
    found = pass_to_child(fds, "crtrd.socket:run-out:run-out")
    assert found["taken"] == {"crtrd.socket": [3], "run-out": [4, 5]}
    assert found["kinds"] == {"3": "socket", "4": "pipe", "5": "pipe"}
    assert found["inheritable"] == []
    assert found["left"] == []


@pytest.mark.parametrize(("names", "taken"), [(None, {"unknown": [3, 4, 5]}), ("a::", {"a": [3], "unknown": [4, 5]})])
def test_unnamed_descriptors_are_unknown(fds, names, taken):
    assert pass_to_child(fds, names)["taken"] == taken


def test_descriptors_of_another_process_are_not_ours(fds):
    found = pass_to_child(fds, "a:b:c", pid="1")
    assert found["taken"] == {}
    assert found["left"] == []


def test_nothing_passed():
    assert take_listen_fds({}) == {}


@pytest.mark.parametrize("count", ["", "-1", "many", "99999999", "٣"])
def test_an_impossible_count_is_an_error(count):
    environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": count}
    with pytest.raises(ManagerError, match="is not a count"):
        take_listen_fds(environ)
    assert environ == {}


def test_a_descriptor_that_is_not_there_is_an_error():
    with pytest.raises(ManagerError, match="cannot take descriptor"):
        take_listen_fds({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "5000"})
