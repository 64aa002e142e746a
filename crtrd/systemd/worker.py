"""One worker thread that answers requests with a deadline. Knows nothing of systemd; manager.py gives it its work.

Every request is answered exactly once, in the reactor's thread, with a result or a ManagerError, at the latest after
the deadline; what comes later is thrown away. A bug in the work is raised in the reactor's thread.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from crtrd.errors import ManagerError
from crtrd.loop.reactor import Reactor, Timer

T = TypeVar("T")


class _Request(Generic[T]):
    """`work` runs in the worker, `settle` in the reactor's thread."""

    def __init__(self, work: Callable[[], T], done: Callable[[T | ManagerError], None]) -> None:
        self.work = work
        self.timer: Timer | None = None
        self._done: Callable[[T | ManagerError], None] | None = done

    @property
    def wanted(self) -> bool:
        return self._done is not None

    def forget(self) -> None:
        self._done = None
        if self.timer is not None:
            self.timer.cancel()

    def settle(self, result: T | ManagerError) -> None:
        done = self._done
        self.forget()
        if done is not None:
            done(result)


class Worker:
    """The thread starts with the first request. Requests are worked on in order, one at a time."""

    def __init__(self, reactor: Reactor, name: str, deadline: int) -> None:
        """`deadline` in microseconds, counted from `ask`."""
        self._reactor = reactor
        self._name = name
        self._deadline = deadline
        self._queue: queue.SimpleQueue[_Request[Any] | None] = queue.SimpleQueue()
        self._open: set[_Request[Any]] = set()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # held while the reactor is woken: its descriptors must not be closed in between
        self.closed = threading.Event()
        """Set by `close`: work that waits should stop waiting."""

    def ask(self, work: Callable[[], T], done: Callable[[T | ManagerError], None]) -> None:
        """Have `work` done in the thread. It tells of failures by ManagerError."""
        request = _Request(work, done)
        late = ManagerError(f"cannot reach the {self._name}: no answer within {self._deadline / 1_000_000:g} s")
        request.timer = self._reactor.later(self._deadline, lambda: self._answer(request, late))
        self._open.add(request)
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(request)

    def close(self, patience: float) -> None:
        """End the thread; open requests are never answered. Waits at most `patience` seconds for work in progress."""
        with self._lock:
            self.closed.set()
        for request in self._open:
            request.forget()
        self._open.clear()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=patience)

    def _answer(self, request: _Request[T], result: T | ManagerError) -> None:
        self._open.discard(request)
        request.settle(result)

    def _serve(self) -> None:
        """In the thread. A request that nobody waits for any more is not begun: a newer one may contradict it."""
        while (request := self._queue.get()) is not None and not self.closed.is_set():
            if request.wanted:
                callback = self._carry_out(request)
                with self._lock:
                    if not self.closed.is_set():
                        self._reactor.wake_from_thread(callback)

    def _carry_out(self, request: _Request[T]) -> Callable[[], None]:
        try:
            result: T | ManagerError = request.work()
        except ManagerError as error:
            result = error
        except Exception as error:  # noqa: BLE001  a bug must end the daemon, not this thread alone
            bug = error

            def raise_it() -> None:
                raise bug

            return raise_it
        return lambda: self._answer(request, result)
