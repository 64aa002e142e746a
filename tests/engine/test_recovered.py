"""After a crash: lost runs settle before anything that is due or asked is decided (C21)."""

import pytest

from crtrd.core import events
from tests.control.conftest import Desk


@pytest.fixture
def desk(tmp_path):
    made = Desk(tmp_path / "ledger.sqlite3")
    yield made
    made.close()


def turns(desk, count=20):
    for _ in range(count):
        desk.reactor.turn(5_000)


def test_what_is_asked_during_recovery_waits_for_it(desk):
    desk.arm()
    (run_id,) = desk.ask("run", "job", {})["runs"]
    desk.engine.recover()
    answers = []
    desk.control.call("run", ("job", {}), desk.root, answers.append)
    turns(desk)
    assert answers == []
    assert desk.engine.busy
    desk.engine.post(events.RunLost(desk.reactor.clock.wall(), run_id, executed=True))
    desk.engine.recovered("b" * 32)
    while not answers:
        desk.reactor.turn(50_000)
    assert answers[0]["status"] == "running", "it did not meet the run that was live only on paper"
    assert desk.ask("get_run", run_id)["result"] == "unobserved"
