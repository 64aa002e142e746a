"""What a command finds itself in: environment, descriptors, signals, user, folder, limits (C30, C32, C42, C45)."""

import contextlib
import os
import pwd
import resource
import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
NOBODY = pwd.getpwnam("nobody")


def test_environment_is_exactly_the_given_one(room):
    env = (("PATH", "/usr/bin:/bin"), ("LINES", "a\nb\n"), ("EMPTY", ""), ("ODD", "\udcff\udc80x"), ("É", "日本"),
           ("BASH_FUNC_x%%", "() { :; }"))
    ending = room.run("cat", "/proc/self/environ", env=env)
    told = ending.stdout.head.split(b"\0")
    assert sorted(told[:-1]) == sorted(os.fsencode(f"{name}={value}") for name, value in env)
    assert told[-1] == b""


@pytest.mark.parametrize("name", ["", "A=B", "A\0"])
def test_names_that_are_none_are_refused(room, name):
    failed = room.fail("true", env=((name, "x"),))
    assert (failed.stage, failed.shortage) == ("environment", False)


def test_a_value_or_argument_with_nul_is_refused(room):
    assert room.fail("true", env=(("A", "b\0c"),)).stage == "environment"
    assert room.fail("echo", "a\0b").stage == "command"


def test_large_environment_travels_and_too_large_is_told(room):
    env = (("PATH", "/usr/bin:/bin"), *((f"V{number}", "x" * 16_000) for number in range(8)))
    ending = room.run("sh", "-c", "env | wc -c", env=env)
    assert int(ending.stdout.head) > 128_000
    failed = room.fail("true", env=(("PATH", "/usr/bin:/bin"), ("V", "x" * 200 * 1024)))
    assert (failed.stage, failed.errno) == ("command", 7)
    assert "too long" in failed.message


def test_arguments_arrive_byte_for_byte(room):
    words = ("naïve-日本", "\udcff\udc88", "", "a b\n", "%H", "$HOME")
    ending = room.run("printf", r"%s\0", *words)
    assert ending.stdout.head == b"".join(os.fsencode(word) + b"\0" for word in words)


def test_only_descriptors_0_1_2(room):
    stray = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(stray, True)  # noqa: FBT003
    other = room.plan("sleep", "600")
    room.go(other)
    try:
        ending = room.run("sh", "-c", "ls -l /proc/self/fd | grep -c '[0-9] -> '; readlink /proc/self/fd/0")
    finally:
        os.close(stray)
        room.supervisor.stop(other.run_id, 0)
        room.end(other.run_id)
    assert ending.stdout.head == b"4\n/dev/null\n"  # 3 is the folder that ls reads


def test_signals_are_at_their_defaults(room):
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGRTMIN):
            stack.callback(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, signal.pthread_sigmask(signal.SIG_BLOCK, {10, 15}))
        ending = room.run("grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status")
    zero = "0" * 16
    assert ending.stdout.head.decode().split() == ["SigBlk:", zero, "SigIgn:", zero]


def test_sigpipe_ends_a_producer(room):
    ending = room.run("sh", "-c", "yes | head -1 >/dev/null; grep -E '^Sig(Ign|Blk)' /proc/self/status")
    assert ending.stdout.head.count(b"0000000000000000") == 2


def test_an_ignored_sigchld_of_the_daemon_loses_no_exit_code(tmp_path):
    """C27 (d): started from a wrapper that ignores SIGCHLD."""
    program = (
        "from tests.supervision.conftest import Room\n"
        "room = Room(); ending = room.run('sh', '-c', 'exit 3'); room.close(); print(ending.exit_code)"
    )
    command = [sys.executable, "-c", program]
    wrapper = f"import os, signal; signal.signal(17, signal.SIG_IGN); os.execv({sys.executable!r}, {command!r})"
    told = subprocess.run([sys.executable, "-c", wrapper], capture_output=True, text=True, check=True, timeout=20)
    assert told.stdout == "3\n"


def test_session_and_group_are_its_own_and_there_is_no_terminal(room):
    ending = room.run("cat", "/proc/self/stat")
    pid, _, _, parent, group, session, terminal = ending.stdout.head.split()[:7]
    assert pid == group == session
    assert int(parent) == room.supervisor._starts.spawner.pid
    assert terminal == b"0"


@pytest.mark.parametrize(
    ("umask", "shown", "mode"), [(0o022, "0022", "644"), (0o077, "0077", "600"), (0, "0000", "666")]
)
def test_umask(room, tmp_path, umask, shown, mode):
    before = os.umask(0o027)
    try:
        ending = room.run("sh", "-c", "umask; touch f; stat -c %a f", umask=umask, cwd=str(tmp_path))
    finally:
        os.umask(before)
    assert ending.stdout.head.decode().split() == [shown, mode]


def test_folder(room, tmp_path):
    assert room.run("pwd").stdout.head == b"/\n"
    assert room.run("pwd", cwd=str(tmp_path)).stdout.head == f"{tmp_path}\n".encode()


def test_standard_input(room):
    assert room.run("cat", stdin=b"l1\nl2\n").stdout.head == b"l1\nl2\n"
    assert room.run("cat").stdout.head == b""
    large = bytes(range(256)) * 4096
    assert room.run("wc", "-c", stdin=large).stdout.head == b"1048576\n"


@as_root
def test_user_with_groups(room):
    ending = room.run("id", uid=NOBODY.pw_uid, gid=NOBODY.pw_gid, groups=(NOBODY.pw_gid, 4242))
    assert b"uid=65534(nobody) gid=65534" in ending.stdout.head
    assert b"4242" in ending.stdout.head
    assert b"root" not in ending.stdout.head


@as_root
def test_user_without_groups_keeps_none_of_the_daemons(room):
    before = os.getgroups()
    os.setgroups([0, 4, 4243])
    try:
        script = "grep -E '^(Uid|Gid|Groups)' /proc/self/status"
        ending = room.run("sh", "-c", script, uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    finally:
        os.setgroups(before)
    uid, gid, groups = ending.stdout.head.decode().splitlines()
    assert uid.split()[1:] == ["65534"] * 4
    assert gid.split()[1:] == ["65534"] * 4
    assert set(groups.split()[1:]) <= {"65534"}


@as_root
def test_folder_is_entered_as_the_user(room, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    failed = room.fail("pwd", cwd=str(closed), uid=NOBODY.pw_uid, gid=NOBODY.pw_gid)
    assert (failed.stage, failed.errno) == ("cwd", 13)


def test_a_user_without_a_group_is_refused(room):
    failed = room.fail("true", uid=os.getuid() + 1)
    assert (failed.stage, failed.shortage) == ("user", False)


def test_becoming_someone_else_is_refused_or_complete(room):
    """Without the privilege: no process, never under another identity."""
    program = (
        "import os\nos.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)\n"
        "from tests.supervision.conftest import Room\n"
        "room = Room(); failed = room.fail('id', uid=0, gid=0); room.close(); print(failed.stage, failed.errno)"
    )
    if os.geteuid() != 0:
        failed = room.fail("id", uid=0, gid=0)
        assert (failed.stage, failed.errno) == ("user", 1)
        return
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    if "Permission denied" in told.stderr:
        pytest.skip("nobody cannot read the checkout")
    assert told.stdout == "user 1\n", told.stderr


def test_limits_nice_and_oom_score(room):
    limits = ((resource.RLIMIT_NOFILE, 64, 64), (resource.RLIMIT_CORE, 0, 0))
    script = "ulimit -n; ulimit -c; nice; cat /proc/self/oom_score_adj"
    ending = room.run("sh", "-c", script, limits=limits, nice=5, oom_score_adj=321)
    assert ending.stdout.head.split() == [b"64", b"0", b"5", b"321"]


def test_a_limit_that_cannot_be_set_fails_the_start(room):
    failed = room.fail("true", limits=((resource.RLIMIT_NOFILE, 64, 32),))
    assert (failed.stage, failed.shortage) == ("limits", False)
