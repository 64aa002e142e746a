"""From crontab lines to crons: names, environment, mail, zone, and an independent walk of every instant."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.config import plaincron
from crtrd.config.comparison import compare
from crtrd.config.crontab import Refusal
from crtrd.config.imported import import_crontab, program_of
from crtrd.core.cron import MINUTE, CatchUp, OnFailure, OnOutput, Overlap
from tests.core.world import D, at


def take(text, *, user="alice", system=False, timezone="Europe/Berlin", origin=None):
    return list(import_crontab(
        text, origin=origin or user, user=user, system=system, timezone=timezone,
        account=lambda name: name in {"alice", "root"}))


def one(text, **options):
    (found,) = take(text, **options)
    assert not isinstance(found, Refusal), found
    return found.definition


def test_a_line_becomes_a_cron_that_behaves_as_under_cron():
    made = one("30 2 * * * /srv/backup.sh -v\n")
    assert (made.schedule, made.timezone, made.shell, made.user) == (
        ("30 2 * * *",), "Europe/Berlin", "/srv/backup.sh -v", "alice")
    assert (made.on_failure, made.overlap, made.catch_up) == (OnFailure.CONTINUE, Overlap.ALLOW, CatchUp.NONE)
    assert (made.sinks, made.on_output) == (("mail:alice",), OnOutput.ALWAYS)
    assert dict(made.env) == {"PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("above", "sinks", "on_output"),
    [
        ('MAILTO=""\n', (), "silent"), ("MAILTO=ops@example.org\n", ("mail:ops@example.org",), "always"),
        ("MAILTO=a, b@c\n", ("mail:a", "mail:b@c"), "always"),
    ],
)
def test_mail_goes_where_cron_would_send_it(above, sinks, on_output):
    made = one(above + "* * * * * x\n")
    assert (made.sinks, made.on_output) == (sinks, on_output)


def test_environment_lines():
    made = one("PATH=/x:$HOME\nHOME=/srv\nLOGNAME=bob\nA = 'b c'\nTZ=Asia/Tokyo\nSHELL=/bin/bash\n* * * * * echo $A\n")
    assert made.command == ("/bin/bash", "-c", "echo $A")
    assert made.cwd == "/srv"
    assert made.timezone == "Europe/Berlin"
    assert dict(made.env) == {
        "PATH": "/x:$HOME", "HOME": "/srv", "A": "b c", "TZ": "Asia/Tokyo", "SHELL": "/bin/bash"}


def test_cron_tz_and_random_delay():
    made = one("CRON_TZ=America/New_York\nRANDOM_DELAY=45\n0 2 * * * x%in\n")
    assert (made.timezone, made.jitter, made.stdin) == ("America/New_York", 45 * MINUTE, "in\n")
    assert "CRON_TZ" not in dict(made.env)


def test_names_depend_on_the_line_alone():
    first = [each.name for each in take("0 1 * * * /opt/a.sh\n0 2 * * * cd /srv && ./b\n")]
    second = [each.name for each in take("# moved\n0 2 * * * cd /srv && ./b\n\n5 5 * * * new\n0 1 * * * /opt/a.sh\n")]
    assert first == [second[2], second[0]]
    assert first[0].startswith("alice-a-")
    assert len(set(second)) == 3
    twice = [each.name for each in take("* * * * * same\n* * * * * same\n")]
    assert twice[1] == twice[0] + "-2"


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("/usr/local/bin/backup.sh --full", "backup"), ("cd /srv/app && ./run.py", "run"), ("A=b nice make", "make"),
        ("[ -x /usr/sbin/anacron ] || run-parts /etc/x", "anacron"), ("(true)", "true"), ("'", ""), ("1 > 3", ""),
    ],
)
def test_names_are_readable(command, program):
    assert program_of(command) == program


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("61 * * * * x\n", "minute: 61"), ("0 0 31 2 * x\n", "day of month"),
        ("CRON_TZ=Mars/X\n* * * * * x\n", "timezone"),
        ("RANDOM_DELAY=soon\n* * * * * x\n", "RANDOM_DELAY"), ("RANDOM_DELAY=\u00b2\n* * * * * x\n", "RANDOM_DELAY"),
        (f"RANDOM_DELAY={'9' * 5000}\n* * * * * x\n", "RANDOM_DELAY"), ("'a b'=c\n* * * * * x\n", "env"),
        ("CRTR_X=c\n* * * * * x\n", "env"), ("HOME=here\n* * * * * x\n", "cwd"), ("10-5 * * * * x\n", "minute"),
    ],
)
def test_what_cannot_be_carried_over_is_refused_by_line(text, said):
    (found,) = take(text)
    assert isinstance(found, Refusal)
    assert found.number == text.count("\n")
    assert said in found.reason


def test_an_unknown_account_is_refused():
    (found,) = take("* * * * * nobody-here x\n", system=True, origin="crontab")
    assert found == Refusal(1, "there is no account 'nobody-here'")


LINES = (
    "* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0,30 2 * * *", "*/20 2 * * *", "30 1 * * 0", "0 0 * * *",
    "0 2-4/2 29 2 *", "15 3 1,15 * 5", "0 0 */2 * mon", "0 12 * jan-mar,dec fri-sun", "@hourly", "@weekly", "@yearly",
)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago",
                                  "Antarctica/Troll", "Pacific/Apia", "UTC"])
def test_old_and_new_agree_on_every_instant(zone):
    start = at("2011-06-01") if zone == "Pacific/Apia" else at("2025-01-15")
    moments = [start + n * D for n in range(366)]
    changes = [day for day in moments if len({_offset(day + n * D, zone) for n in (0, 1)}) > 1]
    for line in take("".join(f"{text} x{n}\n" for n, text in enumerate(LINES)), timezone=zone):
        dense = line.entry.schedule.startswith("*")
        windows = [(day - D, day + 2 * D) for day in changes] if dense else [(start, start + 365 * D)]
        for window in windows:
            result = compare(line, *window)
            assert result.instants or line.entry.schedule == "0 2-4/2 29 2 *"
            assert (result.only_old, result.only_new) == ((), ()), line.entry.schedule


def _offset(instant, zone):
    return datetime.fromtimestamp(instant / 1_000_000, ZoneInfo(zone)).utcoffset()


def test_a_difference_is_found():
    """The comparison can fail: another schedule behind the same line."""
    (line,) = take("0 2 * * * x\n")
    (other,) = take("0 3 * * * x\n")
    mixed = type(line)(line.number, line.entry, line.name, line.table, other.definition)
    result = compare(mixed, at("2026-01-01"), at("2026-01-08"))
    assert (len(result.only_old), len(result.only_new)) == (7, 7)


def test_what_no_clock_decides_is_not_compared():
    reboot, dice = take("@reboot x\n~ 3 * * * y\n")
    assert compare(reboot, 0, D) is None
    assert compare(dice, 0, D) is None


FIELD = st.sampled_from(["*", "*/3", "1", "0,30", "2-4", "1-5/2"])


@given(FIELD, st.sampled_from(["*", "*/3", "1", "0,23", "2-4"]),
       st.sampled_from(["Europe/London", "Australia/Lord_Howe"]), st.integers(0, 300))
def test_walk_against_a_walk_over_every_minute(minute, hour, zone, day):
    """Minutes as the clock shows them one after another: what matches, and nothing else, where no change is near."""
    info = ZoneInfo(zone)
    start = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=day)
    end = start + timedelta(hours=30)
    offsets = {(start + timedelta(hours=n)).astimezone(info).utcoffset() for n in range(-30, 60)}
    found = plaincron.firings(f"{minute} {hour} * * *", zone, start, end)
    if len(offsets) == 1:
        minutes, hours = plaincron._values(minute, 0, 59), plaincron._values(hour, 0, 23)
        moments = (start + timedelta(minutes=n) for n in range(1, 30 * 60 + 1))
        local = ((moment, moment.astimezone(info)) for moment in moments)
        assert found == [moment for moment, here in local if here.minute in minutes and here.hour in hours]
