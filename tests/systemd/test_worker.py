"""The worker thread with a real reactor: every request is answered once, in the reactor's thread, in time."""

import threading
import time

import pytest

from crtrd.errors import ManagerError
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.systemd.worker import Worker


@pytest.fixture
def reactor():
    made = Reactor(Clock())
    yield made
    made.close()


@pytest.fixture
def make_worker(reactor):
    made = []

    def make(deadline=5_000_000):
        made.append(Worker(reactor, "somebody", deadline))
        return made[-1]

    yield make
    for worker in made:
        worker.close(5)


def turn_until(reactor, condition):
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        reactor.turn(100_000)


def test_work_is_done_in_one_other_thread_and_answered_in_ours(reactor, make_worker):
    worker, answers = make_worker(), []
    for _ in range(3):
        worker.ask(threading.get_ident, lambda ident: answers.append((ident, threading.get_ident())))
    turn_until(reactor, lambda: len(answers) == 3)
    assert len(set(answers)) == 1
    assert answers[0][0] != answers[0][1] == threading.get_ident()


def test_a_failure_is_an_answer(reactor, make_worker):
    worker, answers = make_worker(), []
    error = ManagerError("cannot: away")

    def fail():
        raise error

    worker.ask(fail, answers.append)
    turn_until(reactor, lambda: answers)
    assert answers == [error]


def test_a_bug_is_raised_in_the_reactor(reactor, make_worker):
    make_worker().ask(lambda: 1 / 0, lambda _: None)
    with pytest.raises(ZeroDivisionError):
        turn_until(reactor, lambda: False)


def test_silence_is_an_error_at_the_deadline_and_the_late_result_is_dropped(reactor, make_worker):
    worker, release, answers = make_worker(20_000), threading.Event(), []
    worker.ask(lambda: release.wait(5), answers.append)
    turn_until(reactor, lambda: answers)
    assert str(answers[0]) == "cannot reach the somebody: no answer within 0.02 s"
    release.set()
    after = []
    worker.ask(lambda: "next", after.append)
    turn_until(reactor, lambda: after)
    assert len(answers) == 1


def test_a_request_that_nobody_waits_for_is_not_begun(reactor, make_worker):
    worker, release, answers, begun = make_worker(20_000), threading.Event(), [], []
    worker.ask(lambda: release.wait(5), answers.append)
    worker.ask(lambda: begun.append("stale"), answers.append)
    turn_until(reactor, lambda: len(answers) == 2)
    release.set()
    worker.ask(lambda: begun.append("fresh"), answers.append)
    turn_until(reactor, lambda: len(answers) == 3)
    assert begun == ["fresh"]


def test_close_ends_the_thread_and_answers_nothing_more(reactor, make_worker):
    worker, begun, answers = make_worker(), threading.Event(), []

    def work():
        begun.set()
        worker.closed.wait(5)

    worker.ask(work, answers.append)
    worker.ask(work, answers.append)
    assert begun.wait(5)
    worker.close(5)
    reactor.turn(10_000)
    assert answers == []
    assert not any(thread.name == "somebody" for thread in threading.enumerate())
