"""A run that SIGKILL does not end is given up, stays watched, and its late end is told.

What cannot be killed here is a process that has become root's, for a supervisor that is not root.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

NOBODY = 65534
PROJECT = Path(__file__).parents[2]
SCRIPT = """
    import sys
    from crtrd.core.events import RunEnded, RunWedged
    from crtrd.supervision import supervisor
    from tests.supervision.conftest import Room
    supervisor.PATIENCE = 300_000
    room = Room()
    plan = room.plan(sys.argv[1], "-I", "-S", "-c",
                     "import os, time; os.setresuid(0, 0, 0); print('out', flush=True); time.sleep(2); os._exit(5)")
    room.go(plan)
    room.until(lambda: room.output(plan.run_id) == b"out\\n")
    room.supervisor.stop(plan.run_id, 100_000)
    wedged = room.until(lambda: room.event(plan.run_id, RunWedged))
    assert wedged.ending.stdout.head == b"out\\n"
    assert room.event(plan.run_id, RunEnded) is None
    assert plan.run_id in room.supervisor.live()
    ended = room.until(lambda: room.event(plan.run_id, RunEnded))
    assert ended.ending.exit_code == 5
    assert len([event for event in room.events if isinstance(event, RunWedged)]) == 1
    room.supervisor.durable(plan.run_id)
    room.close()
    print("sound")
"""


def test_what_does_not_die_is_given_up_and_watched(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to make something that a user cannot kill")
    program = tmp_path / "python"
    shutil.copy(os.path.realpath(sys.executable), program)
    program.chmod(0o4755)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(program)], user=NOBODY, group=NOBODY, extra_groups=[],
        cwd="/", env={**os.environ, "PYTHONPATH": str(PROJECT)}, capture_output=True, text=True, timeout=60,
        check=False)
    if "Operation not permitted" in done.stderr or "Permission denied" in done.stderr:
        pytest.skip(f"no set-uid programs here: {done.stderr[-200:]}")
    assert done.stdout.endswith("sound\n"), done.stderr
