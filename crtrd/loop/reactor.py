"""A small epoll reactor: descriptors, monotonic timers, callbacks. Decides nothing and owns no descriptor it is given.

One thread runs it. Other threads reach it only through `wake_from_thread`, which is an eventfd. A callback that
raises ends the loop: nothing is swallowed here.
"""

import heapq
import itertools
import os
import select
from collections import deque
from collections.abc import Callable

from crtrd.loop.clock import Clock

LONGEST = 86_400_000_000  # epoll_wait(2) counts milliseconds in an int: more than 24 days are refused
IN, OUT, HUP = select.EPOLLIN, select.EPOLLOUT, select.EPOLLHUP


class Timer:
    """A callback at a monotonic deadline; `cancel` is safe at any time."""

    __slots__ = ("callback", "deadline")

    def __init__(self, deadline: int, callback: Callable[[], None]) -> None:
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Reactor:
    """`watch` descriptors, `later` for timers, `soon` for the next turn; `run` until `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._epoll = select.epoll()
        self._watched: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[int, int, Timer]] = []
        self._serial = itertools.count()
        self._soon: deque[Callable[[], None]] = deque()
        self._from_threads: deque[Callable[[], None]] = deque()
        self._stopped = False
        self.after_turn: Callable[[], None] | None = None
        """Called once after each turn's callbacks: where the engine takes its batch."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.watch(self._wake, IN, lambda _: self._drain_threads())

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback(ready_events)` whenever `fd` is ready; watching again replaces events and callback."""
        if fd in self._watched:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)
        self._watched[fd] = callback

    def unwatch(self, fd: int) -> None:
        """Forget `fd`; call before closing it. Unknown descriptors are ignored."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def later(self, delay: int, callback: Callable[[], None]) -> Timer:
        """Call back after `delay` microseconds of the monotonic clock."""
        timer = Timer(self.clock.mono() + max(delay, 0), callback)
        heapq.heappush(self._timers, (timer.deadline, next(self._serial), timer))
        return timer

    def soon(self, callback: Callable[[], None]) -> None:
        """Call back in the next turn, before waiting again."""
        self._soon.append(callback)

    def wake_from_thread(self, callback: Callable[[], None]) -> None:
        """From any thread: run `callback` in the reactor's thread."""
        self._from_threads.append(callback)
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        self._stopped = False
        while not self._stopped:
            self.turn()

    def stop(self) -> None:
        self._stopped = True

    def turn(self, limit: int | None = None) -> None:
        """Wait once (at most `limit` microseconds) and run what became ready."""
        ready = [(fd, events, self._watched.get(fd)) for fd, events in self._epoll.poll(self._timeout(limit))]
        for fd, events, callback in ready:
            # an earlier callback of this turn may have unwatched it, and even closed it and watched a namesake
            if callback is not None and self._watched.get(fd) is callback:
                callback(events)
        self._run_timers()
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        if self.after_turn is not None:
            self.after_turn()

    def close(self) -> None:
        self._epoll.close()
        os.close(self._wake)

    def _timeout(self, limit: int | None) -> float:
        if self._soon:
            return 0
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        if not self._timers and limit is None:
            return -1
        wait = LONGEST if limit is None else min(limit, LONGEST)
        if self._timers:
            wait = min(wait, max(self._timers[0][0] - self.clock.mono(), 0))
        return wait / 1_000_000

    def _run_timers(self) -> None:
        now = self.clock.mono()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is not None:
                callback()

    def _drain_threads(self) -> None:
        os.eventfd_read(self._wake)
        while self._from_threads:
            self._from_threads.popleft()()
