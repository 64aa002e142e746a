"""Root folders: one Debian per release, built once by mmdebstrap and kept in the cache.

They hold everything the package depends on, so that it installs with no network. A machine never
writes to one: it lays an overlay over it. The mirror is the one the host's apt uses.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

SUITES = ("bookworm", "trixie")

PACKAGES = (
    "systemd systemd-sysv dbus dbus-user-session libpam-systemd polkitd init-system-helpers passwd procps tzdata"
    " python3 python3-pystemd python3-jeepney python3-peewee python3-psutil python3-sdnotify python3-h11"
    " python3-recurring-ical-events python3-urllib3 curl socat sqlite3 strace util-linux"
).split()

# Timers of the distribution that would start work of their own in the middle of a test.
MASKED = "apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer".split()

SETUP = f"""
mkdir -p "$1/var/log/journal"
chroot "$1" systemctl mask --quiet {" ".join(MASKED)}
chroot "$1" useradd --create-home --shell /bin/bash --uid 1000 alice
chroot "$1" useradd --create-home --shell /bin/bash --uid 1001 bob
"""

BUILD_SECONDS = 900


def cache() -> Path:
    """The folder that holds root folders and machines; CRTRD_TEST_CACHE moves it."""
    return Path(os.environ.get("CRTRD_TEST_CACHE", "/var/tmp/crtrd-test-machines"))


def root_folder(suite: str, extra: Sequence[str] = ()) -> Path:
    """The root folder of SUITE with the packages EXTRA, built first where it is missing (about half a minute)."""
    packages = [*PACKAGES, *extra]
    recipe = hashlib.sha256("\n".join([suite, *packages, SETUP]).encode()).hexdigest()[:12]
    folder = cache() / f"root-{suite}-{recipe}"
    cache().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache() / f"root-{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(suite, folder, packages)
    return folder


def _build(suite: str, folder: Path, packages: Sequence[str]) -> None:
    """Build beside FOLDER and rename at the end, so that a half-built one is never taken for a whole one."""
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    command = [
        *("mmdebstrap", "--quiet", "--variant=apt", "--components=main"),
        "--include=" + ",".join(packages),
        *("--customize-hook=" + line for line in SETUP.strip().splitlines()),
        *(f"--aptopt={line}" for line in _apt_transport()),
        *(suite, str(partial), *_mirror()),
    ]
    log = folder.with_suffix(".log")
    with log.open("wb") as output:
        status = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=BUILD_SECONDS, check=False
        ).returncode
    if status != 0:
        message = f"cannot build a root folder of {suite}: mmdebstrap exited with {status}\n{log.read_text()[-3000:]}"
        raise RuntimeError(message)
    partial.rename(folder)


def _output(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _mirror() -> list[str]:
    """The URI from which the host's apt has its own release; nothing (mmdebstrap's default) where there is none."""
    release = {}
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        release[key] = value.strip('"')
    if release.get("ID") != "debian":
        return []
    wanted = f"|{release.get('VERSION_CODENAME')}|main"
    shape = "$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    lines = _output("apt-get", "indextargets", "--format", shape, "Identifier: Packages")
    return [line.removesuffix(wanted) for line in lines if line.endswith(wanted)][:1]


def _apt_transport() -> list[str]:
    """What the host's apt is told about proxies and certificates."""
    keys = ("Acquire::http::", "Acquire::https::", "Acquire::Retries", "Acquire::Check-Valid-Until")
    return [line for line in _output("apt-config", "dump") if line.startswith(keys)]
