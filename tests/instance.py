"""A whole crtrd of its own for a test: real processes, a private bus, a ledger in a temporary folder.

    with Instance(tmp_path) as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "tick", "--every", "1s", "--", "true")
        crtrd.kill(); crtrd.start(crash_at="commit.before:3")

No systemd is needed: the clock is internal. What is started is ended, by pid, also when the test fails.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from crtrd import names
from crtrd.develop import start_bus

PROJECT = Path(__file__).parents[1]
DEADLINE = 20.0


class Instance:
    def __init__(self, home: Path, settings: str = 'clock = "internal"\n') -> None:
        self.home = home
        self.env = {**os.environ, "CRTR_HOME": str(home), "PYTHONPATH": str(PROJECT)}
        self.places = names.places(self.env, user=False)
        self.places.config.mkdir(parents=True)
        self.places.runtime.mkdir(parents=True)
        (self.places.config / "crtrd.toml").write_text(settings)
        self.bus = start_bus(self.places)
        self.daemon: subprocess.Popen[bytes] | None = None
        self.log = (home / "log").open("ab")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        self.bus.kill()
        self.bus.wait()
        if self.bus.stdout:
            self.bus.stdout.close()
        self.log.close()

    def start(self, *, crash_at: str = "", wait: bool = True, env: dict[str, str] | None = None) -> None:
        """Start the daemon; with `wait`, until it answers (or, with a crash point, until it has died)."""
        extra = {"CRTRD_CRASH_AT": crash_at} if crash_at else {}
        self.daemon = subprocess.Popen(
            [sys.executable, "-X", "dev", "-W", "error", "-m", "crtrd"], env={**self.env, **extra, **(env or {})},
            stdout=self.log, stderr=self.log, cwd="/",
        )
        if wait:
            self.wait_for(lambda: self.ended or self.ctl("list", check=False).returncode == 0)

    @property
    def ended(self) -> bool:
        return self.daemon is None or self.daemon.poll() is not None

    def kill(self) -> None:
        """kill -9."""
        assert self.daemon is not None
        self.daemon.kill()
        self.daemon.wait()

    def stop(self) -> int:
        """SIGTERM; returns the exit status."""
        assert self.daemon is not None
        self.daemon.terminate()
        return self.daemon.wait(DEADLINE)

    def end(self) -> None:
        """End the daemon and whatever it left running, found by the home folder in its environment."""
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.wait()
        marker = f"CRTR_HOME={self.home}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                mine = marker in (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)

    def ctl(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """`crtrctl WORDS…` of this instance."""
        done = subprocess.run(
            [sys.executable, "-m", "crtrd.cli.main", *words], env=self.env, cwd="/", capture_output=True, text=True,
            timeout=60, check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"crtrctl {words} exited with {done.returncode}\n{done.stdout}{done.stderr}\n"
                                 f"{self.said()}")
        return done

    def json(self, *words: str) -> list[dict[str, object]]:
        value = json.loads(self.ctl(*words, "--json=short").stdout)
        return value if isinstance(value, list) else [value]

    def rows(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """Ask the ledger's file directly."""
        with closing(sqlite3.connect(f"file:{self.places.ledger}?mode=ro", uri=True)) as ledger:
            return ledger.execute(sql, values).fetchall()

    def said(self) -> str:
        self.log.flush()
        return (self.home / "log").read_text(errors="replace")

    def wait_for(self, predicate: "object", seconds: float = DEADLINE) -> None:
        assert callable(predicate)
        end = time.monotonic() + seconds
        while not predicate():
            assert time.monotonic() < end, f"not within {seconds} s\n{self.said()}"
            time.sleep(0.05)
