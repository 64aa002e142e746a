"""The verbs: access, then arguments, then an event for the engine or a view from the ledger.

`Control.call` answers exactly once through `reply`, with a value or a RequestError; an answer to anything that changes
the ledger comes only when the change is durable (I7). Bad input never raises out of here.
"""

import os
import signal
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from crtrd import __version__
from crtrd.config.loader import host_zone
from crtrd.config.reader import LIST_LIMIT
from crtrd.control import ahead, arguments, operating, telling, views, waiting
from crtrd.control.access import Ask, Caller, nobody_to_ask, words_of
from crtrd.control.admission import Admission
from crtrd.control.arming import changed_fields, new_definition
from crtrd.control.denials import Denials
from crtrd.control.explain import explanation
from crtrd.control.metrics import Metrics
from crtrd.core import events
from crtrd.core.cron import SECOND, Cron, Definition, Overlap, whose
from crtrd.core.effects import Announce
from crtrd.core.occurrence import Cell, Occurrence, Origin
from crtrd.core.timetable import compiled, instants_ahead
from crtrd.engine.engine import Engine
from crtrd.engine.lifecycle import Stage
from crtrd.errors import Code, ConfigError, LedgerError, RequestError, ScheduleError
from crtrd.ledger.queries import Filter
from crtrd.supervision.membership import belongs
from crtrd.values import dataclass

__all__ = ["Caller", "Control", "Hooks", "Reply"]

Reply = Callable[[object], None]
NONE_OR_SEVERAL = "none has that id, or several begin so"
MOST_INSTANTS = 1000


@dataclass(slots=True)
class Hooks:
    """What the composition root lends: things above the engine that a verb may need."""

    touched: Callable[[], None] = lambda: None
    reload: Callable[[Reply], None] = lambda done: done(None)
    """Read every file again; the reply comes when what was read is durable."""
    reexecute: Callable[[], None] = lambda: None
    stage: Callable[[], Stage] = lambda: Stage.RUNNING
    authority: Ask = nobody_to_ask
    log_level: Callable[[], int] = lambda: 6
    set_log_level: Callable[[int], None] = lambda _: None
    follow: Callable[[str], int | None] = lambda _: None
    """The output of a live run as a pipe; None where it is not live."""
    inbox: Callable[[], Path] = Path
    """The folder of the inboxes."""


class Control:
    """One instance serves every surface."""

    def __init__(self, engine: Engine, instance: str, hooks: Hooks) -> None:
        self.engine, self.instance, self.hooks = engine, instance, hooks
        self.started_at = engine.reactor.clock.wall()
        self.metrics = Metrics(engine.store.queries, self.started_at)
        self.subscribe(self.metrics.count)
        self.queries = engine.store.queries
        self._admission = Admission(self.queries, lambda: hooks.authority)
        self._denials = Denials(engine.reactor.clock.mono)

    def call(self, verb: str, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        """Use a verb. `given` comes straight from outside."""
        def go(given: tuple[object, ...], caller: Caller) -> None:
            self._perform(verb, given, caller, reply)

        def refuse(error: RequestError) -> None:
            self._announce_denied(verb, caller)
            reply(error)

        try:
            self._admission.admit(verb, given, caller, go, refuse)
        except LedgerError as error:
            reply(RequestError(Code.LEDGER_UNAVAILABLE, str(error)))

    def _perform(self, verb: str, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        try:
            handler = self.VERBS.get(verb)
            if handler is None:
                message = f"cannot {words_of(verb)}: this version cannot do that yet"
                raise RequestError(Code.INVALID_STATE, message)
            handler(self, given, caller, reply)
        except RequestError as error:
            reply(error)
        except ConfigError as error:
            reply(RequestError(Code.INVALID_DEFINITION, str(error)))
        except LedgerError as error:
            reply(RequestError(Code.LEDGER_UNAVAILABLE, str(error)))

    def subscribe(self, listener: Callable[[Announce], None]) -> None:
        """Hear of every event, after it is durable."""
        self.engine.executor.listeners.append(listener)

    def touched(self) -> None:
        """A request arrived: the idle window starts anew."""
        self.hooks.touched()

    def properties(self, wanted: str = "") -> dict[str, object]:
        """The Manager's properties (CONTRACT §6), or the one that is wanted where no counting is needed for it.

        Counts are 0 while the ledger cannot be read.
        """
        known = {"Version": __version__, "InstanceId": self.instance, "State": self.state,
                 "StartedUSec": self.started_at}
        if wanted in known:
            return {wanted: known[wanted]}
        try:
            counts, upcoming = self.queries.counts(), self.queries.next_wake()
        except LedgerError:
            counts, upcoming = {}, None
        crons = sum(counts.get(state, 0) for state in ("active", "paused", "finished"))
        return {
            **known, "CronCount": crons, "ActiveCount": counts.get("live", 0), "HeldCount": counts.get("held", 0),
            "OutboxPending": counts.get("outbox", 0), "NextWakeUSec": upcoming or 0,
        }

    def log_level(self) -> str:
        return operating.LEVELS[self.hooks.log_level()]

    @property
    def state(self) -> str:
        stage = self.hooks.stage()
        if stage is Stage.RUNNING and self.engine.trouble:
            return f"degraded: {self.engine.trouble}"
        return "draining" if stage is Stage.RUNNING and self.engine.drained else str(stage)

    def _announce_denied(self, verb: str, caller: Caller) -> None:
        if not self._denials.tell(caller.uid):
            return
        fields: dict[str, str | int] = {} if caller.uid is None else {"CRTRD_CALLER_UID": caller.uid}
        who = "an unknown caller" if caller.uid is None else f"uid {caller.uid}"
        message = f"{who} may not {words_of(verb)} (by {caller.via})"
        self.engine.executor.perform([Announce("auth.denied", message, fields, 5)])

    # changing ----------------------------------------------------------------------------------------------------

    def post(self, make: Callable[[int, int], events.Event], reply: Reply) -> None:
        """Post a request event made from (now, ticket)."""
        if self.hooks.stage() is Stage.STOPPING:
            raise RequestError(Code.SHUTTING_DOWN, "cannot take requests: crtrd is stopping")
        self.engine.post(make(self.engine.reactor.clock.wall(), self.engine.executor.ticket(reply)))

    def _arm(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        table = arguments.keys(given[0], "definition")
        uid, cron_id = _uid(caller), uuid.uuid4().hex
        where, contexts = f"cron {_shown(table.get('name'))}", self.engine.executor.contexts
        contexts.this_turn(self.engine.reactor.soon)
        definition, account = new_definition(
            table, self.engine.executor, uid, where=where, timezone=contexts.zone(), pools=self.engine.limits.pools)
        self.post(
            lambda now, ticket: events.ArmRequested(now, ticket, uid, cron_id, definition, account),
            _mapped(reply, lambda cron: {"id": cron.id, "next": cron.next_at}, Cron))

    def _change(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        cron = self.cron(given[0])
        table = arguments.keys(given[1], "changes")
        changes, account = changed_fields(
            table, cron, self.engine.executor, where=f"cron {cron.name}", pools=self.engine.limits.pools)
        if caller.limited:
            account = cron.account  # should another user be written into it meanwhile, it starts nothing
        self.post(
            lambda now, ticket: events.ChangeRequested(now, ticket, _uid(caller), cron.id, changes, account),
            _mapped(reply, lambda cron: {"id": cron.id, "next": cron.next_at}, Cron))

    def _cancel(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name = arguments.text(given[0], "cron")
        chosen = arguments.options(given[1], "cancel", {"kill": bool, "run": str})
        kill, own = chosen.get("kill", False), self._own_run(chosen.get("run", ""), caller)
        self.post(
            lambda now, ticket: events.CancelRequested(now, ticket, _uid(caller), name, kill, own), _empty(reply))

    def _own_run(self, run_id: str, caller: Caller) -> str:
        """`run_id` where the caller is a process of that run, else ''."""
        run = self.queries.run(run_id) if run_id else None
        return run.id if run is not None and belongs(caller.pid, run) else ""

    def _pause(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name, note = arguments.text(given[0], "cron"), arguments.text(given[1], "note")
        self.post(lambda now, ticket: events.PauseRequested(now, ticket, _uid(caller), name, note), _empty(reply))

    def _resume(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name = arguments.text(given[0], "cron")
        self.post(lambda now, ticket: events.ResumeRequested(now, ticket, _uid(caller), name), _empty(reply))

    def _skip(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name, instant = arguments.text(given[0], "cron"), arguments.instant(given[1], "instant")
        self.post(lambda now, ticket: events.SkipRequested(now, ticket, _uid(caller), name, instant), reply)

    def _unskip(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name, instant = arguments.text(given[0], "cron"), arguments.instant(given[1], "instant")
        self.post(
            lambda now, ticket: events.SkipRequested(now, ticket, _uid(caller), name, instant, undo=True),
            _empty(reply))

    def _poke(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name = arguments.text(given[0], "cron")
        self.post(lambda now, ticket: events.PokeRequested(now, ticket, _uid(caller), name), reply)

    def _run(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name = arguments.text(given[0], "cron")
        chosen = arguments.options(given[1], "run", {"target": str, "overlap": str})
        _check_overlap(chosen.get("overlap", ""))
        key = uuid.uuid4().hex
        self.post(
            lambda now, ticket: events.DispatchRequested(
                now, ticket, _uid(caller), name, Origin.MANUAL, key, now, target=chosen.get("target", ""),
                overlap=chosen.get("overlap", "")),
            _mapped(reply, _dispatched, tuple))

    def _rerun(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        wanted = self._occurrence(given[0]).id
        key = uuid.uuid4().hex
        self.post(
            lambda now, ticket: events.RerunRequested(now, ticket, _uid(caller), wanted, key),
            _mapped(reply, _dispatched, tuple))

    def _backfill(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        name = arguments.text(given[0], "cron")
        start, end = arguments.instant(given[1], "from"), arguments.instant(given[2], "to")
        dry_run = arguments.options(given[3], "backfill", {"dry_run": bool}).get("dry_run", False)
        self.post(
            lambda now, ticket: events.BackfillRequested(now, ticket, _uid(caller), name, start, end, dry_run),
            _mapped(reply, len, tuple))

    def _kill(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        run_id = arguments.text(given[0], "run")
        signum = arguments.number(given[1], "signal", 1, signal.SIGRTMAX)
        found = self.queries.run(run_id)
        full = found.id if found else run_id
        self.post(lambda now, ticket: events.KillRequested(now, ticket, _uid(caller), full, signum), _empty(reply))

    # reading -----------------------------------------------------------------------------------------------------

    def cron(self, name_or_id: object) -> Cron:
        wanted = arguments.text(name_or_id, "cron")
        cron = self.queries.cron(wanted)
        if cron is None:
            raise RequestError(Code.NO_SUCH_CRON, f"cannot find cron {_shown(wanted)}: no cron has that name or id")
        return cron

    def _summaries(self, crons: list[Cron]) -> list[views.View]:
        standing = self.queries.standing([cron.id for cron in crons])
        return [views.cron_view(cron, standing[cron.id]) for cron in crons]

    def _get_cron(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        cron = self.cron(given[0])
        reply(views.cron_details(cron, self._summaries([cron])[0]))

    def _find_cron(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        """Only which one it is."""
        reply({"id": self.cron(given[0]).id})

    def _get_run(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        wanted = arguments.text(given[0], "run")
        run = self.queries.run(wanted)
        if run is None:
            raise RequestError(Code.NO_SUCH_RUN, f"cannot find run {_shown(wanted)}: {NONE_OR_SEVERAL}")
        reply(views.run_view(run))

    def _occurrence(self, given: object) -> Occurrence:
        wanted = arguments.text(given, "occurrence")
        found = self.queries.occurrence(wanted)
        if found is None:
            message = f"cannot find occurrence {_shown(wanted)}: {NONE_OR_SEVERAL}"
            raise RequestError(Code.NO_SUCH_OCCURRENCE, message)
        return found

    def _get_occurrence(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        found = self._occurrence(given[0])
        reply(self._seen(found, self.queries.cells(found.id)))

    def _seen(self, row: Occurrence, cells: list[Cell]) -> views.View:
        """With what it waits for, where it waits."""
        row = replace(row, detail=waiting.detail(row, self.engine, self.queries))
        return views.occurrence_view(row, cells)

    def _list_crons(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        wanted, (limit, after) = arguments.cron_filter(given[0]), arguments.page(given[1], given[2])
        if caller.limited:
            wanted = replace(wanted, ids=self._own_crons(caller))
        crons, onward = self.queries.crons(wanted, limit, after)
        reply((self._summaries(crons), str(onward) if onward else ""))

    def _own_crons(self, caller: Caller) -> tuple[str, ...]:
        """Ids of the crons that are the caller's, and of those that were and still have history."""
        uid = _uid(caller)
        own = [cron.id for cron in self.queries.crons_of(uid) if whose(cron) == uid]
        return (*own, *self.queries.former_of(uid))

    def history(
        self, given: tuple[object, ...], caller: Caller, verb: str, words: Mapping[str, type]
    ) -> tuple[Filter, int, int]:
        """What a list is narrowed to, for this caller."""
        chosen = arguments.table(given[0], "filter")
        cron_id = self._history_cron(chosen["cron"]) if chosen.get("cron") else ""
        limit, after = arguments.page(given[1], given[2])
        wanted = arguments.history_filter(chosen, verb, cron_id, words)
        return replace(wanted, ids=self._own_crons(caller)) if caller.limited else wanted, limit, after

    def _history_cron(self, wanted: object) -> str:
        """History outlives its cron: an id that only the ledger's rows know is good enough."""
        name = arguments.text(wanted, "cron")
        cron = self.queries.cron(name)
        cron_id = cron.id if cron else self.queries.former_cron(name)
        if cron_id is None:
            raise RequestError(Code.NO_SUCH_CRON, f"cannot find cron {_shown(name)}: no cron has that name or id")
        return cron_id

    def _list_occurrences(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        wanted, limit, after = self.history(given, caller, "list occurrences", {"status": str})
        found, onward = self.queries.occurrences_with_cells(wanted, limit, after)
        rows = [self._seen(each, cells) for each, cells in found]
        reply((rows, str(onward) if onward else ""))

    def _list_runs(self, given: tuple[object, ...], caller: Caller, reply: Reply) -> None:
        wanted, limit, after = self.history(given, caller, "list runs", {"result": str, "occurrence_id": str})
        found, onward = self.queries.runs(wanted, limit, after)
        reply(([views.run_view(run) for run in found], str(onward) if onward else ""))

    def _next(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        cron, count = self.cron(given[0]), arguments.number(given[1], "count", 0, MOST_INSTANTS)
        ahead.tell(instants_ahead(cron), count, self.engine.reactor, reply)

    def _calendar(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        chosen = arguments.options(given[0], "calendar", {"schedule": list, "timezone": str})
        start = arguments.instant(given[1], "from") or self.engine.reactor.clock.wall()
        count = arguments.number(given[2], "count", 0, MOST_INSTANTS)
        listed = chosen.get("schedule", ())
        if len(listed) > LIST_LIMIT:
            message = f"cannot read schedule: it has {len(listed)} elements, at most {LIST_LIMIT} are allowed"
            raise arguments.refuse(message)
        texts = tuple(arguments.text(each, "schedule") for each in listed)
        sample = Definition("calendar", schedule=texts, timezone=chosen.get("timezone") or host_zone())
        try:
            schedule = compiled(sample, start - start % SECOND, "")
        except (ScheduleError, ValueError) as error:
            raise RequestError(Code.INVALID_DEFINITION, str(error)) from error
        ahead.tell(schedule.instants(start), count, self.engine.reactor, reply)

    def _explain(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        cron, instant = self.cron(given[0]), arguments.instant(given[1], "instant")
        reply(explanation(cron, instant, self.queries, self.engine.reactor.clock.wall()))

    def _status(self, _given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        reply({
            "version": __version__, "instance_id": self.instance, "state": self.state, "pid": os.getpid(),
            "started_at": self.started_at, "crons": self.queries.counts(),
            "next_wake": self.queries.next_wake(),
        })

    def _may_read(self, _given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        """Who comes so far may read the state; what of it, the surface knows."""
        reply(None)

    # operations --------------------------------------------------------------------------------------------------

    def _drain(self, given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        """Start nothing more, or start again; what is due meanwhile waits, and nothing is lost."""
        self.engine.drained = arguments.flag(given[0], "drain")
        self.engine.wake()
        reply(None)

    def _reload(self, _given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        if self.hooks.stage() is Stage.STOPPING:
            raise RequestError(Code.SHUTTING_DOWN, "cannot reload: crtrd is stopping")
        self.hooks.reload(_empty(reply))

    def _reexecute(self, _given: tuple[object, ...], _: Caller, reply: Reply) -> None:
        """Answered first: the rest of this life's calls are answered while it gives up its name."""
        reply(None)
        self.hooks.reexecute()

    VERBS: ClassVar[Mapping[str, Callable[["Control", tuple[object, ...], Caller, Reply], None]]] = {
        "arm": _arm, "change": _change, "cancel": _cancel, "pause": _pause,
        "resume": _resume, "skip": _skip, "unskip": _unskip, "poke": _poke, "run": _run,
        "rerun": _rerun, "backfill": _backfill, "kill": _kill, "get_cron": _get_cron, "get_run": _get_run,
        "find_cron": _find_cron, "properties": _may_read,
        "get_occurrence": _get_occurrence, "list_crons": _list_crons,
        "list_occurrences": _list_occurrences, "list_runs": _list_runs, "next": _next,
        "calendar": _calendar, "explain": _explain, "status": _status,
        "drain": _drain, "reload": _reload, "reexecute": _reexecute, **telling.VERBS, **operating.VERBS,
    }


def _uid(caller: Caller) -> int:
    return os.geteuid() if caller.uid is None else caller.uid


def _shown(value: object) -> str:
    text = str(value)[:80]
    return repr(text) if text.isprintable() else ascii(text)


def _check_overlap(value: str) -> None:
    if value and value not in set(Overlap):
        words = ", ".join(Overlap)
        raise RequestError(Code.INVALID_ARGUMENT, f"cannot run: overlap must be one of {words}, not {_shown(value)}")


def _dispatched(answer: tuple[Occurrence | None, tuple[str, ...]]) -> dict[str, object]:
    occurrence, runs = answer
    if occurrence is None:
        return {"occurrence": "", "runs": []}
    return {"occurrence": occurrence.id, "runs": list(runs), "status": str(occurrence.status),
            "reason": str(occurrence.reason), "detail": occurrence.detail}


def _mapped(reply: Reply, turn: Callable[..., object], kind: type) -> Reply:
    return lambda value: reply(turn(value) if isinstance(value, kind) else value)


def _empty(reply: Reply) -> Reply:
    return lambda value: reply(value if isinstance(value, RequestError) else None)
