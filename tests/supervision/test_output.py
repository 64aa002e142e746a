"""Heads, counts and hashes of what runs print; the end of a run is not the end of its pipe (C22, C34, C35)."""

import hashlib
import os
import resource
import signal
import sys
import time

import pytest

from crtrd.core.events import RunEnded
from tests.proc import of_process
from tests.supervision.conftest import is_alive, wait_for

pytestmark = pytest.mark.process

HI = "98ea6e4f216f2fb4b69fff9b3a44842c38686ca685f3f55dc48c5d3fb1107be4"
EMPTY = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("command", [
    "echo hi; sleep 600 & exit 0",
    "echo hi; (setsid sh -c 'sleep 600 & exit' &) ; sleep 0.2; exit 0",
    "echo hi; (sleep 1; echo late) & exit 0",
])
def test_a_grandchild_with_the_pipe_does_not_hold_the_run(room, command):
    started = time.monotonic()
    ending = room.run("sh", "-c", command)
    assert time.monotonic() - started < 1
    assert (ending.exit_code, ending.stdout.head, ending.stdout.total, ending.stdout.sha256) == (0, b"hi\n", 3, HI)
    assert len(ending.survivors) >= 1
    for text in ending.survivors:
        _end(text)


def _end(text):
    """A survivor that nobody could reach is ended here, by its pid and only if it is one of ours."""
    pid = int(text.split()[0])
    if is_alive(pid) and b"CRTR_RUN_ID=" in of_process(pid, "environ"):
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not is_alive(pid))


def test_bytes_written_just_before_the_exit_are_never_lost(room):
    for _ in range(10):
        ending = room.run("sh", "-c", "head -c 61440 /dev/zero; head -c 61440 /dev/zero >&2")
        assert (ending.stdout.total, ending.stderr.total) == (61440, 61440)
        assert ending.stdout.sha256 == ending.stderr.sha256 == hashlib.sha256(bytes(61440)).hexdigest()


def test_a_silent_run(room):
    ending = room.run("true")
    assert (ending.stdout.head, ending.stdout.total, ending.stdout.sha256) == (b"", 0, EMPTY)
    assert not ending.stdout.truncated


def test_seq(room):
    ending = room.run("seq", "1", "100000")
    assert ending.stdout.total == 588895
    assert ending.stdout.sha256 == "b2bc7d3f8b652d2ec96865b68ad8f80e22cca174abe1aed7889e242a747d590f"
    assert ending.stdout.head == b"".join(b"%d\n" % number for number in range(1, 2000))[:4096]
    assert ending.stdout.truncated


def test_four_floods_cost_no_memory_and_leave_the_loop_responsive(room):
    size = 64 * 1024 * 1024
    room.run("true")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plans = [room.plan("head", "-c", str(size), "/dev/zero") for _ in range(4)]
    for plan in plans:
        room.go(plan)
    longest = 0.0
    while not all(room.event(plan.run_id, RunEnded) for plan in plans):
        room.reactor.turn(1_000_000)
        begun = time.thread_time()
        room.reactor.turn(0)
        longest = max(longest, time.thread_time() - begun)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    for plan in plans:
        stdout = room.end(plan.run_id).ending.stdout
        assert (len(stdout.head), stdout.total, stdout.sha256) == (4096, size, digest)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024
    assert longest < 0.1


@pytest.mark.parametrize(("code", "head", "sha256"), [
    (r"printf '\210'", b"\x88", "4f362f9093bb8e7012f466224ff1237c0746d8c8f660b16699f5036ccba9c64a"),
    (r"printf 'a\0b'", b"a\0b", "59b271ae1bbcb1d31d41929817f4b16fb439eb4f31520b5ad1d5ce98920a7138"),
])
def test_bytes_that_are_no_text(room, code, head, sha256):
    ending = room.run("sh", "-c", code)
    assert (ending.stdout.head, ending.stdout.sha256) == (head, sha256)


def test_all_bytes_and_a_character_cut_at_the_head(room):
    ending = room.run(sys.executable, "-c", "import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert ending.stdout.sha256 == "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880"
    ending = room.run(sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'x' * 4095 + 'é'.encode())")
    assert ending.stdout.head == b"x" * 4095 + b"\xc3"
    assert ending.stdout.total == 4097
    ending = room.run("sh", "-c", r"printf '\210'; head -c 1048576 /dev/zero")
    assert ending.stdout.sha256 == hashlib.sha256(b"\x88" + bytes(1048576)).hexdigest()


def test_lines_go_to_the_journal_complete_and_in_order(lined):
    lined.run("sh", "-c", "echo one; printf 'tw'; sleep 0.1; printf 'o\nthree'; echo oops >&2", run_id="a" * 32)
    told = [line for run_id, name, lines in lined.lines for line in lines if (run_id, name) == ("a" * 32, "stdout")]
    assert told == [b"one", b"two", b"three"]
    assert [lines for _, name, lines in lined.lines if name == "stderr"] == [[b"oops"]]


def test_a_line_without_end_is_cut(lined):
    lined.run("head", "-c", "1000000", "/dev/zero")
    pieces = [line for _, _, lines in lined.lines for line in lines]
    assert sum(map(len, pieces)) == 1_000_000
    assert max(map(len, pieces)) <= 48 * 1024


def test_a_muted_run_is_still_hashed(lined):
    plan = lined.plan("sh", "-c", "sleep 0.1; seq 1 100000")
    lined.go(plan)
    lined.supervisor.mute(plan.run_id)
    assert lined.end(plan.run_id).ending.stdout.total == 588895
    assert lined.lines == []


def test_head_is_as_long_as_the_plan_says(room):
    assert room.run("echo", "abcdef", head=3).stdout.head == b"abc"
    assert room.run("echo", "abcdef", head=0).stdout.head == b""
