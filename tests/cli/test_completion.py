"""Completion: what bash, zsh and fish offer, with the names of crons that are there."""

import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from crtrd.cli import main
from tests.cli.conftest import COMMAND, ROOT


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("completions")
    subprocess.run([sys.executable, "-I", ROOT / "tools/make-completions", folder], check=True)
    return folder


SHELLS = ("bash", "zsh", "fish")
BASH = r"""
source {folder}/crtrctl.bash; COMP_WORDS=({line}); COMP_CWORD=$(({count} - 1)); _crtrctl
printf '%s\n' "${{COMPREPLY[@]}}"
"""
FISH = "source {folder}/crtrctl.fish; complete -C {whole} | string replace -r '\\t.*' ''"
ZSH = r"""
PROMPT=''; fpath=({folder} $fpath); autoload -U compinit; compinit -u -D
compadd() {{
    local -a matches
    (( ${{argv[(I)-[OAD]*]}} )) || {{ builtin compadd -A matches "$@"; print -rl -- $matches >>{said} }}
    builtin compadd "$@"
}}
tell() {{ zle complete-word; print END >>{said} }}
zle -N tell; bindkey '^I' tell
"""
"""Completion of zsh works in its line editor alone: what it adds there is written down."""


def in_zsh(env, folder, line):
    said, script = folder / "said", folder / "setup.zsh"
    said.write_text("")
    script.write_text(ZSH.format(folder=folder, said=said))
    control, terminal = pty.openpty()
    shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=terminal, stdout=terminal, stderr=terminal, env=env,
                             start_new_session=True)
    os.close(terminal)
    reader = threading.Thread(target=drain, args=(control,))
    reader.start()
    os.write(control, f"source {script}\n{line}\t".encode())
    end = time.monotonic() + 30
    while not said.read_text().endswith("END\n") and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait()
    reader.join()
    os.close(control)
    return said.read_text().replace("END\n", "")


def drain(control):
    """A terminal that nobody reads holds up whoever writes to it."""
    try:
        while os.read(control, 4096):
            pass
    except OSError:  # EIO: the last one on it has gone
        pass


def offered(shell, scripts, cli, *words):
    """What the shell offers for the last word, which may have just begun."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    binaries = cli.home / "bin"
    binaries.mkdir(exist_ok=True)
    program = binaries / "crtrctl"
    program.write_text(f"#!/bin/sh\nexec {shlex.join(COMMAND)} \"$@\"\n")
    program.chmod(0o755)
    line = ["crtrctl", *words]
    env = cli.env | {"PATH": f"{binaries}:{os.environ['PATH']}", "HOME": str(cli.home), "TERM": "xterm"}
    whole = " ".join(line)
    if shell == "zsh":
        return in_zsh(env, scripts, whole).split()
    script = {"bash": BASH, "fish": FISH}[shell].format(
        folder=scripts, line=shlex.join(line), count=len(line), whole=shlex.quote(whole))
    command = ["bash", "-c"] if shell == "bash" else ["fish", "--no-config", "-c"]
    done = subprocess.run([*command, script], env=env, capture_output=True, text=True, timeout=30, check=False)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_options_names_and_runs_are_offered(scripts, cli, shell):
    for name in ("tick", "tock", "other"):
        cli.run("arm", name, "--every", "1h", "--", "true")
    cli.run("run", "tick")

    def of(*words):
        return offered(shell, scripts, cli, *words)

    assert of("pa") == ["pause"]
    assert set(of("")) == set(main.VERBS)
    assert of("status", "t") == ["tick", "tock"]
    assert of("--json=off", "pause", "tick", "o") == ["other"]
    assert of("pause", "status", "o") == ["other"]
    assert of("arm", "x", "--timezo") == ["--timezone"]
    assert {"--no-pager", "--wait"} < set(of("run", "--"))
    assert of("pause", "--wai") == []
    assert of("run-info", "") == [run["id"][:12] for run in cli.json("runs")]
    assert "sleep" in of("arm", "x", "--", "slee")
    assert of("arm", "x", "--", "no-such-program-of-tic") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_daemon_that_is_away_costs_nothing_but_the_names(scripts, nobody, shell):
    assert offered(shell, scripts, nobody, "status", "") == []


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
