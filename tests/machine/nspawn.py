"""One systemd-nspawn container: its disk, its life, and the way in.

The container runs in a cgroup of its own and in a mount namespace of its own, so that the overlay and all
that nspawn mounts or keeps below /run go with its last process and the host never sees them.
"""

import contextlib
import re
import signal
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.machine.keeper import cgroup_of, kill_cgroup, remove_cgroup

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TERM": "dumb", "SYSTEMD_PAGER": ""}
SHUTDOWN_SECONDS = 60

# $1 cgroup, $2 folder, $3 lower folders (none: no overlay), $4 name
BOOT = """
echo $$ >"$1/cgroup.procs"
mount -t tmpfs tmpfs /run
[ -z "$3" ] || mount -t overlay overlay -o "lowerdir=$3,upperdir=$2/upper,workdir=$2/work" "$2/root"
exec systemd-nspawn --quiet --machine="$4" --directory="$2/root" --boot --register=no --keep-unit \
    --private-network --link-journal=no --resolv-conf=off --timezone=off --console=pipe
"""

ENTER = 'echo $$ >"$1/cgroup.procs"; shift; exec nsenter "$@"'


class Container:
    """The disk below FOLDER (an overlay over LOWER, the uppermost first) and what runs on it."""

    def __init__(self, folder: Path, lower: Sequence[Path]) -> None:
        self.folder = folder
        self.name = folder.name
        self.init = 0
        """PID 1 of the container as the host numbers it; 0 while it is off."""
        self._lower = lower
        self._cgroup = cgroup_of(self.name)
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._overlay = _holds_overlays(folder)
        self._make_disk()

    @property
    def disk(self) -> Path:
        """What this container has written (all there is, where no overlay is possible)."""
        return self.folder / ("upper" if self._overlay else "root")

    def start(self) -> None:
        """Start PID 1 and return; `find_init` tells when it is there."""
        self._cgroup.mkdir(exist_ok=True)
        lower = ":".join(map(str, self._lower)) if self._overlay else ""
        with (self.folder / "console").open("ab") as console:
            self._nspawn = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-ec", BOOT, "boot",
                 str(self._cgroup), str(self.folder), lower, self.name],
                env={"PATH": PATH, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_LOG_LEVEL": "warning"},
                stdin=subprocess.DEVNULL, stdout=console, stderr=console, start_new_session=True,
            )  # fmt: skip

    def find_init(self) -> bool:
        """Whether PID 1 runs yet. Raises AssertionError where it never will."""
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError(f"{self.name} did not boot\n{self.console()}")
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        for child in map(int, children):
            with contextlib.suppress(OSError):  # a helper of nspawn that has ended in between
                if re.search(r"^NSpid:\t\d+.*\t1$", Path(f"/proc/{child}/status").read_text(), re.MULTILINE):
                    self.init = child
        return self.init != 0 and (self._cgroup / "payload").is_dir()

    def halt(self) -> None:
        """Shut down cleanly; TimeoutError where that hangs. Nothing runs afterwards either way."""
        if self._nspawn is None:
            return
        self._nspawn.send_signal(signal.SIGTERM)  # nspawn asks PID 1 to halt
        try:
            self._nspawn.wait(SHUTDOWN_SECONDS)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.name} did not shut down\n{self.console()}") from None
        finally:
            self.cut()

    def cut(self) -> None:
        """End every process at once."""
        kill_cgroup(self._cgroup)
        remove_cgroup(self._cgroup)
        self.reap()
        self.init = 0

    def reap(self) -> None:
        """Take nspawn's exit status once something has ended it."""
        if self._nspawn is not None:
            self._nspawn.wait(10)
            self._nspawn = None

    def enter(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start ARGV inside as root, with pipes, in a cgroup of the container that is no unit's."""
        group = self._cgroup / "payload" / "harness"
        group.mkdir(exist_ok=True)
        settings = [f"{key}={value}" for key, value in {**ENVIRONMENT, **env}.items()]
        enter = ["-t", str(self.init), "-a", "--", "env", "-i", "-C", "/", *settings, *argv]
        return subprocess.Popen(
            ["sh", "-ec", ENTER, "enter", str(group), *enter], text=True, errors="replace",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def console(self) -> str:
        """The end of what nspawn and PID 1 printed."""
        log = self.folder / "console"
        return log.read_text(errors="replace")[-3000:] if log.exists() else ""

    def _make_disk(self) -> None:
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(mode=0o755)
        if not self._overlay:  # then the uppermost layer is a whole root too
            subprocess.run(["cp", "-a", f"{self._lower[0]}/.", self.disk], check=True)
        etc = self.disk / "etc"
        etc.mkdir(mode=0o755, exist_ok=True)
        (etc / "machine-id").write_text(uuid.uuid4().hex + "\n")  # else systemd sees a first boot
        (etc / "hostname").write_text(self.name + "\n")


def _holds_overlays(folder: Path) -> bool:
    """Whether the file system of FOLDER can be an upper layer (in many containers it is an overlay itself)."""
    output = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout
    return "overlay" not in output and "794c7630" not in output
