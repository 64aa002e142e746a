"""Figures for Prometheus: `GET /metrics` and the textfile of `metrics_textfile`. Labels are words of our own tables.

No cron's name is a label: how many series there are does not depend on who arms what. Counters begin anew with every
life of the daemon, as counters may.
"""

import os
from collections import Counter
from pathlib import Path

from crtrd import __version__
from crtrd.core.effects import Announce
from crtrd.core.occurrence import Result
from crtrd.errors import LedgerError
from crtrd.ledger.queries import Queries
from crtrd.loop.reactor import Reactor
from crtrd.systemd.events import MESSAGE_IDS

STATES = ("active", "paused", "finished")
ENDS = frozenset({"cron.run.settled", "cron.run.held", "cron.run.unobserved", "cron.run.abandoned"})
RESULTS = frozenset(str(each) for each in Result)
WRITE_AFTER = 5_000_000
"""Microseconds after an event: the textfile is written once for all events of that time."""


class Metrics:
    """Counts events as they are announced; `text` is the whole page."""

    def __init__(self, queries: Queries, started_at: int) -> None:
        self._queries, self._started_at = queries, started_at
        self._events: Counter[str] = Counter()
        self._results: Counter[str] = Counter()

    def count(self, event: Announce) -> None:
        if event.kind in MESSAGE_IDS:
            self._events[event.kind] += 1
        result = str(event.fields.get("CRTRD_RESULT", ""))
        if event.kind in ENDS and result in RESULTS:
            self._results[result] += 1

    def text(self) -> str:
        """Raises LedgerError."""
        counts, wake = self._queries.counts(), self._queries.next_wake()
        lines = [
            *_family("crtrd_info", "gauge", "The daemon that answers.", {f'{{version="{__version__}"}}': 1}),
            *_family("crtrd_start_time_seconds", "gauge", "When this life began.", {"": self._started_at / 1e6}),
            *_family("crtrd_crons", "gauge", "Armed crons by state.",
                     {f'{{state="{state}"}}': counts.get(state, 0) for state in STATES}),
            *_family("crtrd_runs_live", "gauge", "Runs that are starting or running.", {"": counts["live"]}),
            *_family("crtrd_occurrences_held", "gauge", "Occurrences that wait for a poke.", {"": counts["held"]}),
            *_family("crtrd_outbox_pending", "gauge", "Deliveries that are not settled.", {"": counts["outbox"]}),
            *_family("crtrd_next_wake_timestamp_seconds", "gauge", "The next instant, 0 for none.",
                     {"": (wake or 0) / 1e6}),
            *_family("crtrd_events_total", "counter", "Journal events of this life by kind.",
                     {f'{{kind="{kind}"}}': count for kind, count in sorted(self._events.items())}),
            *_family("crtrd_runs_ended_total", "counter", "Runs that ended in this life by result.",
                     {f'{{result="{result}"}}': count for result, count in sorted(self._results.items())}),
        ]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, help_text: str, values: dict[str, float]) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}",
            *(f"{name}{labels} {value:.16g}" for labels, value in values.items())]


class Textfile:
    """Keeps the file of a node exporter's textfile collector; `path` may change or be '' for none."""

    def __init__(self, reactor: Reactor, metrics: Metrics) -> None:
        self.path = ""
        self._reactor, self._metrics, self._due = reactor, metrics, False

    def heard(self, _: Announce) -> None:
        if self.path and not self._due:
            self._due = True
            self._reactor.later(WRITE_AFTER, self.write)

    def write(self) -> None:
        """Replaced as a whole, readable for everybody. What cannot be written is left for the next time."""
        self._due = False
        if not self.path:
            return
        draft = Path(f"{self.path}.{os.getpid()}.tmp")
        try:
            draft.write_text(self._metrics.text(), encoding="ascii")
            draft.chmod(0o644)
            draft.replace(self.path)
        except (OSError, LedgerError):
            draft.unlink(missing_ok=True)
