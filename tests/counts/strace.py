"""System calls of a daemon, counted from outside: it runs below strace(1), which stops it at the named ones alone."""

import re
import subprocess
import sys
from pathlib import Path


def start_below_strace(crtrd, calls):
    """Start the instance's daemon; returns `count(pattern)`, of lines since the last call of `count`."""
    log = Path(crtrd.home) / "strace"
    command = ["strace", "-f", "--seccomp-bpf", "-qq", "-o", str(log), "-e", f"trace={calls}", "-e", "signal=none"]
    crtrd.daemon = subprocess.Popen(
        [*command, sys.executable, "-m", "crtrd"], env=crtrd.env, stdout=crtrd.log, stderr=crtrd.log, cwd="/")
    crtrd.wait_for(lambda: crtrd.ended or crtrd.ctl("list", check=False).returncode == 0)
    seen = 0

    def count(pattern=""):
        nonlocal seen
        lines = log.read_text(errors="replace").splitlines()
        found = sum(re.search(pattern, line) is not None for line in lines[seen:])
        seen = len(lines)
        return found

    return count
