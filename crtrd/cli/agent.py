"""A password prompt on this terminal while a call waits for polkit: pkttyagent(1), as systemctl starts it."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

READY_SECONDS = 5.0


def start() -> "subprocess.Popen[bytes] | None":
    """An agent for this process where one may be needed; it must be ready before the call, else there is no prompt."""
    if os.geteuid() == 0 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    import select  # noqa: PLC0415 - few invocations need these
    import shutil  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    program = shutil.which("pkttyagent")
    if program is None:
        return None
    ready, tell = os.pipe()
    agent = subprocess.Popen(
        [program, f"--notify-fd={tell}", "--fallback", f"--process={os.getpid()}"], pass_fds=(tell,),
    )
    os.close(tell)
    select.select([ready], [], [], READY_SECONDS)
    os.close(ready)
    return agent


def stop(agent: "subprocess.Popen[bytes] | None") -> None:
    """It puts the terminal back in order before it ends."""
    if agent is not None:
        agent.terminate()
        agent.wait()
