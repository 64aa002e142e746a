"""Following the output of a live run: what was said, what comes, the end; and who does not read is no burden."""

import os
import resource

import pytest

from crtrd.core.occurrence import Origin, Phase, Run
from crtrd.engine.output import FOLLOWERS, SAID, OutputLog
from crtrd.systemd.journal import Journal

RUN = Run("r" * 32, "o" * 32, "c" * 32, "job", "", 1, Origin.MANUAL, 0, Phase.RUNNING, False, 1, 0)  # noqa: FBT003


@pytest.fixture
def log(tmp_path):
    journal = Journal(None, str(tmp_path / "no-journal"))
    log = OutputLog(journal, 1 << 20)
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
