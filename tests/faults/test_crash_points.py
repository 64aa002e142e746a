"""kill -9 at every named crash point of DESIGN §4, on a real daemon with a real ledger and real children."""

import signal

import pytest

from crtrd.engine.crashpoints import POINTS
from tests.faults.checker import MARK, marks, untold, violations
from tests.instance import Instance

PERIOD = 1_000_000
WITHOUT_SYSTEMD = [point for point in POINTS if not point.startswith(("leave.", "deliver."))]


def arm_marker(crtrd, tmp_path):
    file = tmp_path / "marks"
    crtrd.ctl("arm", "mark", "--every", "1s", "--on-failure", "continue", "--on-output", "always", "--shell",
              MARK.format(file=file) + "; echo said")
    return file


@pytest.mark.process
@pytest.mark.parametrize("point", [point for point in WITHOUT_SYSTEMD if not point.startswith("answer.")])
def test_killed_there_nothing_is_lost_and_nothing_runs_twice(point, tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        file = arm_marker(crtrd, tmp_path)
        crtrd.wait_for(lambda: len(marks(file)) >= 1)
        assert crtrd.stop() == 0
        crtrd.start(crash_at=f"{point}:2", wait=False)
        crtrd.wait_for(lambda: crtrd.ended)
        assert crtrd.daemon.returncode == -signal.SIGKILL
        before = len(marks(file))
        crtrd.start()
        crtrd.wait_for(lambda: len(marks(file)) >= before + 2)
        assert crtrd.stop() == 0
        assert violations(crtrd, "mark", file, PERIOD) == []
        assert untold(crtrd, "mark") == []


@pytest.mark.process
@pytest.mark.parametrize("point", ["answer.before", "answer.after", "commit.before", "commit.after"])
def test_a_request_is_durable_before_it_is_answered(point, tmp_path):
    """Killed around the answer of `run`: an answered request has its row; one with a row runs once at most."""
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--shell", MARK.format(file=file))
        assert crtrd.stop() == 0
        crtrd.start(crash_at=f"{point}:{1 if point.startswith('answer') else 2}", wait=False)
        crtrd.wait_for(lambda: "org.crtrd" in crtrd.said() or crtrd.ctl("list", check=False).returncode == 0)
        answered = crtrd.ctl("run", "mark", "--json=short", check=False).returncode == 0
        crtrd.wait_for(lambda: crtrd.ended)
        rows = crtrd.rows("SELECT id, status FROM occurrences WHERE origin = 'manual'")
        assert len(rows) == (0 if point == "commit.before" else 1)
        assert rows or not answered
        crtrd.start()
        crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"))
        assert crtrd.stop() == 0
        assert len(marks(file)) <= len(rows)
        assert {mark[0] for mark in marks(file)} <= {row[0] for row in rows}
