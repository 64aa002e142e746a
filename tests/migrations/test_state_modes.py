"""Modes of the state folder, with real files."""

import os
import stat

import pytest

from crtrd.migrations import state_modes as step
from crtrd.migrations.folder import Trouble


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def state(tmp_path):
    made = tmp_path / "state"
    (made / "inbox").mkdir(parents=True)
    (made / "ledger.sqlite3").write_bytes(b"x")
    (made / "inbox" / "joe.jsonl").write_bytes(b"x")
    (made / "ledger.sqlite3").chmod(0o4755)
    (made / "inbox" / "joe.jsonl").chmod(0)
    (made / "inbox").chmod(0o2777)
    made.chmod(0o755)
    return made


def test_folders_and_files_are_the_owners_alone(state):
    assert step.repair(state) == {"folders": 2, "files": 2}
    assert mode(state) == mode(state / "inbox") == 0o700
    assert mode(state / "ledger.sqlite3") == mode(state / "inbox" / "joe.jsonl") == 0o600
    assert not any(step.repair(state).values())


def test_symlinks_are_not_followed_and_other_things_stay(state, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "file").write_bytes(b"x")
    (outside / "file").chmod(0o644)
    (state / "link").symlink_to(outside)
    (state / "file").symlink_to(outside / "file")
    (state / "dangling").symlink_to("/nowhere")
    os.mkfifo(state / "fifo", 0o644)
    fifo = mode(state / "fifo")
    step.repair(state)
    assert mode(outside / "file") == 0o644
    assert mode(outside) == 0o755
    assert mode(state / "fifo") == fifo
    (tmp_path / "to-state").symlink_to(state)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        step.repair(tmp_path / "to-state")


def test_no_state_is_nothing_to_do(tmp_path):
    assert not any(step.repair(tmp_path / "nothing").values())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_the_folder_of_somebody_else_is_refused_and_untouched(state):
    os.chown(state, 1234, -1)
    with pytest.raises(ValueError, match="it belongs to user 1234, not to 0"):
        step.repair(state)
    assert mode(state) == 0o755
    assert mode(state / "inbox") == 0o2777


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
def test_a_folder_inside_that_is_somebody_elses_is_refused_and_the_rest_is_done(state):
    os.chown(state / "inbox", 1234, -1)
    (state / "inbox").chmod(0o777)
    with pytest.raises(Trouble, match="inbox: it belongs to user 1234") as caught:
        step.repair(state)
    assert caught.value.changes == {"folders": 1, "files": 1}
    assert mode(state / "inbox") == 0o777
    assert mode(state / "inbox" / "joe.jsonl") == 0
