"""`edit`, `doctor`, `version`, `log-level`, the pager, and near misses."""

import json
import os
import pty
import shutil
import subprocess
import termios

import pytest

from crtrd.cli.pager import choose
from tests.cli.conftest import COMMAND


def editor(cli, script):
    path = cli.home / "editor"
    path.write_text(f"#!/bin/sh -e\n{script}\n")
    path.chmod(0o755)
    return {"EDITOR": str(path)}


def test_edit_sends_what_was_changed(cli):
    cli.run("arm", "tick", "--every", "1h", "--timeout", "5s", "--env", "A=1", "--", "true")
    done = cli.run("edit", "tick", **editor(cli, "sed -i -e 's/5s/7s/' -e '/^env/d' \"$1\""))
    assert "Changed tick: env, timeout." in done.stdout
    given = cli.json("cat", "tick")[0]
    assert (given["timeout"], given.get("env", {})) == ("7s", {})


def test_edit_changes_nothing_when_nothing_changed_or_the_editor_failed(cli):
    cli.run("arm", "tick", "--every", "1h", "--", "true")
    before = cli.json("show", "tick")
    assert "Nothing changed" in cli.run("edit", "tick", **editor(cli, "true")).stdout
    assert "nothing is changed" in cli.run("edit", "tick", status=1, **editor(cli, "exit 3")).stderr
    assert "cannot read" in cli.run("edit", "tick", status=1, **editor(cli, "echo '=' > \"$1\"")).stderr
    assert cli.json("show", "tick") == before


def test_version_and_log_level(cli):
    assert cli.json("version")["crtrd"] == "1"
    assert cli.out("log-level") == "debug\n"
    cli.run("log-level", "notice")
    assert cli.out("log-level") == "notice\n"
    cli.run("log-level", "debug")


def test_near_misses_of_verbs_options_and_crons(cli):
    cli.run("arm", "tick", "--every", "1h", "--", "true")
    assert "Did you mean status?" in cli.run("statsu", status=2).stderr
    assert "Try 'crtrctl --help'." in cli.run("frobnicate", status=2).stderr
    assert "Did you mean --timezone?" in cli.run("arm", "x", "--timezoen", "UTC", "--", "true", status=2).stderr
    assert "Did you mean tick?" in cli.run("show", "tikc", status=4).stderr


@pytest.mark.parametrize(("environ", "command"), [
    ({"SYSTEMD_PAGER": ""}, []), ({"SYSTEMD_PAGER": "cat"}, []), ({"PAGER": "cat -n"}, ["cat", "-n"]),
    ({"SYSTEMD_PAGER": "cat", "PAGER": "cat -n"}, []), ({"PAGER": "no-such-program"}, []), ({"TERM": "dumb"}, [])])
def test_which_pager(environ, command):
    assert choose(environ) == command


def on_a_terminal(cli, *words, status=0, typed=b"", **env):
    """What appears on a terminal."""
    control, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    done = subprocess.Popen([*COMMAND, *words], stdin=terminal, stdout=terminal, stderr=terminal,
                            start_new_session=True, env=cli.env | {"TERM": "xterm"} | env)
    os.write(control, typed)
    os.close(terminal)
    seen = b""
    try:
        while data := os.read(control, 4096):
            seen += data
    except OSError:  # EIO: the last one on the terminal has gone
        pass
    assert done.wait(10) == status
    os.close(control)
    return seen.decode().replace("\r\n", "\n")


def test_long_answers_go_through_the_pager_on_a_terminal_only(cli):
    cli.run("arm", "tick", "--every", "1h", "--", "true")
    assert "     1\t" in on_a_terminal(cli, "list", PAGER="cat -n")
    assert "     1\t" not in on_a_terminal(cli, "list", "--no-pager", PAGER="cat -n")
    assert "     1\t" not in cli.run("list", PAGER="cat -n").stdout


@pytest.mark.skipif(shutil.which("more") is None, reason="more is not installed")
def test_the_pager_more_leaves_at_the_end(cli):
    cli.run("arm", "tick", "--every", "1h", "--", "true")
    seen = on_a_terminal(cli, "list", typed=b"q", PAGER="more")
    assert "tick" in seen
    assert "(END)" not in seen


def test_a_run_is_heard_while_it_runs(cli):
    cli.run("arm", "tick", "--", "true")
    assert on_a_terminal(cli, "run", "tick", "--wait", status=7).count("hello\n") == 1


def findings(cli, status=0, **env):
    done = cli.run("doctor", "--json=short", status=status, **env)
    return {each["check"]: each for each in json.loads(done.stdout)}


def test_doctor_names_faults_with_their_remedies(nobody):
    (nobody.home / "etc").mkdir(mode=0o755)
    (nobody.home / "etc/crtrd.toml").write_text("clock = 'sundial'\n")
    (nobody.home / "state").mkdir(mode=0o755)
    (nobody.home / "state/ledger.sqlite3").write_bytes(b"this is no database" * 100)
    (nobody.home / "state/ledger.sqlite3").chmod(0o600)
    found = findings(nobody, status=1)
    faults = {name for name, each in found.items() if each["grade"] == "fault"}
    assert {"daemon", "socket", "permissions", "configuration", "store"} <= faults
    assert all(found[name]["remedy"] for name in faults)
    assert found["permissions"]["remedy"] == f"chmod 0700 {nobody.home}/state"
    assert "sundial" in found["configuration"]["text"] or "clock" in found["configuration"]["text"]
    said = nobody.run("doctor", status=1).stdout
    assert "remedy: " in said
    assert said.endswith(" faults.\n")


def test_doctor_names_cron_files_that_cannot_be_read(nobody):
    folder = nobody.home / "etc/crons.d"
    folder.mkdir(parents=True)
    (folder / "good.toml").write_text('[cron]\nschedule = ["every 1h"]\ncommand = ["true"]\n')
    assert findings(nobody, status=1)["cron files"]["grade"] == "good"
    (folder / "bad.toml").write_text('[cron]\nschedule = ["every 1h"]\ncomand = ["true"]\n')
    found = findings(nobody, status=1)["cron files"]
    assert (found["grade"], f"{folder}/bad.toml:3: comand" in found["text"]) == ("fault", True)
    assert "daemon-reload" in found["remedy"]


def test_doctor_tells_of_a_ledger_that_was_set_aside(nobody):
    aside = nobody.home / "state/ledger.sqlite3.damaged-20261130T194637Z"
    aside.parent.mkdir()
    aside.write_bytes(b"x")
    found = findings(nobody, status=1)["store"]
    assert (found["grade"], str(aside) in found["text"], "move it away" in found["remedy"]) == ("fault", True, True)
    aside.unlink()
    assert findings(nobody, status=1)["store"]["grade"] == "note"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_doctor_for_a_user_who_may_not_look_into_the_state(nobody):
    (nobody.home / "state").mkdir(mode=0o700)
    (nobody.home / "state/ledger.sqlite3").write_bytes(b"")
    (nobody.home / "etc/crons.d").mkdir(parents=True)
    (nobody.home / "etc/crons.d/secret.toml").write_text("[cron]\n")
    (nobody.home / "etc/crons.d/secret.toml").chmod(0o600)
    for folder in (nobody.home, *nobody.home.parents):
        if "pytest" in str(folder):
            folder.chmod(0o755)
    script = ("import os, sys; os.setgid(65534); os.setuid(65534);"
              "from crtrd.cli.health import cron_files, store, permissions;"
              "from crtrd.names import places; p = places(os.environ, user=False);"
              "print([(f.grade.value, f.text) for look in (cron_files, store, permissions) for f in look(p)])")
    done = subprocess.run([COMMAND[0], "-c", script], env=nobody.env, capture_output=True, text=True, check=False,
                          cwd="/")
    assert done.stdout.count("is not for this user") == 2, done
    assert "fault" not in done.stdout, done
