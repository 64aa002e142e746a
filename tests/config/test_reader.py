"""Every key of the table of keys: right values, each wrong type, out of range; and the rules over several keys."""

import string
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crtrd.config.keys import BY_NAME, KEYS, Kind
from crtrd.config.reader import ENUMS, read_changes, read_definition
from crtrd.core.cron import HOUR, SECOND, Definition, OnOutput, Overlap
from crtrd.errors import ConfigError

BASE = {"name": "job", "command": ["true"]}
WRONG = {
    Kind.TEXT: [7, 1.5, True, None, [], {}, b"x", "a\0b", "\ud800", "x" * 70_000],
    Kind.TEXTS: ["x", 7, None, {}, [7], [None], ["a\0b"], ["x"] * 1001, [["x"]]],
    Kind.TABLE: ["x", 7, None, [], [["A", "B"]], {"A": 7}, {"A": None}, {7: "x"}, {"A": "a\0b"}],
    Kind.NUMBER: ["7", 1.0, True, None, [], {}, 1 << 70, -1],
    Kind.NUMBERS: ["0", 0, None, [True], ["0"], [1.0], [-1], [256]],
    Kind.SPAN: [None, True, [], {}, "", "soon", "5 parsecs", -1, float("inf"), float("nan"), "2000y", 1e12, "-5s"],
    Kind.INSTANT: [None, 7, True, [], "", "noon", "2026-13-01T00:00Z", "1969-01-01T00:00Z", "2026-02-30"],
    Kind.OCTAL: [None, True, [], "8", "0o9", "888", -1, 0o1000, "01000", 1.0],
    Kind.CHOICE: [None, 7, True, [], "", "sometimes", "SKIP", "\x1b[31m"],
}
RIGHT = {
    Kind.TEXT: [("x", "x"), ("naïve-日本", "naïve-日本"), ("", "")],
    Kind.TEXTS: [(["a", "b"], ("a", "b")), (("a",), ("a",))],
    Kind.TABLE: [({"A": "1", "B": "line\nline"}, (("A", "1"), ("B", "line\nline"))), ({}, ())],
    Kind.NUMBER: [(7, 7), (1, 1)],
    Kind.NUMBERS: [([0, 3], (0, 3))],
    Kind.SPAN: [("90s", 90 * SECOND), ("1h 30min", 5400 * SECOND), (2, 2 * SECOND), (0.5, SECOND // 2)],
    Kind.INSTANT: [
        ("2026-12-01T02:00Z", 1796090400 * SECOND), ("2026-12-01T02:00+01:00", 1796086800 * SECOND),
        (datetime(2026, 12, 1, 2, tzinfo=UTC), 1796090400 * SECOND)],
    Kind.OCTAL: [("0022", 0o22), ("0o77", 0o77), (0o27, 0o27)],
}
VALUES = {  # where the kind's own samples are no value of the key
    "profile": [("", "")], "command": [(["true", "-x"], ("true", "-x"))], "shell": [("a | b", "a | b")],
    "cwd": [("/tmp", "/tmp"), ("", "")], "resources": [({"Nice": "5"}, (("Nice", "5"),))],
    "sinks": [(["inbox", "mail:a@b"], ("inbox", "mail:a@b"))], "exclude": [(["2026-12-24..2027-01-01"], ...)],
    "change_ignore": [([r"\d+"], (r"\d+",))], "timezone": [("Europe/Berlin", "Europe/Berlin")],
}


def read(**keys):
    if "shell" in keys:
        keys.setdefault("command", [])
    return read_definition({**BASE, **keys}, where="cron job", timezone="UTC")


def samples():
    for key in KEYS:
        for given_value, expected in VALUES.get(key.name, RIGHT.get(key.kind, ())):
            yield pytest.param(key.name, given_value, expected, id=f"{key.name}={given_value!r}"[:60])
        for choice in key.choices:
            yield pytest.param(key.name, choice, choice, id=f"{key.name}={choice}")


@pytest.mark.parametrize(("name", "value", "expected"), list(samples()))
def test_right_values(name, value, expected):
    found = getattr(read(**{name: value}), name)
    assert found == (tuple(value) if expected is ... else expected)
    assert type(found) is not str or name not in ENUMS


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_wrong_values_are_refused_with_the_keys_name(key):
    for value in WRONG[key.kind]:
        if key.name == "shell" and value is None:
            continue
        with pytest.raises(ConfigError) as raised:
            read(**{key.name: value})
        assert raised.value.key == key.name, value
        assert f"cron job: {key.name}" in str(raised.value)
        assert str(raised.value).isprintable()


@pytest.mark.parametrize("key", [key for key in KEYS if key.low is not None or key.high is not None], ids=str)
def test_ranges(key):
    def value(number):
        return {Kind.NUMBERS: [number], Kind.SPAN: number / SECOND}.get(key.kind, number)

    for number, fits in ((key.low, True), (key.high, True), (key.low - 1 if key.low else -1, False),
                         (key.high + 1 if key.high else None, False)):
        if number is None:
            continue
        if fits:
            assert getattr(read(**{key.name: value(number)}), key.name) in (number, (number,))
        else:
            with pytest.raises(ConfigError) as raised:
                read(**{key.name: value(number)})
            assert raised.value.key == key.name


def test_the_table_of_keys_and_the_definition_are_the_same():
    assert {field.name for field in fields(Definition)} == {"name", "inherited", "pinned", *BY_NAME}
    assert len(BY_NAME) == len(KEYS)
    assert {key.name for key in KEYS if key.kind is Kind.CHOICE} >= set(ENUMS)
    for name, enum in ENUMS.items():
        assert BY_NAME[name].choices == tuple(enum)
    flags = [key.flag for key in KEYS]
    assert len(flags) == len(set(flags))


def test_defaults_are_the_contracts():
    found = read()
    assert found == Definition("job", command=("true",), timezone="UTC")
    assert (found.timeout, found.grace, found.held_exit_code) == (HOUR, 10 * SECOND, 75)
    assert (found.overlap, found.on_output, found.sinks) == (Overlap.SKIP, OnOutput.ON_FAILURE, ("inbox",))
    assert read_definition(BASE, where="", timezone="Europe/Berlin").timezone == "Europe/Berlin"


@pytest.mark.parametrize("name", ["a", "A9", "a.b_c@d-e", "0", "x" * 64])
def test_names(name):
    assert read(name=name).name == name


@pytest.mark.parametrize(
    "name", ["", " ", "x" * 65, ".a", "-a", "_a", "@a", "a b", "a/b", "a\n", "ä", "a\0", None, 7, [], "日本", "a:b"])
def test_other_names_are_refused_with_the_rule(name):
    with pytest.raises(ConfigError, match="1 to 64 of A-Z a-z 0-9") as raised:
        read(name=name)
    assert raised.value.key == "name"


@given(st.text(max_size=70))
@settings(max_examples=300, deadline=None)
def test_the_name_rule_is_the_contracts(name):
    first = string.ascii_letters + string.digits
    right = 1 <= len(name) <= 64 and name[0] in first and set(name) <= set(first + "._@-")
    try:
        read(name=name)
    except ConfigError:
        assert not right
    else:
        assert right


@pytest.mark.parametrize("key", ["scheduel", "Schedule", "", "a b", "\x1b[31m", 7])
def test_unknown_keys(key):
    with pytest.raises(ConfigError, match="there is no such key") as raised:
        read_definition({**BASE, key: "x"}, where="f", timezone="UTC")
    assert raised.value.key.isprintable()


@pytest.mark.parametrize(
    "env", [{"A=B": "x"}, {"": "x"}, {"A\0": "x"}, {"BASH_FUNC_x%%": "x"}, {"1A": "x"}, {"A": "a\0b"},
            {"CRTR_RUN_ID": "x"}, {"A": "x" * 200 * 1024}, {f"A{n}": "x" * 60_000 for n in range(3)}])
def test_c42_environments_that_are_refused(env):
    with pytest.raises(ConfigError) as raised:
        read(env=env)
    assert raised.value.key == "env"


@pytest.mark.parametrize(("targets", "said"), [
    (["a", "b", "a"], "'a' is named more than once"), (["a", ""], "one of them is empty")])
def test_targets_that_are_refused_are_named(targets, said):
    with pytest.raises(ConfigError, match=said):
        read(targets=targets)


@pytest.mark.parametrize("env", [{"A": "line\nline"}, {"LD_PRELOAD": "x"}, {"BASH_ENV": "x"}, {"_a1": ""}])
def test_c42_environments_that_arrive_as_they_are(env):
    assert dict(read(env=env).env) == env


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"command": []}, "command"), ({"shell": "x", "command": ["true"]}, "command"), ({"command": [""]}, "command"),
        ({"shell": " "}, "shell"), ({"targets": ["a", "a"]}, "targets"), ({"targets": [""]}, "targets"),
        ({"cwd": "tmp"}, "cwd"), ({"success_exit_codes": []}, "success_exit_codes"),
        ({"held_exit_code": 3, "success_exit_codes": [0, 3]}, "held_exit_code"),
        ({"change_ignore": ["("]}, "change_ignore"),
        *(({"change_ignore": [each]}, "change_ignore")
          for each in ("(?u)a", r"\u00e9", r"\N{DIGIT ONE}", "[[:alpha:]]")),
        ({"exclude": ["2026-02-30"]}, "exclude"), ({"exclude": ["2026-12-24.."]}, "exclude"),
        ({"exclude": ["2026-12-24..2026-12-01"]}, "exclude"), ({"sinks": ["pigeon"]}, "sinks"),
        ({"resources": {"Novel": "1"}}, "resources"), ({"resources": {"Nice": "low"}}, "resources"),
    ],
)
def test_rules_over_several_values(keys, key):
    with pytest.raises(ConfigError) as raised:
        read(**keys)
    assert raised.value.key == key


def test_changes_hold_only_what_was_named():
    old = read(retries=2)
    assert read_changes({"timeout": "5s"}, old, where="") == {"timeout": 5 * SECOND}
    assert read_changes({"shell": "a | b"}, old, where="") == {"shell": "a | b", "command": ()}
    assert read_changes({"command": ["x"]}, read(shell="y"), where="") == {"command": ("x",), "shell": None}


@pytest.mark.parametrize("changes", [{}, {"name": "other"}, {"novel": 1}, {"timeout": "soon"}, {"held_exit_code": 0}])
def test_changes_that_are_refused(changes):
    with pytest.raises(ConfigError):
        read_changes(changes, read(), where="cron job")


def test_local_times_mean_the_zone_that_comes_with_them():
    found = read(starts_at="2026-12-01T02:00", timezone="Europe/Berlin")
    assert found.starts_at == 1796086800 * SECOND
    changed = read_changes({"starts_at": "2026-12-01T02:00"}, found, where="")
    assert changed["starts_at"] == 1796086800 * SECOND


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3), max_leaves=5)


@given(st.dictionaries(st.sampled_from([*BY_NAME, "name", "novel"]), JSON, max_size=4))
@settings(max_examples=400, deadline=None)
def test_whatever_comes_is_read_or_refused(table):
    with suppress(ConfigError):
        assert isinstance(read_definition({**BASE, **table}, where="x", timezone="UTC"), Definition)
