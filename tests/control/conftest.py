"""The verbs over a real engine and a real ledger, turned by hand. No child is ever started: runs stay at the gate."""

import os
import time

import pytest

from crtrd.control.access import Caller
from crtrd.control.verbs import Control, Hooks
from crtrd.core.facts import Limits
from crtrd.engine.context import Contexts
from crtrd.engine.engine import Engine
from crtrd.engine.executor import Executor
from crtrd.errors import RequestError
from crtrd.ledger.store import Store
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.names import places

ROOT = Caller(os.geteuid(), 1, "bus")
DEADLINE = 20


class Desk:
    def __init__(self, path):
        self.reactor = Reactor(Clock())
        self.store = Store(
            path, owner="life", boot_id="b" * 32, post=self.reactor.wake_from_thread, lease_end=lambda: 0)
        self.store.open()
        self.executor = Executor(self.reactor, Contexts(places({"CRTR_HOME": str(path.parent)}, user=False)), head=4096)
        self.engine = Engine(self.reactor, self.store, self.executor, Limits("b" * 32))
        self.executor.post = self.engine.post
        self.said, self.root = [], ROOT
        self.executor.listeners.append(self.said.append)
        self.hooks = Hooks()
        self.control = Control(self.engine, "i" * 32, self.hooks)

    def replies(self, verb, *given, caller=ROOT):
        """Every reply to one call, after the engine has come to rest."""
        found = []
        self.control.call(verb, given, caller, found.append)
        deadline = time.monotonic() + DEADLINE
        while self.engine.busy or not found:
            assert time.monotonic() < deadline, f"{verb} {given!r} was not answered"
            self.reactor.turn(50_000)
        return found

    def ask(self, verb, *given, caller=ROOT):
        (reply,) = self.replies(verb, *given, caller=caller)
        if isinstance(reply, RequestError):
            raise reply
        return reply

    def refused(self, verb, *given, caller=ROOT):
        (reply,) = self.replies(verb, *given, caller=caller)
        assert isinstance(reply, RequestError), reply
        return reply.code

    def arm(self, name="job", **keys):
        return self.ask("arm", {"name": name, "command": ["true"], **keys})

    def close(self):
        self.store.close()
        self.engine.close()
        self.reactor.close()


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "ledger.sqlite3")
    yield made
    made.close()
