"""Has a person told of an escalation: starts its unit and looks how that fares. What follows the core decides."""

import os
import pwd

from crtrd.core.delivery import Owner
from crtrd.core.events import EscalationEnded, EscalationTold
from crtrd.delivery.mta import sendmail
from crtrd.engine.engine import Engine
from crtrd.errors import LedgerError, ManagerError
from crtrd.ledger.queries import Queries
from crtrd.names import ESCALATE_UNIT
from crtrd.systemd.manager import Fared, Manager


class Escalations:
    """`manager` None: there is none, and what the unit does by default is done here."""

    def __init__(self, engine: Engine, queries: Queries, manager: Manager | None) -> None:
        self._engine, self._queries, self._manager = engine, queries, manager

    def start(self, name: str) -> None:
        """`name` is the escalation's id, which is its unit's instance."""
        if self._manager is None:
            now = self._engine.reactor.clock.wall()
            self._engine.post(EscalationTold(now, None, os.geteuid(), name, self._owner(name)))
        else:
            self._manager.start_unit(
                _unit(name), lambda error: self._saw(name, Fared(at_work=not error, failure=str(error or ""))))

    def look_after(self, name: str) -> None:
        """A manager that does not answer says nothing about the unit: the next look is planned already."""
        if self._manager is not None:
            self._manager.look_after(
                _unit(name), lambda seen: None if isinstance(seen, ManagerError) else self._saw(name, seen))

    def _saw(self, name: str, seen: Fared) -> None:
        now = self._engine.reactor.clock.wall()
        self._engine.post(EscalationEnded(now, name, seen.failure, self._owner(name), seen.at_work))

    def _owner(self, name: str) -> Owner:
        try:
            found = self._queries.escalation(name)
        except LedgerError:
            return Owner()
        return owner_of(found.owner) if found else Owner()


def owner_of(uid: int) -> Owner:
    """What this host says of an account: its name, and that it can be mailed."""
    try:
        account = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Owner()
    return Owner(account, account if sendmail() else "")


def _unit(name: str) -> str:
    return f"{ESCALATE_UNIT}{name}.service"
