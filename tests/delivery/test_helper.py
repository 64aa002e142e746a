"""The helper processes: kept and shared by nobody, as another user, late, stopped, dying, closed; an inbox followed."""

import os
import pwd
import signal
import subprocess
import sys
import time

import pytest

from crtrd.core.delivery import Outcome
from crtrd.delivery import helper
from crtrd.delivery.helper import Helpers
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from tests.delivery.conftest import job
from tests.instance import Instance
from tests.proc import of_process

pytestmark = pytest.mark.process
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def reactor():
    made = Reactor(Clock())
    yield made
    made.close()


def turn_until(reactor, reached):
    deadline = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < deadline
        reactor.turn(50_000)


@pytest.fixture
def helpers(reactor):
    before = set(os.listdir("/proc/self/fd"))
    made = Helpers(reactor, os.environ)
    yield made
    pids = pids_of(made)
    made.close()
    assert set(os.listdir("/proc/self/fd")) == before
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def pids_of(helpers):
    return [each.pid for each in (*helpers._idle, *helpers._working)]


def attempt(reactor, what, helpers=None, environ=os.environ):
    found = []
    own = helpers or Helpers(reactor, environ)
    own.attempt(what, found.append)
    turn_until(reactor, lambda: found)
    if helpers is None:
        own.close()
    return found[0]


def test_one_helper_makes_the_attempts_of_one_owner_one_after_the_other(reactor, helpers, tmp_path):
    for name in "abc":
        assert attempt(reactor, job("exec", f"echo $PPID > {tmp_path}/{name}"), helpers).outcome is Outcome.TAKEN
    assert len(pids_of(helpers)) == 1
    assert len({(tmp_path / name).read_text() for name in "abc"}) == 3  # each in a process of its own
    assert attempt(reactor, job("file", f"{tmp_path}/log"), helpers).outcome is Outcome.TAKEN
    assert len(pids_of(helpers)) == 1


def test_attempts_at_the_same_time_have_helpers_of_their_own_and_few_are_kept(reactor, helpers, monkeypatch):
    monkeypatch.setattr(helper, "KEPT_MOST", 2)
    found = []
    for _ in range(4):
        helpers.attempt(job("exec", "sleep 0.5"), found.append)
    assert len(set(pids_of(helpers))) == 4
    turn_until(reactor, lambda: len(found) == 4)
    assert len(pids_of(helpers)) == 2


def test_an_idle_helper_ends_by_itself(reactor, helpers, monkeypatch):
    monkeypatch.setattr(helper, "KEPT", 200_000)
    attempt(reactor, job("exec", "true"), helpers)
    (pid,) = pids_of(helpers)
    turn_until(reactor, lambda: not pids_of(helpers))
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


@ROOT
def test_no_helper_serves_two_owners(reactor, helpers, tmp_path):
    nobody = pwd.getpwnam("nobody").pw_uid
    for uid in (nobody, None, nobody, None):
        assert attempt(reactor, job("exec", "true", uid=uid), helpers).outcome is Outcome.TAKEN
    assert len(pids_of(helpers)) == 2
    assert {each.uid for each in helpers._idle} == {nobody, None}


def test_a_helper_that_was_killed_while_idle_is_replaced(reactor, helpers):
    attempt(reactor, job("exec", "true"), helpers)
    (pid,) = pids_of(helpers)
    os.kill(pid, signal.SIGKILL)
    assert attempt(reactor, job("exec", "true"), helpers).outcome in {Outcome.TAKEN, Outcome.FAILED}
    assert attempt(reactor, job("exec", "true"), helpers).outcome is Outcome.TAKEN
    assert pid not in pids_of(helpers)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_helper_that_goes_while_at_work_takes_its_command_with_it(reactor, helpers, monkeypatch, tmp_path, how):
    monkeypatch.setattr(helper, "GRACE", 0.5)
    found = []
    what = job("exec", f"sleep 60 & echo $! > {tmp_path}/pid; wait", timeout=3.0)
    helpers.attempt(what, found.append)
    turn_until(reactor, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    (pid,) = pids_of(helpers)
    os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
    turn_until(reactor, lambda: found)
    assert found[0].outcome is Outcome.FAILED
    assert found[0].error == ("the helper ended with status -9" if how == "killed" else "no answer within 3 s")
    if how == "stopped":
        assert ended(int((tmp_path / "pid").read_text()))
    else:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


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


LEAVES = ("sleep 60", "setsid sleep 60", "setsid sh -c 'sleep 60; true'")
"""In the group of the attempt, out of it, and with a child of its own."""


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_is_late_is_killed_with_all_its_children(reactor, tmp_path, leaves):
    said = attempt(reactor, job("exec", f"{leaves} & echo $! > {tmp_path}/pid; exec sleep 60", timeout=1.0 + 2.0))
    assert (said.outcome, "did not end" in said.error) == ("failed", True)
    assert ended(int((tmp_path / "pid").read_text()))


def ended(pid):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if of_process(pid, "stat").rpartition(b") ")[2][:1] in {b"", b"Z", b"X"}:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("leaves", LEAVES)
def test_what_an_attempt_leaves_behind_is_killed(reactor, helpers, tmp_path, leaves):
    what = job("exec", f"{leaves} & echo $! > {tmp_path}/pid; sleep 0.5")  # it has time to leave the group
    assert attempt(reactor, what, helpers).outcome is Outcome.TAKEN
    assert ended(int((tmp_path / "pid").read_text()))
    assert attempt(reactor, job("exec", "true"), helpers).outcome is Outcome.TAKEN
    assert len(pids_of(helpers)) == 1


def test_an_attempt_that_hangs_or_breaks_is_ended_and_its_helper_goes_on(reactor, helpers, tmp_path):
    hangs = job("exec", f"sleep 60 & echo $! > {tmp_path}/pid; kill -STOP $PPID; wait", timeout=3.0)
    said = attempt(reactor, hangs, helpers)
    assert (said.outcome, said.error) == ("failed", "no answer within 3 s")
    assert ended(int((tmp_path / "pid").read_text()))
    said = attempt(reactor, job("webhook", "http://["), helpers)
    assert (said.outcome, said.error) == ("failed", "the attempt ended with status 1")
    assert attempt(reactor, job("exec", "true"), helpers).outcome is Outcome.TAKEN
    assert len(pids_of(helpers)) == 1


def test_a_helper_that_says_nothing_has_failed(reactor, helpers):
    said = attempt(reactor, job("nonsense"), helpers)
    assert (said.outcome, said.error) == ("failed", "the helper ended with status 1")
    assert pids_of(helpers) == []


def test_nothing_of_our_environment_reaches_it(reactor, tmp_path):
    environ = {**os.environ, "NOTIFY_SOCKET": "/x", "LISTEN_FDS": "3", "CREDENTIALS_DIRECTORY": "/c", "TOKEN": "t"}
    attempt(reactor, job("exec", f"cat /proc/$PPID/environ > {tmp_path}/env; ls /proc/self/fd > {tmp_path}/fds"),
            environ=environ)
    names = {each.partition("=")[0] for each in (tmp_path / "env").read_text().split("\0") if each}
    assert names <= {"PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "LANG", "LC_CTYPE"}
    assert (tmp_path / "fds").read_text().split() == ["0", "1", "2", "3"]  # the last is the listing's own


@pytest.mark.parametrize("leaves", LEAVES)
def test_closing_ends_what_is_under_way_with_all_its_children(reactor, helpers, tmp_path, leaves):
    helpers.attempt(job("exec", f"{leaves} & echo $! > {tmp_path}/pid; wait", timeout=30.0), lambda _: None)
    turn_until(reactor, lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    helpers.close()
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
        assert crtrd.ctl("inbox", "--all").stdout.count("job failed") == 2
