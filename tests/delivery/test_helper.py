"""The helper process: as another user, late, dying, and closed; and following an inbox."""

import os
import pwd
import signal
import subprocess
import sys
import time

import pytest

from crtrd.core.delivery import Outcome
from crtrd.delivery.helper import Helper
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from tests.delivery.conftest import job
from tests.instance import Instance

pytestmark = pytest.mark.process
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def reactor():
    made = Reactor(Clock())
    yield made
    made.close()


def attempt(reactor, what, environ=os.environ):
    found = []
    before = set(os.listdir("/proc/self/fd"))
    helper = Helper(reactor, what, environ, found.append)
    deadline = time.monotonic() + 20
    while not found:
        assert time.monotonic() < deadline
        reactor.turn(50_000)
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(helper._pid, os.WNOHANG)
    return found[0]


@ROOT
def test_commands_and_files_are_reached_as_the_owner(reactor, tmp_path):
    nobody = pwd.getpwnam("nobody")
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    for each in (tmp_path, *tmp_path.parents):
        if each.stat().st_uid == 0 and each != each.parent and str(each).startswith("/tmp/"):
            each.chmod(0o755)
    said = attempt(reactor, job("exec", f"id -u > {folder}/id; id -G >> {folder}/id", uid=nobody.pw_uid))
    assert said.outcome is Outcome.TAKEN
    assert (folder / "id").read_text() == f"{nobody.pw_uid}\n{nobody.pw_gid}\n"
    assert attempt(reactor, job("file", f"{folder}/log", uid=nobody.pw_uid)).outcome is Outcome.TAKEN
    assert (folder / "log").stat().st_uid == nobody.pw_uid
    assert attempt(reactor, job("file", f"{tmp_path}/ours", uid=nobody.pw_uid)).outcome is Outcome.FAILED
    assert not (tmp_path / "ours").exists()
    assert attempt(reactor, job("exec", "true", uid=987_654)).outcome is Outcome.REFUSED


def test_what_is_late_is_killed_with_all_its_children(reactor, tmp_path):
    said = attempt(reactor, job("exec", f"sleep 60 & echo $! > {tmp_path}/pid; exec sleep 60", timeout=1.0 + 2.0))
    assert (said.outcome, "did not end" in said.error) == ("failed", True)
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_a_helper_that_says_nothing_has_failed(reactor):
    said = attempt(reactor, job("nonsense"))
    assert (said.outcome, said.error) == ("failed", "the helper ended with status 1")


def test_nothing_of_our_environment_reaches_it(reactor, tmp_path):
    environ = {**os.environ, "NOTIFY_SOCKET": "/x", "LISTEN_FDS": "3", "CREDENTIALS_DIRECTORY": "/c", "TOKEN": "t"}
    attempt(reactor, job("exec", f"cat /proc/$PPID/environ > {tmp_path}/env"), environ)
    names = {each.partition("=")[0] for each in (tmp_path / "env").read_text().split("\0") if each}
    assert names <= {"PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "LC_CTYPE"}


def test_closing_ends_what_is_under_way(reactor, tmp_path):
    what = job("exec", f"echo $$ > {tmp_path}/pid; sleep 60", timeout=30.0)
    helper = Helper(reactor, what, os.environ, lambda _: None)
    deadline = time.monotonic() + 10
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    helper.close()
    assert ended(int((tmp_path / "pid").read_text()))


def test_an_inbox_is_followed_and_acknowledged(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "job", "--on-failure", "continue", "--", "false")
        follow = subprocess.Popen(
            [sys.executable, "-u", "-m", "crtrd.cli.main", "inbox", "--follow", "--ack"], env=crtrd.env, cwd="/",
            stdout=subprocess.PIPE, text=True)
        try:
            for _ in range(2):
                crtrd.ctl("run", "job", "--wait", check=False)
                lines = []
                while "run " not in "".join(lines):
                    lines.append(follow.stdout.readline())
                assert "job failed: exit status 1" in lines[0]
                while "\n" in lines[-1] and lines[-1] != "\n":
                    lines.append(follow.stdout.readline())
            crtrd.wait_for(lambda: "Nothing new." in crtrd.ctl("inbox").stdout)
        finally:
            follow.send_signal(signal.SIGINT)
            follow.wait(10)
            follow.stdout.close()
        assert crtrd.ctl("inbox", "--all").stdout.count("job failed") == 4
