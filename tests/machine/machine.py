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
Each machine has a cgroup of its own (two nspawn containers in one would share a tree) and a mount namespace
of its own, so the host's /run, /dev and mount table see nothing of it. See keeper.py for how it ends.
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

from tests.machine.keeper import LOCK, cgroup_of, kill_cgroup, remove_cgroup, sweep
from tests.machine.rootfs import cache, root_folder

T = TypeVar("T")
Command = str | Sequence[str]

BOOT_SECONDS = 60
SHUTDOWN_SECONDS = 60
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "SYSTEMD_PAGER": ""}

# $1 cgroup, $2 folder, $3 lower folders, $4 name. /run is covered because nspawn keeps files in the host's.
BOOT = """
echo $$ >"$1/cgroup.procs"
mount -t tmpfs tmpfs /run
[ -z "$3" ] || mount -t overlay overlay -o "lowerdir=$3,upperdir=$2/upper,workdir=$2/work" "$2/root"
exec systemd-nspawn --quiet --machine="$4" --directory="$2/root" --boot --register=no --keep-unit \
    --private-network --link-journal=no --resolv-conf=off --timezone=off --console=pipe
"""

ENTER = 'echo $$ >"$1/cgroup.procs"; shift; exec nsenter "$@"'


class Machine:
    """One machine. Use it as a context manager, or call `close` yourself."""

    def __init__(self, suite: str, *, layers: Sequence[Path] = (), name: str | None = None) -> None:
        self.suite = suite
        self.name = name or f"{suite}-{uuid.uuid4().hex[:8]}"
        self._lower = [*layers, root_folder(suite)]
        machines = cache() / "machines"
        machines.mkdir(exist_ok=True)
        sweep(machines)
        self.folder = machines / self.name
        self._cgroup = cgroup_of(self.name)
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._make_folder()
        self._keeper = self._start_keeper()

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
        self._cgroup.mkdir(exist_ok=True)
        lower = ":".join(map(str, self._lower)) if self._overlay else ""
        arguments = [str(self._cgroup), str(self.folder), lower, self.name]
        with (self.folder / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-ec", BOOT, "boot", *arguments],
                env={"PATH": PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_LOG_LEVEL": "warning"},
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip
        self._init = self.wait_for(self._find_init, BOOT_SECONDS)
        self.wait_for(self._booted, BOOT_SECONDS)

    def power_off(self) -> None:
        """Shut down cleanly."""
        if self._nspawn is None:
            return
        self._nspawn.send_signal(signal.SIGTERM)  # nspawn asks PID 1 to halt
        try:
            self._nspawn.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not shut down\n{self._console()}") from None
        finally:
            self._cut()

    def reboot(self) -> None:
        """Shut down cleanly and boot the same disk again."""
        self.power_off()
        self.boot()

    def power_cut(self) -> None:
        """End every process at once, as a loss of power does, and boot the same disk again."""
        self._cut()
        self.boot()

    def freeze(self) -> Path:
        """Shut down cleanly; the answer is a layer for other machines, good until this one is closed."""
        self.power_off()
        return self.folder / ("upper" if self._overlay else "root")

    def close(self) -> None:
        """Destroy the machine at once; nothing of it is left when this returns. Twice is harmless."""
        if self._keeper.stdin is None or self._keeper.stdin.closed:
            return
        self._keeper.stdin.close()
        status = self._keeper.wait(60)
        if self._nspawn is not None:
            self._nspawn.wait(10)
        os.close(self._lock)
        if status != 0:
            raise RuntimeError(f"the keeper of {self.name} failed with {status}")

    # -- commands -----------------------------------------------------------------------------------

    def run(
        self, command: Command, *, check: bool = True, timeout: float = 60, stdin: str = "",
        env: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:  # fmt: skip
        """Run COMMAND inside as root, in a clean environment, outside of every unit.

        Raises AssertionError with what it printed where CHECK and it fails, and where TIMEOUT passes.
        """
        argv = ["sh", "-ec", command] if isinstance(command, str) else list(command)
        process = self._popen(argv, env)
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
        return self._popen(["sh", "-ec", command] if isinstance(command, str) else command, env)

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
        return Path(f"/proc/{self._init}/root{inside}")

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
        options = ["-y", "-qq", "--no-download", "--no-install-recommends", "--reinstall", "--allow-downgrades"]
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
        output = self.run(["journalctl", "--sync"], check=False) and self.run(
            ["journalctl", "--output=json", "--all", "--no-pager", *options], check=False
        )
        return [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]

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
                raise AssertionError(f"not within {deadline} s on {self.name}: {what or predicate}\n{self._console()}")
            time.sleep(0.05)
        return value

    # -- within -------------------------------------------------------------------------------------

    def _make_folder(self) -> None:
        self.folder.mkdir()
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(mode=0o755)
        self._overlay = _holds_overlays(self.folder)
        if not self._overlay:
            for layer in reversed(self._lower):
                shutil.copytree(layer, self.folder / "root", symlinks=True, dirs_exist_ok=True)
        etc = self.folder / ("upper" if self._overlay else "root") / "etc"
        etc.mkdir(mode=0o755, exist_ok=True)
        (etc / "machine-id").write_text(uuid.uuid4().hex + "\n")  # else systemd sees a first boot
        (etc / "hostname").write_text(self.name + "\n")

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("keeper.py")), str(self.folder)],
            stdin=subprocess.PIPE, start_new_session=True, pass_fds=[self._lock],
        )  # fmt: skip

    def _popen(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        group = self._cgroup / "payload" / "harness"
        group.mkdir(exist_ok=True)
        settings = [f"{key}={value}" for key, value in {**ENVIRONMENT, **env}.items()]
        enter = ["-t", str(self._init), "-a", "--", "env", "-i", "-C", "/", *settings, *argv]
        return subprocess.Popen(
            ["sh", "-ec", ENTER, "enter", str(group), *enter], text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def _find_init(self) -> int:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError(f"{self.name} did not boot\n{self._console()}")
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        for child in map(int, children):
            if re.search(r"^NSpid:\t\d+.*\t1$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE):
                return child
        return 0

    def _booted(self) -> bool:
        if not (self._cgroup / "payload").is_dir():
            return False
        state = self.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=BOOT_SECONDS).stdout
        return state.strip() in {"running", "degraded"}

    def _cut(self) -> None:
        kill_cgroup(self._cgroup)
        remove_cgroup(self._cgroup)
        if self._nspawn is not None:
            self._nspawn.wait(10)
        self._nspawn, self._init = None, 0

    def _console(self) -> str:
        log = self.folder / "console"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""


def _holds_overlays(folder: Path) -> bool:
    """Whether the file system of FOLDER can be the upper layer of an overlay (in many containers it is one itself)."""
    output = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout
    return output.strip() not in {"overlayfs", "overlay", "UNKNOWN (0x794c7630)"}
