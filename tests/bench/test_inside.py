"""Programs of the bench that use the daemon's own rooms: they must not fall behind them. Nothing here is timed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.here import Here
from crtrd.names import places

PROJECT = Path(__file__).parents[2]
INSIDE = PROJECT / "bench" / "inside"


def run(*words, home=None, stdin=""):
    env = {**os.environ, "PYTHONPATH": str(PROJECT), **({"CRTR_HOME": str(home)} if home else {})}
    return subprocess.run([sys.executable, *map(str, words)], env=env, input=stdin, capture_output=True, text=True,
                          timeout=60, check=True).stdout


def test_a_pass_over_a_ledger_can_be_measured(tmp_path):
    assert len(json.loads(run(INSIDE / "passes.py", tmp_path / "ledger", 3))) == 3


def test_cron_files_are_written_where_the_daemon_looks(tmp_path):
    run(INSIDE / "cronfiles.py", 3, home=tmp_path)
    assert len(list((places({"CRTR_HOME": str(tmp_path)}, user=False).config / "crons.d").iterdir())) == 3


def test_everything_can_be_imported():
    assert int(run(INSIDE / "everything.py")) > 1000


@pytest.mark.bus
@pytest.mark.process
def test_a_daemon_without_a_machine_is_armed_asked_and_filled():
    with Here() as world:
        world.crtrd('clock = "internal"\n')
        world.arm({"name": "old", "command": ["true"]})
        assert json.loads(world.program("bus.py", "list", "200"))["count"] == 1
        assert json.loads(world.program("bus.py", "ask", "0.05"))
        world.program("call.py")
        for verb in ("run", "trigger"):
            world.ctl(verb, "old")
        world.wait_for(lambda: world.all_settled() and world.ledger("SELECT count(*) FROM runs") == 2, 20)
        world.stop_crtrd(keep=True)
        world.program("fill.py", "10")
        assert world.ledger("SELECT count(*) FROM occurrences") == 12
        world.crtrd('clock = "internal"\n', program={"BENCH_SYNCHRONOUS": "off"}, keep=True)
