"""Loads of cron files: read in slices of the loop's time, handed to the core a portion at a time.

    look (marks, names) -> read a portion -> its transaction -> tell of it -> read the next one ... the last, the mark
                                                                        ^
                                              waits while listeners (the bus) have not taken what was told

Each portion is durable by itself and stands for all names between two, so a life that ends in the middle leaves whole
crons and no mark: the next one reads again and changes nothing that was right. One load at a time; who asks during one
gets the next, which sees the files as they are then. Nothing of it grows with the number of files but their names.
"""

import itertools
import os
import uuid
from collections.abc import Callable, Iterator, Sequence

from crtrd.config.cronfiles import CronFiles, Read, loading, marking
from crtrd.config.loader import host_zone
from crtrd.core import files
from crtrd.core.effects import Announce
from crtrd.core.events import CronFile, CronFilesRead
from crtrd.engine.engine import Engine
from crtrd.errors import Code, ConfigError, LedgerError, RequestError
from crtrd.names import Places
from crtrd.values import dataclass, field

SLICE = 5_000
"""Microseconds of one turn in which files are read: whoever calls meanwhile waits for no more."""
LISTENERS = 10_000, 5_000_000
"""How long they are waited for at a time, and altogether: who does not listen at all does not stop a load."""
AGAIN = 5_000_000
TOLD_MOST = 20
"""Faults that an answer names."""
Done = Callable[[object], None]


def _fresh_ids() -> Iterator[str]:
    """Of one load, and later ones never again. Ids that follow each other lie together in the ledger's indexes: five
    hundred all over them would be as many pages to write."""
    load = uuid.uuid4().hex[:20]
    return (f"{load}{number:012x}" for number in itertools.count())


@dataclass(slots=True)
class _Load:
    """One pass over the files. `waiting` are told at its end; where nobody waits, it is tried until it succeeds."""

    waiting: list[Done]
    faults: list[str]
    steps: Iterator[CronFiles | None]
    ids: Iterator[str] = field(default_factory=_fresh_ids)
    counts: dict[str, int] = field(default_factory=dict)


class CronLoads:
    def __init__(self, engine: Engine, places: Places, read: Read) -> None:
        self._engine, self._places, self._read = engine, places, read
        self._reactor = engine.reactor
        self._current: _Load | None = None
        self._comparing = False
        self._next: tuple[list[Done], list[str]] | None = None
        self.heard: Callable[[], bool] = lambda: True
        """Whether listeners have taken what they were told so far."""

    def compare(self) -> None:
        """Load where the folders do not look as they did at the last load."""
        try:
            known = self._engine.store.queries.recall(files.MARK)
        except LedgerError:
            known = None
        self._comparing = True
        self._compare(known, marking(self._places, host_zone()))

    def _compare(self, known: str | None, steps: Iterator[str | None]) -> None:
        end = self._reactor.clock.mono() + SLICE
        for mark in steps:
            if mark is not None:
                self._comparing = False
                if mark != known and self._current is None:
                    self._begin([], [])
                return
            if self._reactor.clock.mono() >= end:
                break
        self._reactor.soon(lambda: self._compare(known, steps))

    @property
    def busy(self) -> bool:
        """What the files say may not be in the ledger yet."""
        return self._comparing or self._current is not None

    def load(self, done: Done, faults: Sequence[ConfigError] = ()) -> None:
        """Read everything. `done` gets what became of it, once that is durable, or a RequestError that names `faults`
        and those of the files."""
        if self._current is None:
            self._begin([done], [str(fault) for fault in faults])
            return
        waiting, told = self._next or ([], [])
        self._next = [*waiting, done], [str(fault) for fault in faults] or told

    # one load ----------------------------------------------------------------------------------------------------

    def _begin(self, waiting: list[Done], faults: list[str]) -> None:
        self._current = load = _Load(waiting, faults, loading(self._places, host_zone(), self._read))
        self._read_on(load)

    def _read_on(self, load: _Load) -> None:
        if self._engine.resting:  # the next life sees that there is no mark
            self._end(load, RequestError(Code.SHUTTING_DOWN, "cannot go on reading cron files: crtrd is ending"))
            return
        end = self._reactor.clock.mono() + SLICE
        with self._engine.executor.contexts.together():
            for portion in load.steps:
                if portion is not None:
                    self._hand_in(load, portion)
                    return
                if self._reactor.clock.mono() >= end:
                    break
        self._reactor.soon(lambda: self._read_on(load))

    def _hand_in(self, load: _Load, portion: CronFiles) -> None:
        announce_faults(self._engine, portion.faults, "; what was read before stays in force")
        load.faults += [str(fault) for fault in portion.faults][: TOLD_MOST - len(load.faults)]
        found = tuple(CronFile(file.source, file.definition, file.zoned, next(load.ids), file.account)
                      for file in portion.crons)
        self._post(load, portion, found)

    def _post(self, load: _Load, portion: CronFiles, found: tuple[CronFile, ...]) -> None:
        ticket = self._engine.executor.ticket(
            lambda value: self._decided(load, portion, found, value), own=not load.waiting)
        self._engine.post(CronFilesRead(
            self._reactor.clock.wall(), ticket, os.geteuid(), found, portion.kept, portion.whole, portion.mark,
            portion.after, portion.upto))

    def _decided(self, load: _Load, portion: CronFiles, found: tuple[CronFile, ...], value: object) -> None:
        if isinstance(value, RequestError) and not load.waiting and not self._engine.resting:
            self._reactor.later(AGAIN, lambda: self._post(load, portion, found))
        elif isinstance(value, RequestError):
            self._end(load, value)
        else:
            for what, count in value.items() if isinstance(value, dict) else ():
                load.counts[what] = load.counts.get(what, 0) + count
            if portion.upto:
                self.when_heard(lambda: self._read_on(load))
            else:
                self._end(load, load.counts)

    def when_heard(self, go_on: Callable[[], None], waited: int = 0) -> None:
        """Go on in a later turn, when listeners have taken what they were told."""
        if self.heard() or waited >= LISTENERS[1]:
            self._reactor.soon(go_on)
        else:
            self._reactor.later(LISTENERS[0], lambda: self.when_heard(go_on, waited + LISTENERS[0]))

    def _end(self, load: _Load, answer: object) -> None:
        self._current = None
        if self._next is not None:
            following, self._next = self._next, None
            self._begin(*following)
        for done in load.waiting:
            done(_told(load, answer))


def announce_faults(engine: Engine, faults: Sequence[ConfigError], more: str) -> None:
    events = [Announce("config.rejected", f"{fault}{more}", {"CRTRD_PATH": fault.path}, 3) for fault in faults]
    engine.executor.perform(events)


def _told(load: _Load, answer: object) -> object:
    """What was done; an error that names every file that was refused."""
    refused = list(load.faults)
    if load.counts.get("refused"):
        refused.append(f"{load.counts['refused']} files whose crons cannot be armed, see the journal")
    if refused and not isinstance(answer, RequestError):
        return RequestError(Code.INVALID_DEFINITION, "; ".join(refused[:TOLD_MOST]) + "; everything else was read")
    return answer
