"""Schedules: the texts of a cron compiled into one ordered sequence of instants.

`compile_schedule` reads the texts (each kind has its own module) and stacks the layers: merged
streams, window and exclusions, jitter. A `Schedule` answers from them. It knows no clock: every
question brings its instant. Nothing is due before 1970 or after the year 2400.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime

from crtrd.errors import ScheduleError
from crtrd.schedule.calendar import parse_calendar
from crtrd.schedule.cronfields import NICKNAMES, parse_cron
from crtrd.schedule.explain import Verdict, explain
from crtrd.schedule.merged import merge
from crtrd.schedule.nights import Change, changes
from crtrd.schedule.spans import format_instant, format_span, parse_instant, parse_span
from crtrd.schedule.streams import Fixed, Gap, Overlap, Periodic, Stream, WallClock
from crtrd.schedule.window import Allowed, Jittered, join, stretches_of_dates
from crtrd.schedule.zone import END, SECOND, Zone, load_zone
from crtrd.values import dataclass

__all__ = ["Schedule", "Span", "Verdict", "compile_schedule", "is_fixed"]

#: A list of every minute takes 169 characters; what is longer than this is no schedule.
LONGEST_TEXT = 1000
MOST_TEXTS = 100
SHORTEST_PERIOD = SECOND
_REBOOT = "@reboot"
_EVERY = re.compile(r"(.*?)(\s+after\s+end)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Span:
    """The instants in (after, until]: how many, and the newest of them, ascending."""

    count: int
    newest: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """A compiled schedule: immutable, safe to keep and to share.

    `after_end_us` (from `every X after end`) is a distance from the end of the last run, which only
    the ledger knows, and `on_boot` an event: neither is part of the instants.
    """

    texts: tuple[str, ...]
    on_boot: bool
    after_end_us: int | None
    _zone: Zone
    _parts: tuple[Stream, ...]
    _merged: Stream
    _allowed: Allowed | None
    _top: Stream

    def next_after(self, after: int) -> int | None:
        """Return the first instant strictly later than `after`; None means never again."""
        return self._top.next_after(after)

    def instants(self, after: int) -> Iterator[int]:
        """Yield the instants later than `after`, ascending, perhaps for ever."""
        instant = self.next_after(after)
        while instant is not None:
            yield instant
            instant = self.next_after(instant)

    def latest_not_after(self, at: int) -> int | None:
        """Return the newest instant that is not later than `at`; None means there was none."""
        return self._top.last_upto(at)

    def span(self, after: int, until: int, keep: int = 100) -> Span:
        """Return how many instants lie in (after, until], exactly, and the newest `keep` of them."""
        newest: list[int] = []
        instant = self._top.last_upto(until)
        while instant is not None and instant > after and len(newest) < keep:
            newest.append(instant)
            instant = self._top.last_upto(instant - 1)
        complete = instant is None or instant <= after
        count = len(newest) if complete else self._top.count(after, until)
        return Span(count, tuple(reversed(newest)))

    def first_allowed(self, at: int) -> int | None:
        """Return the first moment from `at` on that the window and the exclusions leave; None means there is none."""
        return at if self._allowed is None else self._allowed.first_open(at)

    def explain(self, at: int) -> Verdict:
        """Say whether `at` is one of the instants, and why."""
        return explain(at, self._parts, self._merged, self._allowed, self._top)

    def changes(self, start: int, end: int) -> list[Change]:
        """Return the changes of the clock in (start, end] that meet one of the schedule's times."""
        return changes(self._parts, start, end)

    def local(self, instant: int) -> datetime:
        """Return `instant` as an aware datetime in the zone of the schedule."""
        return self._zone.local(instant)


@dataclass(slots=True)
class _Draft:
    """What the texts have named so far."""

    zone: Zone
    anchor: int
    salt: str
    gap: Gap
    overlap: Overlap
    on_boot: bool = False
    after_end_us: int | None = None

    def read(self, text: str) -> Stream | None:
        """Compile one text. None when it names no instants (`@reboot`, `after end`)."""
        if len(text) > LONGEST_TEXT:
            raise ScheduleError(text, "schedule", f"longer than {LONGEST_TEXT} characters")
        stripped = text.strip()
        word, rest = [*stripped.split(maxsplit=1), "", ""][:2]
        match word.lower():
            case "every":
                return self._every(stripped, rest)
            case "at":
                return self._at(stripped, rest.strip())
            case "calendar":
                return self._calendar(stripped, rest.strip())
            case nickname if nickname.startswith("@"):
                return self._nickname(stripped, nickname)
            case _:
                return self._cron(stripped, stripped)

    def _every(self, text: str, rest: str) -> Stream | None:
        found = _EVERY.fullmatch(rest)
        assert found is not None  # noqa: S101 - the pattern takes everything
        try:
            period = parse_span(found[1])
        except ScheduleError as error:
            raise ScheduleError(text, "every", error.reason) from None
        if period < SHORTEST_PERIOD:
            raise ScheduleError(text, "every", f"shorter than {format_span(SHORTEST_PERIOD)}")
        if found[2] is None:
            return Periodic(self.anchor, period)
        self.after_end_us = min(period, self.after_end_us or period)
        return None

    def _at(self, text: str, rest: str) -> Stream:
        try:
            instant = parse_instant(rest, self.zone.name, dst_gap=self.gap.value, dst_overlap=self.overlap.value)
        except ScheduleError as error:
            raise ScheduleError(text, error.field, error.reason) from None
        return Fixed((instant,))

    def _calendar(self, text: str, rest: str) -> Stream:
        try:
            found = parse_calendar(rest)
            zone = self.zone if found.zone is None else load_zone(found.zone)
        except ScheduleError as error:
            raise ScheduleError(text, error.field, error.reason) from None
        return WallClock(found.plan, zone, found.wildcard, self.gap, self.overlap)

    def _nickname(self, text: str, nickname: str) -> Stream | None:
        if text.lower() == _REBOOT:
            self.on_boot = True
            return None
        fields = NICKNAMES.get(nickname)
        if fields is None or nickname != text.lower():
            known = ", ".join([_REBOOT, *NICKNAMES])
            raise ScheduleError(text, "schedule", f"the nicknames are {known}, and stand alone")
        return self._cron(text, fields)

    def _cron(self, text: str, fields: str) -> Stream:
        if fields and fields[0].isalpha():
            reason = "it begins with neither a minute nor one of every, at, calendar, @NICKNAME"
            raise ScheduleError(text, "minute", reason)
        found = parse_cron(fields, self.salt)
        return WallClock(found.plan, self.zone, found.wildcard, self.gap, self.overlap)


def compile_schedule(
    texts: Sequence[str],
    *,
    timezone: str = "UTC",
    anchor: int = 0,
    salt: str = "",
    dst_gap: str = "auto",
    dst_overlap: str = "auto",
    jitter_us: int = 0,
    starts_at: int | None = None,
    expires_at: int | None = None,
    excludes: Sequence[tuple[int, int]] = (),
    exclude_dates: Sequence[tuple[date, date]] = (),
) -> Schedule:
    """Compile the texts of a cron. Raises ScheduleError, whose `field` names the part at fault.

    `anchor` is when the cron was armed: `every` counts from it. `salt` (the cron's id) decides
    jitter and `~`. The window is [starts_at, expires_at); `excludes` are stretches [start, end) of
    instants, `exclude_dates` local dates, both ends included. All microseconds.
    """
    if len(texts) > MOST_TEXTS:
        raise ScheduleError(f"{len(texts)} schedules", "schedule", f"at most {MOST_TEXTS} on a cron")
    zone = load_zone(timezone)
    draft = _Draft(zone, anchor, salt, _gap(dst_gap), _overlap(dst_overlap))
    parts = _combine([part for part in map(draft.read, texts) if part is not None])
    merged = top = merge(parts)
    allowed = _allow(
        merged, zone, starts_at=starts_at, expires_at=expires_at, excludes=excludes, exclude_dates=exclude_dates
    )
    if allowed is not None:
        top = allowed
    if jitter_us < 0:
        raise ScheduleError(f"-{format_span(-jitter_us)}", "jitter", "it is negative", "jitter")
    if jitter_us:
        top = Jittered(top, jitter_us, salt, END if allowed is None else allowed.expires)
    return Schedule(tuple(texts), draft.on_boot, draft.after_end_us, zone, parts, merged, allowed, top)


def is_fixed(texts: Sequence[str]) -> bool:
    """Say whether there are only `at` schedules: a one-shot."""
    return bool(texts) and all(text.lower().split(maxsplit=1)[:1] == ["at"] for text in texts)


def _gap(value: str) -> Gap:
    try:
        return Gap(value)
    except ValueError:
        raise ScheduleError(value, "dst_gap", f"one of {', '.join(Gap)} is expected") from None


def _overlap(value: str) -> Overlap:
    try:
        return Overlap(value)
    except ValueError:
        raise ScheduleError(value, "dst_overlap", f"one of {', '.join(Overlap)} is expected") from None


def _combine(parts: list[Stream]) -> tuple[Stream, ...]:
    """Return the parts with what says the same joined: fixed instants, and multiples of a period."""
    instants = {n for part in parts if isinstance(part, Fixed) for n in part.instants}
    periods = {part.period for part in parts if isinstance(part, Periodic)}
    kept: list[Stream] = []
    for part in dict.fromkeys(parts):
        if isinstance(part, Fixed):
            continue
        if isinstance(part, Periodic) and any(part.period > period and part.period % period == 0 for period in periods):
            continue
        kept.append(part)
    if instants:
        kept.append(Fixed(tuple(sorted(instants))))
    return tuple(kept)


def _allow(
    merged: Stream,
    zone: Zone,
    *,
    starts_at: int | None,
    expires_at: int | None,
    excludes: Sequence[tuple[int, int]],
    exclude_dates: Sequence[tuple[date, date]],
) -> Allowed | None:
    """Return the layer of the window and the exclusions, None where there is nothing to lay."""
    if starts_at is None and expires_at is None and not excludes and not exclude_dates:
        return None
    starts = 0 if starts_at is None else max(starts_at, 0)
    expires = END if expires_at is None else min(expires_at, END)
    if starts_at is not None and expires_at is not None and starts_at >= expires_at:
        reason = f"not later than starts_at, {format_instant(starts_at)}"
        raise ScheduleError(format_instant(expires_at), "expires_at", reason, "expires_at")
    stretches = list(excludes)
    for first, last in exclude_dates:
        if first > last:
            raise ScheduleError(f"{first}..{last}", "exclude", "the range runs backwards", "exclude")
        stretches += stretches_of_dates(zone, first, last)
    if any(start > end for start, end in excludes):
        raise ScheduleError("a stretch of time", "exclude", "it ends before it begins")
    return Allowed(merged, starts, expires, join(stretches))
