"""Several streams as one ordered stream without doubles.

An instant that more than one schedule names is one occurrence. The hard part is to count without
listing everything: plans on equal clocks are joined and counted by days, streams that cannot meet
are added up, and of the rest only the sparser ones are listed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd

from crtrd.schedule.days import Plan, Plans
from crtrd.schedule.streams import Periodic, Stream, WallClock
from crtrd.schedule.zone import END, SECOND
from crtrd.values import dataclass

#: Streams are compared this many instants at a time, to keep memory flat.
_BATCH = 50_000
#: Below this ratio of densities listing both streams is cheaper than asking one about each instant.
_DENSE = 8


@dataclass(frozen=True, slots=True)
class Merged:
    """Several streams as one: an instant that is in more than one of them is there once."""

    streams: tuple[Stream, ...]

    def next_after(self, after: int) -> int | None:
        """See Stream."""
        found = [n for n in (s.next_after(after) for s in self.streams) if n is not None]
        return min(found, default=None)

    def last_upto(self, at: int) -> int | None:
        """See Stream."""
        found = [n for n in (s.last_upto(at) for s in self.streams) if n is not None]
        return max(found, default=None)

    def count(self, after: int, until: int) -> int:
        """See Stream. At worst linear in the sparser streams."""
        after, until = max(after, -1), min(until, END - 1)
        if after >= until:
            return 0
        streams = [s for s in self.streams if s.count(after, until)]
        apart = [s for s in streams if all(s is t or _never_meet(s, t) for t in streams)]
        total = sum(s.count(after, until) for s in apart)
        rest = [s for s in streams if s not in apart]
        return total + _count_union(rest, after, until) if rest else total

    def listed(self, after: int, until: int) -> Iterator[int]:
        """See Stream."""
        yield from sorted({n for s in self.streams for n in s.listed(after, until)})


def merge(streams: Sequence[Stream]) -> Stream:
    """Return one stream for all of `streams`. Plans on equal clocks become one: it counts by days."""
    if len(streams) == 1:
        return streams[0]
    clocks: dict[WallClock, list[Plan]] = {}
    merged: list[Stream] = []
    for stream in streams:
        if isinstance(stream, WallClock) and isinstance(stream.plan, Plan):
            clocks.setdefault(replace(stream, plan=Plans(())), []).append(stream.plan)
        else:
            merged.append(stream)
    for clock, plans in clocks.items():
        merged.append(replace(clock, plan=plans[0] if len(plans) == 1 else Plans(tuple(plans))))
    return merged[0] if len(merged) == 1 else Merged(tuple(merged))


def _missing(instants: set[int], dense: Stream, count: int, *, after: int, until: int) -> int:
    """Return how many of `instants` are not in `dense`, which has `count` of (after, until]."""
    if isinstance(dense, Periodic):
        anchor, period = dense.anchor, dense.period
        return sum((n - anchor) % period != 0 or n <= anchor for n in instants)
    if count < _DENSE * len(instants):
        return len(instants.difference(dense.listed(after, until)))
    return sum(dense.last_upto(n) != n for n in instants)


def _count_union(streams: list[Stream], after: int, until: int) -> int:
    """Return how many instants in (after, until] are in any of `streams`."""
    dense, *others = sorted(streams, key=lambda s: s.count(after, until), reverse=True)
    most = dense.count(after, until)
    if sum(s.count(after, until) for s in others) > _BATCH:
        middle = (after + until) // 2
        return _count_union(streams, after, middle) + _count_union(streams, middle, until)
    union: set[int] = set()
    for stream in others:
        union.update(stream.listed(after, until))
    return most + _missing(union, dense, most, after=after, until=until)


def _grid(stream: Stream) -> tuple[int, int]:
    """Return (step, rest): every instant of the stream leaves `rest` when divided by `step`."""
    match stream:
        case Periodic(anchor, period):
            return period, anchor % period
        case WallClock(plan=plan):
            plans = plan.plans if isinstance(plan, Plans) else (plan,)
            if all(micro % SECOND == 0 for each in plans for micro in each.times.micros):
                return SECOND, 0  # offsets are whole seconds in every zone file
        case _:
            pass
    return 1, 0


def _never_meet(one: Stream, other: Stream) -> bool:
    """Say whether arithmetic alone shows that two streams have no instant in common.

    The usual case: `every` counts from the microsecond at which the cron was armed.
    """
    (step, rest), (other_step, other_rest) = _grid(one), _grid(other)
    return (rest - other_rest) % gcd(step, other_step) != 0
