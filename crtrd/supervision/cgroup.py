"""One cgroup for each run, below the unit that systemd delegated to us (cgroups(7), systemd's CGROUP_DELEGATION).

What was started in a cgroup cannot leave it by setsid or by forking twice, so a run's last process is found and killed
here. Never touches a cgroup that is not ours. No controller is enabled: a run with `resources` is moved into a scope
of its own by the engine, and its path then comes in from there.
"""

import os
import signal
from pathlib import Path
from typing import ClassVar

from crtrd.supervision import counters, faults
from crtrd.supervision.counters import Around, Counters

SUPERVISOR = "supervisor"
PREFIX = "run-"


class Cgroups:
    """Paths in and out are below the cgroup2 mount and begin with '/'."""

    refusal: ClassVar[str] = ""
    """Why `find` last returned None."""

    def __init__(self, mount: str, unit: str) -> None:
        self.mount = mount
        self.unit = unit
        self._around = Around()

    @classmethod
    def find(cls, unit: str | None = None) -> "Cgroups | None":
        """The cgroup of our own unit, the daemon moved to a sub-group of it; None, and `refusal`, where there is none.

        `unit` names a cgroup below the mount that the caller has made for us; otherwise only one that systemd
        started us in and delegated will do.
        """
        try:
            mount = _mount()
            own = _own().removesuffix("/" + SUPERVISOR) if unit is None else unit
            if unit is None:
                _check_delegated(mount, own)
            base = mount + own + "/" + SUPERVISOR
            os.makedirs(base, exist_ok=True)
            _write(base + "/cgroup.procs", b"0")
        except _Refused as refused:
            cls.refusal = str(refused)
            return None
        except OSError as error:
            cls.refusal = f"{error.filename or 'cgroup'}: {error.strerror}"
            return None
        return cls(mount, own)

    def create(self, run_id: str) -> str:
        """Make the cgroup of a run and return its path. One that an earlier try left is used again."""
        path = f"{self.unit}/{PREFIX}{run_id}"
        try:
            os.mkdir(self.mount + path)
        except FileExistsError:
            return path
        except OSError as error:
            raise faults.launch_error("cgroup", error.errno or 0, path) from None
        return path

    def procs_file(self, path: str) -> str:
        return f"{self._folder(path)}/cgroup.procs"

    def procs(self, path: str) -> list[int]:
        """The processes in it, also in its sub-groups; without zombies. Empty when the cgroup is gone."""
        folder = self._folder(path)
        found = [int(pid) for pid in _read(folder + "/cgroup.procs").split()]
        for below in _folders(folder):
            found += self.procs(f"{path}/{below}")
        return [pid for pid in found if pid > 0]  # 0 stands for a process outside our pid namespace

    def kill(self, path: str) -> None:
        """SIGKILL to everything in it at once, forks included (cgroup.kill, kernel 5.14)."""
        try:
            _write(self._folder(path) + "/cgroup.kill", b"1")
        except FileNotFoundError:
            if os.path.isdir(self._folder(path)):
                self._kill_each(path)
        except OSError:
            self._kill_each(path)

    def remove(self, path: str) -> bool:
        """Remove it with its sub-groups; False while something lives in it.

        A scope is the service manager's to remove: taken away under its hands, it would count as active for ever.
        """
        folder = self._folder(path)
        if not path.startswith(self.unit + "/"):
            return self.empty(path)
        for below in _folders(folder):
            self.remove(f"{path}/{below}")
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def empty(self, path: str) -> bool:
        return not self.procs(path)

    def orphans(self) -> list[str]:
        """Cgroups of runs that hold no process any more."""
        names = [name for name in _folders(self.mount + self.unit) if name.startswith(PREFIX)]
        return [path for name in names if self.empty(path := f"{self.unit}/{name}")]

    def vanish(self, path: str) -> bool:
        """Remove one of ours that holds no process and no sub-group, by one system call; False where it may hold any,
        and for a scope."""
        if not path.startswith(self.unit + "/"):
            return False
        try:
            os.rmdir(self._folder(path))
        except OSError:
            return False
        return True

    def counters(self, path: str) -> Counters:
        """What its own limits have counted; unknown when it is gone or has no controllers."""
        return counters.read(self._folder(path))

    def counters_around(self, path: str, now: int, since: int) -> Counters:
        """The same of the cgroup above, which outlives it and counts what is below too; as of `since` or later."""
        return self._around.read(os.path.dirname(self._folder(path)), now, since)

    def _folder(self, path: str) -> str:
        """The folder, after a look that the path can be a run's: never the root, never our own unit."""
        if not path.startswith("/") or path.rstrip("/") in {"", self.unit} or "/../" in path + "/":
            message = f"cgroup {path!r} is no run's"
            raise ValueError(message)
        return self.mount + path

    def _kill_each(self, path: str) -> None:
        """Without cgroup.kill: until nobody is left or nothing changes, each looked at again through its pidfd."""
        before: list[int] = []
        while (pids := self.procs(path)) and pids != before:
            before = pids
            for pid in pids:
                self._kill_one(path, pid)

    def _kill_one(self, path: str, pid: int) -> None:
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if pid in self.procs(path):  # held by the pidfd and still listed: it is the same one
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:
            return
        finally:
            os.close(fd)


class _Refused(Exception):
    """Why there can be no cgroups here."""


def _mount() -> str:
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            root, point = fields.split(" ")[3:5]
            if root == "/":
                return point
    message = "no cgroup v2 hierarchy is mounted"
    raise _Refused(message)


def _own() -> str:
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if line.startswith("0::"):
            return line[3:].rstrip("/")
    message = "this process is in no cgroup v2"
    raise _Refused(message)


def _check_delegated(mount: str, own: str) -> None:
    """Ours only if systemd started us as a service there and marked the cgroup as delegated."""
    if not os.environ.get("INVOCATION_ID"):
        message = "not started as a unit of systemd"
        raise _Refused(message)
    if not own.endswith(".service"):
        message = f"{own or '/'} is not the cgroup of a service"
        raise _Refused(message)
    if os.geteuid() != 0:  # no user manager marks what it delegates, but only a delegated one is the user's to write
        if os.access(mount + own + "/cgroup.procs", os.W_OK):
            return
        message = f"{own} may not be written (Delegate=yes)"
        raise _Refused(message)
    marks = {name for name in os.listxattr(mount + own) if name in {"user.delegate", "trusted.delegate"}}
    if not any(os.getxattr(mount + own, name) == b"1" for name in marks):
        message = f"{own} is not delegated (Delegate=yes)"
        raise _Refused(message)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _read(file: str) -> bytes:
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        data = b""
        while part := os.read(fd, 65536):
            data += part
    except OSError:  # ENODEV: removed meanwhile
        return b""
    finally:
        os.close(fd)
    return data


def _write(file: str, data: bytes) -> None:
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


