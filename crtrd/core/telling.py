"""Who is told what: from a settled run, a recovery, a late occurrence to rows of the outbox, in the one transaction."""

from collections.abc import Iterator

from crtrd.core import escalation, message
from crtrd.core.cron import Cron, OnOutput
from crtrd.core.delivery import Delivery, Told, queue_of
from crtrd.core.disposition import FAILURES, Case, Kind, Verdict, judge
from crtrd.core.effects import Effect, PutDelivery, PutTold
from crtrd.core.facts import Facts
from crtrd.core.occurrence import Occurrence, Output, Result, Run, derive_id
from crtrd.core.sinks import is_read_by_people
from crtrd.schedule.spans import format_instant, format_span


def run_settled(cron: Cron, run: Run, now: int, facts: Facts, *, canceled: bool = False) -> Iterator[Effect]:
    """The run's end is final for its cell. `canceled`: its cron is gone, by this run itself.

    Where its end has just paused the cron, people get the brief in its place: one message at the final failure.
    """
    brief = escalation.of(run.occurrence_id, cron.id, facts) if run.result in FAILURES else None
    for sink in dict.fromkeys(cron.definition.sinks):
        if sink.startswith("heartbeat:"):
            yield from _ping(cron, run, sink, now)
            continue
        compares = cron.definition.on_output is OnOutput.ON_CHANGE and run.result is Result.SUCCESS
        told = _last_told(cron.id, run.target, sink, facts) if compares else None
        case = Case(
            cron.definition.on_output, run.result or Result.UNOBSERVED, _silent(cron, run), fingerprint(run.stdout),
            told.sha256 if told else "", out_of_band=run.out_of_band, canceled=canceled, by_itself=canceled,
        )
        verdict = judge(case)
        if brief is not None and verdict.kind is Kind.FAILED and is_read_by_people(sink):
            yield from escalation.tell_sink(brief, sink, now, facts)
        else:
            yield from _carry_out(verdict, cron, run, sink, now, told)


def _silent(cron: Cron, run: Run) -> bool:
    """Changes are those of standard output; `always` means either stream."""
    only = cron.definition.on_output is OnOutput.ON_CHANGE
    return not run.stdout.total and (only or not run.stderr.total)


def fingerprint(output: Output) -> str:
    """Of all of the output; of the masked one where the cron masks something."""
    return output.masked or output.sha256


def _carry_out(
    verdict: Verdict, cron: Cron, run: Run, sink: str, now: int, told: Told | None
) -> Iterator[Effect]:
    tells = fingerprint(run.stdout) if verdict.remembers else ""
    if verdict.kind is not None:
        name = derive_id("delivery", cron.id, run.id, sink)
        text = message.of_run(name, verdict.kind, cron, run, told.head if told else None)
        yield PutDelivery(delivery(name, verdict.kind, cron, sink, text, now, run=run, sha256=tells))
    elif tells:
        yield PutTold(Told(cron.id, run.target, sink, tells, run.stdout.head, now))


def _last_told(cron_id: str, target: str, sink: str, facts: Facts) -> Told | None:
    """What is on its way to the sink counts; should it die there, what was told before counts again."""
    coming = facts.telling(cron_id, target, sink)
    if coming is None:
        return facts.told(cron_id, target, sink)
    run = facts.run(coming.run_id)
    return Told(cron_id, target, sink, coming.sha256, run.stdout.head if run else b"", coming.created_at)


def run_started(cron: Cron, run: Run, now: int) -> Iterator[Effect]:
    """Only dead-man services hear of starts."""
    for sink in dict.fromkeys(cron.definition.sinks):
        if sink.startswith("heartbeat:") and run.attempt == 1:
            yield from _ping(cron, run, sink, now, started=True)


def _ping(cron: Cron, run: Run, sink: str, now: int, *, started: bool = False) -> Iterator[Effect]:
    if run.out_of_band or not (started or run.result is Result.SUCCESS or run.result in FAILURES):
        return
    ended = Kind.SUCCEEDED if run.result is Result.SUCCESS else Kind.FAILED
    kind = Kind.STARTED if started else ended
    name = derive_id("delivery", cron.id, run.id, sink, kind)
    text = message.of_ping(name, kind, cron, run, now)
    yield PutDelivery(delivery(name, kind, cron, sink, text, now, run=run))


def recovered(cron: Cron, settled: Occurrence, count: int, since: int, now: int) -> Iterator[Effect]:
    """The first success after failures: how many they were and how long it took."""
    if cron.definition.on_output is OnOutput.SILENT:
        return
    times = f"{count} failure{'' if count == 1 else 's'}"
    subject = f"{cron.name} recovered after {times} in {format_span(max(now - since, 0))}"
    text = f"{subject}\n\nfailing since {format_instant(since)}, succeeded {format_instant(now)}\n"
    yield from announce(Kind.RECOVERED, cron, settled, now, subject, text)


def late(cron: Cron, occurrence: Occurrence, now: int) -> Iterator[Effect]:
    """`alert_after` has passed and the occurrence is not settled."""
    over = format_span(max(now - occurrence.instant, 0))
    subject = f"{cron.name} is late: {occurrence.status} {over} after its instant"
    detail = f"\n{occurrence.detail}" if occurrence.detail else ""
    text = f"{subject}\n\ndue {format_instant(occurrence.instant)}\noccurrence {occurrence.id}{detail}\n"
    yield from announce(Kind.LATE, cron, occurrence, now, subject, text)


def announce(kind: Kind, cron: Cron, occurrence: Occurrence, now: int, subject: str, text: str) -> Iterator[Effect]:
    """The same words to every sink that listens to words."""
    for sink in dict.fromkeys(cron.definition.sinks):
        if not sink.startswith(("heartbeat:", "cron:", "unit:")):
            name = derive_id("delivery", cron.id, occurrence.id, sink, kind)
            body = message.of_occurrence(name, kind, cron, occurrence, now, subject, text)
            yield PutDelivery(delivery(name, kind, cron, sink, body, now, occurrence=occurrence))


def delivery(
    name: str, kind: Kind, cron: Cron, sink: str, text: str, now: int, *,
    run: Run | None = None, occurrence: Occurrence | None = None, sha256: str = "",
) -> Delivery:
    """A fresh row, due now, in the queue of its sink."""
    mine = run.occurrence_id if run else occurrence.id if occurrence else ""
    return Delivery(
        id=name, cron_id=cron.id, cron_name=cron.name, owner=cron.owner, occurrence_id=mine,
        run_id=run.id if run else "", target=run.target if run else "", kind=kind, sink=sink,
        queue=queue_of(sink, cron.owner),
        message=text, created_at=now, next_attempt_at=now, sha256=sha256,
    )
