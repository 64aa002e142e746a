"""The keeper: sees to it that nothing of a machine is left, whatever becomes of the test that started it.

One process for each machine, in a session of its own. It waits for the end of its standard input, whose
other end the test process holds: closing the machine and the death of pytest look the same to it. Then it
kills the machine's cgroup and removes its folder. Machine folders carry a flock that both hold; a folder
whose lock is free has lost both, and `sweep` (at the next start) removes it.
"""

import contextlib
import fcntl
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

EMPTY_WITHIN = 20.0
LOCK = "lock"


def hierarchy() -> Path:
    """Where the host has its cgroup v2 tree: on a hybrid host below /sys/fs/cgroup/unified."""
    unified = Path("/sys/fs/cgroup/unified")
    return unified if unified.is_dir() else Path("/sys/fs/cgroup")


def cgroup_of(name: str) -> Path:
    return hierarchy() / f"crtrd-test-{name}"


def kill_cgroup(group: Path) -> None:
    """Kill every process of GROUP and wait until it is empty."""
    deadline = time.monotonic() + EMPTY_WITHIN
    while group.is_dir() and "populated 1" in (group / "cgroup.events").read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"cannot empty {group}")
        if (group / "cgroup.kill").exists():
            (group / "cgroup.kill").write_text("1")
        else:  # before Linux 5.14
            for pid in _members(group):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
        time.sleep(0.02)


def _members(group: Path) -> Iterator[int]:
    for procs in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            yield from map(int, procs.read_text().split())


def remove_cgroup(group: Path) -> None:
    """Remove GROUP, which holds no process, from its leaves up."""
    for folder, _, _ in os.walk(group, topdown=False):
        deadline = time.monotonic() + EMPTY_WITHIN
        while Path(folder).is_dir():  # a dying cgroup is busy for a moment
            try:
                Path(folder).rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def destroy(folder: Path) -> None:
    """Remove the machine of FOLDER. Its mounts lie in its own mount namespace and go with its last process."""
    group = cgroup_of(folder.name)
    kill_cgroup(group)
    remove_cgroup(group)
    trash = folder.with_name(f"{folder.name}.gone")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def sweep(machines: Path) -> None:
    """Remove what machines have left behind whose test and keeper are both dead."""
    for folder in machines.glob("*"):
        try:
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if folder.suffix == ".gone":
                shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            destroy(folder)
        except BlockingIOError:
            pass
        finally:
            os.close(lock)


def main() -> None:
    sys.stdin.buffer.read()
    destroy(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
