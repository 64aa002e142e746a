"""What is put is found again at once, whether it lies in the file yet or not, and the file has the last word of it."""

from dataclasses import fields, replace

import pytest

from crtrd.core.cron import Cron, Definition, State
from crtrd.core.effects import DropLease, PutCell, PutCron, PutOccurrence, PutRun, TakeLease
from crtrd.core.occurrence import Cell, Identity, Occurrence, Origin, Output, Phase, Reason, Result, Run, Status
from crtrd.ledger import draft, rows

CRON = Cron(id="c" * 32, definition=Definition("job", ("* * * * *",), "UTC", command=("true",)), state=State.ACTIVE,
            owner=0, created_at=1, changed_at=1, anchor=0, considered=1)
OCCURRENCE = Occurrence(id="0" * 32, cron_id=CRON.id, cron_name="job", origin=Origin.SCHEDULE, instant=1, key="",
                        status=Status.PENDING, created_at=1, due_at=1)
RUN = Run(id="a" * 32, occurrence_id=OCCURRENCE.id, cron_id=CRON.id, cron_name="job", target="", attempt=1,
          trigger=Origin.SCHEDULE, scheduled_at=1, phase=Phase.STARTING, out_of_band=False, fence=1, created_at=1)
MOVED = replace(
    OCCURRENCE, status=Status.FAILED, reason=Reason.EXIT_CODE, detail="d", label="l", due_at=77, settled_at=78,
    covers=3, fence=9, alert_at=79)
ENDED = replace(
    RUN, phase=Phase.ENDED, identity=Identity("b" * 32, 4, 5), cgroup="/c", started_at=1, finished_at=2, duration=3,
    stopping="timeout", result=Result.TIMEOUT, reason="r", exit_code=6, signal=7, stdout=Output(b"o", 8, "s", "m"),
    stderr=Output(b"e", 9, "t"), survivors=("9 sh",), delivered="inbox")
NEVER = {
    "occurrence": {"id", "cron_id", "cron_name", "origin", "instant", "key", "target", "overlap", "created_at"},
    "run": {"id", "occurrence_id", "cron_id", "cron_name", "target", "attempt", "trigger", "scheduled_at",
            "out_of_band", "fence", "created_at"},
}


def moved_fields(before, after):
    return {field.name for field in fields(before) if getattr(before, field.name) != getattr(after, field.name)}


def test_every_field_that_moves_is_written(opened):
    """By the statements that leave the columns alone which never change: the values here change all others."""
    assert moved_fields(OCCURRENCE, MOVED) | NEVER["occurrence"] == {field.name for field in fields(OCCURRENCE)}
    assert moved_fields(RUN, ENDED) | NEVER["run"] == {field.name for field in fields(RUN)}
    store = opened()
    store.do(lambda session: [session.put(each) for each in (PutCron(CRON), PutOccurrence(OCCURRENCE), PutRun(RUN))])

    def move(session):
        assert (session.occurrence(OCCURRENCE.id), session.run(RUN.id)) == (OCCURRENCE, RUN)
        session.put(PutOccurrence(MOVED))
        session.put(PutRun(ENDED))
        return session.occurrence(OCCURRENCE.id), session.run(RUN.id)

    assert store.do(move) == (MOVED, ENDED)
    assert store.do(lambda session: (session.occurrence(OCCURRENCE.id), session.run(RUN.id))) == (MOVED, ENDED)


def test_bookkeeping_and_definition_of_a_cron(opened):
    store = opened()
    store.do(lambda session: session.put(PutCron(CRON)))
    booked = replace(CRON, next_at=5, failures=2, note="n", skip_next=(7,), account="0 root", source="f",
                     failing_since=1)
    changed = replace(booked, definition=replace(CRON.definition, name="other", pool="p"))
    for each in (booked, changed):
        store.do(lambda session, each=each: (session.cron(each.id), session.put(PutCron(each))))
        assert store.do(lambda session: session.cron(CRON.id)) == each
    assert store.do(lambda session: session.find_cron("other")) == changed
    assert store.do(lambda session: session.find_cron(CRON.name)) is None


def test_what_is_put_is_found_in_every_list(opened):
    def ask(session):
        session.put(PutCron(replace(CRON, next_at=5)))
        session.put(PutOccurrence(OCCURRENCE))
        session.put(PutCell(Cell(OCCURRENCE.id, "", Status.PENDING)))
        session.put(PutRun(RUN))
        before = (session.open_occurrences(CRON.id), session.live_runs(OCCURRENCE.id), session.live_count(),
                  len(session.live_runs()), [cron.id for cron in session.crons_due(9)])
        session.put(PutRun(ENDED))
        session.put(PutOccurrence(MOVED))
        session.put(PutCron(replace(CRON, next_at=None)))
        after = (session.open_occurrences(CRON.id), session.live_runs(OCCURRENCE.id), session.live_count(),
                 len(session.live_runs()), session.crons_due(9))
        return before, after

    before, after = opened().do(ask)
    assert before == ([OCCURRENCE], [RUN], 1, 1, [CRON.id])
    assert after == ([], [], 0, 0, [])


def refused(session):
    with session.undoable():
        session.put(PutOccurrence(MOVED))
        session.put(PutRun(RUN))
        session.put(TakeLease(OCCURRENCE.id))
        assert session.live_count() == 1
        raise ZeroDivisionError


def test_what_is_taken_back_is_forgotten(opened):
    def ask(session):
        session.put(PutOccurrence(OCCURRENCE))
        session.put(TakeLease(OCCURRENCE.id))
        fence = session.fence()
        with pytest.raises(ZeroDivisionError):
            refused(session)
        return session.fence() - fence, session.occurrence(OCCURRENCE.id).status, session.live_count()

    assert opened().do(ask) == (0, OCCURRENCE.status, 0)


def test_a_lease_that_is_taken_and_given_up_at_once_has_used_its_fence(opened):
    store = opened()

    def take(session):
        session.put(PutOccurrence(OCCURRENCE))
        session.put(TakeLease(OCCURRENCE.id))
        session.put(DropLease(OCCURRENCE.id))
        return session.fence(), session.occurrence(OCCURRENCE.id).fence

    fence, given = store.do(take)
    assert fence == given
    assert store.do(lambda session: session.fence()) == fence
    assert store.do(lambda session: session._all("SELECT * FROM leases")) == []


def test_more_than_a_draft_holds(opened, monkeypatch):
    monkeypatch.setattr(draft, "MOST", 3)
    many = [replace(CRON, id=f"{number:032x}", definition=replace(CRON.definition, name=f"c{number}"))
            for number in range(20)]
    store = opened()

    def put(session):
        for cron in many:
            session.put(PutCron(cron))
            session.put(PutCron(replace(cron, note="last")))
            assert len(session._draft.crons) <= 3
            assert session.cron(cron.id).note == "last"

    store.do(put)
    found = store.do(lambda session: session._all("SELECT note, serial FROM crons ORDER BY serial"))
    assert found == [("last", serial) for serial in range(1, 21)]


def test_rows_in_the_order_in_which_they_were_put(opened):
    others = [replace(OCCURRENCE, id=f"{9 - number:032x}", instant=number) for number in range(5)]
    store = opened()
    store.do(lambda session: [session.put(PutOccurrence(each)) for each in others])
    found = store.do(lambda session: session._all(rows.OCCURRENCE_SELECT + " ORDER BY o.serial"))
    assert [row[0] for row in found] == [each.id for each in others]
