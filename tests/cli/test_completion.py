"""Completion: what bash offers, with the names of crons that are there; the others are at least well formed."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from crtrd.cli import main
from tests.cli.conftest import COMMAND, ROOT


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completions")
    subprocess.run([sys.executable, "-I", ROOT / "tools/make-completions", folder], check=True)
    return folder


def offered(scripts, cli, *words):
    """What bash offers for the last word."""
    binaries = cli.home / "bin"
    binaries.mkdir(exist_ok=True)
    program = binaries / "crtrctl"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(COMMAND)} \"$@\"\n")
    program.chmod(0o755)
    line = ["crtrctl", *words]
    script = (f"source {scripts}/crtrctl.bash; COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(line) - 1}; _crtrctl;"
              " printf '%s\\n' \"${COMPREPLY[@]}\"")
    env = cli.env | {"PATH": f"{binaries}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_offers_verbs_options_names_and_runs(scripts, cli):
    for name in ("tick", "tock", "other"):
        cli.run("arm", name, "--every", "1h", "--", "true")
    cli.run("run", "tick")
    assert offered(scripts, cli, "pa") == ["pause"]
    assert set(offered(scripts, cli, "")) == set(main.VERBS)
    assert offered(scripts, cli, "status", "t") == ["tick", "tock"]
    assert offered(scripts, cli, "--json=off", "pause", "tick", "o") == ["other"]
    assert offered(scripts, cli, "arm", "x", "--timezo") == ["--timezone"]
    assert "--no-pager" in offered(scripts, cli, "--")
    assert offered(scripts, cli, "run-info", "") == [run["id"][:12] for run in cli.json("runs")]


def test_a_daemon_that_is_away_costs_nothing_but_the_names(scripts, nobody):
    assert offered(scripts, nobody, "status", "") == []


def test_every_verb_and_option_is_in_each_script(scripts):
    for name in ("crtrctl.bash", "_crtrctl", "crtrctl.fish"):
        text = (scripts / name).read_text()
        assert [verb for verb in main.VERBS if verb not in text] == []
        assert "@" not in text.replace("$@", "").replace("[@]", "").replace("@d", "")
        assert "success-exit-code" in text


@pytest.mark.parametrize(("shell", "name"), [("bash", "crtrctl.bash"), ("zsh", "_crtrctl"), ("fish", "crtrctl.fish")])
def test_it_is_well_formed(scripts, shell, name):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n", scripts / name], check=False).returncode == 0
