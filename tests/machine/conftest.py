"""Fixtures for tests on a real systemd.

    deb          the package, built once by `make deb`; CRTRD_TEST_DEB names another one
    suite        "bookworm", then "trixie"
    installed    a disk layer of that release with the package installed (once a session)
    machine      a running machine with the package installed, fresh for each test (about a second)
    bare         a running machine without the package, fresh for each test

Every test in this folder carries the marker `machine`; where no machine can be made it is skipped with the reason.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine.machine import Machine
from tests.machine.rootfs import SUITES

PROJECT = Path(__file__).parents[2]
HERE = Path(__file__).parent


def why_not() -> str:
    """Why no machine can be made here; empty where one can."""
    if os.geteuid() != 0:
        return "booting a machine needs root"
    missing = [tool for tool in ("mmdebstrap", "systemd-nspawn", "nsenter", "unshare") if shutil.which(tool) is None]
    return f"missing: {' '.join(missing)}" if missing else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.machine)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def deb() -> Path:
    if built := os.environ.get("CRTRD_TEST_DEB"):
        return Path(built)
    subprocess.run(["make", "--silent", "deb"], cwd=PROJECT, check=True, timeout=600)
    return next((PROJECT / "dist").glob("crtrd_*_all.deb"))


@pytest.fixture(scope="session", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def installed(suite: str, deb: Path) -> Iterator[Path]:
    with Machine(suite) as machine:
        machine.install_deb(deb)
        yield machine.freeze()


@pytest.fixture
def machine(suite: str, installed: Path) -> Iterator[Machine]:
    with Machine(suite, layers=[installed]) as running:
        yield running


@pytest.fixture
def bare(suite: str) -> Iterator[Machine]:
    with Machine(suite) as running:
        yield running
