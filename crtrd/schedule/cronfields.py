"""Five-field cron expressions and their nicknames, by the rules of Debian's cron.

A text becomes a `CronPlan`: what it matches on a plain clock, and whether it is a wildcard job.
Where Debian's parser takes a slip in silence (a backwards range, a step behind a single number)
this one refuses it and names the field. `~` is cronie's: a value chosen once, here by a hash.
"""

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache

from crtrd.errors import ScheduleError
from crtrd.schedule.days import Days, Plan, repeat_weekdays, times_of
from crtrd.values import dataclass, field

NICKNAMES: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One of the five fields: its name in messages, its range, and the names of its values."""

    name: str
    low: int
    high: int
    names: Mapping[str, int] = field(default_factory=dict)


_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_WEEKDAYS = "sun mon tue wed thu fri sat".split()
MINUTE_FIELD = Field("minute", 0, 59)
HOUR_FIELD = Field("hour", 0, 23)
DAY_FIELD = Field("day of month", 1, 31)
MONTH_FIELD = Field("month", 1, 12, {name: i + 1 for i, name in enumerate(_MONTHS)})
WEEKDAY_FIELD = Field("day of week", 0, 7, {name: i for i, name in enumerate(_WEEKDAYS)})
FIELDS = (MINUTE_FIELD, HOUR_FIELD, DAY_FIELD, MONTH_FIELD, WEEKDAY_FIELD)

_SUNDAY = 7
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_BLANKS = re.compile(r"[ \t]+")


@dataclass(frozen=True, slots=True)
class CronPlan:
    """A compiled expression. `wildcard`: its minute or hour field starts with `*`, as cron(8) has it."""

    plan: Plan
    wildcard: bool


def parse_cron(text: str, salt: str = "") -> CronPlan:
    """Compile five fields. `salt` chooses the values of `~`. ScheduleError names the field."""
    return _parse(text, salt) if "~" in text else _unsalted(text)


@lru_cache(maxsize=1024)
def _unsalted(text: str) -> CronPlan:
    """A thousand crons hold few different times."""
    return _parse(text, "")


def _parse(text: str, salt: str) -> CronPlan:
    texts = _BLANKS.split(text.strip(" \t"))
    if len(texts) > len(FIELDS):
        raise ScheduleError(text, "schedule", f"five fields are expected, not {len(texts)}")
    if texts == [""]:
        texts = []
    if len(texts) < len(FIELDS):
        missing = FIELDS[len(texts)]
        raise ScheduleError(text, missing.name, f"this field is missing: there are five, and here {len(texts)}")
    minutes, hours, days, months, weekdays = (_mask(index, part, text, salt) for index, part in enumerate(texts))
    # Debian: a day field that starts with * narrows the other; two plain ones widen each other
    either = not (texts[2].startswith("*") or texts[4].startswith("*"))
    plan = Plan(_days(days, months, weekdays, either), times_of(hours, minutes))
    if not either and plan.days.first_from(0) is None:
        raise ScheduleError(text, DAY_FIELD.name, "no month that is listed has such a day: never due")
    return CronPlan(plan, texts[0].startswith("*") or texts[1].startswith("*"))


@lru_cache(maxsize=512)
def _days(days: int, months: int, weekdays: int, either: bool) -> Days:  # noqa: FBT001
    weekdays = (weekdays | weekdays >> _SUNDAY) & 0b111_1111
    listed = days >> 1
    return Days(months, (listed, listed, listed, listed), repeat_weekdays(weekdays), either)


def _mask(index: int, part: str, text: str, salt: str) -> int:
    try:
        if "~" in part:
            return _parse_field(index, part, f"{salt}\0{text}")
        return _fixed_field(index, part)
    except ValueError as error:
        raise ScheduleError(text, FIELDS[index].name, str(error)) from None


@lru_cache(maxsize=1024)
def _fixed_field(index: int, part: str) -> int:
    return _parse_field(index, part, "")


def _parse_field(index: int, part: str, salt: str) -> int:
    """Return the field's values as bits. ValueError says what is wrong with it."""
    of = FIELDS[index]
    mask = 0
    for place, item in enumerate(part.split(",")):
        low, high, step = _parse_item(of, item)
        if step == 0:
            low = high = _choose(low, high, f"{salt}\0{index}\0{place}")
            step = 1
        for value in range(low, high + 1, step):
            mask |= 1 << value
    return mask


def _parse_item(of: Field, item: str) -> tuple[int, int, int]:
    """Return (low, high, step) of one item of a list; step 0 asks for one value between them."""
    base, slash, step_text = item.partition("/")
    step = _step(of, step_text) if slash else 1
    if base == "*":
        return of.low, of.high, step
    if "~" in base:
        if slash:
            raise ValueError(f"{item!r}: ~ takes no step")
        low_text, _, high_text = base.partition("~")
        low = _value(of, low_text) if low_text else of.low
        high = _random_high(of, high_text)
        step = 0
    elif "-" in base:
        low_text, _, high_text = base.partition("-")
        low, high = _value(of, low_text), _value(of, high_text)
        if of is WEEKDAY_FIELD and low > high == 0:
            high = _SUNDAY  # cronie's rule: at the end of a range Sunday is the seventh day
    else:
        low = high = _value(of, base)
        if slash:
            raise ValueError(f"{item!r}: a step needs * or a range before it")
    if low > high:
        raise ValueError(f"{item!r} runs backwards")
    return low, high, step


def _random_high(of: Field, text: str) -> int:
    if text:
        return _value(of, text)
    # 0 and 7 are one day: without this Sunday would be drawn twice as often as any other
    return of.high - 1 if of is WEEKDAY_FIELD else of.high


def _value(of: Field, text: str) -> int:
    if text.lower() in of.names:
        return of.names[text.lower()]
    if not _NUMBER.fullmatch(text):
        kind = "a number or name" if of.names else "a number"
        raise ValueError(f"{text[:20]!r} is not {kind}")
    value = int(text)
    if not of.low <= value <= of.high:
        raise ValueError(f"{value} is not in {of.low}-{of.high}")
    return value


def _step(of: Field, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) == 0:
        raise ValueError(f"{text[:20]!r} is not a step")
    step = int(text)
    if step > of.high - of.low + 1:
        # Debian takes */61 as "0 only", which nobody means
        raise ValueError(f"step {step} is longer than the whole field")
    return step


def _choose(low: int, high: int, salt: str) -> int:
    digest = hashlib.blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return low + int.from_bytes(digest, "big") % (high - low + 1)
