"""Stores on real files; every one that a test leaves open is closed."""

import queue
import threading

import pytest

from crtrd.errors import LedgerError
from crtrd.ledger.store import Store

DEADLINE = 20


class Posts:
    """Where a store's answers arrive: taken by the test's own thread, as by the reactor."""

    def __init__(self):
        self.waiting = queue.SimpleQueue()

    def __call__(self, callback):
        self.waiting.put(callback)

    def take(self):
        self.waiting.get(timeout=DEADLINE)()


class Opened:
    def __init__(self, path, owner="life", boot_id="b" * 32):
        self.posts = Posts()
        self.store = Store(path, owner=owner, boot_id=boot_id, post=self.posts, lease_end=lambda: 60_000_000)

    def do(self, work):
        """The value of `work`, or its LedgerError raised."""
        values = []
        self.store.submit(work, values.append)
        self.posts.take()
        if isinstance(values[0], LedgerError):
            raise values[0]
        return values[0]


@pytest.fixture
def opened(tmp_path):
    """`opened()` is a store on `ledger.sqlite3`; `opened(owner=...)` another life."""
    made = []

    def make(path=None, **options):
        each = Opened(path or tmp_path / "state" / "ledger.sqlite3", **options)
        made.append(each)
        each.reached = each.store.open()
        return each

    yield make
    for each in made:
        each.store.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "ledger"]
