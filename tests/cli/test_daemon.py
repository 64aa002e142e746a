"""crtrctl with a whole daemon: heard while it runs, followed, edited, checked."""

import json
import os
import pty
import select
import subprocess
import sys
import time

import pytest

from crtrd.cli.main import VERBS
from tests.instance import Instance

pytestmark = pytest.mark.bus


@pytest.fixture(scope="module")
def crtrd(tmp_path_factory):
    with Instance(tmp_path_factory.mktemp("instance") / "home") as instance:
        instance.start()
        yield instance


class Heard:
    """`crtrctl run NAME --wait` on a terminal, and what it has printed so far."""

    def __init__(self, crtrd, name):
        self.control, terminal = pty.openpty()
        command = [sys.executable, "-m", "crtrd.cli.main", "run", name, "--wait"]
        env = crtrd.env | {"TERM": "dumb"}
        self.process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env, cwd="/")
        os.close(terminal)
        self.text = b""

    def until(self, word):
        end = time.monotonic() + 20
        while word not in self.text:
            assert select.select([self.control], [], [], max(end - time.monotonic(), 0))[0], self.text
            self.text += os.read(self.control, 4096)

    def end(self):
        try:
            while data := os.read(self.control, 4096):
                self.text += data
        except OSError:  # EIO: the last one on the terminal has gone
            pass
        os.close(self.control)
        return self.process.wait(20)


@pytest.mark.parametrize("meanwhile", ["nothing", "daemon-reexec"])
def test_a_run_is_heard_while_it_goes_on(crtrd, tmp_path, meanwhile):
    """The second line comes only once the first has been seen; also from another life of the daemon."""
    seen, name = tmp_path / "seen", f"talker-{meanwhile}"
    crtrd.ctl("arm", name, "--shell", f"echo first; until test -e {seen}; do sleep 0.05; done; echo second; exit 7")
    heard = Heard(crtrd, name)
    heard.until(b"first")
    if meanwhile != "nothing":
        crtrd.ctl(meanwhile)
    assert b"second" not in heard.text
    seen.touch()
    assert heard.end() == 7
    assert heard.text.count(b"first") == heard.text.count(b"second") == 1
    assert b"more:" not in heard.text


def test_the_level_holds_and_the_output_of_a_settled_run_is_kept(crtrd):
    crtrd.ctl("arm", "quiet", "--on-failure", "continue", "--shell", "echo out; echo err >&2; exit 1")
    crtrd.ctl("log-level", "emerg")
    crtrd.ctl("run", "quiet", "--wait", check=False)
    assert "quiet: run" not in crtrd.said()
    crtrd.ctl("log-level", "info")
    crtrd.ctl("run", "quiet", "--wait", check=False)
    crtrd.wait_for(lambda: "quiet: run" in crtrd.said())
    assert crtrd.ctl("run", "quiet", "--wait", check=False).stdout == "out\n"


def test_who_waits_for_what_cannot_start_is_told_what_for(crtrd):
    crtrd.ctl("arm", "waiting", "--", "true")
    crtrd.ctl("drain")
    heard = Heard(crtrd, "waiting")
    heard.until(b"Queued waiting: waits until crtrd is undrained")
    crtrd.ctl("undrain")
    assert heard.end() == 0


def test_edit_changes_what_the_daemon_keeps(crtrd, tmp_path):
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i -e 's/5m/7m/' -e '/^retries/d' \"$1\"\n")
    editor.chmod(0o755)
    crtrd.ctl("arm", "edited", "--every", "1h", "--timeout", "5m", "--retries", "3", "--", "true")
    crtrd.env["EDITOR"] = str(editor)
    assert "Changed edited" in crtrd.ctl("edit", "edited").stdout
    given = crtrd.json("cat", "edited")[0]
    assert (given.get("timeout"), given.get("retries", 0)) == ("7min", 0)


def test_doctor_is_content(crtrd):
    for path in (crtrd.home, *crtrd.home.rglob("etc/**/*")):
        path.chmod(path.stat().st_mode & ~0o022)
    done = crtrd.ctl("doctor", check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "No faults."), done.stdout
    crtrd.places.state.chmod(0o755)
    done = crtrd.ctl("doctor", check=False)
    assert done.returncode == 1
    assert f"remedy: chmod 0700 {crtrd.places.state}" in done.stdout
    crtrd.places.state.chmod(0o700)


EVERY = {
    "list": "", "status": "spoken", "show": "spoken", "cat": "spoken", "is-active": "spoken", "is-failed": "spoken",
    "arm": "more --every 1h -- true", "edit": "spoken", "change": "spoken --retries 1", "cancel": "more",
    "import": "{tab}", "export": "spoken", "verify": "{file} {home}/none.toml", "pause": "spoken", "resume": "spoken",
    "skip": "spoken", "poke": "spoken", "run": "spoken --wait", "trigger": "spoken", "rerun": "{occurrence}",
    "backfill": "spoken now now", "kill": "{run}", "occurrences": "spoken", "runs": "spoken", "run-info": "{run}",
    "why": "spoken now", "next": "spoken", "calendar": "@daily", "inbox": "", "outbox": "", "escalations": "",
    "drain": "", "undrain": "", "log-level": "info", "version": "", "doctor": "", "migrate": "--list",
    "daemon-reload": "", "daemon-reexec": "",
}
ELSEWHERE = {"logs", "monitor"}
"""journalctl's own JSON, and what never ends."""


def test_every_verb_answers_in_json(crtrd, tmp_path):
    assert set(EVERY) | ELSEWHERE == set(VERBS)
    tab, file = tmp_path / "tab", tmp_path / "good.toml"
    tab.write_text("0 1 * * * true\n")
    file.write_text('[cron]\nschedule = ["@daily"]\ncommand = ["true"]\n')
    crtrd.env["EDITOR"] = "true"
    crtrd.ctl("arm", "spoken", "--every", "1h", "--on-failure", "continue", "--", "false")
    crtrd.ctl("run", "spoken", "--wait", check=False)
    run = crtrd.json("runs", "spoken")[0]
    places = {"tab": tab, "file": file, "home": tmp_path, "run": run["id"], "occurrence": run["occurrence_id"]}
    for verb, words in EVERY.items():
        done = crtrd.ctl("--json=short", verb, *words.format(**places).split(), check=False)
        said = (done.stdout or done.stderr).splitlines()
        assert len(said) == 1, (verb, done)
        assert said[0][:1] in "[{", (verb, done)
        json.loads(said[0])
    found = json.loads(crtrd.ctl("verify", str(file), str(tmp_path / "none"), "--json=short", check=False).stdout)
    assert [(each["name"], bool(each["error"])) for each in found] == [("good", False), (None, True)]
