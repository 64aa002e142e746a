"""Each peer as the bench uses it: given jobs for instants, started, stopped. All keep no durable record of a run.

    peer.start(world, [due, due, …], clock)     # seconds since the epoch; the job appends to the file `clock`
    peer.stop(world)

A peer whose `minutes` is true knows nothing finer: it runs as many jobs as there are instants at every full minute.
supervisord is none of them: it restarts what ends and has no schedule.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.core import stamp
from bench.peers.layer import FOLDER
from bench.world import CLOCK, INSIDE, JOB, World

UNITS = "/run/systemd/system"
ABSENT = ("supercronic", "fcron")


class Peer:
    name = ""
    minutes = False
    lead = 4.0
    """Seconds that it takes to get going with a thousand jobs, amply."""

    def __init__(self) -> None:
        self.unit = f"bench-{type(self).__name__.lower()}.service"

    def start(self, world: World, dues: Sequence[float], clock: str = CLOCK) -> None:
        raise NotImplementedError

    def stop(self, world: World) -> None:
        world.machine.run(["systemctl", "stop", self.unit], check=False)

    def cpu(self, world: World) -> int:
        """Microseconds that it and its jobs have used so far."""
        return world.cpu(self.unit)

    def run(self, world: World, *command: str, properties: Sequence[str] = (), stdin: str = "") -> None:
        """As a unit of its own, so that its processor time and memory can be told from others'."""
        options = [f"--property={each}" for each in ("LimitNOFILE=65536", "TasksMax=infinity", *properties)]
        feed = []
        if stdin:
            world.machine.write(f"/run/bench/{self.unit}.stdin", stdin)
            feed = [f"--property=StandardInput=file:/run/bench/{self.unit}.stdin"]
        unit = ["systemd-run", "--quiet", "--collect", f"--unit={self.unit}"]
        world.machine.run([*unit, *options, *feed, "--", *command])


@dataclass(frozen=True, slots=True)
class _Cron:
    """What two cron daemons have in common: lines of /etc/cron.d in a folder of each one's own."""

    name: str
    program: tuple[str, ...]

    def properties(self, world: World, lines: str) -> list[str]:
        folder = f"/run/bench/{self.name}.d"
        world.machine.write(f"{folder}/bench", lines)
        world.machine.write(f"/run/bench/{self.name}.pid", "")
        return [f"BindPaths={folder}:/etc/cron.d", f"BindPaths=/run/bench/{self.name}.pid:/run/crond.pid"]


class DebianCron(Peer):
    name = "Debian cron"
    minutes = True
    _cron = _Cron("cron", ("/usr/sbin/cron", "-f"))

    def start(self, world: World, dues: Sequence[float], clock: str = CLOCK) -> None:
        self.load(world, f"* * * * * root {JOB} {clock}\n" * len(dues))

    def load(self, world: World, lines: str) -> None:
        self.run(world, *self._cron.program, properties=self._cron.properties(world, lines))


class Cronie(DebianCron):
    name = "cronie"
    _cron = _Cron("cronie", (f"{FOLDER}/debian/usr/sbin/crond", "-n"))


class Timers(Peer):
    """One timer unit for each job of a burst; a single one for jobs one after another."""

    name = "systemd timers"
    lead = 12.0

    def __init__(self) -> None:
        super().__init__()
        self.unit = "bench-timers.target"

    def start(self, world: World, dues: Sequence[float], clock: str = CLOCK) -> None:
        groups = [[due] for due in dues] if len(set(dues)) == 1 else [sorted(dues)]
        for number, group in enumerate(groups):
            when = "".join(f"OnCalendar={stamp(due).replace('T', ' ').removesuffix('Z')} UTC\n" for due in group)
            world.machine.write(f"{UNITS}/bench-timer-{number}.timer", f"[Unit]\nPartOf={self.unit}\n[Timer]\n{when}"
                                f"AccuracySec=1us\nUnit=bench-timer@{number}.service\n")
        world.machine.write(f"{UNITS}/bench-timer@.service", "[Unit]\nStartLimitIntervalSec=0\n"
                            f"[Service]\nType=oneshot\nExecStart={JOB} {clock}\n")
        # one start job that wants them all: systemctl takes a minute for a thousand names
        names = " ".join(f"bench-timer-{number}.timer" for number in range(len(groups)))
        world.machine.write(f"{UNITS}/{self.unit}", f"[Unit]\nWants={names}\n")
        world.machine.run(["sh", "-ec", f"systemctl daemon-reload; systemctl start {self.unit}"])

    def stop(self, world: World) -> None:
        world.machine.run(f"systemctl stop {self.unit}; rm -f {UNITS}/bench-timer*; systemctl daemon-reload",
                          check=False)

    def cpu(self, world: World) -> int:
        """It is PID 1 that does the work, so everything counts that the machine has used."""
        return world.cpu_of_machine()


class APScheduler(Peer):
    name = "APScheduler 3"

    def start(self, world: World, dues: Sequence[float], clock: str = CLOCK) -> None:
        lines = "".join(f"{due}\n" for due in dues)
        self.run(world, "python3", f"{INSIDE}/apscheduled.py", JOB, clock, stdin=lines,
                 properties=[f"Environment=PYTHONPATH={FOLDER}/python"])


class Cronstable(Peer):
    """It knows seconds. Jobs one after another run at every full second."""

    name = "cronstable"
    lead = 15.0

    def start(self, world: World, dues: Sequence[float], clock: str = CLOCK) -> None:
        when = "* * * * * * *"
        if len(set(dues)) == 1:
            parts = time.gmtime(dues[0])
            when = f"{parts.tm_sec} {parts.tm_min} {parts.tm_hour} {parts.tm_mday} {parts.tm_mon} * *"
        jobs = len(dues) if len(set(dues)) == 1 else 1
        self.load(world, [when] * jobs, clock)

    def load(self, world: World, schedules: Sequence[str], clock: str = CLOCK) -> None:
        lines = [f"  - name: j{number}\n    command: {JOB} {clock}\n    schedule: \"{when}\"\n"
                 for number, when in enumerate(schedules)]
        world.machine.write("/run/bench/cronstable.yaml", "jobs:\n" + "".join(lines))
        self.run(world, "python3", "-m", "cronstable", "-l", "WARNING", "-c", "/run/bench/cronstable.yaml",
                 properties=[f"Environment=PYTHONPATH={FOLDER}/python"])


QUICK = (APScheduler, Cronstable, Timers)
SLOW = (DebianCron, Cronie)
"""Those that one has to wait a minute for."""


def without(world: World) -> str:
    """Which schedulers are not measured, and why: what the machine's own apt says of them, which knows cronie."""
    if "without" not in world.kept:
        candidates = {name: _candidate(world, name) for name in ("cronie", *ABSENT)}
        known = candidates.pop("cronie") or "unknown"
        said = [f"{name} {version}, not measured" if version else f"no {name}" for name, version in candidates.items()]
        world.kept["without"] = (f"supervisord has no schedule; apt in the machine (cronie {known}) has "
                                 + ", ".join(said))
    text: str = world.kept["without"]
    return text


def _candidate(world: World, package: str) -> str:
    """The version that apt would install; '' for none."""
    for line in world.run(["apt-cache", "policy", package]).splitlines():
        if "Candidate:" in line and "(none)" not in line:
            return line.split()[-1]
    return ""
