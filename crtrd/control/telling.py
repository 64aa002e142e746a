"""The verbs about what is told: trigger, outbox, inbox, escalations. Each gets the Control it belongs to."""

import os
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from crtrd.control import arguments, views
from crtrd.control.access import Caller
from crtrd.core import events
from crtrd.core.triggering import Disposition
from crtrd.delivery import inbox
from crtrd.engine.escalations import owner_of
from crtrd.errors import Code, LedgerError, RequestError, ScheduleError
from crtrd.schedule.spans import parse_instant

if TYPE_CHECKING:
    from crtrd.control.verbs import Control

Given = tuple[object, ...]
Reply = Callable[[object], None]
KEY_MOST = 255
POLICIES = frozenset({"skip", "queue", "replace", "allow"})
NEVER_EMPTY = frozenset({"key", "overlap"})
"""Given empty they are a slip of who fills them in, and would quietly lose what they are for."""
FIRST = "-"
"""As the cursor of an inbox: from its first entry."""


def trigger(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    """Durable before it is answered, safe to ask again; see core.triggering for what it answers."""
    name = arguments.text(given[0], "cron")
    chosen = _options(given[1])
    when = _when(control, name, chosen.pop("at", None))
    uid = _uid(caller)
    control.post(
        lambda now, ticket: events.TriggerRequested(now, ticket, uid, name, uuid.uuid4().hex, when, **chosen),
        lambda value: reply(_disposition(value) if isinstance(value, Disposition) else value))


def _options(value: object) -> dict[str, Any]:
    table = dict(arguments.table(value, "trigger"))
    at = table.pop("at", None)
    chosen = arguments.options(table, "trigger", {"key": str, "label": str, "source": str, "overlap": str})
    for key, text in chosen.items():
        if not text.strip() and key in NEVER_EMPTY:
            raise arguments.refuse(f"cannot trigger: {key} is empty; leave it out, or say what it is")
        if len(text) > KEY_MOST or not (text.isprintable() or not text):
            raise arguments.refuse(f"cannot trigger: {key} must be printable, at most {KEY_MOST} characters")
    if chosen.get("overlap", "skip") not in POLICIES:
        raise arguments.refuse("cannot trigger: overlap must be one of skip, queue, replace, allow")
    return chosen if at is None else chosen | {"at": at}


def _when(control: "Control", name: str, at: object) -> int | None:
    """A time as RFC 3339, local to the cron's zone where it has no offset, or microseconds since the epoch."""
    if at is None:
        return None
    if isinstance(at, int) and not isinstance(at, bool):
        return arguments.number(at, "at")
    zone = control.cron(name).definition.timezone
    try:
        return parse_instant(arguments.text(at, "at"), zone)
    except ScheduleError as error:
        raise arguments.refuse(f"cannot trigger: at: {error.reason}") from error


def _disposition(answer: Disposition) -> views.View:
    row = answer.occurrence
    return {
        "disposition": str(answer.word), "occurrence_id": answer.occurrence_id,
        "status": str(row.status) if row else None, "reason": str(row.reason) if row else None,
        "instant": row.instant if row else None,
        "cells": [{"target": each.target, "status": str(each.status), "attempts": each.attempts}
                  for each in answer.cells],
    }


# the outbox --------------------------------------------------------------------------------------------------------


def list_outbox(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    wanted, limit, after = control.history(given, caller, "list outbox", {"state": str})
    found, onward = control.queries.deliveries(wanted, limit, after)
    reply(([views.delivery_view(each) for each in found], str(onward) if onward else ""))


def retry_delivery(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    name, uid = control.queries.delivery_id(arguments.text(given[0], "delivery")), _uid(caller)
    control.post(lambda now, ticket: events.DeliveryRetryRequested(now, ticket, uid, name), _empty(reply))


def discard_delivery(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    name, uid = control.queries.delivery_id(arguments.text(given[0], "delivery")), _uid(caller)
    control.post(lambda now, ticket: events.DeliveryDiscardRequested(now, ticket, uid, name), _empty(reply))


# escalations -------------------------------------------------------------------------------------------------------


def list_escalations(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    wanted, limit, after = control.history(given, caller, "list escalations", {"state": str})
    found, onward = control.queries.escalations(wanted, limit, after)
    reply(([views.escalation_view(each) for each in found], str(onward) if onward else ""))


def deliver_escalation(control: "Control", given: Given, caller: Caller, reply: Reply) -> None:
    """The default of crtrd-escalate@.service: the brief goes to its owner's inbox and mail."""
    found = control.queries.escalation(arguments.text(given[0], "escalation"))
    if found is None:
        raise arguments.refuse("cannot deliver the escalation: none has that id, or several begin so")
    owner, uid = owner_of(found.owner), _uid(caller)
    control.post(
        lambda now, ticket: events.EscalationTold(now, ticket, uid, found.id, owner), _empty(reply))


# the inbox ---------------------------------------------------------------------------------------------------------


def read_inbox(control: "Control", given: Given, _: Caller, reply: Reply) -> None:
    """Entries after `cursor`: '' is what was acknowledged last, '-' the beginning."""
    owner, cursor = arguments.text(given[0], "owner"), arguments.text(given[1], "cursor")
    limit = min(arguments.number(given[2], "limit") or arguments.PAGE, arguments.PAGE_LIMIT)
    after = None if not cursor else "" if cursor == FIRST else cursor
    try:
        page = inbox.read(control.hooks.inbox(), owner, after, limit)
    except inbox.InboxError as error:
        raise RequestError(Code.INVALID_STATE, str(error)) from error
    reply((page.entries, page.onward))


def ack_inbox(control: "Control", given: Given, _: Caller, reply: Reply) -> None:
    """Everything up to the entry `cursor` has been read; '' stands for all there is. Durable when answered."""
    owner, cursor = arguments.text(given[0], "owner"), arguments.text(given[1], "cursor")
    try:
        inbox.acknowledge(control.hooks.inbox(), owner, cursor)
    except inbox.InboxError as error:
        raise RequestError(Code.INVALID_STATE, str(error)) from error
    except OSError as error:
        raise LedgerError(f"cannot acknowledge inbox {owner}: {error.strerror}") from error
    reply(None)


def _uid(caller: Caller) -> int:
    return os.geteuid() if caller.uid is None else caller.uid


def _empty(reply: Reply) -> Reply:
    return lambda value: reply(value if isinstance(value, RequestError) else None)


def metrics(control: "Control", _given: Given, _: Caller, reply: Reply) -> None:
    reply(control.metrics.text())


VERBS: Mapping[str, Callable[["Control", Given, Caller, Reply], None]] = {
    "trigger": trigger, "list_outbox": list_outbox, "retry_delivery": retry_delivery,
    "discard_delivery": discard_delivery, "list_escalations": list_escalations,
    "deliver_escalation": deliver_escalation, "read_inbox": read_inbox, "ack_inbox": ack_inbox,
    "metrics": metrics,
}
