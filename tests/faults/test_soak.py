"""A short soak: kills at named points and at random, then every rule of the checker. `make soak` is the long one."""

import pytest

from tests.faults import soak
from tests.faults.checker import MARK, marks, output_violations, violations
from tests.faults.keeper import KeptInstance
from tests.instance import DEADLINE, Instance

pytestmark = pytest.mark.process


def test_a_few_kills(tmp_path):
    (tmp_path / "marks").mkdir()
    assert soak.soak(6, 20261130, tmp_path) == []


def test_killed_between_an_end_and_its_record_the_next_life_tells_it(tmp_path):
    """Status, output and descriptors of a run are kept until its end is durable."""
    with KeptInstance(tmp_path / "home") as crtrd:
        crtrd.start(crash_at="ended.before", wait=False)
        crtrd.wait_for(crtrd.ready.is_set)
        arm_job(crtrd, "echo out; sleep 0.5; exit 3")
        crtrd.ctl("run", "job")
        crtrd.wait_for(lambda: crtrd.ended)
        crtrd.start()
        assert heads_at_the_end(crtrd) == [("exit-code", 3, b"out\n")]
        (run,) = crtrd.rows("SELECT id FROM runs")[0]
        crtrd.wait_for(lambda: not [name for name in crtrd.stored if run in name])
        assert crtrd.stop() == 0


def arm_job(crtrd, script):
    crtrd.ctl("arm", "job", "--on-failure", "continue", "--shell", script)


def heads_at_the_end(crtrd, within=DEADLINE):
    """Of the runs, once one of them has ended."""
    crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'ended'"), within)
    return crtrd.rows("SELECT result, exit_code, stdout_head FROM runs")


def test_a_busy_manager_costs_no_output(tmp_path):
    """A run is held until its descriptors are on their way; the daemon answers meanwhile."""
    with KeptInstance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_job(crtrd, "echo out; sleep 600")
        with crtrd.busy():
            crtrd.ctl("run", "job")
            crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'starting'"))
            for _ in range(5):
                crtrd.ctl("status", "job")
            assert crtrd.rows("SELECT phase, pid FROM runs") == [("starting", None)]
        crtrd.wait_for(lambda: "job stdout: out" in crtrd.said())
        crtrd.kill()
        crtrd.start()
        crtrd.ctl("cancel", "job", "--kill")
        assert [head for _, _, head in heads_at_the_end(crtrd)] == [b"out\n"]
        assert crtrd.stop() == 0


def test_a_manager_that_never_listens_again_keeps_nothing_from_running(tmp_path):
    with KeptInstance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm_job(crtrd, "echo out")
        with crtrd.busy():
            crtrd.ctl("run", "job")
            assert heads_at_the_end(crtrd, 30) == [("success", 0, b"out\n")]
            assert crtrd.stop() == 0


def test_the_checker_finds_what_it_is_there_for(tmp_path):
    """Each rule broken once, in the ledger or in the marks."""
    file = tmp_path / "marks"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "mark", "--every", "1s", "--shell", f"{MARK.format(file=file)}; echo out")
        crtrd.wait_for(lambda: len(marks(file)) >= 4)
        assert crtrd.stop() == 0
        assert violations(crtrd, "mark", file, 1_000_000) == []
        assert output_violations(crtrd, "mark", b"out\n") == []
        assert output_violations(crtrd, "mark", b"more\nout\n") != []
        lines = file.read_text().splitlines()
        for broken, told in (([*lines, lines[0]], "executed 2 times"), (lines[1:], "success without a mark"),
                             ([*lines, f"{'0' * 32} {'1' * 32} 2026-01-01T00:00:00Z"], "mark without a row")):
            file.write_text("\n".join(broken) + "\n")
            assert any(told in text for text in violations(crtrd, "mark", file, 1_000_000)), told
        file.write_text("\n".join(lines) + "\n")
        assert any("off its instant" in text for text in violations(crtrd, "mark", file, 7_000_000))
        assert any("no row between" in text for text in violations(crtrd, "mark", file, 500_000))
