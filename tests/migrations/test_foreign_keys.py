"""State migrations: familiar keys become ours where they stand, comments stay, what is unclear is left and said."""

import os
import stat
import subprocess
import sys
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.config.reader import read_definition
from crtrd.migrations.foreign_keys import RULES, rewrite
from tests.cli.conftest import ROOT

FILE = """# backup of the hosts
[cron]
concurrencyPolicy = "Forbid"     # never two at once
startingDeadlineSeconds = 600
suspend = false # for now
  RandomizedDelaySec = "10min"   # spread
"Persistent" = true
OnCalendar = [  # two times
    "Mon..Fri 02:00",   # nights
    "Sat 04:00",
]
command = ["backup", "# no comment", "suspend = true"]
"""


def test_every_key_in_its_place_with_its_comment():
    found = rewrite(FILE)
    assert found.left == ()
    assert len(found.changes) == len(RULES) == 6
    table = tomllib.loads(found.text)["cron"]
    assert table == {
        "overlap": "skip", "start_within": "600s", "jitter": "10min", "catch_up": "last",
        "schedule": ["calendar Mon..Fri 02:00", "calendar Sat 04:00"],
        "command": ["backup", "# no comment", "suspend = true"]}
    assert read_definition({"name": "x", **table}, where="x", timezone="UTC")
    comments = ("# backup of the hosts", '"skip"     # never two at once', "# for now", "# two times", "# nights",
                '"10min"   # spread')
    for comment in comments:
        assert comment in found.text
    assert rewrite(found.text) is None


@pytest.mark.parametrize(("line", "why"), [
    ("suspend = true", "pause"), ('concurrencyPolicy = "Sometimes"', "one of"), ("Persistent = 1", "true or false"),
    ("RandomizedDelaySec = true", "span"), ("OnCalendar = []", "calendar"),
    ('OnCalendar = "daily"\nschedule = ["@daily"]', "there already")])
def test_what_is_unclear_is_left_and_said(line, why):
    text = f'[cron]\n{line}\nshell = "x"\n'
    found = rewrite(text)
    assert found.text == text
    assert found.changes == ()
    assert why in found.left[0]


@pytest.mark.parametrize("text", ["", "[cron]\nshell = 'x'\n", "no toml", "[other]\nsuspend = false\n", "cron = 7\n"])
def test_nothing_of_theirs_is_nothing_to_do(text):
    assert rewrite(text) is None


VALUES = ["true", "false", "7", '"Allow"', '"daily"', '["a", "b"]', "'x'", '[\n "a", # b\n]']


@given(st.sampled_from(sorted(RULES)), st.sampled_from(VALUES), st.text(" #=\"'[]ab", max_size=12))
def test_whatever_stands_around_it_only_that_key_changes(key, value, noise):
    text = f'# {noise}\n[cron]\n{key}={value}#{noise}\nstdin = """{key} = 1"""\n'
    try:
        before = tomllib.loads(text)["cron"]
    except tomllib.TOMLDecodeError:
        return
    found = rewrite(text)
    after = tomllib.loads(found.text)["cron"]
    assert bool(found.changes) != bool(found.left)
    assert {name: kept for name, kept in after.items() if name not in {key, RULES[key].key}} == {
        name: kept for name, kept in before.items() if name not in {key, RULES[key].key}}


def migrate(home, *words):
    command = [sys.executable, "-m", "crtrd.cli.main", "migrate", *words]
    env = {**os.environ, "CRTR_HOME": str(home), "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_crtrctl_migrate_looks_first_and_replaces_files_whole(tmp_path):
    folder = tmp_path / "etc/crons.d"
    folder.mkdir(parents=True)
    (folder / "a.toml").write_text(FILE)
    (folder / "a.toml").chmod(0o640)
    (folder / "b.toml").write_text('[cron]\nsuspend = true\nshell = "x"\n')
    (folder / "c.toml").write_text('[cron]\nshell = "x"\n')
    (folder / "d.toml").symlink_to("a.toml")
    assert "foreign-keys" in migrate(tmp_path, "--list").stdout
    looked = migrate(tmp_path, "--dry-run")
    assert looked.returncode == 1
    assert '+overlap = "skip"     # never two at once' in looked.stdout
    assert (folder / "a.toml").read_text() == FILE
    done = migrate(tmp_path)
    assert done.returncode == 1  # b waits for a person
    assert "6 changed" in done.stdout
    assert "b.toml: left as it is: suspend" in done.stderr
    assert (folder / "a.toml").read_text() == rewrite(FILE).text
    assert stat.S_IMODE((folder / "a.toml").stat().st_mode) == 0o640
    assert (folder / "d.toml").is_symlink()
    assert sorted(path.name for path in folder.iterdir()) == ["a.toml", "b.toml", "c.toml", "d.toml"]
    (folder / "b.toml").unlink()
    assert migrate(tmp_path).stdout == "Nothing to migrate.\n"
