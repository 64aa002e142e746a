"""Output over a kill -9: head, count, hash and lines are of all that the run has said, whoever had read it."""

import hashlib
import os
import signal

import pytest

from crtrd.supervision.identity import Proof
from crtrd.supervision.masking import Masking
from crtrd.supervision.output import Stream
from crtrd.supervision.spool import CAP, Spool
from tests.supervision.conftest import Room, is_alive, open_fds, wait_for
from tests.supervision.test_adoption import Life, record

pytestmark = pytest.mark.process


@pytest.fixture
def earlier():
    life = Life()
    life.room.reactor.close()
    life.room = Room(lines=True)
    life.room.supervisor.handed = life._keep
    yield life
    for fds in life.kept.values():
        for fd in fds.values():
            os.close(fd)


@pytest.fixture
def later():
    room = Room(lines=True)
    yield room
    room.close()


def cross(earlier, later, script, until):
    """Run SCRIPT, end the first life once `until(head)` holds, and adopt in the second."""
    plan, run = earlier.start("sh", "-c", script, masks=("t[a-z]+",))
    earlier.room.until(lambda: until(earlier.room.supervisor._children[run.id].out.output()))
    for stream in (earlier.room.supervisor._children[run.id].out, earlier.room.supervisor._children[run.id].err):
        for fd in stream.detach():  # a kill -9 hands nothing out any more
            if fd >= 0:
                earlier.room.reactor.unwatch(fd)
                os.close(fd)
    earlier.end()
    assert later.supervisor.adopt(run, plan, earlier.kept.pop(run.id)) is Proof.ALIVE
    return later.end(run.id).ending


def said(*rooms):
    return [line for room in rooms for _, stream, lines in room.lines if stream == "stdout" for line in lines]


def test_nothing_of_the_output_is_lost(earlier, later):
    script = "echo one; echo err >&2; printf tw; sleep 0.5; echo o; echo three; printf end"
    ending = cross(earlier, later, script, lambda out: out.total == 6)
    whole = b"one\ntwo\nthree\nend"
    masking = Masking(["t[a-z]+"])
    masking.feed(whole)
    assert ending.stdout.masked == masking.hexdigest()
    assert (ending.stdout.head, ending.stdout.total) == (whole, len(whole))
    assert ending.stdout.sha256 == hashlib.sha256(whole).hexdigest()
    assert ending.stderr.head == b"err\n"
    assert said(earlier.room, later) == [b"one", b"two", b"three", b"end"]


def test_beyond_the_spool_the_count_is_kept_and_the_hash_is_not_guessed(earlier, later):
    size = CAP + 300_000
    script = f"seq 1 9; head -c {size} /dev/zero; sleep 0.5; echo more"
    ending = cross(earlier, later, script, lambda out: out.total == size + 18)
    assert ending.stdout.total == size + 18 + 5
    assert ending.stdout.head == b"1\n2\n3\n4\n5\n6\n7\n8\n9\n".ljust(4096, b"\0")
    assert ending.stdout.sha256 == ""


def test_a_spool_as_full_as_can_be_is_whole(earlier, later):
    ending = cross(earlier, later, f"head -c {CAP} /dev/zero; sleep 0.5", lambda out: out.total == CAP)
    assert ending.stdout.sha256 == hashlib.sha256(bytes(CAP)).hexdigest()


def test_lines_that_were_not_handed_out_come_again():
    """Killed between reading and telling the journal."""
    spool = Spool.make("crtrd-spo")
    os.write(spool.fd, b"one\ntwo\nthr")
    os.lseek(spool.fd, 4, os.SEEK_SET)
    read, write = os.pipe2(os.O_NONBLOCK)
    lines = []
    stream = Stream(read, 4096, lines.extend)
    stream.go_on(os.dup(spool.fd))
    os.write(write, b"ee\n")
    stream.read()
    assert lines == [b"two", b"three"]
    stream.mute()
    os.write(write, b"four\n")
    stream.read()
    again = Stream(-1, 4096, lines.extend)
    again.go_on(os.dup(spool.fd))
    assert lines == [b"two", b"three"]
    assert again.output() == stream.output()
    assert again.output().head == b"one\ntwo\nthree\nfour\n"
    for each in (stream, again, spool):
        each.close()
    os.close(write)


def test_lines_that_wait_to_be_written_come_again():
    """Killed while a flood is on its way to the journal."""
    spool = Spool.make("crtrd-spo")
    read, write = os.pipe2(os.O_NONBLOCK)
    told, waits = [], [True]

    def lines(some):
        told.extend(some)
        return waits[-1]

    stream = Stream(read, 4096, lines)
    stream.go_on(os.dup(spool.fd))
    for text, waits[-1] in ((b"one\n", False), (b"two\n", True), (b"three\n", True)):
        os.write(write, text)
        stream.read()
    again = Stream(-1, 4096, lines)
    again.go_on(os.dup(spool.fd))
    assert told == [b"one", b"two", b"three", b"two", b"three"]
    for each in (stream, again, spool):
        each.close()
    os.close(write)


def test_a_torn_spool_is_not_believed():
    spool = Spool.make("crtrd-spo")
    spool.count(10)
    spool.take_no_more()
    spool.count(5)
    stream = Stream(-1, 4096, None)
    stream.go_on(spool.fd)
    assert (stream.output().head, stream.output().total, stream.output().sha256) == (b"", 15, "")
    stream.close()


def test_runs_of_two_earlier_lives_find_their_spawners(later):
    """Two crashes during one long run: each life's spawner is kept, and let go when its last run is over."""
    lives, runs, spawners = [Life(), Life()], [], {}
    for number, life in enumerate(lives):
        life.room.supervisor.handed = lambda name, fds, kept, life=life: (
            spawners.update({name: {kind: os.dup(fd) for kind, fd in fds.items()}}) if "control" in fds
            else life._keep(name, fds, kept))
        plan = life.room.plan("sh", "-c", f"sleep 0.5; exit {number + 3}", run_id=str(number) * 32)
        held = life.room.go(plan)
        runs.append((plan, record(plan.run_id, held.identity)))
    gone = []
    later.supervisor.returned = gone.append
    for name, fds in spawners.items():
        later.supervisor.inherit(name, fds)
    for life, (plan, run) in zip(lives, runs, strict=True):
        later.supervisor.adopt(run, plan, life.kept.pop(run.id))
    later.supervisor.adopted()
    assert [later.end(run.id).ending.exit_code for _, run in runs] == [3, 4]
    assert {*gone} == {*spawners, *(run.id for _, run in runs)}
    for life in lives:
        life.end()


def test_a_spawner_with_no_run_left_is_let_go(earlier, later):
    told = {}
    earlier.room.supervisor.handed = lambda name, fds, _: told.update(
        {name: [os.dup(fds[kind]) for kind in ("control", "pid")]})
    earlier.room.supervisor.prepare()
    (name, (control, pidfd)), = told.items()
    pid = earlier.room.supervisor._starts.spawner.pid
    gone = []
    later.supervisor.returned = gone.append
    later.supervisor.inherit(name, {"control": control, "pid": pidfd})
    later.supervisor.adopted()
    assert gone == [name]
    later.until(lambda: not later.supervisor._starts.leaving)
    wait_for(lambda: not is_alive(pid))
    earlier.end()


def test_no_descriptor_is_left(room):
    room.supervisor.handed = lambda name, fds, kept: kept()
    room.run("echo", "first")
    before = open_fds()
    for _ in range(5):
        assert room.run("sh", "-c", "echo out; echo err >&2").stdout.total == 4
    plan = room.plan("sleep", "600")
    pid, spawner = room.go(plan).identity.pid, room.supervisor._starts.spawner.pid
    fds = room.supervisor.hand_over()
    os.kill(pid, signal.SIGKILL)
    for each in fds.values():
        for fd in each.values():
            os.close(fd)
    os.waitpid(spawner, 0)
    assert open_fds() <= before
