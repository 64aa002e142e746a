"""When the next commit waits for company: in a burst one sync of the disk is to serve many runs.

A disk that syncs quickly would otherwise have a commit for every two or three events, each with its statements and its
sync; the runs that wait for them would start no sooner, for all of them together use more time. What somebody waits
for is never held back, nor is anything while there are few events: a lone run meets no delay.
"""

from collections import deque

BUSY = 16
WITHIN = 200_000
"""That many events in so many microseconds are a burst."""
COMPANY = 32
LONGEST = 100_000
"""Microseconds after the commit before at most."""


class Gathering:
    """`committed` for every commit, `wait` before the next one. Microseconds of the monotonic clock."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, int]] = deque()
        self._last = 0

    def committed(self, now: int, events: int) -> None:
        self._last = now
        self._recent.append((now, events))

    def wait(self, now: int, events: int, in_flight: int) -> int:
        """How long `events` are to wait for others, which can only come from the `in_flight` runs; 0: no longer."""
        while self._recent and self._recent[0][0] < now - WITHIN:
            self._recent.popleft()
        if events + sum(count for _, count in self._recent) < BUSY or events >= min(COMPANY, 5 * in_flight // 8):
            return 0
        return max(self._last + LONGEST - now, 0)
