"""A definition that leaves by the bus and is written as a file reads back to the same definition."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.cli import looking
from crtrd.cli.client import plain
from crtrd.config.cronfile import read_table, write_file
from crtrd.config.inherited import given as named
from crtrd.config.reader import read_definition
from crtrd.control.views import cron_details, cron_view
from crtrd.core.cron import SECOND, Cron, State
from crtrd.dbus.objects import cron_properties
from crtrd.ledger.queries import Standing

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
WORD = TEXT.filter(bool)
SPAN = st.one_of(
    st.integers(1, 10**15).map(lambda us: us / SECOND), st.sampled_from(["90s", "1h 30min", "2 months 5us"]))
NAME = st.text(string.ascii_letters + "_", min_size=1, max_size=8).filter(lambda name: not name.startswith("CRTR_"))
KEYS = {
    "schedule": st.lists(
        st.sampled_from(["0 2 * * *", "every 90s", "calendar Mon 02:00", "@daily", "@reboot"]), max_size=3),
    "timezone": st.sampled_from(["UTC", "Europe/Berlin"]), "dst_gap": st.sampled_from(["auto", "skip", "after"]),
    "dst_overlap": st.sampled_from(["first", "both"]), "jitter": SPAN, "timeout": SPAN, "grace": SPAN,
    "start_within": SPAN, "retry_delay": SPAN, "alert_after": SPAN,
    "starts_at": st.sampled_from(["2026-12-01T02:00", "2026-12-01T02:00:00.000001Z", "2026-10-25T02:30:00+01:00"]),
    "expires_at": st.sampled_from(["2027-12-01T02:00Z"]), "max_runs": st.integers(1, 9),
    "exclude": st.lists(st.sampled_from(["2026-12-24", "2026-12-24..2027-01-01"]), max_size=2),
    "stdin": TEXT, "targets": st.lists(WORD, max_size=3, unique=True), "target_parallel": st.integers(1, 3),
    "cwd": WORD.map("/{}".format), "env": st.dictionaries(NAME, TEXT, max_size=3), "umask": st.integers(0, 0o777),
    "overlap": st.sampled_from(["skip", "queue", "replace", "allow"]), "parallel": st.integers(1, 5), "pool": TEXT,
    "retries": st.integers(0, 5), "success_exit_codes": st.lists(st.integers(0, 74), min_size=1, max_size=3),
    "held_exit_code": st.integers(76, 255), "catch_up": st.sampled_from(["last", "none", "all"]),
    "on_crash": st.sampled_from(["record", "rerun", "ask"]), "change_ignore": st.lists(st.just(r"\d+\\ ?"), max_size=2),
    "on_output": st.sampled_from(["on-failure", "silent", "on-change", "always"]),
    "sinks": st.lists(st.sampled_from(["inbox", "journal", "mail:a@b", "file:/x y"]), max_size=2),
    "on_failure": st.sampled_from(["pause", "continue"]), "pause_after": st.integers(1, 3),
    "survivors": st.sampled_from(["kill", "keep"]),
}
COMMANDS = st.one_of(
    st.tuples(st.just("command"), st.builds(lambda first, rest: [first, *rest], WORD, st.lists(TEXT, max_size=2))),
    st.tuples(st.just("shell"), WORD.filter(str.strip)))


def leaves(definition):
    """What crtrctl has in its hands when it exports this cron."""
    cron = Cron("a" * 32, definition, State.ACTIVE, 0, 1, 1, 1, 1)
    summary = cron_view(cron, Standing())
    properties = plain("a{sv}", cron_properties(cron_details(cron, summary)))
    return looking.own({looking.snake(key): value for key, value in properties.items()})


@given(st.fixed_dictionaries({}, optional=KEYS), COMMANDS)
def test_every_definition_comes_back(keys, command):
    definition = armed({"name": "a", **keys, command[0]: command[1]}, "Asia/Tokyo")
    text = write_file("a", leaves(definition))
    assert armed({"name": "a", **read_table(text, "a.toml")}, "America/Lima") == definition


def armed(table, timezone):
    """As control does it: what was given by name stays the cron's own, whatever its profile says."""
    return named(read_definition(table, where="", timezone=timezone), set(table))


@pytest.mark.parametrize("key", ["sinks", "env", "targets"])
def test_an_empty_value_that_is_not_the_default_is_written(key):
    empty = {} if key == "env" else []
    definition = read_definition({"name": "a", "command": ["x"], key: empty}, where="", timezone="UTC")
    text = write_file("a", leaves(definition))
    assert ("sinks = []" in text) == (key == "sinks")


def test_a_file_for_people():
    table = {"name": "a", "command": ["df", "-h"], "schedule": ["*/5 * * * *"], "umask": "0077", "timeout": "90min",
             "env": {"A": "b"}, "expires_at": "2027-01-01T00:00", "overlap": "skip"}
    definition = armed(table, "Europe/Berlin")
    assert write_file("a", leaves(definition)) == (
        '# a.toml\n[cron]\nschedule = ["*/5 * * * *"]\ntimezone = "Europe/Berlin"\n'
        'expires_at = "2026-12-31T23:00:00Z"\ncommand = ["df", "-h"]\nenv = { "A" = "b" }\numask = "0077"\n'
        'overlap = "skip"\ntimeout = "1h 30min"\n')
