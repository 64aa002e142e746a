"""What all rows share: medians, spread, ratios of interleaved rounds, verdicts, the table. Measures nothing itself."""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
ROUNDS = 5
HEAD = ("row", "goal", "measured", "peers", "verdict")


@dataclass(frozen=True, slots=True)
class Figure:
    """What the rounds gave: the median, with the least and the greatest."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def text(self, unit: str = "") -> str:
        low, high = min(self.values), max(self.values)
        if low == high:
            return f"{short(low)}{unit}"
        return f"{short(self.median)} ({short(low)} to {short(high)}){unit}"


def short(value: float) -> str:
    """Three digits that count; whole numbers from a hundred on."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"


def figure(values: Iterable[float]) -> Figure:
    return Figure(tuple(values))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """Round by round, so that what slowed a whole round down is in both."""
    return Figure(tuple(mine / other for mine, other in zip(ours, theirs, strict=True)))


def quantile(values: Iterable[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * round(share * 1000) // 1000) - 1, 0)]


def stamp(due: float) -> str:
    """Seconds since the epoch as RFC 3339, to the microsecond."""
    seconds, micros = divmod(round(due * 1_000_000), 1_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"


def interleave(rounds: int, contenders: Mapping[str, Callable[[], T]], *, warm: int = 1) -> dict[str, list[T]]:
    """`rounds` values of each, by turns, each round begun by another one; the first `warm` rounds do not count."""
    found: dict[str, list[T]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(warm + rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            value = contenders[name]()
            if number >= warm:
                found[name].append(value)
    return found


@dataclass(frozen=True, slots=True)
class Line:
    """One goal. `factor` is 1 or less where it is met, else how far it is missed; None where nothing can be judged."""

    goal: str
    measured: str
    factor: float | None = None
    peers: str = ""
    remark: str = ""
    """In place of a verdict where there is none."""

    @property
    def verdict(self) -> str:
        if self.factor is None:
            return self.remark
        if self.factor <= 1:
            return "met"
        return "**missed**" if self.factor == float("inf") else f"**missed** by {self.factor:.2f}x"


def at_most(goal: str, value: Figure, limit: float, unit: str = "", *, peers: str = "", more: str = "") -> Line:
    """A goal that is met where the median is `limit` or less. `more` is told beside what was measured."""
    factor = value.median / limit if limit else (0.0 if value.median <= 0 else float("inf"))
    return Line(goal, value.text(unit) + (f"; {more}" if more else ""), factor, peers)


def at_least(goal: str, value: Figure, limit: float, unit: str = "", *, peers: str = "", more: str = "") -> Line:
    factor = limit / value.median if value.median else float("inf")
    return Line(goal, value.text(unit) + (f"; {more}" if more else ""), factor, peers)


def told(what: str, measured: str, *, peers: str = "", remark: str = "no goal") -> Line:
    """Something worth a line that no goal judges."""
    return Line(what, measured, None, peers, remark)


@dataclass(slots=True)
class Table:
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, row: str, lines: Iterable[Line]) -> None:
        for number, line in enumerate(lines):
            self.rows.append((row if not number else "", line.goal, line.measured, line.peers, line.verdict))

    def error(self, row: str, error: BaseException) -> None:
        text = (str(error).strip() or type(error).__name__).splitlines()[-1]
        self.rows.append((row, "", "", "", f"error: {text[:200]}"))

    def markdown(self) -> str:
        lines = ["| " + " | ".join(each.replace("|", "\\|") for each in row) + " |" for row in (HEAD, *self.rows)]
        lines.insert(1, "|" + "---|" * len(HEAD))
        return "\n".join(lines)
