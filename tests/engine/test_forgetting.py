"""The pace of retention on a real ledger: steps that others come between, as large as their time allows."""

import time
from itertools import pairwise

import pytest

from crtrd.engine.forgetting import FIRST, GOAL, LEAST, MOST, REST_BUSY, Forgetting, _trusts, paced
from crtrd.ledger.retention import DAY, Keep
from crtrd.ledger.store import Store
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from tests.core.conftest import make_world  # noqa: F401 - a fixture
from tests.core.world import T0, H, M, at
from tests.ledger.test_cost import after

NUMBER = 2500


@pytest.mark.parametrize(
    ("most", "gone", "took", "following"),
    [
        (100, 100, GOAL, 100), (100, 100, GOAL // 10, 200), (100, 100, 10 * GOAL, LEAST), (500, 500, 2 * GOAL, 250),
        (MOST, MOST, GOAL // 10, MOST), (100, 3, 1, 100), (100, 3, 10 * GOAL, 100), (100, 100, 0, 200),
    ],
)
def test_the_next_step_is_as_large_as_the_last_was_quick(most, gone, took, following):
    assert paced(most, gone, took) == following


class Later(Reactor):
    """Tells what it was asked to do later, and does it at once: a day is too long for a test."""

    def __init__(self):
        super().__init__(Clock())
        self.rests = []

    def later(self, delay, callback):
        self.rests.append(delay)
        return super().later(0 if delay in {FIRST, REST_BUSY} or delay < GOAL else delay, callback)


@pytest.fixture
def reactor():
    made = Later()
    yield made
    made.close()


@pytest.mark.parametrize("busy", [False, True])
def test_others_come_between_the_steps(make_world, reactor, busy):  # noqa: F811
    world = make_world()
    after(world, NUMBER)
    world.database.execute_sql("UPDATE occurrences SET settled_at = 1")
    world.database.close()
    store = Store(world.path, owner="1" * 32, boot_id="0" * 32, post=reactor.wake_from_thread, lease_end=lambda: 1)
    store.open()
    left = []

    def look(_=None):
        store.submit(lambda session: session._count("SELECT count(*) FROM occurrences"), seen)

    def seen(count):
        if not left or left[-1] != count:
            left.append(count)
        if count:
            look()

    forgetting = Forgetting(reactor, store, keep=lambda: Keep(DAY, DAY, 10**9), busy=lambda: busy)
    forgetting.most = 100
    forgetting.begin()
    look()
    deadline = time.monotonic() + 60
    while (not left or left[-1]) and time.monotonic() < deadline:
        reactor.turn(100_000)
    store.close()
    assert left[0] == NUMBER + 1
    assert left[-1] == 0
    assert len(left) > NUMBER // MOST  # each step was seen by somebody who asked meanwhile
    assert all(earlier > later for earlier, later in pairwise(left))
    assert (REST_BUSY in reactor.rests) is busy


def test_a_year_that_a_bad_battery_makes_up_leaves_the_history_alone(make_world):  # noqa: F811
    """C13: a host that boots in 2098 would forget everything within ten seconds, the keys of triggers too."""
    world = make_world()

    def trusted(now):
        world.begin_session()
        with world.database.atomic("IMMEDIATE"):
            return _trusts(world.session, now)

    here, ahead = T0, at("2098-01-01T00:00:00Z")
    assert trusted(here)
    assert trusted(here + 31 * DAY)
    assert [trusted(ahead + minutes * M) for minutes in (0, 10, 600)] == [False] * 3
    assert trusted(here + 31 * DAY + M), "put right"
    assert not trusted(ahead)
    assert not trusted(here + 91 * DAY), "another doubt, with a day of its own"
    assert [trusted(here + 91 * DAY + hours * H) for hours in (12, 23, 24, 48)] == [False, False, True, True]


def test_a_host_that_was_off_for_long_forgets_a_day_later(make_world):  # noqa: F811
    world = make_world()
    for now, expected in ((T0, True), (T0 + 400 * DAY, False), (T0 + 401 * DAY, True), (T0 + 402 * DAY, True)):
        world.begin_session()
        with world.database.atomic("IMMEDIATE"):
            assert _trusts(world.session, now) is expected
