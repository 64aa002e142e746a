"""Instants that lie ahead, for whoever asks: found over several turns of the loop where finding them takes long.

A thousand instants of a cron with sixty schedules, or of one that is due every few years, take a second or more.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from crtrd.loop.reactor import Reactor

SLICE = 20_000
"""Microseconds of one turn."""


def tell(instants: Iterator[int], count: int, reactor: Reactor, reply: Callable[[list[int]], None]) -> None:
    """Reply with the first `count` of the instants, now or in a later turn."""
    found: list[int] = []
    wanted = islice(instants, count)

    def go_on() -> None:
        end = reactor.clock.mono() + SLICE
        for instant in wanted:
            found.append(instant)
            if reactor.clock.mono() >= end:
                return reactor.soon(go_on)
        return reply(found)

    go_on()
