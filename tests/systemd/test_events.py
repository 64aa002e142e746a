"""The ids, the contract's list of kinds and the installed catalog agree."""

import ast
import re
from pathlib import Path

from crtrd.systemd.events import LOST, MESSAGE_IDS

ROOT = Path(__file__).parents[2]
CATALOG = (ROOT / "packaging/catalog/crtrd.catalog").read_text("utf-8")
CONTRACT = """
daemon.started daemon.boot_migration.applied daemon.boot_migration.failed daemon.idle daemon.max_lifetime
daemon.stopping daemon.reexec config.reloaded config.rejected
cron.armed cron.changed cron.canceled cron.paused cron.resumed cron.poked cron.expired cron.occurrence.accepted
cron.occurrence.skipped cron.occurrence.missed cron.occurrence.settled cron.run.started cron.run.held cron.run.settled
cron.run.unobserved cron.run.abandoned cron.capacity.deferred cron.failure.escalated cron.escalation.spawn_failed
cron.recovered outbox.delivered outbox.retrying outbox.dead auth.denied
""".split()
OWN = {LOST, "bus.trouble", "cron.occurrence.late", "cron.profile.missing", "cron.run.late", "daemon.failed",
       "daemon.lease.lost", "daemon.no_cgroups", "daemon.wake.failed", "ledger.available", "ledger.damaged",
       "ledger.growing", "ledger.unavailable"}
"""What became necessary beyond that list: troubles of the daemon and of what it stands on."""


def test_every_kind_of_the_contract_has_an_id():
    assert set(MESSAGE_IDS) == {*CONTRACT, *OWN}


def test_ids_are_distinct_ids_of_128_bits():
    assert len(set(MESSAGE_IDS.values())) == len(MESSAGE_IDS)
    for identifier in MESSAGE_IDS.values():
        assert re.fullmatch("[0-9a-f]{32}", identifier)


def test_catalog_explains_each_event_once():
    assert sorted(re.findall(r"^-- ([0-9a-f]{32})$", CATALOG, re.MULTILINE)) == sorted(MESSAGE_IDS.values())
    for kind, identifier in MESSAGE_IDS.items():
        assert f"# {kind}\n-- {identifier}\nSubject: " in CATALOG


def test_catalog_entries_have_a_subject_and_a_text():
    for entry in CATALOG.split("\n-- ")[1:]:
        head, _, text = entry.partition("\n\n")
        assert re.search("^Subject: .+$", head, re.MULTILINE)
        assert len(text.split("\n#")[0].strip()) > 20


def test_only_known_kinds_are_announced():
    """Wherever a kind is spelled out at the place of its announcement."""
    unknown = []
    for path in sorted((ROOT / "crtrd").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            called = isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", ""))
            if called in {"Announce", "_announce", "_say"} and node.args and isinstance(node.args[0], ast.Constant):
                unknown += [] if node.args[0].value in MESSAGE_IDS else [f"{path.name}:{node.lineno}"]
    assert unknown == []
