"""The five fields: what is taken, what is refused and under which name, and the choices documented."""

import time
from random import Random

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.cronfields import parse_cron
from crtrd.schedule.days import members
from crtrd.schedule.spec import compile_schedule

JANUARY_1970 = range(31)


def weekdays(text):
    """Return the weekdays (0 = Sunday) of a `* * * * X` expression, read off one week."""
    days = parse_cron(f"0 0 * * {text}").plan.days
    return {(4 + day) % 7 for day in range(7) if days.has(day)}  # 1970-01-01 was a Thursday


def minutes(text, salt=""):
    return parse_cron(f"{text} * * * *", salt).plan.times.minutes


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("60 * * * *", "minute"), ("* 24 * * *", "hour"), ("* * 0 * *", "day of month"), ("* * 32 * *", "day of month"),
        ("* * * 13 *", "month"), ("* * * 0 *", "month"), ("* * * * 8", "day of week"), ("*/0 * * * *", "minute"),
        ("10-5 * * * *", "minute"), ("* * * *", "day of week"), ("* *", "day of month"), ("", "minute"),
        ("   ", "minute"), ("1,, * * * *", "minute"), ("1, * * * *", "minute"), (", * * * *", "minute"),
        ("-1 * * * *", "minute"), ("1.5 * * * *", "minute"), ("\u0663 * * * *", "minute"), ("\uff11 * * * *", "minute"),
        ("* * * * * *", "schedule"), ("*/61 * * * *", "minute"), ("0 */25 * * *", "hour"), ("5/10 * * * *", "minute"),
        ("+5 * * * *", "minute"), ("** * * * *", "minute"), ("*-5 * * * *", "minute"), ("1-2-3 * * * *", "minute"),
        ("1-5/ * * * *", "minute"), ("1-5/2/2 * * * *", "minute"), ("0x5 * * * *", "minute"), ("1_0 * * * *", "minute"),
        ("0 0 * * monday", "day of week"), ("0 0 * january *", "month"), ("0 0 * mon *", "month"),
        ("0 0 jan * *", "day of month"), ("0 0 * * sun-", "day of week"), ("0 0 * * sat-mon", "day of week"),
        ("0 0 * * 6-0", None), ("0 0 * nov-feb *", "month"), ("~5~6 * * * *", "minute"), ("9~5 * * * *", "minute"),
        ("0~30/5 * * * *", "minute"), ("daily", "minute"), ("@reboot * * * *", "schedule"), ("@daily x", "schedule"),
        ("@Dailyy", "schedule"), ("@", "schedule"), ("0\x000 * * * *", "minute"), ("0\n* * * * *", "minute"),
        ("999999999999999999999 * * * *", "minute"),
    ],
)  # fmt: skip
def test_refused_with_the_field_named(text, field):
    if field is None:
        compile_schedule([text])
        return
    with pytest.raises(ScheduleError) as caught:
        compile_schedule([text])
    assert caught.value.field == field
    assert caught.value.reason


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", {0}), ("7", {0}), ("0-7", set(range(7))), ("5-7", {5, 6, 0}), ("fri-sun", {5, 6, 0}), ("SUN", {0}),
        ("Mon-Fri", {1, 2, 3, 4, 5}), ("mon,WED,fri", {1, 3, 5}), ("*/7", {0}), ("*/2", {0, 2, 4, 6}),
        ("1-5/2", {1, 3, 5}), ("6-7", {6, 0}), ("sun-tue", {0, 1, 2}), ("7-7", {0}), ("6-0", {6, 0}),
    ],
)  # fmt: skip
def test_days_of_the_week(text, expected):
    assert weekdays(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/15", (0, 15, 30, 45)), ("*/60", (0,)), ("1-9/4", (1, 5, 9)), ("007", (7,)), ("5,3,5", (3, 5)),
        ("*/30,5", (0, 5, 30)), ("58-59", (58, 59)), ("5-5", (5,)), ("*/59", (0, 59)), ("1-5/60", (1,)),
    ],
)  # fmt: skip
def test_minutes(text, expected):
    assert minutes(text) == expected


def test_months_by_name_in_lists_and_ranges():
    days = parse_cron("0 0 1 jan,MAR-may,12 *").plan.days
    assert members(days.months) == (1, 3, 4, 5, 12)


def test_a_star_in_front_makes_and_two_plain_fields_make_or():
    def days(text):
        plan = parse_cron(f"0 0 {text}").plan.days
        return {day + 1 for day in JANUARY_1970 if plan.has(day)}

    # January 1970: the Sundays are 4, 11, 18, 25
    assert days("13 * 0") == {4, 11, 13, 18, 25}
    assert days("*/2 * 0") == {11, 25}
    assert days("*,13 * 0") == {4, 11, 18, 25}
    assert days("1-7 * */7") == {4}
    assert days("1-7 * 0-7/7") == {1, 2, 3, 4, 5, 6, 7, 11, 18, 25}


@pytest.mark.parametrize(
    ("text", "wildcard"),
    [
        ("* 2 * * *", True), ("*/5 2 * * *", True), ("0 * * * *", True), ("0 */2 * * *", True), ("*,3 1 * * *", True),
        ("0-59 2 * * *", False), ("0 0-23 * * *", False), ("3,* 1 * * *", False), ("0 2 * * *", False),
        ("~ 2 * * *", False),
    ],
)  # fmt: skip
def test_a_wildcard_has_its_star_in_front(text, wildcard):
    assert parse_cron(text).wildcard is wildcard


def test_tilde_chooses_once_for_a_salt():
    chosen = {minutes("10~20", f"cron {n}") for n in range(300)}
    assert chosen == {(n,) for n in range(10, 21)}
    assert minutes("~", "a") == minutes("~", "a")
    assert {minutes("~50", f"{n}")[0] for n in range(2000)} == set(range(51))
    assert {minutes("50~", f"{n}")[0] for n in range(500)} == set(range(50, 60))
    assert minutes("~,5", "a") == tuple(sorted({5, *minutes("~,5", "a")}))
    drawn = [parse_cron("0 0 * * ~", f"{n}").plan.days for n in range(700)]
    assert 60 < sum(days.has(3) for days in drawn) < 140  # Sunday is drawn like any other day


def test_two_tildes_are_chosen_apart():
    pairs = [parse_cron("~ ~ * * *", f"{n}").plan.times for n in range(200)]
    assert len({(t.minutes, t.hours) for t in pairs}) > 150


@pytest.mark.parametrize(
    "text",
    [
        "," * 100_000, "1," * 5_000, "*" * 10_240, "9" * 10_240, "0 " * 5_000, "\u0664" * 10_240, "~" * 10_240,
        "every " + "1s" * 5_000, "at " + "2" * 10_000, "calendar " + "," * 10_000, "calendar " + "Mon.." * 3_000,
        "calendar *:*:0/0.000001", "@" + "x" * 10_000,
    ],
)  # fmt: skip
def test_nonsense_is_refused_quickly(text):
    began = time.process_time()
    with pytest.raises(ScheduleError) as caught:
        compile_schedule([text])
    assert time.process_time() - began < 0.1
    assert len(str(caught.value)) < 400


def test_any_text_is_either_taken_or_refused_by_name():
    chance = Random(7)
    taken, refused = 0, []
    alphabet = "0123456789*/-,~@ .:TZ+" + "monfeb" + "\u00b5\u0663"
    for _ in range(3_000):
        text = "".join(chance.choice(alphabet) for _ in range(chance.randrange(24)))
        text = chance.choice(["", "", "every ", "at ", "calendar "]) + text
        try:
            schedule = compile_schedule([text])
        except ScheduleError as error:
            refused.append(error)
            continue
        taken += 1
        following = schedule.next_after(0)
        assert following is None or following > 0
    assert all(error.field and error.reason for error in refused)
    assert taken > 5


@pytest.mark.parametrize(
    ("nickname", "fields"),
    [
        ("@hourly", "0 * * * *"), ("@daily", "0 0 * * *"), ("@midnight", "0 0 * * *"), ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"), ("@yearly", "0 0 1 1 *"), ("@annually", "0 0 1 1 *"), ("@DAILY", "0 0 * * *"),
    ],
)  # fmt: skip
def test_nicknames(nickname, fields):
    one = compile_schedule([nickname], timezone="America/Santiago")
    two = compile_schedule([fields], timezone="America/Santiago")
    assert one.span(0, 10**17, keep=50) == two.span(0, 10**17, keep=50)
    assert one.span(0, 10**17).count > 100
