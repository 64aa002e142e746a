"""The floor: about the least that a Python daemon with a durable ledger can do for its runs.

    floor.py LEDGER COMMAND… <INSTANTS        # microseconds since the epoch, one a line; prints JSON at the end

One process, epoll and pidfds; one transaction leases all rows that are due; each command has a process group of its own
and two pipes; what has ended is settled in batches of at most 64. SQLite in WAL mode, synchronous=FULL.
"""

import json
import os
import resource
import select
import sqlite3
import subprocess
import sys
import time

BATCH = 64


def open_ledger(path, instants):
    ledger = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=wal", "synchronous=full"):
        ledger.execute(f"PRAGMA {pragma}")
    ledger.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, due INTEGER, state TEXT, status INTEGER, ended INTEGER,"
                   " output BLOB)")
    ledger.execute("CREATE INDEX due ON runs (state, due)")
    ledger.execute("BEGIN")
    ledger.executemany("INSERT INTO runs (due, state) VALUES (?, 'pending')", [(each,) for each in instants])
    ledger.execute("COMMIT")
    return ledger


class Floor:
    def __init__(self, ledger, command):
        self.ledger, self.command = ledger, command
        self.epoll, self.watched, self.ended = select.epoll(), {}, []
        self.alarm = os.timerfd_create(time.CLOCK_REALTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
        self.epoll.register(self.alarm, select.EPOLLIN)

    def lease(self):
        """Lease and start what is due, and have the alarm ring when the next one is. Says whether there is a next."""
        rows = self.ledger.execute("UPDATE runs SET state = 'running' WHERE state = 'pending' AND due <= ?"
                                   " RETURNING id", (time.time_ns() // 1000,)).fetchall()
        for number, in rows:
            child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE, process_group=0)
            pidfd = os.pidfd_open(child.pid)
            self.watched[pidfd] = (number, child, None)
            for pipe in (child.stdout, child.stderr):
                self.watched[pipe.fileno()] = (number, child, pipe)
            for fd in (pidfd, child.stdout.fileno(), child.stderr.fileno()):
                self.epoll.register(fd, select.EPOLLIN)
        following = self.ledger.execute("SELECT min(due) FROM runs WHERE state = 'pending'").fetchone()[0]
        if following is not None:
            os.timerfd_settime_ns(self.alarm, flags=os.TFD_TIMER_ABSTIME, initial=following * 1000)
        return following is not None

    def hear(self, fd):
        number, child, pipe = self.watched[fd]
        if pipe and os.read(fd, 65536):
            return
        self.epoll.unregister(fd)
        del self.watched[fd]
        if pipe:
            pipe.close()
        else:
            os.close(fd)
            self.ended.append((child.wait(), time.time_ns() // 1000, b"", number))

    def settle(self):
        """At most BATCH of them, durable on return."""
        batch, self.ended = self.ended[:BATCH], self.ended[BATCH:]
        self.ledger.execute("BEGIN IMMEDIATE")
        self.ledger.executemany("UPDATE runs SET state = 'settled', status = ?, ended = ?, output = ? WHERE id = ?",
                                batch)
        self.ledger.execute("COMMIT")

    def run(self):
        more = self.lease()
        while more or self.watched or self.ended:
            for fd, _ in self.epoll.poll(0 if self.ended else -1, BATCH):
                if fd == self.alarm:
                    os.read(fd, 8)
                    more = self.lease()
                else:
                    self.hear(fd)
            if self.ended:
                self.settle()


def cpu():
    """Seconds of this process and of those it has waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def main():
    ledger = open_ledger(sys.argv[1], [int(line) for line in sys.stdin])
    resource.setrlimit(resource.RLIMIT_NOFILE, (16384, 16384))
    ready, before = time.time_ns() // 1000, cpu()
    Floor(ledger, sys.argv[2:]).run()
    print(json.dumps({"ready": ready, "settled": time.time_ns() // 1000, "cpu": cpu() - before}))


if __name__ == "__main__":
    main()
