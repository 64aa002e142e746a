"""What a run may cost, in things that can be counted: syncs, writes to the bus, entries, context switches, modules.

Times are `make bench`'s matter. A count that must rise is raised here with the change that needs it.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.counts.strace import start_below_strace
from tests.instance import Instance
from tests.proc import switches

pytestmark = pytest.mark.process

HEAVY = {"asyncio", "argparse", "pystemd", "lxml", "psutil", "urllib3", "http", "email", "ssl", "icalendar",
         "recurring_ical_events", "xml", "multiprocessing", "concurrent", "unittest", "pdb", "secrets", "shutil"}


@pytest.fixture
def crtrd(tmp_path):
    with Instance(tmp_path / "home") as instance:
        yield instance


def settled(crtrd, count):
    return crtrd.rows("SELECT count(*) FROM occurrences WHERE status = 'success'") == [(count,)]


def arm(crtrd, name, when):
    folder = crtrd.places.config / "crons.d"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.toml").write_text(f'[cron]\nschedule = ["at {when}"]\ncommand = ["true"]\n')


def soon(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


def test_a_lone_run_syncs_three_times_at_most(crtrd):
    """Once for its lease and intent, once for its identity, once for its end."""
    count = start_below_strace(crtrd, "fsync,fdatasync")
    crtrd.ctl("arm", "one", "--", "true")
    count()
    crtrd.ctl("trigger", "one")
    crtrd.wait_for(lambda: settled(crtrd, 1))
    assert 1 <= count("sync") <= 3


def test_many_runs_share_their_syncs(crtrd):
    """Without gathering it is one for every two or three events of a run; goal: a tenth of a sync for each run."""
    runs = 150
    for number in range(runs):
        arm(crtrd, f"c{number}", soon(8))
    count = start_below_strace(crtrd, "fsync,fdatasync")
    crtrd.wait_for(lambda: crtrd.rows("SELECT count(*) FROM crons") == [(runs,)])
    count()
    crtrd.wait_for(lambda: settled(crtrd, runs), 60)
    assert count("sync") <= runs // 2


def test_a_run_writes_to_the_bus_a_few_times(crtrd):
    """All signals of one commit leave together: after the lease, after the start, after the end, and the answer."""
    count = start_below_strace(crtrd, "sendto")
    crtrd.ctl("arm", "one", "--", "true")
    crtrd.ctl("run", "one")
    crtrd.wait_for(lambda: settled(crtrd, 1))
    before = crtrd.said().count("\n")
    count()
    crtrd.ctl("run", "one")
    crtrd.wait_for(lambda: settled(crtrd, 2))
    assert 1 <= count("sendto") <= 12  # five of them for the call itself: who calls, and what the client asks
    assert crtrd.said().count("\n") - before <= 4  # accepted, started, ended, settled


def test_nothing_happens_while_nothing_is_due(crtrd):
    crtrd.start()
    for number in range(20):
        arm(crtrd, f"c{number}", "2030-01-01T00:00:00Z")
    crtrd.ctl("daemon-reload")
    crtrd.stop()
    crtrd.start()
    assert crtrd.daemon is not None
    switches = [quiet(crtrd.daemon.pid) for _ in range(6)]
    assert 0 in switches, switches


def quiet(pid):
    """Context switches of all threads within two seconds. The first second after a start is not a quiet one."""
    before = switches(pid)
    time.sleep(2)
    return switches(pid) - before


def modules(code, *words):
    program = f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[2])
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_what_a_cold_start_imports():
    loaded = modules("import crtrd.daemon")
    assert not loaded & HEAVY
    assert len(loaded) <= 338


def test_what_status_imports(crtrd):
    crtrd.start()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "crtrd.cli.main", "status"], env=crtrd.env, cwd="/",
        capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "jeepney" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {
        "asyncio", "peewee", "pystemd", "psutil", "h11", "sqlite3", "urllib3", "tomllib", "dataclasses", "shutil",
        "subprocess"}
    assert not {name for name in loaded if name.startswith(("crtrd.engine", "crtrd.ledger", "crtrd.control"))}
