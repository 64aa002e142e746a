"""Crons that are defined in files: bring what is armed in line with what was read, and touch nothing else.

    file new                        -> armed                 definition the same  -> nothing at all
    definition changed              -> changed, its state (paused, failures, history) stays
    file gone                       -> canceled, history stays
    unusable, or the name is taken  -> said, and the last good definition goes on
"""

from collections.abc import Iterator
from dataclasses import replace

from crtrd.core.cron import SECOND, Cron, Definition, State
from crtrd.core.effects import Announce, Answer, Effect, PutCron, Remember
from crtrd.core.events import CronFile, CronFilesRead
from crtrd.core.facts import Facts, Limits
from crtrd.core.occurrence import Reason
from crtrd.core.owing import owe_due
from crtrd.core.requests import admit, redefine, remove, timing_differs
from crtrd.core.timetable import compiled
from crtrd.errors import ScheduleError

MARK = "crons.d"
"""Where the ledger remembers what the folders looked like when they were read last."""


def cron_files_read(event: CronFilesRead, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """Converge. Refusals are announced; the answer counts what was done."""
    done = {"armed": 0, "changed": 0, "canceled": 0, "refused": 0}
    known = {cron.name: cron for cron in facts.crons_from_files(event.after, event.upto)}
    names = [file.definition.name for file in event.files]
    named = known | {cron.name: cron for cron in facts.crons_named([name for name in names if name not in known])}
    for file in event.files:
        what = ""
        for effect in _converge(file, named.get(file.definition.name), event, facts, limits):
            if isinstance(effect, Announce) and effect.kind in {"cron.armed", "cron.changed", "config.rejected"}:
                what = {"config.rejected": "refused"}.get(effect.kind, effect.kind.removeprefix("cron."))
            yield effect
        if what:
            done[what] += 1
    present = {*names, *event.kept}
    for name, cron in known.items() if event.whole else ():
        if name not in present:
            yield from _owed_before(cron, event.at, facts, limits)
            yield from remove(facts.cron(cron.id) or cron, event.at, facts, kill=False, caller=event.caller)
            done["canceled"] += 1
    if not event.upto:
        yield Remember(MARK, event.mark)
    if event.ticket is not None:
        yield Answer(event.ticket, done)


def _converge(
    file: CronFile, cron: Cron | None, event: CronFilesRead, facts: Facts, limits: Limits
) -> Iterator[Effect]:
    definition = file.definition
    if cron is None:
        yield from _arm(file, event, facts, limits)
        return
    if not file.zoned:
        definition = replace(definition, timezone=cron.definition.timezone)
    if cron.definition == definition and not cron.damage:
        if cron.source != file.source:
            yield PutCron(replace(cron, source=file.source))
    elif not cron.source:
        reason = f"a cron named {cron.name} was armed otherwise; cancel it, or rename the file"
        yield rejected(file.source, reason)
    elif reason := _unusable(replace(cron, definition=definition), event.at, again=_stays_finished(cron, definition)):
        yield rejected(file.source, f"{reason}; the last good definition goes on")
    else:
        yield from _owed_before(cron, event.at, facts, limits)
        old = replace(facts.cron(cron.id) or cron, source=file.source)
        yield from redefine(old, definition, event.at, facts, limits, caller=event.caller, account=file.account)


def _stays_finished(cron: Cron, definition: Definition) -> bool:
    return cron.state is State.FINISHED and not timing_differs(definition, cron.definition)


def _arm(file: CronFile, event: CronFilesRead, facts: Facts, limits: Limits) -> Iterator[Effect]:
    cron = Cron(
        id=file.cron_id, definition=file.definition, state=State.ACTIVE, owner=event.caller, created_at=event.at,
        changed_at=event.at, anchor=event.at - event.at % SECOND, considered=event.at, last_boot=limits.boot_id,
        source=file.source, account=file.account,
    )
    if reason := _unusable(cron, event.at):
        yield rejected(file.source, reason)
    else:
        yield from admit(cron, event.at, facts, caller=event.caller)


def _unusable(cron: Cron, now: int, *, again: bool = False) -> str:
    """Why a definition from a file cannot be taken, '' when it can. `again`: a finished one may stay finished."""
    try:
        schedule = compiled(cron.definition, cron.anchor, cron.id)
    except (ScheduleError, ValueError) as error:
        return str(error)
    timed = bool(cron.definition.schedule) and not schedule.on_boot and schedule.after_end_us is None
    if timed and not again and schedule.next_after(now) is None:
        return "schedule: no instant lies ahead"
    return ""


def _owed_before(cron: Cron, now: int, facts: Facts, limits: Limits) -> Iterator[Effect]:
    """What came due before the files were read belongs to the cron as it was."""
    if limits.own_clock and cron.state is State.ACTIVE and cron.next_at is not None and cron.next_at <= now:
        yield from owe_due(cron, now, facts, Reason.DOWNTIME)


def rejected(source: str, reason: str) -> Announce:
    return Announce("config.rejected", f"cannot accept {source}: {reason}", {"CRTRD_PATH": source}, 3)
