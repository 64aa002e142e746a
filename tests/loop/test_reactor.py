"""The reactor by a clock of its own for timers, by real descriptors for the rest; the alarm by the real clock.

A step of the wall clock (ECANCELED) cannot be made here without moving the host's time: the machine tests do it.
"""

import os
import threading
import time

import pytest

from crtrd.loop.clock import Alarm, Clock
from crtrd.loop.reactor import IN, OUT, Reactor


class HandClock(Clock):
    def __init__(self):
        self.time = 0

    def mono(self):
        return self.time


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def by_hand(clock):
    made = Reactor(clock)
    yield made
    made.close()


@pytest.fixture
def reactor():
    made = Reactor(Clock())
    yield made
    made.close()


@pytest.fixture
def pipe():
    ends = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    yield ends
    for fd in ends:
        try:
            os.close(fd)
        except OSError:
            continue


def test_timers_ring_in_the_order_of_their_deadlines_then_of_their_making(by_hand, clock):
    rung = []
    for name, delay in (("c", 30), ("a", 10), ("b", 20), ("b2", 20), ("late", 31)):
        by_hand.later(delay, lambda name=name: rung.append(name))
    clock.time = 30
    by_hand.turn(0)
    assert rung == ["a", "b", "b2", "c"]
    clock.time = 31
    by_hand.turn(0)
    assert rung[-1] == "late"


def test_a_timer_rings_once_and_never_early(by_hand, clock):
    rung = []
    by_hand.later(10, lambda: rung.append(clock.time))
    for now in (0, 9, 10, 11):
        clock.time = now
        by_hand.turn(0)
    assert rung == [10]


def test_a_canceled_timer_never_rings_also_when_canceled_in_the_same_turn(by_hand, clock):
    rung = []
    last = by_hand.later(20, lambda: rung.append("last"))
    by_hand.later(10, last.cancel)
    by_hand.later(15, lambda: rung.append("kept"))
    clock.time = 20
    by_hand.turn(0)
    last.cancel()
    assert rung == ["kept"]


def test_a_negative_delay_is_now(by_hand):
    rung = []
    by_hand.later(-5, lambda: rung.append(1))
    by_hand.turn(0)
    assert rung == [1]


@pytest.mark.parametrize("delay", [25 * 86400 * 1_000_000, 400 * 365 * 86400 * 1_000_000])
def test_a_timer_far_ahead_lets_the_reactor_wait(by_hand, delay):
    by_hand.later(delay, lambda: None)
    by_hand.wake_from_thread(lambda: None)
    by_hand.turn()


def test_soon_runs_in_the_next_turn_without_waiting(by_hand):
    order = []

    def first():
        order.append("first")
        by_hand.soon(lambda: order.append("second"))

    by_hand.soon(first)
    by_hand.turn()
    assert order == ["first"]
    by_hand.turn()
    assert order == ["first", "second"]


def test_after_turn_is_called_once_after_the_callbacks_of_each_turn(by_hand):
    order = []
    by_hand.after_turn = lambda: order.append("after")
    by_hand.soon(lambda: order.append("callback"))
    by_hand.turn(0)
    by_hand.turn(0)
    assert order == ["callback", "after", "after"]


def test_watching_again_replaces_events_and_callback(by_hand, pipe):
    reading, writing = pipe
    seen = []
    by_hand.watch(writing, OUT, lambda events: seen.append(("old", events)))
    by_hand.watch(writing, OUT, lambda events: seen.append(("new", events)))
    by_hand.turn(0)
    assert seen == [("new", OUT)]
    by_hand.unwatch(writing)
    by_hand.unwatch(writing)
    by_hand.unwatch(reading)
    by_hand.turn(0)
    assert len(seen) == 1


def test_a_callback_may_unwatch_another_that_is_ready_too(by_hand):
    pipes = [os.pipe() for _ in range(2)]
    seen = []
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")

        def ready(_, number=number):
            seen.append(number)
            by_hand.unwatch(pipes[1 - number][0])

        by_hand.watch(reading, IN, ready)
    by_hand.turn(0)
    assert len(seen) == 1
    for ends in pipes:
        for fd in ends:
            by_hand.unwatch(fd)
            os.close(fd)


def test_a_namesake_of_a_closed_descriptor_gets_no_event_of_its(by_hand):
    """Two are ready; the first callback closes the other, and a new descriptor takes its number."""
    pipes = [os.pipe() for _ in range(2)]
    stray, spare = [], []

    def ready(number):
        other = pipes[1 - number][0]
        by_hand.unwatch(other)
        os.close(other)
        spare.extend(os.pipe())
        assert spare[0] == other
        by_hand.watch(spare[0], IN, stray.append)

    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")
        by_hand.watch(reading, IN, lambda _, number=number: ready(number) if not spare else None)
    by_hand.turn(0)
    assert spare
    assert stray == []
    for fd in {*spare, *(fd for ends in pipes for fd in ends)}:
        by_hand.unwatch(fd)
        os.close(fd)


def test_a_callback_that_raises_ends_the_loop(by_hand):
    by_hand.soon(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        by_hand.run()


def test_stop_ends_run_after_its_turn(by_hand):
    order = []
    by_hand.soon(by_hand.stop)
    by_hand.soon(lambda: order.append("same turn"))
    by_hand.run()
    assert order == ["same turn"]


def test_threads_reach_the_reactor_in_its_own_thread_in_their_order(reactor):
    seen = []

    def work():
        for number in range(100):
            reactor.wake_from_thread(lambda number=number: seen.append((number, threading.get_ident())))
        reactor.wake_from_thread(reactor.stop)

    thread = threading.Thread(target=work)
    thread.start()
    reactor.run()
    thread.join()
    assert seen == [(number, threading.get_ident()) for number in range(100)]


@pytest.mark.parametrize("delay", [1, 999, 20_000, 50_500])
def test_the_alarm_rings_at_its_instant_and_never_early(reactor, delay):
    alarm, clock, rung = Alarm(), Clock(), []
    instant = clock.wall() + delay
    alarm.set(instant)
    reactor.watch(alarm.fd, IN, lambda _: rung.append((clock.wall(), alarm.clock_was_set())))
    deadline = time.monotonic() + 10
    while not rung and time.monotonic() < deadline:
        reactor.turn(1_000_000)
    reactor.unwatch(alarm.fd)
    alarm.close()
    ((now, was_set),) = rung
    assert now >= instant
    assert not was_set


def test_an_alarm_without_an_instant_is_silent_and_one_in_the_past_rings_at_once(reactor):
    alarm, rung = Alarm(), []
    reactor.watch(alarm.fd, IN, lambda _: rung.append(alarm.clock_was_set()))
    reactor.turn(20_000)
    assert rung == []
    assert not alarm.clock_was_set()
    for instant in (Clock().wall() - 5_000_000, 0, -1):
        alarm.set(instant)
        reactor.turn(2_000_000)
    assert rung == [False] * 3
    alarm.set(Clock().wall() + 400 * 366 * 86400 * 1_000_000)
    reactor.turn(20_000)
    assert len(rung) == 3
    reactor.unwatch(alarm.fd)
    alarm.close()


def test_the_clocks():
    clock = Clock()
    assert abs(clock.wall() / 1_000_000 - time.time()) < 5
    mono = clock.mono()
    assert clock.boot() >= mono > 0
    assert len(clock.boot_id()) == 32
    assert int(clock.boot_id(), 16) >= 0
