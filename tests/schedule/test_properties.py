"""Properties that hold for every schedule, zone and instant."""

import time
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from crtrd.errors import ScheduleError
from crtrd.schedule.spec import compile_schedule
from crtrd.schedule.zone import DAY, END, HOUR, MINUTE, SECOND

ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Pacific/Apia",
    "America/St_Johns", "Africa/Casablanca", "America/Santiago", "Asia/Gaza", "Africa/Monrovia", "Pacific/Kwajalein",
)  # fmt: skip


def numbers(low, high):
    return st.integers(low, high)


@st.composite
def fields(draw, low, high):
    def item():
        kind = draw(st.sampled_from(["star", "step", "one", "one", "range", "range-step"]))
        first, second = draw(numbers(low, high)), draw(numbers(low, high))
        step = draw(numbers(1, high - low + 1))
        first, second = min(first, second), max(first, second)
        return {"star": "*", "step": f"*/{step}", "one": f"{first}", "range": f"{first}-{second}",
                "range-step": f"{first}-{second}/{step}"}[kind]  # fmt: skip

    return ",".join(item() for _ in range(draw(numbers(1, 3))))


@st.composite
def crons(draw):
    limits = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
    return " ".join(draw(st.one_of(st.just("*"), fields(low, high))) for low, high in limits)


calendars = st.sampled_from(
    [
        "calendar Mon..Fri 02:30",
        "calendar *:*:0/7.5",
        "calendar *-*~1 01:30",
        "calendar 01:59:59",
        "calendar *:15..45/10",
    ]
)
periods = st.integers(1, 40 * 86_400).map(lambda n: f"every {n}s")
singles = st.integers(0, END // SECOND - 1).map(lambda n: f"at {datetime.fromtimestamp(n, UTC):%Y-%m-%dT%H:%M:%S}Z")
texts = st.lists(st.one_of(crons(), crons(), calendars, periods, singles), min_size=1, max_size=3)
#: Around the nights of change, at the ends of what is computed, and beyond both.
instants = st.one_of(
    st.integers(0, END),
    st.integers(1_550_000_000, 1_610_000_000).map(lambda n: n * SECOND),
    st.builds(
        lambda night, minutes: int(night.timestamp()) * SECOND + minutes * MINUTE,
        st.sampled_from([
            datetime(2019, 3, 10, 7, tzinfo=UTC), datetime(2019, 11, 3, 6, tzinfo=UTC),
            datetime(2019, 3, 31, 1, tzinfo=UTC), datetime(2019, 10, 27, 1, tzinfo=UTC),
            datetime(2011, 12, 30, 10, tzinfo=UTC), datetime(2019, 4, 6, 15, tzinfo=UTC),
            datetime(1993, 8, 21, 12, tzinfo=UTC), datetime(1972, 1, 7, 0, 44, 30, tzinfo=UTC),
        ]),
        st.integers(-200, 200),
    ),
    st.integers(-(10**18), 10**18),
)  # fmt: skip


@st.composite
def schedules(draw):
    window = draw(st.sampled_from([{}, {}, {"starts_at": 10**15}, {"expires_at": 16 * 10**14}]))
    options = {
        "timezone": draw(st.sampled_from(ZONES)),
        "anchor": draw(st.sampled_from([0, 1_572_760_800_000_000, 1_572_760_812_345_678])),
        "dst_gap": draw(st.sampled_from(["auto", "auto", "skip", "after"])),
        "dst_overlap": draw(st.sampled_from(["auto", "auto", "first", "second", "both"])),
        "jitter_us": draw(st.sampled_from([0, 0, 0, 5, 300 * SECOND, 30 * HOUR])),
        "salt": draw(st.sampled_from(["", "a"])),
        "excludes": draw(st.sampled_from([(), (), ((1_572_000_000_000_000, 1_572_750_000_000_000),)])),
        **window,
    }
    try:
        return compile_schedule(draw(texts), **options)
    except ScheduleError as error:
        never = error.field == "day of month"
    assume(not never)
    raise AssertionError


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules(), instants)
def test_next_is_later_and_nothing_lies_between(schedule, at):
    following = schedule.next_after(at)
    if following is None:
        assert schedule.span(at, END + DAY).count == 0
        return
    assert at < following < END
    assert following >= 0
    assert schedule.latest_not_after(following) == following
    before = schedule.latest_not_after(following - 1)
    assert before is None or before <= at
    assert schedule.next_after(following - 1) == following
    assert schedule.explain(following).due
    if following > at + 1:
        assert not schedule.explain(following - 1).due


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules(), instants)
def test_a_span_is_the_iterated_next(schedule, at):
    found, now = [], at
    while len(found) < 120 and (now := schedule.next_after(now)) is not None:
        found.append(now)
    assert found == sorted(set(found))
    until = found[-1] if found else END + DAY
    told = schedule.span(at, until, keep=1000)
    assert told.count == len(found)
    assert told.newest == tuple(found)
    assert schedule.span(at, until, keep=0).count == len(found)
    if len(found) > 2:
        middle = found[len(found) // 2]
        assert schedule.span(at, middle, keep=0).count + schedule.span(middle, until, keep=0).count == len(found)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schedules(), instants, st.integers(0, 400 * 366 * DAY))
@example(compile_schedule(["* * * * *"], timezone="Europe/Berlin"), 0, END)
def test_the_work_is_bounded(schedule, at, length):
    assume(sum("every" in text or ":*" in text for text in schedule.texts) <= 1)
    began = time.process_time()
    schedule.next_after(at)
    schedule.latest_not_after(at)
    schedule.explain(at)
    assert time.process_time() - began < 0.5
    schedule.span(at, at + min(length, 10 * 366 * DAY), keep=5)
    assert time.process_time() - began < 5


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(crons(), st.sampled_from(ZONES), instants)
def test_the_two_passes_of_an_overlap_make_both(text, zone, at):
    """`first` and `second` are parts of `both`, and `skip` is a part of `after`."""
    assume(0 <= at < END - 60 * DAY)

    def during(**options):
        try:
            schedule = compile_schedule([text], timezone=zone, **options)
        except ScheduleError:
            assume(False)  # noqa: FBT003
        return set(schedule.span(at, at + 30 * HOUR, keep=2000).newest)

    both = during(dst_gap="skip", dst_overlap="both")
    first, second = during(dst_gap="skip", dst_overlap="first"), during(dst_gap="skip", dst_overlap="second")
    assert first <= both
    assert second <= both
    assert first | second == both
    after = during(dst_gap="after", dst_overlap="both")
    assert both <= after
    assert during() in (first, both, after, during(dst_gap="after", dst_overlap="first"))


@pytest.mark.parametrize("zone", ZONES)
def test_the_answer_does_not_depend_on_what_was_asked_before(zone):
    schedule = compile_schedule(["*/7 1-3 * * *", "30 2 * * *"], timezone=zone)
    start = int(datetime(2019, 3, 1, tzinfo=UTC).timestamp()) * SECOND
    asked = [start + n * 977 * MINUTE for n in range(400)]
    forward = [schedule.next_after(at) for at in asked]
    assert forward == [schedule.next_after(at) for at in reversed(asked)][::-1]
