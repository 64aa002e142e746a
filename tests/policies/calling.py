"""`cancel` in the name of a run, said by a process that is none of its."""

import subprocess
import sys


def cancel_as(crtrd, name, run_id):
    """What a process elsewhere would send that has learned the run's id; its own environment does not name the run."""
    code = (
        "import os, sys; os.environ['CRTR_RUN_ID'] = sys.argv.pop(1)\n"
        "from crtrd.cli.main import main; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, run_id, "cancel", name], env=crtrd.env, capture_output=True, text=True,
        timeout=30, check=False)
    assert done.returncode == 0, done.stderr
