"""Names that programs and people outside rely on, each spelled once: bus, units, journal, files.

Nothing here opens or creates anything; `Places` only spells out where things lie (CONTRACT §3).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

BUS_NAME = "org.crtrd.Crtrd1"
BUS_PATH = "/org/crtrd/Crtrd1"
MANAGER_INTERFACE = "org.crtrd.Crtrd1.Manager"
CRON_INTERFACE = "org.crtrd.Crtrd1.Cron"
RUN_INTERFACE = "org.crtrd.Crtrd1.Run"
LOG_PATH = "/org/freedesktop/LogControl1"
LOG_INTERFACE = "org.freedesktop.LogControl1"
ERROR_PREFIX = "org.crtrd.Crtrd1.Error."

SOCKET_UNIT = "crtrd.socket"
SERVICE_UNIT = "crtrd.service"
WAKE_UNIT = "crtrd-wake.timer"
ESCALATE_UNIT = "crtrd-escalate@"
SYSLOG_IDENTIFIER = "crtrd"


class Places(NamedTuple):
    """Where one instance keeps its files. All folders are absolute. No dataclass: crtrctl loads it, without inspect."""

    config: Path
    """crtrd.toml, crtrd.toml.d/, crons.d/, profiles.d/, calendars.d/"""
    vendor: tuple[Path, ...]
    """Lower layers of crons.d and profiles.d, strongest first."""
    state: Path
    """ledger.sqlite3, inbox/, backups; 0700."""
    runtime: Path
    """trigger.sock; and `bus`, the private bus of a development instance."""
    user: bool
    """True for an instance of one user on the session bus."""
    home: Path | None
    """CRTR_HOME where it is set; children get it too."""

    @property
    def ledger(self) -> Path:
        return self.state / "ledger.sqlite3"

    @property
    def inbox(self) -> Path:
        return self.state / "inbox"

    @property
    def socket(self) -> Path:
        return self.runtime / "trigger.sock"

    @property
    def private_bus(self) -> Path:
        return self.runtime / "bus"


def bus_address(socket: Path) -> str:
    """The D-Bus address of a socket, as jeepney reads it: it takes an escape for a character, not for a byte."""
    plain = (each if each.isalnum() or not each.isascii() or each in "-_/.*" else f"%{ord(each):02x}"
             for each in str(socket))
    return "unix:path=" + "".join(plain)


def _folder(environ: Mapping[str, str], name: str) -> Path | None:
    """None for a path that is not absolute: it is to be ignored, by the XDG base directory specification."""
    value = environ.get(name, "")
    return Path(value) if value.startswith("/") else None


def places(environ: Mapping[str, str], *, user: bool) -> Places:
    """The folders of the instance that `environ` and `user` name. CRTR_HOME replaces all roots by one folder."""
    if home := environ.get("CRTR_HOME"):
        root = Path(home).absolute()
        return Places(root / "etc", (root / "lib",), root / "state", root / "run", user, root)
    if not user:
        lower = (Path("/run/crtrd"), Path("/usr/lib/crtrd"))
        return Places(Path("/etc/crtrd"), lower, Path("/var/lib/crtrd"), Path("/run/crtrd"), user, None)
    base = _folder(environ, "HOME") or Path("/")
    config = (_folder(environ, "XDG_CONFIG_HOME") or base / ".config") / "crtrd"
    state = (_folder(environ, "XDG_STATE_HOME") or base / ".local/state") / "crtrd"
    runtime = (_folder(environ, "XDG_RUNTIME_DIR") or state / "run") / "crtrd"
    return Places(config, (Path("/usr/lib/crtrd/user"),), state, runtime, user, None)
