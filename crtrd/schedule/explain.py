"""Why an instant is due or is not: the same rules as the streams', told in words.

Only the schedule speaks here. What the ledger or the state of the cron adds (paused, skipped, done
already) is the core's to say.
"""

from datetime import timedelta

from crtrd.schedule.spans import format_instant, format_span
from crtrd.schedule.streams import Stream, WallClock
from crtrd.schedule.window import Allowed, Jittered
from crtrd.schedule.zone import END, Segment, Zone
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a schedule says about one instant. `reason` is '' when it is due by the plain rule.

    Due: `''`, `gap` (made up for a skipped time), `overlap` (one of two equal times), `jitter`.
    Not due: `not-scheduled`, `gap`, `overlap`, `excluded`, `outside-window`, `jitter`.
    """

    due: bool
    reason: str
    detail: str


def explain(at: int, parts: tuple[Stream, ...], merged: Stream, allowed: Allowed | None, top: Stream) -> Verdict:
    """Say whether `at` is an instant of `top`, and why. The others are the layers below it."""
    if not 0 <= at < END:
        return _not_due("not-scheduled", "nothing is due before 1970 or after 2400")
    if top.last_upto(at) == at:
        nominal = top.nominal(at) if isinstance(top, Jittered) else at
        verdict = _why_due(at if nominal is None else nominal, parts)
        if nominal is not None and nominal != at:
            moved = f"planned for {format_instant(nominal)}, moved by {format_span(at - nominal)}"
            return Verdict(True, verdict.reason or "jitter", _both(verdict.detail, moved))  # noqa: FBT003
        return verdict
    if merged.last_upto(at) == at:
        return _why_dropped(at, allowed, top)
    if not parts:
        return _not_due("not-scheduled", "the cron has no schedule that names instants")
    silent = [_why_silent(at, part) for part in parts if isinstance(part, WallClock)]
    told = next((verdict for verdict in silent if verdict is not None), None)
    return told or _not_due("not-scheduled", "no schedule names this instant")


def _not_due(reason: str, detail: str) -> Verdict:
    return Verdict(due=False, reason=reason, detail=detail)


def _both(first: str, second: str) -> str:
    return f"{first}; {second}" if first else second


def _why_due(at: int, parts: tuple[Stream, ...]) -> Verdict:
    verdicts = [
        _why_due_on_clock(at, part) if isinstance(part, WallClock) else Verdict(True, "", "")  # noqa: FBT003
        for part in parts
        if part.last_upto(at) == at
    ]
    chosen = next((verdict for verdict in verdicts if not verdict.reason), verdicts[0])
    if len(verdicts) == 1:
        return chosen
    merged = f"{len(verdicts)} schedules of the cron name it; it is one occurrence"
    return Verdict(due=True, reason=chosen.reason, detail=_both(chosen.detail, merged))


def _why_due_on_clock(at: int, part: WallClock) -> Verdict:
    segment = part.zone.at(at)
    if at == segment.start and not part.plan.has(at + segment.offset):
        lost = part.lost_wall(segment)
        shown = _clock(part.zone, segment, lost)
        detail = f"{shown}: the clock skips it, so it runs right after the gap"
        return Verdict(due=True, reason="gap", detail=detail)
    others = [n for n in part.zone.instants_of(at + segment.offset) if n != at]
    if not others:
        return Verdict(due=True, reason="", detail="")
    place = "first" if at < others[0] else "second"
    both = part.last_upto(others[0]) == others[0]
    detail = f"the clock shows this time twice; this is the {place}"
    return Verdict(True, "overlap", f"{detail}, and both are due" if both else detail)  # noqa: FBT003


def _why_dropped(at: int, allowed: Allowed | None, top: Stream) -> Verdict:
    if allowed is not None and at < allowed.starts:
        return _not_due("outside-window", f"the schedule starts at {format_instant(allowed.starts)}")
    if allowed is not None and at >= allowed.expires:
        return _not_due("outside-window", f"the schedule expired at {format_instant(allowed.expires)}")
    stretch = allowed.exclusion(at) if allowed is not None else None
    if stretch is not None:
        start, end = format_instant(stretch[0]), format_instant(stretch[1])
        return _not_due("excluded", f"an exclusion holds from {start} until {end}")
    moved = top.next_after(at - 1)
    shown = "" if moved is None else f" to {format_instant(moved)}"
    return _not_due("jitter", f"planned for this instant, and moved{shown}")


def _why_silent(at: int, part: WallClock) -> Verdict | None:
    """Return why `at` is no instant of `part` though its plan has to do with it, if it has."""
    segment = part.zone.at(at)
    if part.plan.has(at + segment.offset):
        other = part.zone.instants_of(at + segment.offset)
        place = "second" if other and at > other[0] else "first"
        return _not_due("overlap", f"the clock shows this time twice; the {place} is not due")
    lost = part.lost_wall(segment) if at == segment.start else None
    if lost is None:
        return None
    return _not_due("gap", f"{_clock(part.zone, segment, lost)}: the clock skips it, and so does the cron")


def _clock(zone: Zone, segment: Segment, wall: int | None) -> str:
    if wall is None:
        return "a time in the gap"
    # the gap has no offset of its own: read it on the clock that was in force before
    moment = zone.local(segment.start - 1).replace(tzinfo=None)
    shown = moment + timedelta(microseconds=wall - (segment.start - 1 + segment.before))
    return shown.isoformat(sep=" ", timespec="seconds" if shown.second else "minutes")
