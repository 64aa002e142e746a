"""A command's output on its way to the journal: line by line, under the cron's name, up to a limit for each run.

A few hundred lines go to the journal in a turn of the loop; what a flood brings beyond that waits for the next turns,
so that neither other runs nor callers wait for it. Who follows a run gets the same lines through a pipe, at once. A
follower that does not read loses lines, never the run.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from errno import EMFILE

from crtrd.core.occurrence import Run
from crtrd.systemd.journal import Journal
from crtrd.values import dataclass, field

SAID = 48 * 1024
"""Bytes of the latest lines that a new follower is given first: less than the smallest pipe takes, pipe(7)."""
LEAST = 64  # what an entry counts at least: a million empty lines would hold up everybody else
AT_ONCE = 256
"""Entries that are written in one turn of the loop: journald takes them in some 10 ms."""
FOLLOWERS = 16
"""Of one run at once."""


@dataclass(slots=True)
class _Line:
    name: str
    fields: dict[str, str]
    left: int
    said: bytearray = field(default_factory=bytearray)
    followers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Piece:
    name: str
    stream: str
    lines: list[bytes]
    fields: Mapping[str, str]


class OutputLog:
    """`begin` when a run is known, `lines` as they come, `end` when it is over. `mute` stops the lines of one run."""

    def __init__(self, journal: Journal, limit: int, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls back in the next turn of the loop."""
        self._journal, self.limit, self._soon = journal, limit, soon
        self._runs: dict[str, _Line] = {}
        self._waiting: deque[_Piece] = deque()
        """At most `limit` bytes of each run."""
        self._room, self._turns = AT_ONCE, False
        self.mute: Callable[[str], None] = lambda _: None

    def begin(self, run: Run) -> None:
        fields = {"CRTRD_CRON_ID": run.cron_id, "CRTRD_CRON": run.cron_name,
                  "CRTRD_OCCURRENCE_ID": run.occurrence_id, "CRTRD_RUN_ID": run.id}
        self._runs[run.id] = _Line(run.cron_name, fields, self.limit)

    def lines(self, run_id: str, stream: str, lines: list[bytes]) -> bool:
        """True while some of what came waits: should the daemon die now, what was not written has to come again."""
        to = self._runs.get(run_id)
        if to is None or to.left <= 0:
            return False
        kept = []
        for line in lines:
            to.left -= max(len(line) + 1, LEAST)
            if to.left <= 0:
                kept.append(b"(crtrd: journal_limit reached, the rest of this run's output is not logged)")
                self.mute(run_id)
                break
            kept.append(line)
        self._pass_on(to, kept)
        self._waiting.append(_Piece(to.name, stream, kept, to.fields))
        self._write()
        return bool(self._waiting)

    def _write(self) -> None:
        """As many as this turn has room for, in the order in which they came."""
        while self._waiting and self._room > 0:
            piece = self._waiting[0]
            now, piece.lines = piece.lines[:self._room], piece.lines[self._room:]
            if not piece.lines:
                self._waiting.popleft()
            self._room -= len(now)
            self._journal.output(piece.name, piece.stream, now, piece.fields)
        if not self._turns:
            self._turns = True
            self._soon(self._turned)

    def _turned(self) -> None:
        self._turns, self._room = False, AT_ONCE
        if self._waiting:
            self._write()

    def flush(self) -> None:
        """Write all that waits, before the daemon ends."""
        for piece in self._waiting:
            self._journal.output(piece.name, piece.stream, piece.lines, piece.fields)
        self._waiting.clear()

    def follow(self, run_id: str) -> int | None:
        """The read end of a pipe, the caller's to close: the latest lines, then those that come, then its end.

        None where the run is not live. Raises OSError when there are too many.
        """
        of = self._runs.get(run_id)
        if of is None:
            return None
        if len(of.followers) >= FOLLOWERS:
            raise OSError(EMFILE, "too many follow this run already")
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(write, False)
        os.write(write, of.said)
        of.followers.append(write)
        return read

    def end(self, run_id: str) -> None:
        """Its last lines pass by what waits of others: once its end is durable, no later life hands them out again.

        Those of a flood still wait their turns, and a kill within these costs the log some of them.
        """
        ended = self._runs.pop(run_id, None)
        if ended is None:
            return
        last = [piece for piece in self._waiting if piece.fields is ended.fields]
        if sum(len(piece.lines) for piece in last) <= AT_ONCE:
            for piece in last:
                self._journal.output(piece.name, piece.stream, piece.lines, piece.fields)
            self._waiting = deque(piece for piece in self._waiting if piece.fields is not ended.fields)
        for write in ended.followers:
            os.close(write)

    def _pass_on(self, to: _Line, lines: list[bytes]) -> None:
        data = b"".join(line + b"\n" for line in lines)
        to.said += data
        if len(to.said) > SAID:
            cut = to.said.find(b"\n", len(to.said) - SAID)
            del to.said[: cut + 1 if 0 <= cut < len(to.said) - 1 else len(to.said) - SAID]
        for write in list(to.followers):
            try:
                os.write(write, data)
            except BlockingIOError:
                continue
            except OSError:  # EPIPE: nobody reads any more
                to.followers.remove(write)
                os.close(write)
