"""Rerun: what a settled occurrence has left undone is done by a new, manual one. A settled occurrence never moves (I4).

The new occurrence has the scheduled instant of the old one and only those of its cells that were not a success, there
or in an earlier rerun of it. The label of the new one names the old one.
"""

from collections.abc import Iterator

from crtrd.core.cron import Cron
from crtrd.core.effects import Effect
from crtrd.core.events import RerunRequested
from crtrd.core.facts import Facts
from crtrd.core.occurrence import SETTLED, Occurrence, Origin, Status, occurrence_id, rerun_label, short
from crtrd.core.owing import accept
from crtrd.core.timetable import fault
from crtrd.errors import Code, RequestError


def rerun(event: RerunRequested, facts: Facts) -> Iterator[Effect]:
    """Put the new occurrence before the overlap policy. Raises RequestError where there is nothing to be done."""
    old = facts.occurrence(event.occurrence_id)
    if old is None:
        message = f"cannot find occurrence {event.occurrence_id!r}: no occurrence has that id"
        raise RequestError(Code.NO_SUCH_OCCURRENCE, message)
    cron = facts.cron(old.cron_id)
    if cron is None:
        raise _refusal(Code.NO_SUCH_CRON, old, f"its cron {old.cron_name!r} is gone")
    if why := fault(cron):
        raise _refusal(Code.INVALID_STATE, old, why)
    targets = undone(cron, old, facts)
    new = Occurrence(
        id=occurrence_id(cron.id, Origin.MANUAL, old.instant, event.key), cron_id=cron.id, cron_name=cron.name,
        origin=Origin.MANUAL, instant=old.instant, key=event.key, status=Status.PENDING, created_at=event.at,
        due_at=event.at, label=rerun_label(old.id),
    )
    yield from accept(cron, new, facts, event.at, only=targets)


def undone(cron: Cron, old: Occurrence, facts: Facts) -> tuple[str, ...]:
    """The targets that are still to be done, in the order of the cron's definition."""
    line = [old, *facts.reruns(old)]
    for each in line:
        if each.status not in SETTLED:
            what = "it is" if each.id == old.id else f"its rerun {short(each.id)} is"
            raise _refusal(Code.INVALID_STATE, old, f"{what} {each.status}")
    wanted = {cell.target for cell in facts.cells(old.id)} or {old.target} - {""} or set(_all(cron))
    done = {cell.target for each in line for cell in facts.cells(each.id) if cell.status is Status.SUCCESS}
    if not wanted - done:
        raise _refusal(Code.INVALID_STATE, old, "all of it is done")
    targets = tuple(target for target in _all(cron) if target in wanted - done)
    if not targets:
        gone = ", ".join(sorted(wanted - done))
        raise _refusal(Code.INVALID_STATE, old, f"the cron has no longer the targets that are left: {gone}")
    return targets


def _all(cron: Cron) -> tuple[str, ...]:
    return cron.definition.targets or ("",)


def _refusal(code: Code, old: Occurrence, reason: str) -> RequestError:
    return RequestError(code, f"cannot rerun occurrence {short(old.id)}: {reason}")
