"""Is anybody there? Asks the bus and the service manager for a sign of life with a deadline, before pystemd is used.

pystemd holds Python's global lock during its calls, so that a call to somebody who does not answer would stop the whole
daemon. A D-Bus server answers `AUTH` from its own loop: who answers this one will answer the next.
"""

import os
import socket
from collections.abc import Mapping

from crtrd.errors import ManagerError

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
SYSTEM_MANAGER = "/run/systemd/private"


def ask_for_life(environ: Mapping[str, str], *, user: bool, patience: float) -> None:
    """Raises ManagerError when bus or manager is away or silent for `patience` seconds. Blocks; not for the loop."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if user:
        address = environ.get("DBUS_SESSION_BUS_ADDRESS", f"unix:path={runtime}/bus")
        manager = f"{runtime}/systemd/private"
    else:
        address = environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS)
        manager = SYSTEM_MANAGER
    if bus := _socket_of(address):
        _ask("the bus", bus, patience)
    # The manager's own socket is for root, or for its user, and is no public interface: where it is missing or
    # closed to us nothing follows from that.
    if os.access(manager, os.R_OK | os.W_OK):
        _ask("the service manager", manager, patience)


def _socket_of(address: str) -> str:
    """The path in a D-Bus address of the plain kind, '' for others: those are left to sd-bus."""
    first, _, _ = address.partition(";")
    kind, _, rest = first.partition(":")
    keys = dict(part.partition("=")[::2] for part in rest.split(","))
    if kind != "unix" or "%" in rest:
        return ""
    return keys.get("path", "") or ("\0" + keys["abstract"] if "abstract" in keys else "")


def _ask(what: str, path: str, patience: float) -> None:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(patience)
            connection.connect(path)
            connection.sendall(b"\0AUTH EXTERNAL %s\r\n" % str(os.geteuid()).encode().hex().encode())
            answer = connection.recv(64)
    except TimeoutError:
        message = f"cannot reach {what}: no sign of life within {patience:g} s"
        raise ManagerError(message) from None
    except OSError as error:
        message = f"cannot reach {what}: {error.strerror}"
        raise ManagerError(message) from error
    if not answer.startswith(b"OK"):
        message = f"cannot reach {what}: it answers {answer[:40].decode('ascii', 'backslashreplace')!r}"
        raise ManagerError(message)
