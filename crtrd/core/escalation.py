"""What happens when a cron fails for good: it is paused, and a person gets a brief with all that is needed to act.

    open -> started        crtrd-escalate@ID.service was started; whoever is to hear of it, the unit decides
      |  -> told           the default: the brief went to the owner's inbox and mail, through the outbox
      '---> spawn-failed   the unit could not be started or failed; then the default is done all the same

An open one of an earlier life is begun again. The pause stands, whatever becomes of the escalation: it is what keeps
one failure from becoming a hundred messages.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core.brief import write_brief
from crtrd.core.cron import Cron
from crtrd.core.delivery import Delivery, Escalation, EscalationState
from crtrd.core.disposition import Kind
from crtrd.core.effects import Announce, Answer, Effect, Escalate, PutDelivery, PutEscalation
from crtrd.core.events import EscalationEnded, EscalationTold
from crtrd.core.facts import Facts
from crtrd.core.message import encode
from crtrd.core.occurrence import Occurrence, derive_id
from crtrd.errors import Code, RequestError
from crtrd.schedule.spans import format_instant


def begin(cron: Cron, occurrence: Occurrence, now: int, facts: Facts) -> Iterator[Effect]:
    """`cron` has just been paused for what became of `occurrence`."""
    summary = f"{cron.name} is paused by {cron.paused_by}: {cron.note}"
    escalation = Escalation(
        derive_id("escalation", cron.id, occurrence.id), cron.id, cron.name, cron.owner, occurrence.id, now, summary,
        write_brief(cron, occurrence, facts),
    )
    yield PutEscalation(escalation)
    yield _event("cron.failure.escalated", escalation, f"escalated: {cron.note}", 3)
    yield Escalate(escalation.id)


def begin_again(facts: Facts) -> Iterator[Effect]:
    """At start: those that an earlier life has recorded and not begun, or not seen begin."""
    for escalation in facts.open_escalations():
        yield Escalate(escalation.id)


def ended(event: EscalationEnded, facts: Facts) -> Iterator[Effect]:
    """The unit was started, or could not be; in that case the default is done here."""
    escalation = facts.escalation(event.escalation_id)
    if escalation is None or escalation.state is not EscalationState.OPEN:
        return
    if not event.error:
        yield PutEscalation(replace(escalation, state=EscalationState.STARTED))
        return
    yield PutEscalation(replace(escalation, state=EscalationState.SPAWN_FAILED, error=event.error))
    yield _event("cron.escalation.spawn_failed", escalation, f"cannot start its escalation: {event.error}", 3)
    yield from _to_owner(escalation, event.at, event.mail_to)


def tell(event: EscalationTold, facts: Facts) -> Iterator[Effect]:
    """The default: into the owner's inbox and mail. Asked for twice, it is told once."""
    escalation = facts.escalation(event.escalation_id)
    if escalation is None:
        message = f"cannot deliver escalation {event.escalation_id!r}: there is none of that id"
        raise RequestError(Code.INVALID_ARGUMENT, message)
    if escalation.state is not EscalationState.SPAWN_FAILED:
        yield PutEscalation(replace(escalation, state=EscalationState.TOLD))
    yield from _to_owner(escalation, event.at, event.mail_to)
    if event.ticket:
        yield Answer(event.ticket, None)


def _to_owner(escalation: Escalation, now: int, mail_to: str) -> Iterator[Effect]:
    for sink in ("inbox", f"mail:{mail_to}") if mail_to else ("inbox",):
        name = derive_id("delivery", escalation.id, sink)
        body = encode(
            id=name, at=format_instant(escalation.at), kind=str(Kind.ESCALATED), cron_id=escalation.cron_id,
            cron_name=escalation.cron_name, occurrence_id=escalation.occurrence_id, escalation_id=escalation.id,
            subject=escalation.summary, text=escalation.brief)
        queue = f"inbox:{escalation.owner}" if sink == "inbox" else f"{escalation.owner}:{sink}"
        yield PutDelivery(Delivery(
            id=name, cron_id=escalation.cron_id, cron_name=escalation.cron_name, owner=escalation.owner,
            occurrence_id=escalation.occurrence_id, run_id="", target="", kind=Kind.ESCALATED, sink=sink, queue=queue,
            message=body, created_at=now, next_attempt_at=now), fresh=True)


def _event(kind: str, escalation: Escalation, text: str, priority: int) -> Announce:
    fields: dict[str, str | int] = {
        "CRTRD_CRON_ID": escalation.cron_id, "CRTRD_CRON": escalation.cron_name,
        "CRTRD_OCCURRENCE_ID": escalation.occurrence_id, "CRTRD_ESCALATION_ID": escalation.id,
    }
    return Announce(kind, f"{escalation.cron_name}: {text}", fields, priority)
