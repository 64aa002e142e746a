"""Runs in the machine, the daemon stopped: copies an occurrence with its run and its cell N times, long settled.

    fill.py N
"""

import os
import sqlite3
import sys

from crtrd.names import places

LEDGER = places(os.environ, user=False).ledger
OLD = 1_000_000_000_000_000
"""In 2001."""


def copy(ledger, table, changed, where):
    """Rows of `table` like the one at WHERE, with an expression of `n.i` for each of the columns that are CHANGED."""
    columns = [row[1] for row in ledger.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(column, f"t.{column}") for column in columns)
    ledger.execute(f"INSERT INTO {table} ({', '.join(columns)}) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
                   f" FROM n WHERE i < {int(sys.argv[1])}) SELECT {values} FROM n, (SELECT * FROM {table} {where}) t")


def main():
    ledger = sqlite3.connect(LEDGER)
    first = ledger.execute("SELECT max(serial) FROM occurrences").fetchone()[0]
    first_run = ledger.execute("SELECT max(serial) FROM runs").fetchone()[0]
    occurrence = "printf('%032x', n.i)"
    copy(ledger, "runs", {"serial": f"{first_run} + n.i", "id": "printf('%032x', n.i)", "occurrence_id": occurrence,
                          "cron_id": "printf('%032x', n.i % 1000)"}, f"WHERE serial = {first_run}")
    copy(ledger, "cells", {"occurrence_id": occurrence}, "LIMIT 1")
    copy(ledger, "occurrences", {"serial": f"{first} + n.i", "id": occurrence, "key": "printf('k%d', n.i)",
                                 "cron_id": "printf('%032x', n.i % 1000)", "created_at": str(OLD), "due_at": str(OLD),
                                 "settled_at": str(OLD)}, f"WHERE serial = {first}")
    ledger.commit()


if __name__ == "__main__":
    main()
