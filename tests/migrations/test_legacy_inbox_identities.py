"""Inboxes as files: nothing is lost and nothing doubled, wherever a run is cut off."""

import json
import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtrd.migrations import legacy_inbox_identities as step
from crtrd.migrations.folder import Trouble

OLD = b'{"id": "0F0F0F0F-0f0f-0f0f-0f0f-0f0f0f0f0f0f", "at": "2026-01-01T00:00:00Z"}\n'
NEW = b'{"id": "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f", "at": "2026-01-01T00:00:00Z"}\n'
FINE = b'{"id": "00000000000000000000000000000001", "at": "2026-01-02T00:00:00Z", "x": [1, 2.50]}\n'
CUT = b'{"id": "00000000'


def snapshot(folder):
    """Everything that a second run must leave alone."""
    return {path.name: (path.read_bytes(), *(os.lstat(path)[i] for i in (stat.ST_INO, stat.ST_MODE)),
                        os.lstat(path).st_mtime_ns) for path in sorted(folder.iterdir())}


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_repair(tmp_path):
    (tmp_path / "joe.jsonl").write_bytes(OLD + b"\0\0\n" + FINE + b"[]\n" + CUT)
    (tmp_path / "joe.cursor").write_text("2026-01-01T12:00:00+01:00\n")
    (tmp_path / "ann.jsonl").write_bytes(FINE)
    (tmp_path / "notes.txt").write_bytes(b"{")
    assert step.repair(tmp_path) == {"files": 1, "entries": 1, "damaged_lines": 3, "cursors": 1}
    assert contents(tmp_path) == {
        "ann.jsonl": FINE, "joe.cursor": b"0f" * 16 + b"\n", "joe.jsonl": NEW + FINE,
        "joe.jsonl.damaged": b"\0\0\n[]\n" + CUT + b"\n", "notes.txt": b"{",
    }


def test_second_run_rewrites_nothing(tmp_path):
    (tmp_path / "joe.jsonl").write_bytes(OLD + b"{}\n{}\n" + CUT)
    (tmp_path / "joe.cursor").write_text("2025-01-01")
    step.repair(tmp_path)
    before = snapshot(tmp_path)
    assert not any(step.repair(tmp_path).values())
    assert snapshot(tmp_path) == before
    assert before["joe.cursor"][0] == b""


def test_mode_stays(tmp_path):
    path = tmp_path / "joe.jsonl"
    path.write_bytes(OLD + CUT)
    path.chmod(0o640)
    step.repair(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "joe.jsonl.damaged").stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_owner_stays(tmp_path):
    path = tmp_path / "joe.jsonl"
    path.write_bytes(OLD)
    os.chown(path, 1234, 4321)
    step.repair(tmp_path)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_folder_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "joe.jsonl").write_bytes(OLD)
    os.chown(tmp_path, 1234, 1234)
    with pytest.raises(ValueError, match="it belongs to user 1234"):
        step.repair(tmp_path)
    assert contents(tmp_path) == {"joe.jsonl": OLD}


def test_damage_is_kept_behind_older_damage_also_when_it_is_the_same(tmp_path):
    path = tmp_path / "joe.jsonl"
    for _ in range(3):
        path.write_bytes(FINE + b"{\n")
        step.repair(tmp_path)
    assert contents(tmp_path) == {"joe.jsonl": FINE, "joe.jsonl.damaged": b"{\n{\n{\n"}


def test_an_unended_aside_file_is_ended_first(tmp_path):
    (tmp_path / "joe.jsonl").write_bytes(b"{\n")
    (tmp_path / "joe.jsonl.damaged").write_bytes(b"by hand")
    step.repair(tmp_path)
    assert contents(tmp_path) == {"joe.jsonl": b"", "joe.jsonl.damaged": b"by hand\n{\n"}


def test_a_good_last_line_without_its_end_gets_it(tmp_path):
    (tmp_path / "joe.jsonl").write_bytes(FINE[:-1])
    assert step.repair(tmp_path)["files"] == 1
    assert contents(tmp_path) == {"joe.jsonl": FINE}


def test_what_an_older_attempt_left_behind_is_not_believed(tmp_path):
    """A half-written aside file of lines that somebody has repaired by hand since."""
    (tmp_path / "joe.jsonl").write_bytes(OLD)
    (tmp_path / "joe.jsonl.damaged").write_bytes(b"{\n")
    (tmp_path / ".joe.jsonl.damaged.new").write_bytes(b"{")
    step.repair(tmp_path)
    assert contents(tmp_path) == {"joe.jsonl": NEW, "joe.jsonl.damaged": b"{\n"}


def test_symlinks_and_fifos_are_left_alone(tmp_path):
    inbox, other = tmp_path / "inbox", tmp_path / "other"
    inbox.mkdir()
    other.write_bytes(OLD)
    (inbox / "joe.jsonl").symlink_to(other)
    (inbox / "joe.cursor").symlink_to(other)
    os.mkfifo(inbox / "ann.jsonl")
    (inbox / "dir.jsonl").mkdir()
    assert not any(step.repair(inbox).values())
    assert other.read_bytes() == OLD
    (tmp_path / "link").symlink_to(inbox)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        step.repair(tmp_path / "link")


def test_no_inbox_is_nothing_to_do(tmp_path):
    assert not any(step.repair(tmp_path / "inbox").values())


def test_one_file_that_fails_does_not_stop_the_others(tmp_path):
    (tmp_path / "ann.jsonl").write_bytes(OLD + CUT)
    (tmp_path / "ann.jsonl.damaged").symlink_to("/nowhere/at/all")
    (tmp_path / ".ann.jsonl.new").symlink_to("/nowhere/at/all")
    (tmp_path / "ann.cursor").write_text("2026-01-01")
    (tmp_path / "joe.jsonl").write_bytes(OLD)
    with pytest.raises(Trouble, match=r"cannot repair .*ann\.jsonl: Too many levels of symbolic links") as caught:
        step.repair(tmp_path)
    assert caught.value.changes == {"files": 1, "entries": 1, "damaged_lines": 0, "cursors": 0}
    assert (tmp_path / "ann.jsonl").read_bytes() == OLD + CUT
    assert (tmp_path / "ann.cursor").read_text() == "2026-01-01"
    assert (tmp_path / "joe.jsonl").read_bytes() == NEW


def test_cursor_of_an_inbox_that_is_gone_starts_anew(tmp_path):
    (tmp_path / "joe.cursor").write_text("2026-01-01")
    (tmp_path / "ann.cursor").write_bytes(b"\xff\xfe")
    step.repair(tmp_path)
    assert contents(tmp_path) == {"ann.cursor": b"\xff\xfe", "joe.cursor": b""}


CALLS = ("open", "fsync", "rename", "unlink", "fchmod")


def run_and_die(folder, survived_calls):
    """Run the step in a child that is gone at the call after `survived_calls`. True when it got to the end.

    Buffered data goes to the file at the fsync at the latest; half of it is written when the death comes there.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    left = survived_calls

    def dying(name, real):
        def call(*arguments, **keywords):
            nonlocal left
            if left == 0:
                if name == "fsync" and stat.S_ISREG(os.fstat(arguments[0]).st_mode):
                    os.ftruncate(arguments[0], os.fstat(arguments[0]).st_size // 2)  # never reached the disk
                os._exit(9)
            left -= 1
            return real(*arguments, **keywords)

        return call

    for name in CALLS:
        setattr(os, name, dying(name, getattr(os, name)))
    try:
        step.repair(folder)
    finally:
        os._exit(0)


@pytest.mark.process
@pytest.mark.parametrize("before", [b"", b"older\n", CUT + b"\n", b"{\n" + CUT + b"\n"])
def test_death_at_any_call_loses_and_doubles_nothing(tmp_path, before):
    """Also twice in a row: the second run dies as well, at another call."""
    expected, died = None, 0
    for first in range(100):
        for second in (None, *range(first % 5, 30, 5)):
            folder = tmp_path / f"{first}-{second}"
            folder.mkdir()
            (folder / "joe.jsonl").write_bytes(OLD + b"{\n" + FINE + b'{"text": "x"}\n' * 2 + CUT)
            (folder / "joe.cursor").write_text("2026-01-01T00:00:00Z")
            if before:
                (folder / "joe.jsonl.damaged").write_bytes(before)
            finished = run_and_die(folder, first)
            died += not finished
            if second is not None:
                run_and_die(folder, second)
            step.repair(folder)
            found = contents(folder)
            expected = expected or found
            assert found == expected
        if finished:
            break
    else:
        pytest.fail("never got to the end")
    assert died > 40
    assert expected["joe.jsonl.damaged"] == before + b"{\n" + CUT + b"\n"
    assert expected["joe.cursor"] == b"0f" * 16
    assert len({json.loads(line)["id"] for line in expected["joe.jsonl"].splitlines()}) == 4


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "joe.jsonl").write_bytes(OLD + CUT)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Trouble, match="No space left on device"):
        step.repair(tmp_path)
    assert contents(tmp_path) == {"joe.jsonl": OLD + CUT}


LINE = st.sampled_from([OLD, NEW, FINE, b"{}\n", b"{}\n", b"\n", b"{\n", b"\0\n"]) | st.binary(max_size=20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINE, max_size=8), st.sampled_from(["", "2026-01-01T00:00:00Z", "2030-01-01", "tick"]))
def test_any_file_is_repaired_once(lines, cursor):
    with tempfile.TemporaryDirectory() as name:
        folder, text = Path(name), b"".join(lines)
        (folder / "joe.jsonl").write_bytes(text)
        (folder / "joe.cursor").write_text(cursor)
        step.repair(folder)
        once = snapshot(folder)
        assert not any(step.repair(folder).values())
        assert snapshot(folder) == once
        good = once["joe.jsonl"][0].splitlines(keepends=True)
        damaged = once.get("joe.jsonl.damaged", (b"",))[0]
        parts = [part + b"\n" for part in text.split(b"\n")[:-1]] + [part for part in text.split(b"\n")[-1:] if part]
        bad = [part for part in parts if step.inbox_entry.repair(part, "joe", 0) is None]
        assert damaged == step._ended(bad)
        ids = [json.loads(line)["id"] for line in good if line.strip()]
        assert all(len(found) == 32 for found in ids)
        derived = sum(line == b"{}\n" for line in parts)
        assert len(set(ids)) >= derived
