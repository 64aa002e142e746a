"""Each verb as a process: what it prints, what it exits with."""

import contextlib
import json
import os
import subprocess

import pytest

from crtrd.cli.fields import OCCURRENCE_FIELDS, RUN_FIELDS
from tests.cli.conftest import COMMAND

pytestmark = pytest.mark.bus

LIST = ["id", "name", "state", "schedule", "timezone", "next", "held", "last_status", "last_run"]


def arm(cli, name="tick", *options):
    return cli.out("arm", name, "--every", "10s", *options, "--", "sh", "-c", "echo 'a b'")


def test_arm_prints_id_and_next_instant(cli):
    said = arm(cli)
    cron = cli.json("list")[0]
    assert said.splitlines()[0] == f"Armed tick, id {cron['id']}."
    assert said.splitlines()[1].startswith("Next: Mon 2025-12-01 12:00:00 UTC; ")
    assert cli.json("arm", "quiet", "--shell", "a | b") == {
        "id": cli.json("list", "quiet")[0]["id"], "name": "quiet", "next": "2025-12-01T12:00:00Z"}
    assert arm(cli, "silent", "-q") == ""


def test_flags_become_the_definition(cli):
    arm(cli, "tick", "--cron", "0 2 * * *", "--at", "2027-01-01", "--calendar", "calendar Mon 02:00", "--schedule",
        "@daily", "--env", "A=b=c", "--env", "EMPTY=", "--env", "TZ", "--target", "x", "--target", "y",
        "--success-exit-code", "0", "--success-exit-code", "3", "--retries", "2", "--timeout", "1h 30min",
        "--umask", "0077", "--resource", "MemoryMax=1G", "--on-output=always", "--overlap", "queue", "--cwd=/tmp")
    (path,) = [cron["id"] for cron in cli.json("list", "tick")]
    shown = cli.json("show", path)[0]
    assert shown["schedule"] == ["every 10s", "0 2 * * *", "at 2027-01-01", "calendar Mon 02:00", "@daily"]
    expected = {
        "command": ["sh", "-c", "echo 'a b'"], "env": {"A": "b=c", "EMPTY": "", "TZ": "UTC"}, "targets": ["x", "y"],
        "success_exit_codes": [0, 3], "retries": 2, "timeout": "1h 30min", "umask": "0077",
        "resources": {"MemoryMax": "1G"}, "on_output": "always", "overlap": "queue", "cwd": "/tmp"}
    assert {key: shown[key] for key in expected} == expected


def test_cat_gives_a_file_that_arms_the_same(cli, tmp_path):
    arm(cli, "tick", "--env", 'Q="\\\x7f', "--success-exit-code", "5", "--stdin", "zwei\nZeilen ä", "--retries", "1")
    text = cli.out("cat", "tick")
    file = tmp_path / "again.toml"
    file.write_text(text)
    cli.run("arm", "--file", str(file))
    assert cli.out("cat", "again") == text.replace("# tick", "# again")
    one, two = cli.json("cat", "tick", "again")
    assert {**one, "name": ""} == {**two, "name": ""}
    cli.run("arm", "--file", str(file), "third", "--retries", "9")
    assert cli.json("cat", "third")[0]["retries"] == 9
    cli.run("change", "third", "--timeout", "90s")
    assert cli.json("cat", "third")[0]["timeout"] == "90s"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[cron", "cannot read"), ("[other]\n", "it must hold one table, [cron]"), ("cron = 3", "one table"),
        ("[cron]\ncommand = ['x']\n[more]\n", "one table"), ("[cron]\nschedule = ['@daily']", "no command"),
        ("[cron]\ncommand = ['x']\nnope = 1", "cannot accept nope: unknown key"),
        ("[cron]\ncommand = ['sleep', 5]", "command: its elements must all be texts"),
        ("[cron]\ncommand = ['x']\nenv = { A = 'a', B = true }", "env: B must be a text, in quotes"),
        ("[cron]\ncommand = ['x']\ntargets = [['x']]", "targets: its elements"), ("x = [" * 5000, "cannot read"),
        ("# " + "x" * (4 << 20), "larger than"),
        ("[cron]\ncommand = ['x']\nschedule = [2027-01-01T02:00:00]\nstarts_at = 2027-01-01", "starts_at"),
    ],
)
def test_files_that_arm_nothing(cli, tmp_path, content, said):
    file = tmp_path / "bad.toml"
    file.write_text(content)
    done = subprocess.run([*COMMAND, "arm", "--file", str(file)], env=cli.env, capture_output=True, text=True,
                          timeout=20, check=False)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert done.stderr.startswith("crtrctl: cannot ")
    assert cli.json("list") == []


def test_a_file_may_be_a_pipe_and_begin_with_a_byte_order_mark(cli):
    done = subprocess.run([*COMMAND, "arm", "piped", "--file", "/dev/stdin"], env=cli.env, capture_output=True,
                          input="\ufeff[cron]\ncommand = ['x']\n".encode(), timeout=20, check=False)
    assert (done.returncode, cli.json("show", "piped")[0]["command"]) == (0, ["x"]), done


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_a_file_that_is_printed_is_utf_8_in_every_locale(cli, tmp_path, encoding):
    arm(cli, "tick", "--env", "A=\xe9 \u2603 \U0001f600 \x9b31m \u202e")
    for verb in ("cat", "export"):
        done = subprocess.run([*COMMAND, verb, "tick"], env=cli.env | {"PYTHONIOENCODING": encoding},
                              capture_output=True, timeout=20, check=True)
        assert not {"\x9b", "\u202e"} & set(done.stdout.decode())
        (tmp_path / "again.toml").write_bytes(done.stdout)
        cli.run("arm", "--file", str(tmp_path / "again.toml"))
        assert cli.json("show", "again")[0]["env"] == cli.json("show", "tick")[0]["env"]
        cli.run("cancel", "again")


def test_what_is_given_empty_is_no_schedule_no_account_and_no_change(cli):
    """A script whose variable is empty would arm what never runs, or runs as root."""
    for flag in ("--cron", "--every", "--at", "--calendar", "--user", "--profile", "--timeout"):
        for empty in ("", " ") if flag in {"--cron", "--every", "--at", "--calendar"} else ("",):
            said = cli.run("arm", "tick", flag, empty, "--", "true", status=2).stderr
            assert (flag in said, "it is empty" in said) == (True, True), said
    assert cli.json("list") == []
    arm(cli, "tick", "--schedule", "")  # the daemon refuses it
    assert cli.json("show", "tick")[0]["schedule"] == ["every 10s", ""]
    assert "it is empty" in cli.run("change", "tick", "--cron", "", status=2).stderr
    cli.run("change", "tick", "--schedule", "")
    assert cli.json("show", "tick")[0]["schedule"] == []


def test_user_is_a_key_with_a_value_and_the_instance_without(cli):
    cli.run("arm", "tick", "--user", "nobody", "--", "true", status=1)  # the stand-in knows no such key
    assert "unknown key" in cli.run("arm", "--user=nobody", "tick", "--", "true", status=1).stderr
    cli.run("--user", "arm", "one", "--", "true")
    cli.run("arm", "--user", "two", "--", "true")
    cli.run("arm", "three", "--user", "--", "true")
    assert [cron["name"] for cron in cli.json("list", "--user")] == ["one", "three", "two"]


def test_change(cli):
    arm(cli)
    cli.run("change", "tick", "--retries", "4", "--target", "", "--", "false", "--flag")
    shown = cli.json("show", "tick")[0]
    assert (shown["retries"], shown["command"]) == (4, ["false", "--flag"])
    assert "nothing to change" in cli.run("change", "tick", status=2).stderr
    assert "no such cron" in cli.run("change", "tock", "--retries", "1", status=4).stderr


def test_list(cli):
    arm(cli)
    arm(cli, "other")
    cli.run("pause", "other", "--note", "not now")
    assert cli.out("list").splitlines() == [
        "NAME   STATE   NEXT  LAST  SCHEDULE",
        "other  paused  -     -     every 10s",
        "tick   active  due   -     every 10s",
        "",
        "2 crons listed.",
    ]
    crons = cli.json("list")
    assert list(crons[0])[:9] == LIST
    assert (crons[0]["next"], crons[0]["last_status"], crons[1]["next"]) == (None, None, "2025-12-01T12:00:00Z")
    assert [cron["name"] for cron in cli.json("list", "--state", "paused")] == ["other"]
    assert cli.out("list", "--json", "pretty").startswith('[\n  {\n    "id"')
    assert "cannot find cron 'none'" in cli.run("list", "none", "tick", status=4).stderr
    assert [cron["name"] for cron in cli.json("list", "o*", "[t]ick")] == ["other", "tick"]
    assert cli.out("list", "x*") == "No crons found.\n"
    assert "active, paused, finished" in cli.run("list", "--state", "sleeping", status=2).stderr.replace("'", "")
    assert cli.out("list", "tick").endswith("\n\n1 cron listed.\n")


def test_status(cli):
    arm(cli)
    cli.run("run", "tick", "--wait", status=7)
    said = cli.out("status", "tick")
    assert said.startswith("● tick (")
    for part in ("State: active", "Schedule: every 10s (UTC)", "Command: sh -c ", "Last: failed", "exit-code 7"):
        assert part in said
    overview = cli.out("status")
    assert overview.startswith("● crtrd 1\n")
    assert "1 armed, 0 running, 0 held" in overview
    assert cli.json("status")["cron_count"] == 1
    assert cli.json("status", "tick")[0]["runs"][0]["exit_code"] == 7
    cli.run("pause", "tick")
    cli.run("status", "tick", status=3)


def test_state_by_exit_status(cli):
    arm(cli)
    assert cli.out("is-active", "tick") == "active\n"
    assert cli.out("is-active", "-q", "tick") == ""
    cli.run("is-failed", "tick", status=1)
    cli.run("pause", "tick")
    assert cli.out("is-active", "tick", status=3) == "paused\n"
    cli.run("resume", "tick")
    cli.run("run", "tick", "--wait", status=7)
    assert cli.out("is-failed", "tick") == "failed\n"
    cli.run("is-active", "nothing", status=4)


def test_acts(cli):
    arm(cli)
    assert cli.out("poke", "tick") == "Poked 1 held occurrence.\n"
    assert cli.json("poke", "tick") == {"poked": 1}
    assert "cannot use 'soon' as a time" in cli.run("skip", "tick", "soon", status=2).stderr
    assert cli.out("trigger", "tick", "--key", "k").startswith("accepted ")
    assert list(cli.json("trigger", "tick")) == ["disposition", "occurrence_id", "status"]
    cli.run("cancel", "tick", "--kill")
    assert cli.json("list") == []


def test_skip_says_what_it_does_and_can_be_undone(cli):
    arm(cli)
    noon, later = "Mon 2025-12-01 12:00:00 UTC", "Mon 2025-12-01 12:01:00 UTC"
    assert cli.out("skip", "tick") == f"tick: will skip {noon}; next is {later}\n"
    cli.run("skip", "tick", "2025-12-01T12:00")
    assert cli.json("next", "tick", "-n", "1")[0]["instant"] == "2025-12-01T12:01:00Z"
    assert f"skips={noon}\n" in cli.out("show", "tick")
    assert cli.json("show", "tick")[0]["skips"] == ["2025-12-01T12:00:00Z"]
    assert f"Skips: {noon}\n" in cli.out("status", "tick")
    assert cli.out("skip", "tick", "--undo") == f"tick: next is {noon}\n"
    assert cli.json("skip", "tick", "-q") == {}
    assert cli.out("skip", "-q", "tick") == ""


def test_patterns_stand_for_crons(cli):
    for name in ("a-1", "a-2", "b"):
        arm(cli, name)
    assert [cron["name"] for cron in cli.json("export", "a-*")] == ["a-1", "a-2"]
    assert "nothing fits 'c*'" in cli.run("export", "c*", status=4).stderr
    cli.run("pause", "a-*")
    assert [cron["state"] for cron in cli.json("list")] == ["paused", "paused", "active"]
    assert "cannot find cron 'none'" in cli.run("resume", "none", "*", status=4).stderr
    assert {cron["state"] for cron in cli.json("list")} == {"active"}, "one refusal keeps no other from it"
    cli.run("pause", "a-*")
    cli.run("resume", "*")
    assert "nothing fits 'c*'" in cli.run("cancel", "c*", status=4).stderr
    assert cli.json("cancel", "a-?", "b") == {}
    assert cli.json("list") == []


def test_no_target_is_no_list_of_targets(cli):
    arm(cli, "tick", "--target", "")  # the daemon refuses it
    assert cli.json("show", "tick")[0]["targets"] == [""]
    cli.run("change", "tick", "--target", "")
    assert "targets" not in cli.json("cat", "tick")[0] or cli.json("cat", "tick")[0]["targets"] == []


def test_kill(cli):
    arm(cli)
    (run,) = cli.json("run", "tick")["runs"]
    for signal in ("KILL", "SIGTERM", "hup", "9"):
        cli.run("kill", run, "--signal", signal)
    assert "no such signal" in cli.run("kill", run, "-s", "NOPE", status=2).stderr
    assert "no such run" in cli.run("kill", "f" * 32, status=4).stderr


def test_run_waits_and_exits_with_the_commands_status(cli):
    arm(cli)
    done = cli.run("run", "tick", "--wait", status=7)
    assert done.stdout == "hello\n"
    (run,) = cli.json("run", "tick", "--wait", "--target", "x", status=7)
    assert list(run)[: len(RUN_FIELDS)] == list(RUN_FIELDS)
    assert (run["target"], run["stdout_head"], run["stdout_head_base64"]) == ("x", "hello\n", "aGVsbG8K")
    assert (run["started_at"], run["duration_us"], run["signal"]) == ("2025-12-01T12:00:00Z", 60_000_000, None)
    assert "tick exited with status 7" in done.stderr
    assert cli.run("run", "tick", "--wait", "-q", status=7).stderr == ""
    assert "--target: it is empty" in cli.run("run", "tick", "--target", "", status=2).stderr
    said = cli.out("run", "tick")
    assert said.startswith("Started tick: run ")
    assert len(said.split()[-1]) == 12


def test_history(cli):
    arm(cli)
    cli.run("run", "tick", "--wait", status=7)
    cli.run("run", "tick", "--wait", status=7)
    occurrences = cli.json("occurrences", "tick")
    assert len(occurrences) == 2
    assert list(occurrences[0]) == list(OCCURRENCE_FIELDS)
    assert occurrences[0]["cells"][0]["attempts"] == 1
    assert len(cli.json("runs", "tick", "-n", "1")) == 1
    assert cli.json("runs", "tick", "--result", "success") == []
    table = cli.out("occurrences", "tick").splitlines()
    assert table[0].split() == ["OCCURRENCE", "INSTANT", "ORIGIN", "STATUS", "REASON", "DETAIL"]
    assert table[-1] == "2 occurrences listed."
    assert "exit-code 7" in cli.out("runs", "tick")
    info = cli.out("run-info", cli.json("runs", "tick")[0]["id"])
    for part in ("Result: exit-code 7", "Took: 1min", "PID: 4242", "stdout:\nhello\n"):
        assert part in info
    cli.run("run-info", "f" * 32, status=4)
    cli.run("runs", "--since", "2026-01-01", "--until", "never", status=2)


def test_next(cli):
    arm(cli)
    assert cli.json("next", "tick", "-n", "2") == [
        {"instant": "2025-12-01T12:00:00Z", "local": "2025-12-01T12:00:00+00:00"},
        {"instant": "2025-12-01T12:01:00Z", "local": "2025-12-01T12:01:00+00:00"}]
    assert cli.out("next", "tick", "-n", "1", "--no-legend").endswith("2025-12-01T12:00:00Z  due\n")
    cli.run("next", "tick", "-n", "5000", status=2)


def test_why(cli):
    arm(cli)
    assert cli.json("why", "tick", "2025-12-01T12:00") == {
        "source": None, "instant": "2025-12-01T12:00:00Z", "status": "skipped", "due": None, "reason": "overlap",
        "detail": None}
    assert cli.out("why", "tick", "2025-12-01T12:00") == "Mon 2025-12-01 12:00:00 UTC: skipped (overlap)\n"
    cli.run("why", "tick", "whenever", status=2)
    cli.run("why", "nothing", "2025-12-01", status=4)


def test_operations(cli):
    for verb in ("drain", "undrain", "daemon-reload"):
        assert cli.out(verb) == ""
        assert cli.json(verb) == {}


def test_monitor(cli):
    cli.run("monitor", "nothing", status=4)
    cli.run("arm", "tick", "--", "true")
    process = subprocess.Popen([*COMMAND, "monitor", "--json", "t*"], env=cli.env, stdout=subprocess.PIPE)
    try:
        events = []
        for _ in range(100):  # the monitor subscribes before it reads: arm until it hears
            cli.run("arm", "other", "--", "true")
            cli.run("cancel", "other", "tick")
            cli.run("arm", "tick", "--", "true")
            os.set_blocking(process.stdout.fileno(), False)
            with contextlib.suppress(TypeError):
                events += process.stdout.read().splitlines()
            if events:
                break
        event = json.loads(events[0])
        assert event["event"] in {"cron.armed", "cron.canceled"}
        assert event.get("CRTRD_CRON", "tick") == "tick"
        assert event["at"].endswith("Z")
    finally:
        process.terminate()
        process.wait(5)
        process.stdout.close()


def test_refusals(cli):
    arm(cli)
    assert cli.run("arm", "tick", "--", "x", status=1).stderr == "crtrctl: cannot arm tick: it exists\n"
    refused = cli.run("show", "tik", "--json", status=4).stderr
    assert json.loads(refused)["error"]["code"] == "NoSuchCron"
    assert "Did you mean tick?" in cli.run("show", "tik", status=4).stderr
    assert "Did you mean" not in cli.run("show", "zzzzzz", status=4).stderr
    assert "not valid UTF-8" in cli.run("show", b"\xff\xfe", status=1).stderr


def test_terminal_escapes_are_harmless(cli):
    """C36: what others wrote cannot steer the terminal of who looks."""
    cli.run("arm", "tick", "--stdin", "a\x1b[31mred\u202e\x07\n", "--", "\x1b]0;title\x07")
    cli.run("pause", "tick", "--note", "\x1b[2J")
    for verb in ("show", "cat", "status"):
        said = cli.run(verb, "tick", status=3 if verb == "status" else 0).stdout
        assert "\x1b" not in said
        assert "\x07" not in said
    assert "\\x1b[2J" in cli.run("status", "tick", status=3).stdout
    assert "\x1b" not in cli.run("show", "\x1b[31m", status=4).stderr


def test_numbers_that_nothing_can_carry_are_refused_in_a_sentence(cli):
    """They ended in a traceback: the bus has no number of more than 64 bits, and no negative count."""
    for number in ("9" * 23, str(1 << 63)):
        done = cli.run("arm", "huge", "--every", "1h", "--max-runs", number, "--", "true", status=1)
        assert done.stderr == f"crtrctl: cannot send max_runs: {number} is out of range\n"
    done = cli.run("runs", "-n", "-1", status=2)
    assert done.stderr == "crtrctl: cannot show -1 rows: write a number from 0 on, 0 for all\n"
