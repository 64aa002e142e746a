"""Machines for tests: a Debian with a real systemd as PID 1, up in about a second, gone afterwards.

    with Machine("trixie") as machine:                # boots; the folder is an overlay over a cached root
        machine.install_deb(deb)                      # offline
        machine.run("systemctl start crtrd.socket")   # a string goes to sh -ec, a list is executed as it is
        machine.run(["crtrctl", "list"], check=False).returncode
        machine.run_as("alice", "busctl list")        # users alice (1000) and bob (1001) exist
        machine.run_in_unit("crtrctl list")           # through systemd-run: the caller has a unit
        machine.wait_for(lambda: machine.unit("crtrd.service")["ActiveState"] == "inactive", 15)
        machine.journal("-u", "crtrd.service")        # entries as dicts, of all boots; "-b" for this one
        machine.write("/etc/crtrd/crtrd.toml", "…"); machine.read("/etc/hostname"); machine.copy_in(src, "/root/x")
        machine.processes("python3 -m crtrd")         # {pid: command line} inside the machine
        machine.user_manager("alice")                 # start alice's service manager (for --user)
        machine.reboot()                              # clean shutdown, same disk, new boot id
        machine.power_cut()                           # every process dies at once, same disk, new boot id
        disk = machine.freeze()                       # power off; `Machine(suite, layers=[disk])` starts from it

Fixtures are in conftest.py. Clock and kernel are the host's: set no time, load no module. There is no network.
How it runs is in nspawn.py, how it ends in keeper.py, what it starts from in rootfs.py.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.machine.keeper import LOCK, sweep
from tests.machine.nspawn import Container
from tests.machine.rootfs import cache, root_folder

T = TypeVar("T")
Command = str | Sequence[str]

BOOT_SECONDS = 60
COMMAND_SECONDS = 60.0


class Machine:
    """One machine. Use it as a context manager, or call `close` yourself."""

    def __init__(
        self, suite: str, *, layers: Sequence[Path] = (), name: str | None = None, extra: Sequence[str] = ()
    ) -> None:
        """EXTRA: Debian packages that the root folder has besides the usual ones."""
        self.suite = suite
        self.patience = COMMAND_SECONDS
        """Seconds that a command may take where the caller says nothing else."""
        self.name = name or f"{suite}-{uuid.uuid4().hex[:8]}"
        root = root_folder(suite, extra)
        machines = cache() / "machines"
        machines.mkdir(exist_ok=True)
        sweep(machines)
        folder = machines / self.name
        self._lock = _locked_folder(folder)
        self._keeper = _start_keeper(folder, self._lock)
        self._container = Container(folder, [*layers, root])

    def __enter__(self) -> Self:
        try:
            self.boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- life ---------------------------------------------------------------------------------------

    def boot(self) -> None:
        """Boot and wait until systemd has started everything."""
        self._container.start()
        self.wait_for(self._container.find_init, BOOT_SECONDS, "PID 1")
        self.wait_for(self._booted, BOOT_SECONDS, "the end of the boot")

    def power_off(self) -> None:
        """Shut down cleanly."""
        self._container.halt()

    def reboot(self) -> None:
        """Shut down cleanly and boot the same disk again."""
        self._container.halt()
        self.boot()

    def power_cut(self) -> None:
        """End every process at once, as a loss of power does, and boot the same disk again."""
        self._container.cut()
        self.boot()

    def freeze(self) -> Path:
        """Shut down cleanly; the answer is a layer for other machines, good until this one is closed."""
        self._container.halt()
        return self._container.disk

    def close(self) -> None:
        """Destroy the machine at once; nothing of it is left when this returns. Twice is harmless."""
        assert self._keeper.stdin is not None
        if self._keeper.stdin.closed:
            return
        self._keeper.stdin.close()
        status = self._keeper.wait(self.patience)
        self._container.reap()
        os.close(self._lock)
        if status != 0:
            raise RuntimeError(f"the keeper of {self.name} failed with {status}")

    # -- commands -----------------------------------------------------------------------------------

    def run(
        self, command: Command, *, check: bool = True, timeout: float | None = None, stdin: str = "",
        env: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run COMMAND inside as root, in a clean environment, outside of every unit.

        Raises AssertionError with what it printed where CHECK and it fails, and where TIMEOUT (or our patience) passes.
        """
        timeout = self.patience if timeout is None else timeout
        argv = ["sh", "-ec", command] if isinstance(command, str) else list(command)
        process = self._container.enter(argv, env)
        try:
            out, err = process.communicate(stdin, timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate(timeout=10)
            raise AssertionError(f"{argv} still runs after {timeout} s\n{out}\n{err}") from None
        if check and process.returncode != 0:
            raise AssertionError(f"{argv} exited with {process.returncode}\n{out}\n{err}")
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    def popen(self, command: Command, *, env: Mapping[str, str] = {}) -> subprocess.Popen[str]:
        """Start COMMAND inside as root, with pipes; the caller ends it, or the end of the machine does."""
        return self._container.enter(["sh", "-ec", command] if isinstance(command, str) else command, env)

    def run_as(
        self, user: str, command: Command, *, check: bool = True, timeout: float = 60, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """The same as USER, with the user's home, runtime directory and bus."""
        argv = ["sh", "-ec", command] if isinstance(command, str) else list(command)
        uid, home = self.run(f"getent passwd {user} | cut -d: -f3,6").stdout.strip().split(":")
        env = {"HOME": home, "USER": user, "LOGNAME": user, "XDG_RUNTIME_DIR": f"/run/user/{uid}",
               "DBUS_SESSION_BUS_ADDRESS": f"unix:path=/run/user/{uid}/bus"}  # fmt: skip
        identity = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        return self.run(
            [*identity, "env", "-C", home, *argv], check=check, timeout=timeout, stdin=stdin, env=env
        )

    def run_in_unit(
        self, command: Command, *, check: bool = True, timeout: float = 60, properties: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """The same as root in a transient service."""
        argv = ["sh", "-ec", command] if isinstance(command, str) else list(command)
        options = [f"--property={line}" for line in properties]
        unit = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", *options, "--"]
        return self.run([*unit, *argv], check=check, timeout=timeout)

    # -- files --------------------------------------------------------------------------------------

    def path(self, inside: str) -> Path:
        """The host's path of the file INSIDE (an absolute path) of the running machine."""
        return Path(f"/proc/{self._container.init}/root{inside}")

    def write(self, inside: str, text: str, mode: int = 0o644) -> None:
        self.path(inside).parent.mkdir(parents=True, exist_ok=True)
        self.path(inside).write_text(text)
        self.path(inside).chmod(mode)

    def read(self, inside: str) -> str:
        return self.path(inside).read_text()

    def copy_in(self, source: Path, inside: str) -> None:
        """Copy a file or a folder of the host to the path INSIDE, modes kept."""
        if source.is_dir():
            shutil.copytree(source, self.path(inside), symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, self.path(inside))

    # -- packages, units, journal -------------------------------------------------------------------

    def install_deb(self, deb: Path, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Install DEB as `apt install ./DEB` does, from what the machine has."""
        self.copy_in(deb, f"/root/{deb.name}")
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        options = ["-y", "-qq", "--no-install-recommends", "--reinstall", "--allow-downgrades"]
        return self.run(["apt-get", "install", *options, f"/root/{deb.name}"], timeout=timeout, env=env)

    def unit(self, name: str) -> dict[str, str]:
        """All properties of a unit, as `systemctl show` spells them."""
        lines = self.run(["systemctl", "show", name]).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def failed_units(self) -> list[str]:
        lines = self.run("systemctl list-units --failed --plain --no-legend").stdout.splitlines()
        return [line.split()[0] for line in lines]

    def journal(self, *options: str) -> list[dict[str, object]]:
        """Journal entries, oldest first."""
        self.run(["journalctl", "--sync"])
        output = self.run(["journalctl", "--output=json", "--all", "--no-pager", *options], check=False).stdout
        return [json.loads(line) for line in output.splitlines() if line.startswith("{")]

    def processes(self, pattern: str) -> dict[int, str]:
        """Processes whose command line the regular expression PATTERN finds: pid inside and command line."""
        found = {}
        for line in self.run("ps -eo pid=,args= --width 4096").stdout.splitlines():
            pid, _, arguments = line.strip().partition(" ")
            if re.search(pattern, arguments):
                found[int(pid)] = arguments
        return found

    def user_manager(self, user: str) -> None:
        """Start the service manager of USER; it stays (and comes back at boot)."""
        self.run(["loginctl", "enable-linger", user])
        self.wait_for(lambda: self.run_as(user, "systemctl --user is-system-running", check=False).stdout
                      in {"running\n", "degraded\n"}, 20)  # fmt: skip

    def wait_for(self, predicate: Callable[[], T], deadline: float, what: str = "") -> T:
        """The first true value of PREDICATE within DEADLINE seconds; AssertionError after it."""
        end = time.monotonic() + deadline
        while not (value := predicate()):
            if time.monotonic() > end:
                console = self._container.console()
                raise AssertionError(f"not within {deadline} s on {self.name}: {what or predicate}\n{console}")
            time.sleep(0.05)
        return value

    def _booted(self) -> bool:
        state = self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=BOOT_SECONDS).stdout
        return state.strip() in {"running", "degraded"}


def _locked_folder(folder: Path) -> int:
    """Make FOLDER and hold the lock that says it is in use."""
    folder.mkdir()
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _start_keeper(folder: Path, lock: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), str(folder)],
        stdin=subprocess.PIPE, start_new_session=True, pass_fds=[lock],
    )  # fmt: skip
