"""`make run`: the daemon in the foreground from a checkout, on a ledger, a socket and a private bus of its own.

Everything lies below CRTR_HOME. Arms two example crons and prints events until Ctrl-C.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from crtrd import names

SETTINGS = '# Written by `make run`: resident, for there may be no systemd here.\nclock = "internal"\n'
EXAMPLES = (
    ("tick", "--every", "10s", "--on-output", "always", "--", "sh", "-c", "echo tick"),
    ("disk", "--cron", "*/5 * * * *", "--on-output", "on-change", "--", "df", "-h", "/"),
)
BUS_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>{address}</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy></busconfig>
"""


def main() -> int:
    """Ends with the daemon; what was started here is ended here, by pid."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends like Ctrl-C, so that nothing is left behind
    home = Path(os.environ.setdefault("CRTR_HOME", "var")).absolute()
    os.environ["CRTR_HOME"] = str(home)
    places = names.places(os.environ, user=False)
    places.config.mkdir(parents=True, exist_ok=True)
    places.runtime.mkdir(parents=True, exist_ok=True)
    if not (places.config / "crtrd.toml").exists():
        (places.config / "crtrd.toml").write_text(SETTINGS, encoding="utf-8")
    with contextlib.ExitStack() as ends:
        bus = start_bus(places)
        ends.callback(end, bus)
        daemon = subprocess.Popen([sys.executable, "-m", "crtrd"])
        ends.callback(end, daemon)
        return attend(daemon, home)


def escaped(socket: Path) -> str:
    """The address for dbus-daemon, byte by byte as its specification has it ("Server Addresses")."""
    plain = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_/.*"
    return "unix:path=" + "".join(chr(each) if each in plain else f"%{each:02x}" for each in os.fsencode(socket))


def start_bus(places: names.Places) -> subprocess.Popen[bytes]:
    """A private dbus-daemon on `run/bus`; returns when it listens."""
    program = shutil.which("dbus-daemon")
    if program is None:
        sys.exit("cannot start a private bus: dbus-daemon is not installed (Debian: dbus)")
    places.private_bus.unlink(missing_ok=True)
    config = places.runtime / "bus.conf"
    config.write_text(BUS_CONFIG.format(address=escaped(places.private_bus)), encoding="utf-8")
    with (places.runtime / "bus.log").open("wb") as log:
        bus = subprocess.Popen(
            [program, f"--config-file={config}", "--nofork", "--nopidfile", "--print-address=1"],
            stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    if bus.stdout is None or not bus.stdout.readline():
        sys.exit("cannot start a private bus: dbus-daemon ended at once")
    return bus


def attend(daemon: subprocess.Popen[bytes], home: Path) -> int:
    """Arm the examples once the daemon answers, then wait for its end or for Ctrl-C."""
    def crtrctl(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "crtrd.cli.main", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    try:
        wait_until(lambda: crtrctl("list").returncode == 0 or daemon.poll() is not None)
        if daemon.poll() is not None:
            return daemon.returncode
        for name, *words in EXAMPLES:
            if crtrctl("show", name).returncode != 0:
                print(crtrctl("arm", name, *words).stdout, end="", flush=True)
        print(f"try, in another terminal:  CRTR_HOME={home} .venv/bin/crtrctl list   (Ctrl-C ends)", flush=True)
        return daemon.wait()
    except KeyboardInterrupt:
        end(daemon)
        return 0


def wait_until(done: "object", tries: int = 100) -> None:
    """Ask again every 0.1 s, ten seconds at most."""
    for _ in range(tries):
        if callable(done) and done():
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            signal.sigtimedwait([], 0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(KeyboardInterrupt):
            process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
