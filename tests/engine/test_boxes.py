"""Boxes: what was kept is found by the next life, what was dropped is gone, and the manager hears of boxes alone."""

import os

import pytest

from crtrd.engine.boxes import ROOM, SPARE, Boxes
from crtrd.engine.descriptors import Descriptors
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor


class Store:
    """Stands for the manager's notification socket: keeps copies by name, as its store does."""

    def __init__(self):
        self.kept, self.messages, self.busy = {}, 0, []

    def store_fds(self, name, fds, sent):
        self.messages += 1
        self.kept.setdefault(name, []).extend(map(os.dup, fds))
        (self.busy.append if self.busy else lambda each: each())(sent)

    def drop_fds(self, name):
        self.messages += 1
        for fd in self.kept.pop(name):
            os.close(fd)

    def next_life(self):
        return {name: list(map(os.dup, fds)) for name, fds in self.kept.items()}


@pytest.fixture
def store():
    store = Store()
    yield store
    for name in list(store.kept):
        store.drop_fds(name)


@pytest.fixture
def reactor():
    reactor = Reactor(Clock())
    yield reactor
    reactor.close()


@pytest.fixture
def life(store, reactor):
    """Boxes of a further life, which is passed what the manager has."""
    lives = []

    def begin(passed=None, most=None):
        passed = store.next_life() if passed is None else passed
        lives.append(Boxes(reactor, Descriptors(reactor, store, passed), most))
        return lives[-1]

    yield begin
    for boxes in lives:
        boxes.close()
        for fds in boxes.stored.values():
            for fd in fds.values():
                os.close(fd)


@pytest.fixture
def run():
    """A run's id with a pipe that stands for its descriptors; the write end tells whether anybody holds the other."""
    opened = []

    def make(number):
        read, write = os.pipe()
        opened.append(write)
        os.write(write, b"%d" % number)
        return f"{number:032x}", {"out": read}, write

    yield make
    for fd in opened:
        os.close(fd)


def has_reader(write):
    try:
        os.write(write, b".")
    except BrokenPipeError:
        return False
    return True


def keep(boxes, owner, fds):
    told = []
    boxes.keep(owner, fds, lambda: told.append(owner))
    for fd in fds.values():
        os.close(fd)  # the daemon's own is gone, as after a crash
    return told


def test_the_next_life_finds_what_was_kept(store, life, run):
    boxes = life()
    for number in range(3):
        assert keep(boxes, *run(number)[:2]), "nobody was told that it is safe"
    boxes.drop(f"{1:032x}")
    found = life().stored
    alive = {owner: os.read(fds["out"], 9) for owner, fds in found.items() if owner != f"{1:032x}"}
    assert alive == {f"{0:032x}": b"0", f"{2:032x}": b"2"}
    again = life().stored
    assert again.keys() >= alive.keys(), "it was there only once"


def test_what_is_dropped_is_closed(store, life, run):
    boxes, (owner, fds, write) = life(), run(7)
    keep(boxes, owner, fds)
    assert has_reader(write)
    boxes.drop(owner)
    assert not has_reader(write)


def test_at_most_as_many_linger_as_live(store, life, run):
    boxes, writes = life(), {}
    for number in range(40):
        owner, fds, writes[owner_of(number)] = run(number)
        keep(boxes, owner, fds)
    for number in range(39):
        boxes.drop(owner_of(number))
        live = 39 - number
        assert sum(map(has_reader, writes.values())) <= 2 * live
    assert has_reader(writes[owner_of(39)])
    boxes.drop(owner_of(39))
    assert not any(map(has_reader, writes.values()))


def test_what_lingers_goes_soon(store, life, run, reactor):
    boxes, writes = life(), []
    for number in range(3):
        owner, fds, write = run(number)
        keep(boxes, owner, fds)
        writes.append(write)
    boxes.drop(owner_of(1))
    assert has_reader(writes[1])
    reactor.turn(5_000_000)
    assert list(map(has_reader, writes)) == [True, False, True]


def owner_of(number):
    return f"{number:032x}"


def test_the_manager_hears_of_boxes_alone(store, life, run):
    boxes = life()
    for number in range(3 * ROOM):
        keep(boxes, *run(number)[:2])
    assert store.messages == 2 * 3
    for number in range(3 * ROOM):
        boxes.drop(owner_of(number))
    assert len(store.kept) == 2 * SPARE
    before = store.messages
    keep(boxes, *run(999)[:2])
    assert store.messages == before, "the spare one was not used"


def test_what_is_too_much_for_a_user_goes_to_the_manager(store, life, run):
    boxes, writes = life(most=2), []
    for number in range(3):
        owner, fds, write = run(number)
        assert keep(boxes, owner, fds)
        writes.append(write)
    assert store.messages == 2 + 1
    boxes.drop(owner_of(2))
    assert not has_reader(writes[2])
    assert life().stored.keys() == {owner_of(0), owner_of(1)}


def test_a_run_waits_until_the_manager_has_its_box(store, life, run):
    store.busy.append(lambda: None)
    boxes = life()
    told = [keep(boxes, *run(number)[:2]) for number in range(2)]
    assert told == [[], []]
    for sent in store.busy:
        sent()
    assert told == [[owner_of(0)], [owner_of(1)]]


def test_a_life_that_ends_while_it_takes_a_box_up_loses_nothing(store, life, run):
    boxes = life()
    keep(boxes, *run(1)[:2])
    (box,) = boxes._boxes
    box._renew()
    box.entrance.send(b"mark")
    found = life()
    assert list(found.stored) == [owner_of(1)]
    found.drop(owner_of(1))
    assert not found._boxes
    assert not store.kept


def test_the_boxes_go_over_a_reexecution(store, life, run):
    boxes = life()
    keep(boxes, *run(5)[:2])
    passed = {f"kept-{name}": [os.dup(fd) for fd in fds.values()] for name, fds in boxes.pass_on().items()}
    after = life(passed)
    assert after.stored.keys() == {owner_of(5)}
    after.drop(owner_of(5))
    assert life().stored == {}


def test_of_an_earlier_life_nothing_stays(store, life, run):
    """So the store is empty again after a crash, once its runs have ended."""
    keep(life(), *run(5)[:2])
    after = life()
    after.drop(owner_of(5))
    assert not store.kept
    boxes = life()
    keep(boxes, *run(6)[:2])
    boxes.drop(owner_of(6))
    assert store.kept, "the spare one"
    life()
    assert not store.kept


def test_half_a_box_is_nothing(store, life, run):
    boxes = life()
    keep(boxes, *run(5)[:2])
    store.drop_fds(next(name for name in store.kept if name.endswith("w")))
    after = life()
    assert after.stored == {}
    assert not store.kept
