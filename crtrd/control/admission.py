"""Whether a call goes on: the administrator's, the owner's with what is theirs, another's when the authority agrees.

What a user may do alone is narrow: crons that run as themselves, with nothing that reaches further than their own
shell does (PRIVILEGED). The arguments are only looked at, never trusted: a name becomes the id that was looked at, so
that it still means the same thing when the call is carried out.
"""

import pwd
from collections.abc import Callable, Mapping
from dataclasses import replace

from crtrd.control.access import (
    Ask,
    Caller,
    Subject,
    Verdict,
    has_token,
    is_administrator,
    need_of,
    refusal,
    subject_of,
)
from crtrd.core.cron import Cron, whose
from crtrd.core.delivery import Delivery, Escalation
from crtrd.core.occurrence import Occurrence, Run
from crtrd.core.sinks import secret_of
from crtrd.errors import RequestError
from crtrd.ledger.queries import Queries

Given = tuple[object, ...]
Go = Callable[[Given, Caller], None]
Refuse = Callable[[RequestError], None]

PRIVILEGED: Mapping[str, str] = {
    "profile": "it may bring groups, limits and files that the user has not",
    "resources": "Nice, OOMScoreAdjust and limits may be raised with them",
    "pool": "a full pool keeps the crons of others waiting",
    "change_ignore": "a regular expression is matched inside the daemon and could hold it up",
}
"""Keys that take `manage`, and why."""
OWN_SINKS = frozenset({"journal", "exec", "file", "mail", "heartbeat"})
"""Sinks that do nothing that the owner could not do. So does a webhook that no secret of the host's signs; of the
inboxes it is the owner's own."""


class Admission:
    """`ask` is looked up at each call: the authority may come later."""

    def __init__(self, queries: Queries, ask: Callable[[], Ask]) -> None:
        self._queries, self._ask = queries, ask

    def admit(self, verb: str, given: Given, caller: Caller, go: Go, refuse: Refuse) -> None:
        """Call `go` or `refuse`, once, now or later. Raises LedgerError."""
        if is_administrator(caller) or has_token(verb, caller):
            return go(given, caller)
        if caller.uid is None:
            return refuse(refusal(verb, caller))
        subject = subject_of(verb)
        if subject is Subject.ANYBODY:
            return go(given, caller)
        own = self._own(subject, given, caller.uid)
        if own is not None and subject is not Subject.LIST:
            return go(own, replace(caller, limited=True))

        def decided(verdict: Verdict) -> None:
            if verdict is Verdict.ALLOWED:
                go(given, caller)
            elif own is not None:
                go(own, replace(caller, limited=True))
            else:
                refuse(refusal(verb, caller, verdict))

        # A list has an answer in any case: nobody is asked for a password because of it.
        asking = caller if own is None else replace(caller, interactive=False)
        return self._ask()(need_of(verb), asking, decided)

    def _own(self, subject: Subject, given: Given, uid: int) -> Given | None:  # noqa: PLR0911 - a table
        """The arguments, made certain, where the call is about what is the caller's; else None."""
        first = given[0] if given else None
        match subject, first:
            case Subject.DEFINITION, Mapping() if is_modest(first, uid):
                return given
            case Subject.CRON, str():
                return self._named(first, given, uid)
            case Subject.CHANGES, str() if len(given) > 1 and is_modest(given[1], uid):
                return self._named(first, given, uid)
            case (Subject.RUN | Subject.OCCURRENCE | Subject.DELIVERY | Subject.ESCALATION), str():
                return self._part(subject, first, given, uid)
            case Subject.LIST, Mapping():
                return self._listed(first, given, uid)
            case Subject.INBOX, str() if first == _account(uid):
                return given
        return None

    def _listed(self, criteria: Mapping[str, object], given: Given, uid: int) -> Given | None:
        """History outlives its cron: a canceled one is named as before, unless a present one has its name."""
        wanted = criteria.get("cron")
        if not wanted:
            return given
        if not isinstance(wanted, str):
            return None
        cron = self._cron(wanted, uid)
        former = self._queries.former_of(uid, wanted) if cron is None and _speakable(wanted) else []
        mine = cron.id if cron else former[-1] if former else None
        return ({**criteria, "cron": mine}, *given[1:]) if mine else None

    def _named(self, name: str, given: Given, uid: int) -> Given | None:
        cron = self._cron(name, uid)
        return (cron.id, *given[1:]) if cron else None

    def _cron(self, name_or_id: str, uid: int) -> Cron | None:
        cron = self._queries.cron(name_or_id) if _speakable(name_or_id) else None
        return cron if cron is not None and whose(cron) == uid else None

    def _part(self, subject: Subject, wanted: str, given: Given, uid: int) -> Given | None:
        """What a cron that is theirs, or was when it was canceled, has led to."""
        if not _speakable(wanted):
            return None
        found = self._found(subject, wanted)
        if found is None or not self._mine(found.cron_id, uid):
            return None
        return found.id, *given[1:]

    def _found(self, subject: Subject, wanted: str) -> Run | Occurrence | Delivery | Escalation | None:
        match subject:
            case Subject.RUN:
                return self._queries.run(wanted)
            case Subject.DELIVERY:
                return self._queries.delivery(wanted)
            case Subject.ESCALATION:
                return self._queries.escalation(wanted)
            case _:
                return self._queries.occurrence(wanted)

    def _mine(self, cron_id: str, uid: int) -> bool:
        return self._cron(cron_id, uid) is not None or cron_id in self._queries.former_of(uid, cron_id)


def is_modest(table: object, uid: int) -> bool:
    """Whether a definition, or changes of one, stay within what the user may do alone."""
    if not isinstance(table, Mapping) or any(table.get(key) not in (None, "", [], {}) for key in PRIVILEGED):
        return False
    if table.get("user") not in (None, "", _account(uid)):
        return False
    sinks = table.get("sinks")
    if sinks is None:
        return True
    return isinstance(sinks, list | tuple) and all(_is_own_sink(sink, uid) for sink in sinks)


def _is_own_sink(sink: object, uid: int) -> bool:
    kind, _, argument = str(sink).partition(":")
    if kind == "webhook":
        return not secret_of(argument)
    return kind in OWN_SINKS or (kind == "inbox" and argument in {"", _account(uid)})


def _account(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


def _speakable(text: str) -> bool:
    """Half a surrogate pair, which JSON can carry, cannot be asked of the ledger."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
