"""What `doctor` looks at where a package has installed crtrd: units, delegation, bus and polkit files."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from crtrd import names
from crtrd.cli.health import Finding, Grade
from crtrd.names import Places

OLDEST_SYSTEMD = 252
REINSTALL = "apt install --reinstall crtrd"
BUS_FILES = (
    "/usr/share/dbus-1/system.d/org.crtrd.Crtrd1.conf", "/usr/share/dbus-1/system-services/org.crtrd.Crtrd1.service",
    "/usr/share/dbus-1/services/org.crtrd.Crtrd1.service",
)
ACTIONS = "/usr/share/polkit-1/actions/org.crtrd.Crtrd1.policy"
POLKIT = "/usr/share/dbus-1/system-services/org.freedesktop.PolicyKit1.service"


def show(places: Places, unit: str) -> dict[str, str]:
    """Properties of a unit; empty where the manager cannot be asked."""
    program = shutil.which("systemctl")
    if program is None:
        return {}
    words = [program, *(["--user"] if places.user else []), "show", unit,
             "-p", "LoadState,ActiveState,UnitFileState,Result,Delegate,NeedDaemonReload"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def units(places: Places) -> Iterator[Finding]:
    control = "systemctl --user" if places.user else "systemctl"
    wrong = [finding for unit in (names.SOCKET_UNIT, names.SERVICE_UNIT)
             for finding in _unit(unit, show(places, unit), control)]
    yield from wrong or [Finding(Grade.GOOD, f"{names.SOCKET_UNIT} and {names.SERVICE_UNIT} are as they should be")]


def _unit(unit: str, seen: dict[str, str], control: str) -> Iterator[Finding]:
    if seen.get("LoadState") != "loaded":
        what = seen.get("LoadState") or "unknown: the service manager does not answer"
        remedy = f"{control} unmask {unit}" if seen.get("LoadState") == "masked" else REINSTALL
        yield Finding(Grade.FAULT, f"{unit} is {what}", remedy)
        return
    if seen.get("NeedDaemonReload") == "yes":
        yield Finding(Grade.NOTE, f"{unit} was changed on disk", f"{control} daemon-reload")
    if seen.get("ActiveState") == "failed":
        yield Finding(Grade.FAULT, f"{unit} has failed: {seen.get('Result')}",
                      f"{control} status {unit}, then {control} reset-failed {unit}; {control} start {unit}")
    elif unit == names.SOCKET_UNIT and seen.get("ActiveState") != "active":
        yield Finding(Grade.FAULT, f"{unit} is not listening",  # it comes first with the service; alone it is refused
                      f"{control} restart {names.SERVICE_UNIT}")
    if seen.get("UnitFileState") not in {"enabled", "enabled-runtime", "static"}:
        yield Finding(Grade.FAULT, f"{unit} is {seen.get('UnitFileState') or 'not enabled'}: nothing starts it at boot",
                      f"{control} enable {unit}")


def delegation(places: Places) -> Iterator[Finding]:
    """Runs need cgroups of their own: the unified hierarchy, and a unit to which it is delegated."""
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        yield Finding(Grade.FAULT, "this host has no unified cgroup hierarchy: processes can get lost",
                      "boot with systemd.unified_cgroup_hierarchy=1")
    elif show(places, names.SERVICE_UNIT).get("Delegate") != "yes":
        yield Finding(Grade.FAULT, f"{names.SERVICE_UNIT} has no Delegate=yes",
                      f"systemctl revert {names.SERVICE_UNIT}, or take Delegate= out of its drop-ins")
    else:
        yield Finding(Grade.GOOD, f"{names.SERVICE_UNIT} has a delegated cgroup")


def bus_files(_places: Places) -> Iterator[Finding]:
    missing = [path for path in BUS_FILES if not Path(path).exists()]
    for path in missing:
        yield Finding(Grade.FAULT, f"{path} is missing", REINSTALL)
    if not missing:
        yield Finding(Grade.GOOD, "policy and activation files are there")
    if not Path(ACTIONS).exists():
        yield Finding(Grade.FAULT, f"{ACTIONS} is missing", REINSTALL)
    elif not Path(POLKIT).exists():
        yield Finding(Grade.NOTE, "there is no polkit: what is not a user's own is root's alone", "apt install polkitd")
