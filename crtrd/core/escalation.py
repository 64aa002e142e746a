"""What happens when a cron fails for good: it is paused, and a person gets a brief with all that is needed to act.

    open -> started        crtrd-escalate@ID.service was started; whoever is to hear of it, the unit decides
      |  -> told           the default: the brief goes to the owner's inbox and mail, through the outbox
      '---> spawn-failed   the unit could not be started or failed; then the default is done all the same

The brief stands in the place of the run's own message at those sinks of the cron that people read, from the moment of
the pause on: so that one failure is one message there, and nobody waits for the unit. What the default adds is what
has not got it. The unit is looked at (`look_at`) until it has ended: one that fails late has failed too. One that is
open, or had not ended when the machine went down, is begun again. The pause stands, whatever becomes of the
escalation: it is what keeps one failure from becoming a hundred messages.
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core.brief import failed_runs, write_brief
from crtrd.core.cron import HOUR, SECOND, Cron
from crtrd.core.delivery import Delivery, Escalation, EscalationState, Owner, queue_of
from crtrd.core.disposition import Kind
from crtrd.core.effects import Announce, Answer, Effect, Escalate, LookAfter, PutDelivery, PutEscalation
from crtrd.core.events import EscalationEnded, EscalationTold
from crtrd.core.facts import Facts
from crtrd.core.message import of_escalation
from crtrd.core.occurrence import Occurrence, derive_id
from crtrd.errors import Code, RequestError

FIRST_LOOK, LONGEST_LOOK = 2 * SECOND, HOUR
"""Each look at twice the time since the pause, within these: a unit that works for an hour costs a dozen of them."""
LAST_LOOK = 7 * 24 * HOUR
"""What is at work for longer is a service of its own."""


def begin(cron: Cron, occurrence: Occurrence, now: int, facts: Facts) -> Iterator[Effect]:
    """`cron` has just been paused for what became of `occurrence`."""
    summary = f"{cron.name} is paused by {cron.paused_by}: {cron.note}"
    escalation = Escalation(
        _name(occurrence.id, cron.id), cron.id, cron.name, cron.owner, occurrence.id, now, summary,
        write_brief(cron, occurrence, facts),
    )
    yield PutEscalation(escalation)
    yield _event("cron.failure.escalated", escalation, f"escalated: {cron.note}", 3)
    yield Escalate(escalation.id)


def of(occurrence_id: str, cron_id: str, facts: Facts) -> Escalation | None:
    """The one that this occurrence has led to."""
    return facts.escalation(_name(occurrence_id, cron_id))


def _name(occurrence_id: str, cron_id: str) -> str:
    return derive_id("escalation", cron_id, occurrence_id)


def begin_again(boot_id: str, facts: Facts) -> Iterator[Effect]:
    """At start: those that an earlier life has recorded and not begun, or that ended unseen with an earlier boot."""
    for escalation in facts.open_escalations():
        yield Escalate(escalation.id)
    for escalation in facts.watched_escalations():
        if escalation.boot_id != boot_id:
            yield PutEscalation(replace(escalation, state=EscalationState.OPEN, look_at=None))
            yield Escalate(escalation.id)


# its unit ----------------------------------------------------------------------------------------------------------


def ended(event: EscalationEnded, boot_id: str, facts: Facts) -> Iterator[Effect]:
    """The unit was started, was looked at, or could not be started; where it failed the default is done here."""
    escalation = facts.escalation(event.escalation_id)
    if escalation is None or escalation.state is EscalationState.SPAWN_FAILED:
        return
    if not event.error:
        opened = escalation.state is EscalationState.OPEN
        state = EscalationState.STARTED if opened else escalation.state
        look_at = _next_look(escalation, event.at) if event.at_work else None
        yield PutEscalation(replace(escalation, state=state, look_at=look_at, boot_id=boot_id))
        return
    yield PutEscalation(replace(escalation, state=EscalationState.SPAWN_FAILED, error=event.error, look_at=None))
    yield _event("cron.escalation.spawn_failed", escalation, f"its escalation failed: {event.error}", 3)
    yield from _to_owner(escalation, event.at, event.owner, facts)


def _next_look(escalation: Escalation, now: int) -> int | None:
    age = max(now - escalation.at, 0)
    return None if age > LAST_LOOK else now + min(max(age, FIRST_LOOK), LONGEST_LOOK)


def look_after(now: int, facts: Facts) -> Iterator[Effect]:
    """Those whose look is due. Should nothing come of it, there is the next one."""
    for escalation in facts.watched_escalations():
        due = escalation.look_at
        if due is not None and (due <= now or due > now + LONGEST_LOOK):  # the latter: the clock was set back
            yield PutEscalation(replace(escalation, look_at=_next_look(escalation, now)))
            yield LookAfter(escalation.id)


# the default -------------------------------------------------------------------------------------------------------


def tell(event: EscalationTold, facts: Facts) -> Iterator[Effect]:
    """The default: into the owner's inbox and mail. Asked for twice, it is told once."""
    escalation = facts.escalation(event.escalation_id)
    if escalation is None:
        message = f"cannot deliver escalation {event.escalation_id!r}: there is none of that id"
        raise RequestError(Code.INVALID_ARGUMENT, message)
    if escalation.state is not EscalationState.SPAWN_FAILED:
        yield PutEscalation(replace(escalation, state=EscalationState.TOLD))
    yield from _to_owner(escalation, event.at, event.owner, facts)
    if event.ticket:
        yield Answer(event.ticket, None)


def _to_owner(escalation: Escalation, now: int, owner: Owner, facts: Facts) -> Iterator[Effect]:
    """To the inbox under either of its names, and to the mail."""
    if facts.delivery(_delivery_id(escalation, f"inbox:{owner.account}")) is None:
        yield from tell_sink(escalation, "inbox", now, facts)
    if owner.mail_to:
        yield from tell_sink(escalation, f"mail:{owner.mail_to}", now, facts)


def tell_sink(escalation: Escalation, sink: str, now: int, facts: Facts) -> Iterator[Effect]:
    """The brief, once for each sink, whoever asks for it."""
    name = _delivery_id(escalation, sink)
    occurrence = facts.occurrence(escalation.occurrence_id)
    run = next(iter(failed_runs(occurrence, facts)), None) if occurrence is not None else None
    yield PutDelivery(Delivery(
        id=name, cron_id=escalation.cron_id, cron_name=escalation.cron_name, owner=escalation.owner,
        occurrence_id=escalation.occurrence_id, run_id=run.id if run else "", target=run.target if run else "",
        kind=Kind.ESCALATED, sink=sink, queue=queue_of(sink, escalation.owner),
        message=of_escalation(name, escalation, run), created_at=now, next_attempt_at=now), fresh=True)


def _delivery_id(escalation: Escalation, sink: str) -> str:
    return derive_id("delivery", escalation.id, sink)


def _event(kind: str, escalation: Escalation, text: str, priority: int) -> Announce:
    fields: dict[str, str | int] = {
        "CRTRD_CRON_ID": escalation.cron_id, "CRTRD_CRON": escalation.cron_name,
        "CRTRD_OCCURRENCE_ID": escalation.occurrence_id, "CRTRD_ESCALATION_ID": escalation.id,
    }
    return Announce(kind, f"{escalation.cron_name}: {text}", fields, priority)
