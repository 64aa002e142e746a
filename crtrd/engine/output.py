"""A command's output on its way to the journal: line by line, under the cron's name, up to a limit for each run."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crtrd.core.occurrence import Run
from crtrd.systemd.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class _Line:
    name: str
    fields: dict[str, str]
    left: int


class OutputLog:
    """`begin` when a run is known, `lines` as they come, `end` when it is over. `mute` stops the lines of one run."""

    def __init__(self, journal: Journal, limit: int) -> None:
        self._journal, self.limit = journal, limit
        self._runs: dict[str, _Line] = {}
        self.mute: Callable[[str], None] = lambda _: None

    def begin(self, run: Run) -> None:
        fields = {"CRTRD_CRON_ID": run.cron_id, "CRTRD_CRON": run.cron_name,
                  "CRTRD_OCCURRENCE_ID": run.occurrence_id, "CRTRD_RUN_ID": run.id}
        self._runs[run.id] = _Line(run.cron_name, fields, self.limit)

    def lines(self, run_id: str, stream: str, lines: list[bytes]) -> None:
        to = self._runs.get(run_id)
        if to is None or to.left <= 0:
            return
        kept = []
        for line in lines:
            to.left -= len(line) + 1
            if to.left <= 0:
                kept.append(b"(crtrd: journal_limit reached, the rest of this run's output is not logged)")
                self.mute(run_id)
                break
            kept.append(line)
        self._journal.output(to.name, stream, kept, to.fields)

    def end(self, run_id: str) -> None:
        self._runs.pop(run_id, None)
