"""The manual pages: made from the tables of the code, complete, without names that do not exist, without warnings."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from crtrd.cli import main as cli
from crtrd.config.keys import KEYS
from crtrd.config.settings import READERS
from crtrd.core.cron import Definition
from crtrd.dbus.manager import MANAGER
from crtrd.dbus.objects import CRON, INTERFACES, RUN
from crtrd.errors import Code
from crtrd.systemd.events import MESSAGE_IDS

PROJECT = Path(__file__).parents[1]
PAGES = ("crtrctl.1", "crtrd.8", "crtrd.cron.5", "crtrd.toml.5", "org.crtrd.Crtrd1.5")


def plain(roff):
    """What a reader sees: without markup and requests."""
    text = re.sub(r"\\f[BIRP]|^\.(B|I|BR|RB|BI|RI|IR|SS|SH|TP|HP|br) ?|\\&", "", roff, flags=re.MULTILINE)
    return text.replace("\\-", "-").replace("\\(->", "→").replace("\\e", "\\")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    done = subprocess.run([sys.executable, "-I", PROJECT / "tools/make-man", folder], check=False)
    assert done.returncode == 0
    return {path.name: plain(path.read_text()) for path in sorted(folder.iterdir())}


def words(text, pattern=r"[A-Za-z][\w.-]*"):
    return {word.rstrip(".") for word in re.findall(pattern, text)}


def test_there_are_these_pages_and_nothing_is_left_to_put_in(pages):
    assert tuple(pages) == PAGES
    assert [name for name, text in pages.items() if re.search(r"@[A-Z]+@", text)] == []


def test_every_verb_with_its_options_and_no_other(pages):
    page = pages["crtrctl.1"]
    tags = re.findall(r"^([a-z-]+)(?: .*)?\n(?=[A-Z])", page, flags=re.MULTILINE)
    assert set(cli.VERBS) <= set(tags)
    mentioned = re.findall(r"crtrctl ([a-z][a-z-]+)", "\n".join(pages.values()))
    assert set(mentioned) <= set(cli.VERBS)


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_option_stands_with_its_verb(pages, verb):
    parser = cli._parser(cli.VERBS[verb])
    import_module(f"crtrd.cli.{cli.VERBS[verb].module}").build(parser, verb)
    own = [option for action in parser._actions for option in action.option_strings]
    both = " ".join([pages["crtrctl.1"], *(f"--{key.name} {key.flag}".replace("_", "-") for key in KEYS)])
    assert [option for option in own if option not in words(both, r"--?[a-z][\w-]*") | {"--user-instance"}] == []


def test_no_page_names_an_option_that_no_verb_has(pages):
    known = {"--version", "--", "--help"}
    for verb in cli.VERBS.values():
        parser = cli._parser(verb)
        import_module(f"crtrd.cli.{verb.module}").build(parser, verb.name)
        known |= {option for action in parser._actions for option in action.option_strings}
    named = words("\n".join(pages.values()), r"(?<![\w-])--[a-z][a-z-]*")
    assert named - known <= {"--all"}  # of an example's own command


def test_every_key_and_setting_and_no_other(pages):
    keys = re.findall(r"^([a-z_]+) \(.*\)$", pages["crtrd.cron.5"], flags=re.MULTILINE)
    assert keys == [key.name for key in KEYS]
    tags = pages["crtrd.toml.5"].partition("SETTINGS\n")[2].partition("EXAMPLE")[0]
    settings = re.findall(r"^\n?([a-z_]+)\n(.*)$", tags, flags=re.MULTILINE)
    assert [name for name, _ in settings] == list(READERS)
    assert all(words_ for _, words_ in settings)


def test_the_first_choice_is_the_default_as_the_page_says():
    for key in KEYS:
        assert not key.choices or getattr(Definition("x"), key.name) == key.choices[0]


def test_every_kind_of_event_and_no_other(pages):
    kinds = re.findall(r"^([a-z_]+\.[a-z_.]+)$", pages["crtrd.8"], flags=re.MULTILINE)
    assert sorted(kinds) == sorted(MESSAGE_IDS)


def test_every_member_of_the_bus_and_no_other(pages):
    page = pages["org.crtrd.Crtrd1.5"]
    shown = {(kind, name) for kind, name in re.findall(r"^(method|signal|property) (\w+)", page, flags=re.MULTILINE)}
    ours = {entry for entries in INTERFACES.values() for entry in entries if entry.name.startswith("org.crtrd")}
    assert {MANAGER, CRON, RUN} <= ours
    for entry in ours:
        assert entry.name in page
        for kind, members in (("method", entry.methods), ("signal", entry.signals), ("property", entry.properties)):
            assert {(kind, member.name) for member in members} <= shown
    assert {f"org.crtrd.Crtrd1.Error.{code}" for code in ("NoSuchCron", "LedgerUnavailable")} <= words(page)
    assert {word.rpartition(".")[2] for word in words(page) if ".Error." in word and "crtrd" in word} <= set(Code)


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
@pytest.mark.parametrize("name", PAGES)
def test_it_renders_without_warnings(name, tmp_path):
    subprocess.run([sys.executable, "-I", PROJECT / "tools/make-man", tmp_path], check=True)
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MANROFFSEQ": "", "MANWIDTH": "80"}
    command = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", tmp_path / name]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    shown = subprocess.run(["man", "-l", tmp_path / name], env=env, capture_output=True, check=True)
    lines = re.sub(rb".\x08|\x1b\[[0-9;]*m", b"", shown.stdout).decode().splitlines()
    assert [line for line in lines if len(line.expandtabs()) > 80] == []


def test_the_page_of_events_has_every_kind_with_its_id_and_no_other():
    page = (PROJECT / "docs/events.md").read_text()
    assert dict(re.findall(r"^\| `([a-z_.]+)` \| .+ \| `([0-9a-f]{32})` \|$", page, flags=re.MULTILINE)) == MESSAGE_IDS
