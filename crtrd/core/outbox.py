"""Which deliveries are attempted now, and what follows from the end of an attempt. States as in core.delivery."""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core.delivery import (
    AT_ONCE,
    LIVES,
    LONGEST_WAIT,
    Delivery,
    DeliveryState,
    Outcome,
    Queue,
    Told,
    oldest,
    wait,
)
from crtrd.core.effects import Announce, Answer, Deliver, Effect, PutDelivery, PutQueue, PutRun, PutTold
from crtrd.core.events import DeliveryDiscardRequested, DeliveryEnded, DeliveryRetryRequested
from crtrd.core.facts import Facts
from crtrd.core.occurrence import derive_id
from crtrd.core.sinks import is_local, parse
from crtrd.errors import Code, RequestError
from crtrd.schedule.spans import format_span

QUEUES_A_TURN = 200


def deliver_due(now: int, facts: Facts) -> Iterator[Effect]:
    """Begin an attempt in every queue that is free and has something due. Recorded before it is made."""
    free = AT_ONCE - sum(not is_local(row.sink) for row in facts.sending())
    for row in facts.deliveries_due(now, QUEUES_A_TURN):
        if not is_local(row.sink):
            if free <= 0:
                continue
            free -= 1
        sending = replace(row, state=DeliveryState.SENDING, attempts=row.attempts + 1)
        yield PutDelivery(sending)
        yield Deliver(sending)


def take_back(now: int, facts: Facts) -> Iterator[Effect]:
    """At start: attempts of an earlier life, whose end nobody saw, are made again with the same id."""
    for row in facts.sending():
        due = row.next_attempt_at if row.attempts % LIVES else now + wait(row.id, row.attempts)
        yield PutDelivery(replace(row, state=DeliveryState.PENDING, next_attempt_at=due))


def bring_forward(now: int, facts: Facts) -> Iterator[Effect]:
    """After a step back of the clock nothing waits longer than the longest wait."""
    most = now + 2 * LONGEST_WAIT
    for row in facts.deliveries_beyond(most):
        yield PutDelivery(replace(row, next_attempt_at=now))
    for queue in facts.queues_beyond(most):
        yield PutQueue(replace(queue, until=now))


def ended(event: DeliveryEnded, facts: Facts) -> Iterator[Effect]:
    row = facts.delivery(event.delivery_id)
    if row is None or row.state is not DeliveryState.SENDING or row.attempts != event.attempt:
        return
    queue = facts.queue(row.queue)
    match event.outcome:
        case Outcome.TAKEN:
            yield from _taken(row, queue, event.at, facts)
        case Outcome.REFUSED:
            yield from _dead(row, event.error, event.at)
        case _ if event.at - row.created_at >= oldest(row):
            yield from _dead(row, event.error, event.at)
        case Outcome.FAILED:
            yield from _failed(row, event)
        case Outcome.DOWN:
            yield from _down(row, queue, event)


def _taken(row: Delivery, queue: Queue, now: int, facts: Facts) -> Iterator[Effect]:
    yield PutDelivery(replace(row, state=DeliveryState.DELIVERED, settled_at=now, last_error=""))
    if queue.failures:
        yield PutQueue(Queue(queue.name))
    run = facts.run(row.run_id) if row.run_id else None
    if run is not None:
        word = row.sink.partition(":")[0]
        known = run.delivered.split(", ") if run.delivered else []
        if word not in known:
            yield PutRun(replace(run, delivered=", ".join([*known, word])))
    if row.sha256:
        yield PutTold(Told(row.cron_id, row.target, row.sink, row.sha256, run.stdout.head if run else b"", now))
    yield _event("delivered", row, f"{row.kind} delivered to {_label(row)}", 6)


def _failed(row: Delivery, event: DeliveryEnded) -> Iterator[Effect]:
    delay = wait(row.id, row.attempts, event.retry_after)
    yield PutDelivery(_again(row, event.error, event.at + delay))
    if row.attempts == 1:
        text = f"{_label(row)} did not take a message: {event.error}; tried again in {format_span(delay)}"
        yield _event("retrying", row, text, 5)


def _down(row: Delivery, queue: Queue, event: DeliveryEnded) -> Iterator[Effect]:
    """The whole queue waits, in order, this one at its head; said once, when it begins."""
    failures = queue.failures + 1
    delay = wait(row.queue, failures, event.retry_after)
    yield PutDelivery(_again(row, event.error, row.next_attempt_at))
    yield PutQueue(Queue(row.queue, event.at + delay, failures))
    if failures == 1:
        text = f"{_label(row)} takes no messages: {event.error}; they are kept and tried again"
        yield _event("retrying", row, text, 4)


def _again(row: Delivery, error: str, due: int) -> Delivery:
    return replace(row, state=DeliveryState.PENDING, next_attempt_at=due, last_error=error)


def _dead(row: Delivery, error: str, now: int) -> Iterator[Effect]:
    yield PutDelivery(replace(row, state=DeliveryState.DEAD, settled_at=now, last_error=error))
    text = f"{_label(row)} gets this message no more after {row.attempts} attempts: {error}"
    yield _event("dead", row, f"{text}; crtrctl outbox retry {row.id[:12]}", 4)


def _label(row: Delivery) -> str:
    try:
        return parse(row.sink).label
    except ValueError:
        return row.sink.partition(":")[0]


def _event(what: str, row: Delivery, text: str, priority: int) -> Announce:
    fields: dict[str, str | int] = {
        "CRTRD_CRON_ID": row.cron_id, "CRTRD_CRON": row.cron_name, "CRTRD_OCCURRENCE_ID": row.occurrence_id,
        "CRTRD_RUN_ID": row.run_id, "CRTRD_DELIVERY_ID": row.id, "CRTRD_SINK": _label(row),
        "CRTRD_ATTEMPT": row.attempts,
    }
    return Announce(f"outbox.{what}", f"{row.cron_name}: {text}", fields, priority)


# requests ----------------------------------------------------------------------------------------------------------


def _named(name: str, facts: Facts) -> Delivery:
    row = facts.delivery(name)
    if row is None:
        raise RequestError(Code.INVALID_ARGUMENT, f"cannot find delivery {name!r}: the outbox has no such row")
    return row


def retry(event: DeliveryRetryRequested, facts: Facts) -> Iterator[Effect]:
    """Try now. A dead one lives again under its id; one that was delivered is sent anew, as a message of its own."""
    row = _named(event.delivery, facts)
    if row.state is DeliveryState.SENDING:
        raise RequestError(Code.INVALID_STATE, f"cannot retry delivery {row.id}: an attempt is under way")
    if row.state is DeliveryState.DELIVERED:
        name = derive_id("delivery", row.id, "again", event.at)
        text = row.message.replace(f'"id":"{row.id}"', f'"id":"{name}"', 1)
        row = replace(row, id=name, message=text, sha256="")
    due = min(row.next_attempt_at, event.at) if row.state is DeliveryState.PENDING else event.at
    fresh = replace(row, state=DeliveryState.PENDING, settled_at=None, next_attempt_at=due, created_at=event.at)
    yield PutDelivery(replace(fresh, attempts=0) if fresh.id != event.delivery else fresh)
    yield PutQueue(Queue(row.queue))
    yield Answer(event.ticket, fresh.id)


def discard(event: DeliveryDiscardRequested, facts: Facts) -> Iterator[Effect]:
    row = _named(event.delivery, facts)
    if row.state not in {DeliveryState.PENDING, DeliveryState.DEAD}:
        raise RequestError(Code.INVALID_STATE, f"cannot discard delivery {row.id}: it is {row.state}")
    yield PutDelivery(replace(row, state=DeliveryState.DISCARDED, settled_at=event.at))
    yield Answer(event.ticket, None)
