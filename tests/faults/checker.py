"""Reads afterwards what a life of kills has left: the ledger's rows and the marks that the commands themselves made.

Rules (DESIGN §2): no command without a row, no instant with two rows, nothing executed twice under
`on_crash = record`, nothing off its instant, every settled row that is no success has a reason.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

MARK = 'echo "$CRTR_OCCURRENCE_ID $CRTR_RUN_ID $CRTR_SCHEDULED_AT" >> {file}'


def marks(file: Path) -> list[tuple[str, str, str]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return [(parts[0], parts[1], parts[2]) for parts in (line.split() for line in lines)]


def violations(instance, cron: str, file: Path, period: int) -> list[str]:
    """Everything that breaks a rule, as sentences; empty when all holds."""
    rows = instance.rows(
        "SELECT id, instant, status, reason, origin, settled_at FROM occurrences WHERE cron_name = ?", cron)
    known = {row[0]: row for row in rows}
    runs = {row[0]: row for row in instance.rows("SELECT id, occurrence_id, result, phase FROM runs")}
    anchor = instance.rows("SELECT anchor FROM crons WHERE name = ?", cron)[0][0]
    made = marks(file)
    found = [f"mark without a row: {mark}" for mark in made if mark[0] not in known]
    found += [f"mark without a run: {mark}" for mark in made if mark[1] not in runs]
    found += [f"executed {count} times: {name}" for name, count in Counter(m[0] for m in made).items() if count > 1]
    instants = Counter(row[1] for row in rows if row[4] == "schedule")
    found += [f"{count} rows for instant {instant}" for instant, count in instants.items() if count > 1]
    found += [f"off its instant: {instant}" for instant in instants if (instant - anchor) % period]
    found += [f"no reason: {row}" for row in rows if row[5] and row[2] != "success" and not row[3]]
    done = {mark[0] for mark in made}
    found += [f"success without a mark: {row}" for row in rows if row[2] == "success" and row[0] not in done]
    found += [f"still live: {run}" for run in runs.values() if run[3] != "ended"]
    ordered = sorted(instants)
    found += [f"no row between {a} and {b}" for a, b in pairwise(ordered) if b - a != period]
    return found
