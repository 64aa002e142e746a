"""`trigger`: an occurrence on request that is safe to ask for again. What is found decides the disposition:

    the key was used, same arguments        what became of that occurrence      (other arguments: Conflict)
    `at`, and its instant has a row         what became of that row
    `at`, no row yet                        the row of that instant, as the schedule itself would make it
    neither, nothing in the way             accepted: a row of its own
    neither, open, overlap skip             already_running: the open one stands for this request too
    neither, no place to wait               LimitExceeded: the same request may succeed later

`at` means the latest instant of the schedule that is not after it, so that any number of clocks, ours among them, meet
in one row. A clock may be ahead of ours by AHEAD. Keys are kept for KEPT.
"""

import json
from collections.abc import Generator, Iterator
from dataclasses import replace
from enum import StrEnum

from crtrd.core.cron import HOUR, MINUTE, Cron, Overlap, State
from crtrd.core.effects import Answer, Effect, PutKey
from crtrd.core.events import TriggerRequested
from crtrd.core.facts import Facts
from crtrd.core.occurrence import SETTLED, Cell, Key, Occurrence, Origin, Status, occurrence_id
from crtrd.core.overlap import Turn, judge, policy
from crtrd.core.owing import accept, scheduled
from crtrd.core.requests import intact, named
from crtrd.core.timetable import timetable
from crtrd.errors import Code, RequestError
from crtrd.schedule.spans import format_instant
from crtrd.values import dataclass

KEPT = 7 * 24 * HOUR
AHEAD = MINUTE


class Word(StrEnum):
    ACCEPTED = "accepted"
    COMPLETED = "already_completed"
    RUNNING = "already_running"


@dataclass(frozen=True, slots=True)
class Disposition:
    """The answer. `occurrence` None: its key is remembered, its row is not any more."""

    word: Word
    occurrence_id: str
    occurrence: Occurrence | None
    cells: tuple[Cell, ...]


def trigger(event: TriggerRequested, facts: Facts) -> Iterator[Effect]:
    cron = intact(named(event.cron, facts), "trigger")
    arguments = json.dumps([event.when, event.label, event.source, event.overlap])
    known = facts.trigger_key(cron.id, event.key, event.at - KEPT) if event.key else None
    if known is not None:
        if known.arguments != arguments:
            message = f"cannot trigger {cron.name!r}: the key was used with other arguments"
            raise RequestError(Code.CONFLICT, message)
        yield Answer(event.ticket, _found(known.occurrence_id, facts))
        return
    if cron.state is not State.ACTIVE:
        raise RequestError(Code.INVALID_STATE, f"cannot trigger {cron.name!r}: it is {cron.state}")
    wanted, fresh = yield from _occurrence(cron, event, facts)
    if event.key:
        yield PutKey(Key(cron.id, event.key, arguments, wanted, event.at))
    answer = _found(wanted, facts)
    yield Answer(event.ticket, replace(answer, word=Word.ACCEPTED) if fresh and not _over(answer) else answer)


def _over(answer: Disposition) -> bool:
    return answer.word is Word.COMPLETED


def _found(wanted: str, facts: Facts) -> Disposition:
    row = facts.occurrence(wanted)
    if row is None or row.status in SETTLED:
        return Disposition(Word.COMPLETED, wanted, row, tuple(facts.cells(wanted)))
    word = Word.ACCEPTED if row.status is Status.PENDING and not _begun(row, facts) else Word.RUNNING
    return Disposition(word, wanted, row, tuple(facts.cells(wanted)))


def _begun(row: Occurrence, facts: Facts) -> bool:
    return any(cell.attempts for cell in facts.cells(row.id))


def _occurrence(cron: Cron, event: TriggerRequested, facts: Facts) -> Generator[Effect, None, tuple[str, bool]]:
    """The id of the occurrence that this request means, and whether it was made for it."""
    if event.when is not None:
        new = scheduled(cron, _instant(cron, event.when, event.at), event.at)
        if facts.occurrence(new.id) is not None:
            return new.id, False
    else:
        others = facts.line(cron.id)
        verdict = judge(cron.definition, event.overlap, others)
        if verdict.turn is Turn.SKIP:
            if policy(cron.definition, event.overlap) is Overlap.SKIP:
                return others.oldest, False
            raise RequestError(Code.LIMIT_EXCEEDED, f"cannot trigger {cron.name!r}: {verdict.detail}")
        new = _own(cron, event, facts)
    source = f"asked for by {event.source}" if event.source else ""
    yield from accept(cron, replace(new, label=event.label, overlap=event.overlap, detail=source), facts, event.at)
    return new.id, True


def _own(cron: Cron, event: TriggerRequested, facts: Facts) -> Occurrence:
    """A row of its own; a key that was forgotten and is used again makes another one."""
    key = event.key or event.fresh
    name = occurrence_id(cron.id, Origin.TRIGGER, event.at, key)
    if facts.occurrence(name) is not None:
        key = f"{key} {event.fresh}"
        name = occurrence_id(cron.id, Origin.TRIGGER, event.at, key)
    return Occurrence(
        id=name, cron_id=cron.id, cron_name=cron.name, origin=Origin.TRIGGER, instant=event.at, key=key,
        status=Status.PENDING, created_at=event.at, due_at=event.at,
    )


def _instant(cron: Cron, when: int, now: int) -> int:
    if when > now + AHEAD:
        raise RequestError(
            Code.INVALID_ARGUMENT, f"cannot trigger {cron.name!r} at {format_instant(when)}: that lies ahead")
    instant = timetable(cron).latest_not_after(when)
    if instant is None:
        text = f"cannot trigger {cron.name!r} at {format_instant(when)}: its schedule has no instant up to then"
        raise RequestError(Code.INVALID_ARGUMENT, text)
    return instant
