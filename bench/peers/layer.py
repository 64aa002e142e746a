"""The peers, laid into the machine: what Debian and PyPI have (daemons.py says what they lack)."""

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from tests.machine.machine import Machine
from tests.machine.rootfs import cache

DEBIAN = ("cron",)
UNPACKED = ("cronie",)
"""They exclude one another, so these are only unpacked; one daemon runs at a time."""
PYPI = ("APScheduler==3.11.*", "cronstable", "supervisor")
FOLDER = "/opt/peers"


def layer_of_peers(suite: str) -> Path:
    """A disk layer with all of them over the test machines' root, built once and kept in the cache."""
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    layer = cache() / f"bench-{suite}-{recipe}"
    cache().mkdir(mode=0o700, parents=True, exist_ok=True)
    with (cache() / "bench.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.exists():
            with Machine(suite) as machine:
                _install(machine)
                disk = machine.freeze()
                partial = layer.with_suffix(".partial")
                shutil.rmtree(partial, ignore_errors=True)
                subprocess.run(["cp", "-a", disk, partial], check=True)
                partial.rename(layer)
    return layer


def _install(machine: Machine) -> None:
    """Packages are fetched in the machine's file tree but the host's network; the machine itself has none."""
    init = machine._container.init  # noqa: SLF001 - the harness has no other door to a machine's mounts
    machine.write("/etc/resolv.conf", Path("/etc/resolv.conf").read_text())
    names = " ".join(DEBIAN)
    fetch = f"""
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends --download-only install {names}
        mkdir -p {FOLDER}/debian && cd {FOLDER}/debian && apt-get -qq download {" ".join(UNPACKED)}
    """
    subprocess.run(["nsenter", "-t", str(init), "-m", "--", "sh", "-ec", fetch], check=True, capture_output=True,
                   timeout=900, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    machine.run(f"DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install {names}", timeout=900)
    machine.run(f"for d in {FOLDER}/debian/*.deb; do dpkg -x $d {FOLDER}/debian; done; "
                "systemctl disable --quiet --now cron.service")
    version = machine.run(["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).stdout.strip()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(machine.path(f"{FOLDER}/python")),
               "--python-version", version, "--only-binary=:all:", *PYPI]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"cannot install {' '.join(PYPI)}: {done.stderr[-1000:]}")
