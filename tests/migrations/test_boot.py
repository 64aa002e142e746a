"""The boot list as a whole."""

import pytest

from crtrd.migrations.boot import Applied, Failed, run_boot_list
from crtrd.names import places


@pytest.fixture
def here(tmp_path):
    made = places({"CRTR_HOME": str(tmp_path)}, user=False)
    made.inbox.mkdir(parents=True)
    return made


def test_steps_run_in_order_and_those_that_change_nothing_say_nothing(here):
    (here.inbox / "joe.jsonl").write_bytes(b"{}\n")
    here.state.chmod(0o755)
    (here.inbox / "joe.jsonl").chmod(0o600)
    here.inbox.chmod(0o700)
    orphans = [["r1", "r2"], []]
    assert run_boot_list(here, cgroup_orphans=lambda: orphans.pop(0)) == [
        Applied("legacy-inbox-identities", {"files": 1, "entries": 1}),
        Applied("state-modes", {"folders": 1}),
        Applied("orphan-cgroups", {"removed": 2, "names": "r1 r2"}),
    ]
    assert run_boot_list(here, cgroup_orphans=lambda: orphans.pop(0)) == []


def test_nothing_there_is_nothing_to_do(tmp_path):
    assert run_boot_list(places({"CRTR_HOME": str(tmp_path)}, user=False), cgroup_orphans=None) == []


def test_a_step_that_fails_does_not_stop_the_others(here, tmp_path):
    here.inbox.rmdir()
    here.inbox.symlink_to(tmp_path)
    here.state.chmod(0o755)

    def broken():
        raise RuntimeError

    first, second, third = run_boot_list(here, cgroup_orphans=broken)
    assert isinstance(first, Failed)
    assert first.id == "legacy-inbox-identities"
    assert second == Applied("state-modes", {"folders": 1})
    assert third == Failed("orphan-cgroups", "RuntimeError")


def test_a_step_that_did_a_part_of_its_work_says_both(here):
    (here.inbox / "joe.jsonl").write_bytes(b"{}\n")
    (here.inbox / "joe.jsonl").chmod(0o600)
    (here.inbox / "ann.jsonl").write_bytes(b"{\n")
    (here.inbox / "ann.jsonl").chmod(0o600)
    (here.inbox / "ann.jsonl.damaged").symlink_to("/nowhere/at/all")
    here.state.chmod(0o700)
    here.inbox.chmod(0o700)
    applied, failed = run_boot_list(here, cgroup_orphans=None)
    assert applied == Applied("legacy-inbox-identities", {"files": 1, "entries": 1})
    assert isinstance(failed, Failed)
    assert "ann.jsonl" in failed.reason
