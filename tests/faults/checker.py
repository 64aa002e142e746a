"""Reads afterwards what a life of kills has left: the ledger's rows and the marks that the commands themselves made.

Rules (DESIGN §2): no command without a row, no instant with two rows, nothing executed twice under
`on_crash = record`, nothing off its instant, every settled row that is no success has a reason.
"""

import hashlib
import json
import re
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
        "SELECT id, instant, status, reason, origin, settled_at, covers FROM occurrences WHERE cron_name = ?", cron)
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
    found += _gaps(ordered, period, {row[1]: row[6] for row in rows if row[4] == "schedule"})
    return found


def _gaps(instants: list[int], period: int, covers: dict[int, int]) -> list[str]:
    """An instant has a row of its own, or is counted in the one row of a long downtime (`catch_up`, at most 100)."""
    found = []
    for before, after in pairwise(instants):
        missing = (after - before) // period - 1
        if missing not in {covers[after] - 1, covers[before] - 1}:
            found.append(f"no row between {before} and {after}: {missing} missing")
    total = (instants[-1] - instants[0]) // period + 1 if instants else 0
    counted = sum(covers.values())
    edge = max((covers[instant] - 1 for instant in instants[:1]), default=0)
    if counted not in {total, total + edge}:
        found.append(f"{total} instants, and rows for {counted}")
    return found


def untold(crtrd, cron: str) -> list[str]:
    """A run that has ended with something to tell has its row of the outbox: both are of one transaction."""
    runs = crtrd.rows(
        "SELECT id FROM runs WHERE cron_name = ? AND phase = 'ended' AND (result IN ('exit-code', 'unobserved') "
        "OR (result = 'success' AND stdout_total > 0))", cron)
    told = Counter(row[0] for row in crtrd.rows("SELECT run_id FROM outbox WHERE cron_name = ?", cron))
    found = [f"run {run} is told {told[run]} times" for (run,) in runs if told[run] != 1]
    found += [] if runs else ["no run had anything to tell"]
    inbox = [json.loads(line)["id"] for file in crtrd.places.inbox.glob("*.jsonl")
             for line in file.read_text().splitlines()]
    taken = {row[0] for row in crtrd.rows("SELECT id FROM outbox WHERE state = 'delivered'")}
    return found + [f"in the inbox {count} times: {name}" for name, count in Counter(inbox).items() if count > 1] + [
        f"delivered and not there: {name}" for name in taken - set(inbox)]


def output_violations(crtrd, cron: str, expected: bytes) -> list[str]:
    """Of every run that ended by itself: head, count, hash, true status, and its lines and entries in the log."""
    whole = hashlib.sha256(expected).hexdigest()
    found = []
    runs = crtrd.rows("SELECT id, result, exit_code, stdout_head, stdout_total, stdout_sha256 FROM runs "
                      "WHERE cron_name = ? AND result IN ('success', 'exit-code')", cron)
    for run, result, code, head, total, sha256 in runs:
        if (head, total, sha256) != (expected[:4096], len(expected), whole):
            found.append(f"output of run {run} ({result}): {total} of {len(expected)} bytes, {head[:40]!r}")
        if (result == "success") != (code == 0):
            found.append(f"status of run {run}: {result} with {code}")
    told = Counter(run for run in _settled(crtrd.said(), cron))
    found += [f"settled {count} times in the log: {run}" for run, count in told.items() if count > 1]
    lines = len([line for line in crtrd.said().splitlines() if line.startswith(f"{cron} stdout: ")])
    least = sum(expected.count(b"\n") for _ in runs)
    if lines < least:
        found.append(f"{least - lines} of {least} lines of output are not in the log")
    return found


def _settled(log: str, cron: str) -> list[str]:
    return re.findall(rf"cron\.run\.settled: {re.escape(cron)}: run ([0-9a-f]+) ", log)
