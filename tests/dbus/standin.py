"""A small real control in memory: crons that are armed, runs that succeed at once. Stands in for crtrd.control where
only the surfaces are under test; run as a program it serves the bus at the address given."""

import itertools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from crtrd.control import arguments
from crtrd.core.effects import Announce
from crtrd.core.occurrence import derive_id
from crtrd.dbus.service import BusService
from crtrd.errors import Code, RequestError
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor

NOON = 1_764_590_400_000_000  # 2025-12-01T12:00:00Z
MINUTE = 60_000_000
KNOWN = frozenset({"name", "schedule", "command", "shell", "env", "timezone", "overlap", "timeout", "retries",
                   "success_exit_codes", "targets", "sinks", "on_output", "resources", "cwd", "stdin", "umask"})


@dataclass
class StandIn:
    """`allowed` uids may do everything. With `hold` on, answers wait in `held` until the test lets them go."""

    allowed: set[int] = field(default_factory=lambda: {os.geteuid()})
    hold: bool = False
    head: bytes = b"hello\n"
    exit_code: int = 0
    level: str = "debug"
    later: Callable[[Callable[[], None]], None] | None = None
    """Where the end of a run is put; None: it ends at once."""

    def __post_init__(self) -> None:
        self.crons: dict[str, dict[str, object]] = {}
        self.runs: dict[str, dict[str, object]] = {}
        self.occurrences: dict[str, dict[str, object]] = {}
        self.held: list[Callable[[], None]] = []
        self.calls: list[tuple[str, tuple[object, ...], object]] = []
        self.touches = 0
        self._listeners: list[Callable[[Announce], None]] = []
        self._serial = itertools.count(1)

    def call(self, verb, arguments, caller, reply):
        self.calls.append((verb, arguments, caller))
        try:
            if caller.uid is None or caller.uid not in self.allowed:
                raise RequestError(Code.ACCESS_DENIED, f"cannot {verb}: not authorised")
            handler = getattr(self, "verb_" + verb, None)
            if handler is None:
                raise RequestError(Code.INVALID_STATE, f"cannot {verb}: not available yet")
            value = handler(*arguments)
        except RequestError as refusal:
            value = refusal
        if self.hold:
            self.held.append(lambda: reply(value))
        else:
            reply(value)

    def properties(self, wanted=""):
        return {"Version": "1", "InstanceId": "i" * 32, "State": "running", "CronCount": len(self.crons),
                "ActiveCount": 0, "HeldCount": 0, "OutboxPending": 0, "NextWakeUSec": NOON, "StartedUSec": NOON}

    def log_level(self):
        return self.level

    def verb_set_log_level(self, level):
        self.level = level

    def verb_properties(self):
        return None

    def verb_open_output(self, run):
        if run not in self.runs:
            raise RequestError(Code.NO_SUCH_RUN, "cannot open the output: no run has that id")
        fd = os.memfd_create("output")
        os.write(fd, self.head)
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def subscribe(self, listener):
        self._listeners.append(listener)

    def touched(self):
        self.touches += 1

    def announce(self, kind, message="something happened", **fields):
        for listener in self._listeners:
            listener(Announce(kind, message, fields))

    def release_held(self):
        held, self.held = self.held, []
        for go in held:
            go()

    def find(self, name):
        for cron in self.crons.values():
            if name in {cron["id"], cron["name"]}:
                return cron
        raise RequestError(Code.NO_SUCH_CRON, f"cannot find cron {name!r}: no such cron")

    def verb_arm(self, definition):
        unknown = sorted(set(definition) - KNOWN)
        if unknown:
            raise RequestError(Code.INVALID_DEFINITION, f"cannot accept {unknown[0]}: unknown key")
        name = str(definition.get("name", ""))
        if any(cron["name"] == name for cron in self.crons.values()):
            raise RequestError(Code.CRON_EXISTS, f"cannot arm {name}: it exists")
        cron_id = derive_id("cron", next(self._serial))
        self.crons[cron_id] = {
            "id": cron_id, "name": name, "state": "active", "paused_by": "", "note": "", "owner": 0,
            "schedule": list(definition.get("schedule", ())), "timezone": definition.get("timezone", "UTC"),
            "next": NOON, "skips": [], "held": 0, "last_status": None, "last_run": None, "created_at": NOON,
            "changed_at": NOON,
            "failures": 0, "definition": {key: value for key, value in definition.items() if key != "name"},
        }
        self.announce("cron.armed", CRTRD_CRON_ID=cron_id, CRTRD_CRON=name)
        return {"id": cron_id, "next": NOON}

    def verb_change(self, name, changes):
        cron = self.find(name)
        cron["definition"].update(changes)
        self.announce("cron.changed", CRTRD_CRON_ID=cron["id"])
        return {}

    def verb_cancel(self, name, options):
        assert isinstance(options["kill"], bool)
        cron = self.find(name)
        del self.crons[cron["id"]]
        for history in (self.runs, self.occurrences):
            for key in [key for key, row in history.items() if row["cron_id"] == cron["id"]]:
                del history[key]
        self.announce("cron.canceled", CRTRD_CRON_ID=cron["id"])
        return {}

    def verb_pause(self, name, note):
        self.find(name).update(state="paused", paused_by="user", note=note, next=None)

    def verb_resume(self, name):
        self.find(name).update(state="active", paused_by="", note="", next=NOON)

    def verb_skip(self, name, usec):
        cron = self.find(name)
        cron["skips"] = sorted({*cron["skips"], usec or self.verb_next(name, 1)[0]})

    def verb_unskip(self, name, usec):
        cron = self.find(name)
        cron["skips"] = [each for each in cron["skips"] if usec not in {0, each}]

    def verb_backfill(self, name, start, end, options):
        assert options == {}
        assert (start, end) == (1, NOON)
        return 3

    def verb_poke(self, name):
        self.find(name)
        return 1

    def verb_run(self, name, options):
        cron = self.find(name)
        occurrence = derive_id("occurrence", next(self._serial))
        run = derive_id("run", next(self._serial))
        both = {"cron_id": cron["id"], "cron_name": cron["name"]}
        self.occurrences[occurrence] = {
            "id": occurrence, **both, "origin": "manual", "instant": NOON, "key": "", "label": "",
            "status": "running", "reason": "", "detail": "", "created_at": NOON, "settled_at": None,
            "cells": [{"target": options["target"], "status": "running", "attempts": 1}],
        }
        self.runs[run] = {
            "id": run, **both, "occurrence_id": occurrence, "target": options["target"], "attempt": 1,
            "trigger": "manual", "scheduled_at": NOON, "started_at": NOON, "finished_at": None, "duration_us": None,
            "result": None, "reason": "", "exit_code": None, "signal": None, "pid": 4242, "out_of_band": True,
            "stdout_head": b"", "stdout_bytes": 0, "stdout_sha256": "", "stdout_truncated": False,
            "stderr_head": b"", "stderr_bytes": 0, "stderr_truncated": False, "survivors": [], "delivered": "",
        }
        self.announce("cron.run.started", CRTRD_CRON_ID=cron["id"], CRTRD_RUN_ID=run)
        if self.later is None:
            self.settle(run)
        else:
            self.later(lambda: self.settle(run))
        return {"occurrence": occurrence, "runs": [run]}

    def settle(self, run_id):
        run = self.runs[run_id]
        result = "success" if self.exit_code == 0 else "exit-code"
        run.update(finished_at=NOON + MINUTE, duration_us=MINUTE, result=result, exit_code=self.exit_code,
                   stdout_head=self.head, stdout_bytes=len(self.head))
        status = "success" if self.exit_code == 0 else "failed"
        self.occurrences[run["occurrence_id"]].update(status=status, settled_at=NOON + MINUTE)
        cron = self.crons.get(run["cron_id"], {})
        cron.update(last_status=status, last_run=run_id)
        ids = {"CRTRD_CRON_ID": run["cron_id"], "CRTRD_RUN_ID": run_id, "CRTRD_OCCURRENCE_ID": run["occurrence_id"]}
        self.announce("cron.run.settled", f"{run['cron_name']} ended", **ids, CRTRD_RESULT=result)
        self.announce("cron.occurrence.settled", **ids, CRTRD_STATUS=status, CRTRD_REASON="")

    def verb_trigger(self, name, options):
        self.find(name)
        return {"disposition": "accepted", "occurrence_id": derive_id(str(options)), "status": "pending"}

    def verb_rerun(self, occurrence):
        row = self.occurrences[occurrence]
        return self.verb_run(row["cron_id"], {"target": ""})

    def verb_kill(self, run, signal):
        if run not in self.runs:
            raise RequestError(Code.NO_SUCH_RUN, f"cannot kill run {run!r}: no such run")
        self.runs[run]["signal"] = signal

    def verb_next(self, name, count):
        skips = self.find(name)["skips"]
        ahead = (NOON + index * MINUTE for index in itertools.count())
        return list(itertools.islice((each for each in ahead if each not in skips), count))

    def verb_calendar(self, definition, start, count):
        return [start + index * MINUTE for index in range(1, count + 1)]

    def verb_explain(self, name, usec):
        self.find(name)
        return {"instant": usec, "status": "skipped", "reason": "overlap", "rule": None}

    def verb_get_cron(self, name):
        return dict(self.find(name))

    def verb_find_cron(self, name):
        return {"id": self.find(name)["id"]}

    def verb_get_run(self, run):
        if run not in self.runs:
            raise RequestError(Code.NO_SUCH_RUN, f"cannot find run {run!r}: no such run")
        return dict(self.runs[run])

    def verb_get_occurrence(self, name):
        found = [row for key, row in self.occurrences.items() if key.startswith(name)]
        if len(found) != 1:
            raise RequestError(Code.NO_SUCH_OCCURRENCE, f"cannot find occurrence {name!r}: no such occurrence")
        return dict(found[0])

    def verb_list_crons(self, criteria, limit, cursor):
        return page(self.crons, criteria, limit, cursor)

    def verb_list_runs(self, criteria, limit, cursor):
        return page(self.runs, criteria, limit, cursor)

    def verb_list_occurrences(self, criteria, limit, cursor):
        return page(self.occurrences, criteria, limit, cursor)

    def verb_status(self):
        return {"state": "running", "cron_count": len(self.crons)}

    def verb_list_outbox(self, criteria, limit, cursor):
        return [{"id": "d" * 32, "state": "pending", "attempts": 2, "next_attempt_at": NOON}], ""

    def verb_list_escalations(self, criteria, limit, cursor):
        return [{"id": "e" * 32, "state": "open", "at": NOON}], ""

    def verb_read_inbox(self, owner, cursor, limit):
        return [{"id": "a" * 32, "subject": "s", "exit_code": 1}], "a" * 32

    def verb_ack_inbox(self, owner, cursor):
        return None

    def verb_retry_delivery(self, name):
        return None

    def verb_discard_delivery(self, name):
        return None

    def verb_deliver_escalation(self, name):
        return None

    def verb_drain(self, enable):
        self.draining = enable

    def verb_reload(self):
        pass

    def verb_reexecute(self):
        pass


def page(rows, criteria, limit, cursor):
    found = list(rows.values())
    if cron := criteria.get("cron"):
        found = [row for row in found if cron in {row.get("cron_id"), row.get("cron_name"), row["id"], row.get("name")}]
    for key in ("status", "result", "state", "occurrence_id"):
        if key in criteria:
            found = [row for row in found if row.get(key) == criteria[key]]
    _, start = arguments.page(limit, cursor)  # which refuses what no list has given, as the real verbs do
    onward = str(start + limit) if start + limit < len(found) else ""
    return [dict(row) for row in found[start : start + limit]], onward


class Daemon:
    """Serves the bus; with `idle` (microseconds) it leaves so long after the last request, name first."""

    def __init__(self, address: str, exit_code: int, idle: int) -> None:
        self.reactor = Reactor(Clock())
        self.control = StandIn(exit_code=exit_code)
        self.control.later = lambda end: self.reactor.later(50_000, end)
        self.control.touched = self.touched
        self.service = BusService(self.reactor, self.control, address=address, user=False)
        self.service.on_owned = lambda: sys.stdout.write("ready\n") and sys.stdout.flush()
        self.idle = idle
        self.timer = None

    def run(self) -> None:
        self.service.start()
        self.touched()
        self.reactor.run()
        self.service.close()

    def touched(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        if self.idle:
            self.timer = self.reactor.later(self.idle, lambda: self.service.release(self.leave))

    def leave(self) -> None:
        if self.service.pending():
            self.reactor.later(1000, self.leave)
        else:
            self.reactor.stop()


def main(address: str, exit_code: str = "0", idle: str = "0") -> None:
    Daemon(address, int(exit_code), int(idle)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
