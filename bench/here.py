"""A place without a machine: the daemon of this checkout on a private bus, below a temporary folder.

For rows that ask nothing of systemd, while one works on them (`BENCH_PLACE=here make bench ROWS=P11`). There are no
cgroups, no socket activation and no peers; the Python is the checkout's own.
"""

import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.world import DEADLINE, HERE, INSIDE, JOB, PROJECT, STATE, World, compile_job
from crtrd.develop import start_bus
from crtrd.names import bus_address, places
from tests.machine.machine import Machine

SYSTEM = {"/etc/crtrd": "home/etc", "/var/lib/crtrd": "home/state", "/run/crtrd": "home/run", "/run/bench": "bench",
          STATE: "disk", JOB: "job", INSIDE: str(HERE / "inside")}


class Here(World):
    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="crtrd-bench-"))
        self._env = {**os.environ, "CRTR_HOME": str(self._folder / "home"), "PYTHONPATH": str(PROJECT)}
        found = places(self._env, user=False)
        for folder in (found.config, found.runtime, found.state, self._folder / "bench", self._folder / "disk"):
            folder.mkdir(parents=True)
        compile_job(self._folder / "job")
        self._bus = start_bus(found)
        self._env["DBUS_SYSTEM_BUS_ADDRESS"] = bus_address(found.private_bus)
        self._daemon: subprocess.Popen[bytes] | None = None
        self._log = (self._folder / "log").open("ab")

    def __exit__(self, *_: object) -> None:
        self._end()
        self._bus.kill()
        self._bus.wait()
        if self._bus.stdout:
            self._bus.stdout.close()
        self._log.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def machine(self) -> Machine:
        raise RuntimeError("this needs a machine with a systemd")

    def about(self) -> str:
        return f"In a temporary folder of this host, Python {platform.python_version()}"

    def crtrd(self, settings: str, *, program: Mapping[str, str] | None = None, keep: bool = False) -> None:
        self.stop_crtrd(keep=keep)
        (self._folder / "home/etc/crtrd.toml").write_text(settings)
        words = ["-m", "crtrd"] if program is None else [str(HERE / "inside/variant.py")]
        self._daemon = subprocess.Popen([sys.executable, *words], env={**self._env, **(program or {})}, cwd="/",
                                        stdout=self._log, stderr=self._log)
        self.wait_for(self._answers, what="the daemon answers")

    def stop_crtrd(self, *, keep: bool = False) -> None:
        self._end()
        if not keep:
            for name in ("home/state", "home/etc/crons.d"):
                shutil.rmtree(self._folder / name, ignore_errors=True)
            (self._folder / "home/state").mkdir(mode=0o700)

    def stop_service(self) -> None:
        raise RuntimeError("nothing would start it again")

    def run(self, command: str | Sequence[str], *, stdin: str = "", timeout: float = DEADLINE) -> str:
        words = ["sh", "-ec", command] if isinstance(command, str) else [self.place(word) for word in command]
        if words[0] == "python3":
            words[0] = sys.executable
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout, env=self._env,
                              cwd="/", check=False)
        if done.returncode:
            raise AssertionError(f"{words[:3]} exited with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def ctl(self, *words: str, timeout: float = DEADLINE) -> str:
        return self.run(["python3", "-m", "crtrd.cli.main", *words], timeout=timeout)

    def path(self, inside: str) -> Path:
        return Path(self.place(inside))

    def place(self, inside: str) -> str:
        for system, own in SYSTEM.items():
            if inside == system or inside.startswith(system + "/"):
                return str(self._folder / own) + inside.removeprefix(system)
        return inside

    def arm(self, *definitions: Mapping[str, object]) -> float:
        return super().arm(*({**each, "command": [self.place(word) for word in each["command"]]}
                             if isinstance(each.get("command"), list) else each for each in definitions))

    def main_pid(self, unit: str = "") -> int:
        assert self._daemon is not None, unit
        return self._daemon.pid

    def pids_of(self, unit: str, folder: str = "") -> list[int]:
        children = Path(f"/proc/{self.main_pid(unit)}/task/{self.main_pid(unit)}/children{folder}").read_text()
        return [self.main_pid(unit), *map(int, children.split())]

    @contextmanager
    def echo(self) -> Iterator[None]:
        echo = subprocess.Popen([sys.executable, str(HERE / "inside/lean_bus.py")], env=self._env, cwd="/")
        try:
            self.settle(1)
            yield
        finally:
            echo.kill()
            echo.wait()

    def _answers(self) -> bool:
        assert self._daemon is not None
        if self._daemon.poll() is not None:
            raise RuntimeError(f"the daemon ended: {(self._folder / 'log').read_text()[-500:]}")
        try:
            self.program("bus.py", "ask", "0.01")  # not a list of all crons, of which there may be many
        except AssertionError:
            return False
        return True

    def _end(self) -> None:
        if self._daemon is not None:
            self._daemon.send_signal(signal.SIGTERM)
            try:
                self._daemon.wait(30)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
            time.sleep(0.1)
            self._daemon = None
