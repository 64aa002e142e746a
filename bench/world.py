"""The machine that rows are measured in: a Debian 13 with a real systemd, the installed package, the peers, /opt/bench.

    with World() as world:
        world.crtrd('clock = "internal"\\n')        # the installed daemon, started anew with these settings
        world.arm({"name": "one", …})               # by the bus
        world.cpu("crtrd.service")                  # microseconds its cgroup has used

Built at the first need from the test machines (tests/machine/), so a bench that needs none boots none.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.peers.layer import layer_of_peers
from tests.machine.machine import Machine

HERE = Path(__file__).parent
PROJECT = HERE.parent
SUITE = "trixie"
INSIDE = "/opt/bench"
JOB, CLOCK = f"{INSIDE}/job", "/run/bench/clock"
STATE, LEDGER = "/var/lib/bench", "/var/lib/crtrd/ledger.sqlite3"
DEADLINE = 900.0
"""Seconds; nothing here takes them, but a slow machine must not end a row."""
SERVICE = "crtrd.service"
POLICY = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><policy context="default">
  <allow own="org.crtrd.Bench1"/><allow send_destination="org.crtrd.Bench1"/>
</policy></busconfig>
"""
"""Lets a service of the bench have its name."""
DROP_IN = f"/run/systemd/system/{SERVICE}.d/bench.conf"


class World:
    def __init__(self) -> None:
        self._machine: Machine | None = None
        self._serial = 0
        self.kept: dict[str, Any] = {}
        """What several rows look at and one has measured."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._machine is not None:
            self._machine.close()

    @property
    def machine(self) -> Machine:
        if self._machine is None:
            self._machine = machine = Machine(SUITE, layers=[layer_of_peers(SUITE)])
            machine.patience = DEADLINE
            try:
                machine.boot()
                self._furnish(machine)
            except BaseException:
                machine.close()
                self._machine = None
                raise
        return self._machine

    def _furnish(self, machine: Machine) -> None:
        make = ["make", "--silent", "deb"]
        subprocess.run(make, cwd=PROJECT, check=True, timeout=DEADLINE, stdout=subprocess.DEVNULL)
        machine.install_deb(next((PROJECT / "dist").glob("crtrd_*_all.deb")), timeout=DEADLINE)
        machine.copy_in(HERE / "inside", INSIDE)
        compile_job(machine.path(JOB))
        machine.run(["mkdir", "-p", STATE])
        machine.run("mkdir -m 1777 -p /run/bench")

    def about(self) -> str:
        inside = self.run("systemctl --version | head -1; python3 -V; . /etc/os-release; echo $PRETTY_NAME")
        systemd, python, system = inside.splitlines()[:3]
        return f"In the machine: {system}, {' '.join(systemd.split()[:2])}, {python}"

    # the daemon --------------------------------------------------------------------------------------------------

    def crtrd(self, settings: str, *, program: Mapping[str, str] | None = None, keep: bool = False) -> None:
        """Start it anew on an empty ledger (or, with `keep`, on the one there is).

        `program` are the BENCH_ variables of inside/variant.py; without them it is the program as installed.
        """
        machine = self.machine
        self.stop_crtrd(keep=keep)
        machine.write("/etc/crtrd/crtrd.toml", settings)
        if program is None:
            machine.run(["rm", "-f", DROP_IN])
        else:
            lines = "".join(f"Environment={key}={value}\n" for key, value in program.items())
            start = f"ExecStart=\nExecStart=/usr/bin/python3 -I {INSIDE}/variant.py\n"
            machine.write(DROP_IN, f"[Service]\n{start}{lines}")
        machine.run("systemctl daemon-reload; systemctl start crtrd.socket crtrd.service")

    def stop_crtrd(self, *, keep: bool = False) -> None:
        self.machine.run("systemctl stop crtrd.service crtrd.socket; systemctl stop crtrd-wake.timer || true")
        if not keep:
            # no pattern: a hundred thousand names are too long for a command
            self.machine.run("for d in /var/lib/crtrd /etc/crtrd/crons.d; do "
                             "[ ! -d $d ] || find $d -mindepth 1 -delete; done")

    def arm(self, *definitions: Mapping[str, object]) -> float:
        """Arm all of them; the seconds that took."""
        lines = "".join(json.dumps(each) + "\n" for each in definitions)
        return float(self.program("arm.py", stdin=lines))

    def ledger(self, sql: str) -> int:
        """The one number that a query of the daemon's file gives; 0 for NULL."""
        words = ["sqlite3", "-readonly", "-cmd", ".timeout 10000", LEDGER, sql]
        return int(self.run(words).strip() or 0)

    def all_settled(self) -> bool:
        return not self.ledger("SELECT (SELECT count(*) FROM occurrences WHERE settled_at IS NULL)"
                               " + (SELECT count(*) FROM leases)")

    # whatever is measured ----------------------------------------------------------------------------------------

    def program(self, name: str, *arguments: str, stdin: str = "", timeout: float = DEADLINE) -> str:
        """What a program of inside/ prints."""
        return self.run(["python3", f"{INSIDE}/{name}", *arguments], stdin=stdin, timeout=timeout)

    def run(self, command: str | Sequence[str], *, stdin: str = "", timeout: float = DEADLINE) -> str:
        """What a command prints; a string is the shell's."""
        return self.machine.run(command, stdin=stdin, timeout=timeout).stdout

    def path(self, inside: str) -> Path:
        """Where this process finds the file that the daemon and the programs know as INSIDE."""
        return self.machine.path(inside)

    @contextmanager
    def echo(self) -> Iterator[None]:
        """A service on the daemon's bus that answers and does nothing else."""
        self.machine.write("/etc/dbus-1/system.d/org.crtrd.Bench1.conf", POLICY)
        unit = "bench-echo.service"
        self.machine.run(f"systemctl reload dbus.service; systemd-run --quiet --collect --unit={unit} "
                         f"python3 -I {INSIDE}/lean_bus.py")
        try:
            # not by a call to it, which might activate the service that another row has left under this name
            asked = "busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus NameHasOwner s "
            self.wait_for(lambda: "true" in self.run(asked + "org.crtrd.Bench1"), what="the echo", pause=0.2)
            yield
        finally:
            self.machine.run(["systemctl", "stop", unit], check=False)

    def place(self, inside: str) -> str:
        """The path that commands use for INSIDE."""
        return inside

    def ctl(self, *words: str, timeout: float = DEADLINE) -> str:
        return self.run(["crtrctl", *words], timeout=timeout)

    def stop_service(self) -> None:
        """End the daemon; its socket stays."""
        self.machine.run("systemctl stop crtrd.service")

    def fresh(self, kind: str) -> str:
        """A path of the machine's disk that was never used."""
        self._serial += 1
        return f"{STATE}/{kind}-{self._serial}"

    def forget_clock(self) -> None:
        self.path(CLOCK).unlink(missing_ok=True)

    def clock(self) -> list[int]:
        """Nanoseconds since the epoch at which jobs ran, ascending."""
        path = self.path(CLOCK)
        return sorted(int(line) for line in path.read_text().split()) if path.exists() else []

    def await_jobs(self, count: int, seconds: float = DEADLINE) -> list[int]:
        path = self.path(CLOCK)
        self.wait_for(lambda: path.exists() and path.stat().st_size >= count * 20, seconds, f"{count} jobs")
        return self.clock()

    def wait_for(
        self, predicate: Callable[[], object], seconds: float = DEADLINE, what: str = "", *, pause: float = 0.02
    ) -> None:
        end = time.monotonic() + seconds
        while not predicate():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds:.0f} s: {what or predicate}")
            time.sleep(pause)

    @staticmethod
    def settle(seconds: float) -> None:
        """Let what was just started come to rest."""
        time.sleep(seconds)

    def cpu(self, unit: str, folder: str = "system.slice") -> int:
        """Microseconds that the processes of a unit have used so far, ended ones too."""
        text = self.machine.read(f"/sys/fs/cgroup/{folder}/{unit}/cpu.stat")
        return int(dict(line.split() for line in text.splitlines())["usage_usec"])

    def cpu_of_machine(self) -> int:
        text = self.machine.read("/sys/fs/cgroup/cpu.stat")
        return int(dict(line.split() for line in text.splitlines())["usage_usec"])

    def main_pid(self, unit: str = SERVICE) -> int:
        """The pid of a unit's main process as this host numbers it."""
        inside = self.machine.unit(unit)["MainPID"]
        for pid in self.pids_of(unit):
            words = Path(f"/proc/{pid}/status").read_text().split("NSpid:", 1)[1].splitlines()[0].split()
            if words[-1] == inside:
                return pid
        raise LookupError(f"{unit} has no main process")

    def pids_of(self, unit: str, folder: str = "system.slice") -> list[int]:
        """Every process of a unit, as this host numbers them."""
        group = self.machine.path(f"/sys/fs/cgroup/{folder}/{unit}")
        found: list[int] = []
        for procs in [group / "cgroup.procs", *group.rglob("*/cgroup.procs")]:
            found += [int(word) for word in procs.read_text().split()]
        return found


def compile_job(target: Path) -> None:
    """A static C program; where there is no compiler, the cheapest there is: a script of dash."""
    try:
        source = HERE / "inside" / "job.c"
        subprocess.run(["gcc", "-O2", "-static", "-o", target, source], check=True, capture_output=True, timeout=60)
    except (FileNotFoundError, subprocess.CalledProcessError):
        target.write_text("#!/bin/sh\nexec date +%s%N >>\"$1\"\n")
    target.chmod(0o755)


def pick(wanted: Sequence[str], known: Iterable[str]) -> list[str]:
    """The rows that are wanted, in the table's order. Raises SystemExit for one that does not exist."""
    names = list(known)
    if unknown := [each for each in wanted if each not in names]:
        raise SystemExit(f"bench: there is no row {' '.join(unknown)}; there are {' '.join(names)}")
    return [each for each in names if not wanted or each in wanted]


def facts(world: World) -> list[str]:
    """The facts that matter for figures; no names and no paths."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return [f"CPU: {model}, {os.cpu_count()} cores", f"Memory: {memory} GiB", f"Kernel: {os.uname().release}",
            world.about()]
