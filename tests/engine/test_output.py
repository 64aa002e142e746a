"""Following the output of a live run: what was said, what comes, the end; and who does not read is no burden."""

import os
import resource
import socket
from collections import deque

import pytest

from crtrd.core.occurrence import Origin, Phase, Run
from crtrd.engine.output import AT_ONCE, FOLLOWERS, SAID, OutputLog
from crtrd.systemd.journal import Journal

RUN = Run("r" * 32, "o" * 32, "c" * 32, "job", "", 1, Origin.MANUAL, 0, Phase.RUNNING, False, 1, 0)  # noqa: FBT003


@pytest.fixture
def log(tmp_path):
    journal = Journal(None, str(tmp_path / "no-journal"))
    log = OutputLog(journal, 1 << 20, lambda _: None)
    log.begin(RUN)
    yield log
    log.end(RUN.id)
    journal.close()


def taken(fd):
    os.set_blocking(fd, False)
    data = b""
    try:
        while chunk := os.read(fd, 1 << 16):
            data += chunk
    except BlockingIOError:
        return data, False
    os.close(fd)
    return data, True


def test_a_follower_hears_what_was_said_and_what_comes_until_the_end(log):
    log.lines(RUN.id, "stdout", [b"one", b"two"])
    fd = log.follow(RUN.id)
    log.lines(RUN.id, "stderr", [b"three"])
    assert taken(fd) == (b"one\ntwo\nthree\n", False)
    log.lines(RUN.id, "stdout", [b"four"])
    log.end(RUN.id)
    assert taken(fd) == (b"four\n", True)
    assert log.follow(RUN.id) is None


def test_who_does_not_read_or_goes_away_holds_nothing_up(log):
    silent, gone = log.follow(RUN.id), log.follow(RUN.id)
    os.close(gone)
    for number in range(200):
        log.lines(RUN.id, "stdout", [b"%d " % number + b"x" * 1000])
    late = log.follow(RUN.id)
    data, _ = taken(late)
    assert data.startswith(b"1")  # whole lines, the latest
    assert SAID - 1100 < len(data) <= SAID
    assert data.endswith(b"x\n")
    more = [log.follow(RUN.id) for _ in range(FOLLOWERS - 2)]
    with pytest.raises(OSError, match="too many"):
        log.follow(RUN.id)
    for fd in (silent, late, *more):
        os.close(fd)


def test_a_shortage_of_descriptors_is_an_error_of_the_one_who_asks(log):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            log.follow(RUN.id)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    log.lines(RUN.id, "stdout", [b"still here"])


class Written:
    """A journal socket, a log that writes to it, and the turns of a loop."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))
        self.journal, self.soon = Journal(None, str(path)), deque()
        self.log = OutputLog(self.journal, 1 << 20, self.soon.append)

    def turn(self):
        for _ in range(len(self.soon)):
            self.soon.popleft()()

    def taken(self):
        """The messages that have come, taken as journald does, so that there is room for more."""
        found = []
        try:
            while entry := self.socket.recv(1 << 16):
                found.append(entry.rpartition(b"MESSAGE=")[2].strip())
        except BlockingIOError:
            return found

    def close(self):
        self.journal.close()
        self.socket.close()


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.setattr("crtrd.engine.output.AT_ONCE", 4)  # a datagram socket holds no more than about ten
    found = Written(tmp_path / "socket")
    yield found
    found.close()


def test_a_flood_goes_to_the_journal_over_many_turns_in_order_and_whole(written):
    """16 000 short lines of one run once held up everybody for most of a second."""
    other = RUN.__class__(**{name: getattr(RUN, name) for name in RUN.__slots__} | {"id": "s" * 32})
    written.log.begin(RUN)
    written.log.begin(other)
    assert written.log.lines(RUN.id, "stdout", [b"%d" % n for n in range(10)]) is True
    written.log.lines(other.id, "stdout", [b"other"])
    written.log.end(RUN.id)
    found = []
    while pieces := written.taken():
        found.append(pieces)
        written.turn()
    assert [len(pieces) for pieces in found] == [4, 4, 3]
    assert [each for pieces in found for each in pieces] == [b"%d" % n for n in range(10)] + [b"other"]
    written.turn()
    assert written.log.lines(other.id, "stdout", [b"few"]) is False
    assert written.taken() == [b"few"]


def test_the_last_lines_of_a_run_do_not_wait_behind_a_flood_of_another(written):
    """Its end is recorded next, and a life that is killed after that would leave them unwritten for ever."""
    other = RUN.__class__(**{name: getattr(RUN, name) for name in RUN.__slots__} | {"id": "s" * 32})
    written.log.begin(RUN)
    written.log.begin(other)
    written.log.lines(RUN.id, "stdout", [b"%d" % n for n in range(8)])
    assert written.log.lines(other.id, "stdout", [b"other"]) is True
    written.log.end(other.id)
    assert written.taken() == [b"0", b"1", b"2", b"3", b"other"]
    written.turn()
    assert written.taken() == [b"4", b"5", b"6", b"7"]


def test_what_waits_is_written_before_the_daemon_ends(written):
    written.log.begin(RUN)
    written.log.lines(RUN.id, "stdout", [b"%d" % n for n in range(8)])
    assert len(written.taken()) == 4
    written.log.flush()
    assert written.taken() == [b"4", b"5", b"6", b"7"]
    assert AT_ONCE > 4
