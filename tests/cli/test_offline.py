"""What needs no daemon: usage, help, the calendar, a bus that is not there, import costs, and words."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from crtrd.cli import fields, main, render, words
from crtrd.cli.client import Refused, choose_bus, plain
from crtrd.cli.endings import ENDS, ending, left_out, rest_of_stream, unheard
from crtrd.cli.main import GROUPS, VERBS, _joined
from crtrd.cli.moments import absolute, instant_of
from crtrd.cli.naming import waits_for
from crtrd.cli.session import Failure
from crtrd.cli.words import calendar_time, harmless, relative, rfc3339, span
from crtrd.config.keys import KEYS
from crtrd.core.occurrence import Result
from crtrd.dbus.values import FIELD_TYPES
from crtrd.schedule.spans import parse_instant
from crtrd.trigger import routes

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["lsit"], "there is no verb 'lsit'. Did you mean list?"),
        (["frobnicate"], "there is no verb 'frobnicate'"),
        (["help", "lsit"], "Did you mean list?"), (["list", "--stat", "active"], "Did you mean --state?"),
        (["arm", "x", "--cron", "0", "2", "*", "*", "*", "--", "true"], "is quoted: '0 2 * * *'"),
        (["calendar", "0", "2", "*", "*", "*"], "quote the expression, crtrctl calendar '0 2 * * *'"),
        (["runs", "--result", "fine"], "exit-code"), (["occurrences", "x", "--status", "odd"], "missed"),
        (["why"], "required"),
        (["--bogus"], "there is no verb"),
        (["list", "--bogus"], "unrecognized arguments: --bogus"),
        (["list", "--json=yaml"], "--json"),
        (["list", "--", "x"], "nothing may follow --"),
        (["arm"], "without a name"),
        (["arm", "x"], "no command; write it after --"),
        (["arm", "x", "--env", "NOEQUALS", "--", "y"], "write NAME=VALUE"),
        (["arm", "--file", "/nonexistent.toml"], "cannot read /nonexistent.toml"),
        (["change"], "without a name"),
        (["pause"], "required"),
        (["calendar", "--timezone", "Nowhere/Land", "@daily"], "Nowhere/Land"),
        (["calendar", "61 * * * *"], "minute"),
        (["calendar", "at 2001-01-01"], "cannot find an instant"),
        (["calendar", "@daily", "--from", "whenever"], "cannot use 'whenever' as a time: not a time like"),
        (["calendar", "@daily", "-n", "-1"], "from 0 to 1000"),
    ],
)
def test_usage_is_explained(nobody, arguments, said):
    done = subprocess.run([sys.executable, "-m", "crtrd.cli.main", *arguments], env=nobody.env, capture_output=True,
                          text=True, timeout=20, check=False)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert done.stderr.startswith("crtrctl: cannot ")
    assert done.stdout == ""


def test_unreachable(nobody):
    env = {"DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nonexistent/bus"}
    assert "cannot reach the system bus: No such file" in nobody.run("list", status=6, **env).stderr
    assert "DBUS_SESSION_BUS_ADDRESS is not set; log in" in nobody.run("--user", "list", status=6).stderr
    said = nobody.run("list", "--json", status=6, **env)
    assert json.loads(said.stderr)["error"]["code"] == "Unreachable"
    assert json.loads(nobody.run("list", "--json", "--odd", status=2).stderr)["error"]["code"] == "Usage"
    env = {"DBUS_SYSTEM_BUS_ADDRESS": "tcp:host=localhost,port=1"}
    assert "cannot reach the system bus" in nobody.run("status", status=6, **env).stderr


def test_help_fits_eighty_columns(nobody):
    overview = nobody.out("--help")
    assert all(f"  {verb} " in overview for verb in VERBS)
    assert [title for title, _ in GROUPS if f"{title}:" not in overview] == []
    for verb in VERBS:
        text = nobody.out(verb, "--help")
        assert max(map(len, text.splitlines())) <= 80, verb
        assert VERBS[verb].does[1:] in " ".join(text.split())
    assert max(map(len, overview.splitlines())) <= 80
    arming = nobody.out("arm", "--help")
    assert all(key.flag in arming for key in KEYS)
    assert nobody.out("--version").startswith("crtrctl ")
    assert nobody.out(status=2) == nobody.out("help") == overview
    assert nobody.out("help", "arm") == arming
    assert "--json=off|short|pretty" in arming
    assert "--json=off|short|pretty" in overview


def test_calendar(nobody):
    said = nobody.out("calendar", "0 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-10-24T12:00", "-n", "2",
                      "--json")
    assert json.loads(said) == [
        {"instant": "2026-10-25T00:00:00Z", "local": "2026-10-25T02:00:00+02:00"},
        {"instant": "2026-10-26T01:00:00Z", "local": "2026-10-26T02:00:00+01:00"}]
    table = nobody.out("calendar", "@daily", "at 2030-01-01T05:00Z", "--from", "2029-12-31", "-n", "3", "--no-legend")
    assert [line.split()[5] for line in table.splitlines()] == [
        "2030-01-01T00:00:00Z", "2030-01-01T05:00:00Z", "2030-01-02T00:00:00Z"]
    assert "@reboot" in nobody.out("calendar", "@reboot")
    assert nobody.out("calendar", "every 5m", "-n", "0") == ""
    monday = ("--from", "2026-03-01", "-n", "1", "--json")
    assert nobody.out("calendar", "Mon 07:00", *monday) == nobody.out("calendar", "calendar Mon 07:00", *monday)
    night = nobody.out("calendar", "30 2 * * *", "--timezone", "Europe/Berlin", "--from", "2026-03-28", "-n", "3")
    header, _, changed, after, told = night.splitlines()
    assert header.split() == ["LOCAL", "UTC", "LEFT", "CHANGE"]
    assert changed.startswith("Sun 2026-03-29 03:00:00 CEST +02:00  2026-03-29T01:00:00Z  ")
    assert (changed.split()[-1], after.split()[-1]) == ("gap", "ago")
    assert told == "Sun 2026-03-29: the clock skips 02:00 to 03:00; a time due there runs once, right after"


def test_verbs_import_what_they_need(nobody):
    heavy = {"asyncio", "peewee", "pystemd", "psutil", "json", "tomllib", "difflib", "crtrd.config.loader", "h11",
             "crtrd.schedule", "crtrd.control"}
    code = (
        "import sys; from crtrd.cli.main import main; status = main(sys.argv[1:]); "
        "sys.stderr.write('|'.join(sys.modules)); sys.exit(status)"
    )
    for arguments, allowed in ((["status"], set()), (["list"], set())):
        done = subprocess.run([sys.executable, "-c", code, *arguments], env=nobody.env, capture_output=True, text=True,
                              timeout=20, check=False)
        assert done.returncode == 6
        loaded = set(done.stderr.splitlines()[-1].split("|"))
        assert not heavy & loaded - allowed


def test_the_bus_of_an_instance(tmp_path):
    home = {"CRTR_HOME": str(tmp_path)}
    assert choose_bus({}, user=False) == ("SYSTEM", "system bus")
    assert choose_bus(home, user=True)[0] == "SESSION"
    assert choose_bus({"XDG_RUNTIME_DIR": "/run/user/7"}, user=True) == ("unix:path=/run/user/7/bus", "user bus")
    given = {"XDG_RUNTIME_DIR": "/run/user/7", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}
    assert choose_bus(given, user=True) == ("SESSION", "user bus")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/bus").touch()
    assert choose_bus(home, user=False)[0] == f"unix:path={tmp_path}/run/bus"


def test_json_option_takes_no_name_for_a_mode():
    assert _joined(["list", "--json", "tick"]) == ["list", "--json=short", "tick"]
    assert _joined(["--json", "pretty", "list"]) == ["--json=pretty", "list"]
    assert _joined(["list", "--json"]) == ["list", "--json=short"]
    assert _joined(["runs", "--since", "-1h", "-n", "-1"]) == ["runs", "--since", "1h ago", "-n", "-1"]


def test_surfaces_agree_on_what_is_a_time():
    spans = {"duration_us", "stdout_bytes", "stderr_bytes", "jitter", "timeout", "grace", "retry_delay",
             "retry_max_delay", "start_within", "alert_after", "fence"}
    on_the_bus = {name for name, signature in FIELD_TYPES.items() if signature == "t"} - spans
    assert on_the_bus <= fields.TIMES
    assert on_the_bus <= routes.TIMES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 🎈", "plain ä 🎈"), ("\x1b[31m", "\\x1b[31m"), ("a\nb\tc", "a\\x0ab\\x09c"), ("\x9b", "\\x9b"),
        ("\u202eabc\u2066", "\\u202eabc\\u2066"), ("\udcff", "\\udcff"), ("\0", "\\x00"), ("", ""),
    ],
)
def test_harmless(text, shown):
    assert harmless(text) == shown


def test_harmless_keeps_what_it_is_told():
    assert harmless("a\n\x1b\tb", keep="\n\t") == "a\n\\x1b\tb"


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0, "0s"), (1, "1us"), (1500, "1ms 500us"), (5 * SECOND, "5s"), (90 * SECOND, "1min 30s"),
        (5400 * SECOND, "1h 30min"), (86400 * SECOND, "1 day"), (3 * 86400 * SECOND + 5, "3 days 5us"),
        (words.YEAR + words.MONTH, "1y 1 month"),
    ],
)
def test_span(microseconds, shown):
    assert span(microseconds) == shown


@pytest.mark.parametrize(
    ("distance", "shown"),
    [
        (5 * SECOND, "in 5s"), (-120 * SECOND, "2min ago"), (0, "now"), (5 * SECOND + 7, "in 5s"),
        (-5 * SECOND - 7, "5s ago"), (999, "now"),
    ],
)
def test_relative(distance, shown):
    now = 1_764_590_400 * SECOND
    assert relative(now + distance, now) == shown
    assert relative(None, now) == relative(0, now) == "-"


def test_times():
    assert rfc3339(0) == "1970-01-01T00:00:00Z"
    assert rfc3339(1_764_590_400_250_000) == "2025-12-01T12:00:00.25Z"
    assert rfc3339(2**64 - 1) == "9999-12-31T23:59:59Z"
    assert calendar_time(1_764_590_400_000_000, words.UTC) == "Mon 2025-12-01 12:00:00 UTC"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("now", "2026-03-28T22:30:00Z"), ("+5m", "2026-03-28T22:35:00Z"), ("in 5m", "2026-03-28T22:35:00Z"),
        ("-1h", "2026-03-28T21:30:00Z"), ("1h 30min ago", "2026-03-28T21:00:00Z"), ("today", "2026-03-27T23:00:00Z"),
        ("7:05", "2026-03-28T06:05:00Z"), ("tomorrow", "2026-03-28T23:00:00Z"), ("yesterday", "2026-03-26T23:00:00Z"),
        ("tomorrow 07:00", "2026-03-29T05:00:00Z"),  # the clock has changed in between
        ("2026-03-29T01:00", "2026-03-29T00:00:00Z"), ("2026-03-29T01:00Z", "2026-03-29T01:00:00Z"),
    ],
)
def test_times_that_depend_on_the_clock(text, meant):
    now = parse_instant("2026-03-28T22:30Z", "UTC")
    assert rfc3339(instant_of(text, "Europe/Berlin", now)) == meant
    absolute_text = absolute(text, lambda: "Europe/Berlin", now)
    assert absolute_text == (text if text.startswith("2026") else meant)


@pytest.mark.parametrize("text", ["", "soon", "tomorrow noon", "+", "ago", "25:00", "tomorrow 7", "+5x"])
def test_times_that_are_none(text):
    with pytest.raises(Failure, match="as a time"):
        instant_of(text, "UTC", 1)


def test_the_end_of_what_is_shown_as_a_second():
    assert instant_of("2026-01-01T00:00:05Z", "UTC", 1, last=True) % SECOND == SECOND - 1
    assert instant_of("2026-01-01T00:00:05.5Z", "UTC", 1, last=True) % SECOND == SECOND // 2


@pytest.mark.parametrize(("text", "lines"), [
    ("short", ["short"]), ("", [""]), ("one two three four", ["one two", "  three", "  four"]),
    ("x" * 12 + " y", ["x" * 12, "  y"]), ("  in front", ["  in front"]), ("a" * 10, ["a" * 10]),
    ("\x1b[31mone\x1b[0m two three", ["\x1b[31mone\x1b[0m two", "  three"]),
])
def test_long_lines_are_folded_at_their_spaces(text, lines):
    assert words.folded(text, 10, 2).split("\n") == lines


def test_plain_takes_variants_out():
    assert plain("aa{sv}", [{"x": ("as", ["y"]), "z": ("v", ("u", 1))}]) == [{"x": ["y"], "z": 1}]


class Tty:
    """A terminal of its own for `render`."""

    def __init__(self, monkeypatch, columns, *, colour=True):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        if not colour:
            monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        self.terminal = render.Terminal()


def test_table_gives_way_on_a_terminal(monkeypatch, capsys):
    terminal = Tty(monkeypatch, 30, colour=False).terminal
    terminal.table(("NAME", "SCHEDULE"), [("tick", "every " * 10), ("x", "y")], flexible=1, total="cron")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["NAME  SCHEDULE", "tick  every every every every…", "x     y", "", "2 crons listed."]


def test_long_names_give_way_too_and_details_keep_their_end(monkeypatch, capsys):
    terminal = Tty(monkeypatch, 80, colour=False).terminal
    row = ("n" * 64, "active", "in 2 months 3 days", "success 2 days 3h ago", "calendar Mon..Fri 07:00 Europe/Berlin")
    terminal.table(("NAME", "STATE", "NEXT", "LAST", "SCHEDULE"), [row], flexible=(4, 0, 3))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    terminal.table(("A", "DETAIL"), [("x", "it says a lot " * 9 + "and at last why")], flexible=1)
    assert capsys.readouterr().out.splitlines()[1].endswith("and at last why")


def test_an_output_that_is_shown_in_part_says_where_the_rest_is():
    view = {"cron_name": "tick", "id": "a" * 32, "stdout_head": b"x" * 4096, "stdout_bytes": 4097}
    assert left_out(view, "stdout", user=False) == (
        f"… 1 byte more (in the journal up to journal_limit): journalctl -t tick CRTRD_RUN_ID={'a' * 32}")
    assert left_out(view, "stdout", user=True).endswith(f": journalctl --user -t tick CRTRD_RUN_ID={'a' * 32}")
    both = {**view, "stderr_bytes": 3}
    assert rest_of_stream(both, 4096, user=False).startswith("… 4 bytes more (")
    assert rest_of_stream(both, 4100, user=False) == ""


@pytest.mark.parametrize(("stdout", "stderr", "heard", "left"), [
    ((b"one\ntwo\n", 8), (b"", 0), 4, b"two\n"), ((b"", 0), (b"one\n", 4), 0, b"one\n"),
    ((b"one\n", 4), (b"", 0), 4, b""),
    ((b"one\ntwo\n", 8), (b"x", 1), 4, b""), ((b"one\n", 9), (b"", 0), 0, b""), ((b"", 0), (b"", 0), 0, b""),
])
def test_what_a_broken_stream_has_left(stdout, stderr, heard, left):
    """Only where nothing is guessed: not of two streams that were mixed, nor of a head that is not all."""
    view = {"stdout_head": stdout[0], "stdout_bytes": stdout[1], "stderr_head": stderr[0], "stderr_bytes": stderr[1]}
    assert unheard(view, heard) == left


def test_the_rest_of_an_output():
    view = {"cron_name": "tick", "id": "a" * 32, "stdout_head": b"x" * 4096, "stdout_bytes": 4097}
    assert left_out({**view, "stdout_bytes": 4096}, "stdout", user=False) == left_out({}, "stderr", user=False) == ""


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"result": "timeout", "duration_us": 2 * SECOND}, "timed out after 2s"),
        ({"result": "signal", "signal": 9}, "was killed by signal 9"),
        ({"result": "exit-code", "exit_code": 7}, "exited with status 7"),
        ({"result": "start-failed", "reason": "no such file"}, "could not be started: no such file"),
        ({"result": "start-failed", "reason": "cannot start cwd: '/x'"}, "could not start cwd: '/x'"),
        ({"result": "oom-kill"}, "was killed: out of memory"), ({"result": "novel"}, "ended: novel"),
    ],
)
def test_how_a_run_ended(view, said):
    assert ending(view) == said


def test_every_result_has_words():
    assert {str(each) for each in Result} <= {*ENDS, "exit-code", "signal", "timeout", "start-failed"}


def test_colours_only_where_they_are_wanted(monkeypatch, capsys):
    terminal = Tty(monkeypatch, 80).terminal
    terminal.table(("NAME", "STATE"), [("\x1b[5m", "failed")], flexible=0)
    said = capsys.readouterr().out
    assert "\x1b[31mfailed" in said
    assert "\x1b[5m" not in said
    assert Tty(monkeypatch, 80, colour=False).terminal.word("failed") == "failed"


@pytest.mark.parametrize("start", ["2026-03-28", "2026-10-24T23:50Z"])
def test_a_night_of_a_change_fits_into_80_columns(monkeypatch, capsys, start):
    """With the offset, which is what differs in the repeated hour."""
    Tty(monkeypatch, 80, colour=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    words_ = ["calendar", "30 * * * *", "--timezone", "Europe/Berlin", "--from", start, "-n", "40"]
    assert main.main(words_) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert all(" +0" in line for line in lines[1:41])


@pytest.mark.parametrize(("user", "hinted"), [(False, True), (True, False)])
def test_who_may_not_is_told_what_to_do(capsys, user, hinted):
    def action(_):
        raise Refused("AccessDenied", "cannot arm: uid 7 may not (manage)")

    options = argparse.Namespace(json="off", no_legend=False, quiet=False, user=user, no_pager=True)
    assert main._perform("arm", action, options) == 5
    assert ("or for crons of your own: crtrctl --user" in capsys.readouterr().err) is hinted


def test_what_waits_for_nothing_on_the_clock():
    assert waits_for(["@reboot", "at 2026-01-01"]) == "at the next boot"
    assert waits_for(["at 2026-01-01"]) == "no instant ahead"
    assert waits_for(["0 0 30 2 *", "every 1h 30min  after end"]) == "1h 30min after the end of what runs"
    assert waits_for(["every 1h after end"], skipped=True) == "1h after the one that is skipped"
    assert waits_for([]) == waits_for(None) == "when triggered"


@pytest.mark.parametrize(("noun", "said"), [
    ("cron", ("No crons found.", "1 cron listed.", "2 crons listed.")),
    ("delivery", ("No deliveries found.", "1 delivery listed.", "2 deliveries listed."))])
def test_rows_are_counted_in_english(capsys, noun, said):
    for count, sentence in enumerate(said):
        render.Terminal().table(("A",), [("x",)] * count, flexible=0, total=noun)
        assert capsys.readouterr().out.splitlines()[-1] == sentence


def test_no_connection_that_breaks_ends_the_command_without_a_word():
    """SIGPIPE is at its default for the sake of `crtrctl list | head`; whoever writes to a socket wants its error."""
    for path in Path(main.__file__).parent.glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert ".sendall(" not in line or "MSG_NOSIGNAL" in line, (path.name, line)
