"""From a delivery that the core wants attempted to what came of it, whatever the sink.

    inbox                                  one thread of our own: it waits for the disk only
    journal                                at once
    unit, cron                             asked of the service manager, of the core
    mail, exec, webhook, heartbeat, file   in helper processes, one attempt at a time in each

How many are under way, and in which order, the core has decided.
"""

import os
import pwd
from collections.abc import Callable, Mapping
from pathlib import Path

from crtrd.core.delivery import Delivery
from crtrd.core.events import DeliveryEnded
from crtrd.core.sinks import Sink, SinkKind, parse, secret_of
from crtrd.delivery import inbox
from crtrd.delivery.attempt import TAKEN, Job, Said, down, failed, refused
from crtrd.delivery.helper import Helpers
from crtrd.errors import ManagerError
from crtrd.loop.reactor import Reactor
from crtrd.names import Places
from crtrd.systemd.journal import Journal
from crtrd.systemd.manager import Manager
from crtrd.systemd.worker import Worker
from crtrd.values import dataclass

SECONDS: Mapping[SinkKind, float] = {
    SinkKind.MAIL: 60.0, SinkKind.EXEC: 60.0, SinkKind.WEBHOOK: 30.0, SinkKind.HEARTBEAT: 15.0, SinkKind.FILE: 30.0,
}
"""For one attempt; then it is ended and tried again."""
AS_OWNER = frozenset({SinkKind.EXEC, SinkKind.FILE, SinkKind.MAIL, SinkKind.WEBHOOK, SinkKind.HEARTBEAT})
INBOX_DEADLINE = 30_000_000
UNREADABLE = "its message in the ledger cannot be read"

Done = Callable[[Said], None]


@dataclass(slots=True)
class Lent:
    """What the composition root gives: other rooms, by what is needed of them."""

    manager: Manager | None
    dispatch: Callable[[str, Delivery, Done], None]
    """Have the cron of this name triggered, once for each delivery."""
    report: Callable[[DeliveryEnded], None]
    mail_from: Callable[[], str]


class Couriers:
    """`deliver` begins an attempt and returns; its end is reported as DeliveryEnded."""

    def __init__(self, reactor: Reactor, places: Places, journal: Journal, environ: Mapping[str, str],
                 lent: Lent) -> None:
        self._reactor, self._places, self._journal, self._lent = reactor, places, journal, lent
        self._environ = environ
        self._scribe = Worker(reactor, "inbox", INBOX_DEADLINE)
        self._helpers = Helpers(reactor, environ)

    def deliver(self, delivery: Delivery) -> None:
        def done(said: Said) -> None:
            now = self._reactor.clock.wall()
            self._lent.report(
                DeliveryEnded(now, delivery.id, delivery.attempts, said.outcome, said.error, said.retry_after))

        try:
            sink = parse(delivery.sink)
            if not delivery.message:
                raise ValueError(UNREADABLE)
        except ValueError as error:
            fault = refused(str(error))
            self._reactor.soon(lambda: done(fault))
            return
        self._begin(delivery, sink, done)

    def _begin(self, delivery: Delivery, sink: Sink, done: Done) -> None:
        match sink.kind:
            case SinkKind.INBOX:
                self._to_inbox(delivery, sink, done)
            case SinkKind.JOURNAL:
                said = self._to_journal(delivery)
                self._reactor.soon(lambda: done(said))
            case SinkKind.UNIT:
                self._start_unit(delivery, sink, done)
            case SinkKind.CRON:
                self._lent.dispatch(sink.argument, delivery, done)
            case _:
                self._help(delivery, sink, done)

    def close(self) -> None:
        """End what is under way; the next life makes those attempts again."""
        self._helpers.close()
        self._scribe.close(2.0)

    # the sinks that need no process --------------------------------------------------------------------------------

    def _to_inbox(self, delivery: Delivery, sink: Sink, done: Done) -> None:
        folder, first = self._places.inbox, delivery.attempts == 1

        def work() -> Said:
            try:
                owner = sink.argument or owner_name(delivery.owner)
                inbox.append(folder, owner, delivery.id, delivery.message, first=first)
            except OSError as error:
                return down(f"cannot write the inbox: {error.strerror}")
            return TAKEN

        def answered(value: Said | ManagerError) -> None:
            done(failed("the disk did not answer in time") if isinstance(value, ManagerError) else value)

        self._scribe.ask(work, answered)

    def _to_journal(self, delivery: Delivery) -> Said:
        import json  # noqa: PLC0415 - few lives need it

        try:
            text = str(json.loads(delivery.message)["text"]).rstrip("\n").encode("utf-8", "replace")
        except (ValueError, TypeError, KeyError, RecursionError):
            return refused(UNREADABLE)
        fields = {"CRTRD_CRON_ID": delivery.cron_id, "CRTRD_CRON": delivery.cron_name,
                  "CRTRD_OCCURRENCE_ID": delivery.occurrence_id, "CRTRD_RUN_ID": delivery.run_id,
                  "CRTRD_DELIVERY_ID": delivery.id}
        self._journal.output(delivery.cron_name, str(delivery.kind), [text], fields)
        return TAKEN

    def _start_unit(self, delivery: Delivery, sink: Sink, done: Done) -> None:
        manager = self._lent.manager
        if delivery.owner not in {0, os.geteuid()}:
            self._reactor.soon(lambda: done(refused("units are started for root's crons only")))
        elif manager is None:
            self._reactor.soon(lambda: done(down("there is no service manager")))
        else:
            manager.start_unit(sink.argument, lambda error: done(failed(str(error)) if error else TAKEN))

    # the others ----------------------------------------------------------------------------------------------------

    def _help(self, delivery: Delivery, sink: Sink, done: Done) -> None:
        try:
            self._helpers.attempt(self._job(delivery, sink), done)
        except OSError as error:
            text = f"cannot begin the attempt: {error.strerror}"
            self._reactor.soon(lambda: done(failed(text)))

    def _job(self, delivery: Delivery, sink: Sink) -> Job:
        """Raises OSError where a secret that is asked for cannot be read."""
        secret = secret_of(sink.argument) if sink.kind is SinkKind.WEBHOOK else ""
        return Job(
            id=delivery.id, attempt=delivery.attempts, kind=str(delivery.kind), cron_id=delivery.cron_id,
            cron_name=delivery.cron_name, run_id=delivery.run_id, sink=str(sink.kind), argument=sink.argument,
            message=delivery.message, timeout=SECONDS[sink.kind],
            uid=delivery.owner if sink.kind in AS_OWNER and os.geteuid() == 0 else None,
            secret=self._secret(secret) if secret else "", mail_from=self._lent.mail_from(),
            home=str(self._places.home or ""),
        )

    def _secret(self, name: str) -> str:
        """A systemd credential (systemd.exec(5)), else a file of the administrator's in `secrets/`."""
        given = self._environ.get("CREDENTIALS_DIRECTORY")
        path = Path(given) / name if given else None
        if path is None or not path.exists():
            path = self._places.config / "secrets" / name
        return path.read_text(encoding="utf-8").strip()


def owner_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
