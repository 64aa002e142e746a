"""What people ask: nights of change beforehand, why an instant ran or will not, and making up for the past."""

import pytest

from crtrd.control.explain import explanation
from crtrd.core import events
from crtrd.core.backfill import MOST
from crtrd.core.cron import CatchUp
from crtrd.errors import Code
from crtrd.ledger.queries import Queries
from crtrd.schedule.spec import compile_schedule
from tests.core.world import H, M, at


def why(world, text, name="job"):
    view = explanation(world.cron(name), at(text), Queries(world.database), world.now)
    assert view["source"] in {"ledger", "schedule"}
    if view["source"] == "ledger":
        return str(view["status"]), str(view["reason"])
    return ("due" if view["due"] else "not due"), str(view["reason"])


# why -------------------------------------------------------------------------------------------------------------


def test_why_in_the_past_is_what_the_ledger_says(world):
    world.arm(schedule=("0 * * * *",))
    world.wake(H)
    world.end_all()
    world.skip()
    world.now = at("2026-12-01T15:30Z")
    world.wake()
    world.end_all()
    assert [why(world, f"2026-12-01T{hour}:00Z") for hour in range(11, 16)] == [
        ("success", ""), ("skipped", "skip-requested"), ("missed", "downtime"), ("missed", "downtime"), ("success", "")]
    assert why(world, "2026-12-01T11:30Z") == ("not due", "not-scheduled")
    assert why(world, "2026-12-01T09:00Z") == ("not due", "before-armed")


def test_why_of_an_instant_that_was_coalesced(world):
    world.arm(schedule=("* * * * *",))
    world.now += 3 * H
    world.wake()
    assert why(world, "2026-12-01T10:30Z") == ("missed", "coalesced")
    assert why(world, "2026-12-01T10:30:30Z") == ("not due", "not-scheduled")
    assert why(world, "2026-12-01T12:59Z") == ("missed", "downtime")


def test_why_in_the_future(world):
    world.arm(schedule=("0 12 * * *", "0 12 1-7 * *"), exclude=("2026-12-03",), expires_at=at("2026-12-06"))
    assert why(world, "2026-12-02T12:00Z") == ("due", "")
    assert why(world, "2026-12-02T12:01Z") == ("not due", "not-scheduled")
    assert why(world, "2026-12-03T12:00Z") == ("not due", "excluded")
    assert why(world, "2026-12-06T12:00Z") == ("not due", "outside-window")
    world.skip(at("2026-12-02T12:00Z"))
    assert why(world, "2026-12-02T12:00Z") == ("not due", "skip-requested")
    world.pause(note="a look")
    assert why(world, "2026-12-02T12:00Z") == ("not due", "paused")
    world.resume()
    view = explanation(world.cron(), at("2026-12-04T12:00Z"), Queries(world.database), world.now)
    assert "2 schedules of the cron name it" in view["detail"]


def test_why_on_the_nights_of_change(world):
    world.now = at("2027-03-01")
    world.arm(schedule=("30 2 * * *",), timezone="Europe/Berlin")
    world.arm("skipping", schedule=("30 2 * * *",), timezone="Europe/Berlin", dst_gap="skip")
    assert why(world, "2027-03-28T01:00Z") == ("due", "gap")
    assert why(world, "2027-03-28T01:00Z", "skipping") == ("not due", "gap")
    assert why(world, "2027-10-31T00:30Z") == ("due", "overlap")
    assert why(world, "2027-10-31T01:30Z") == ("not due", "overlap")


def test_why_while_paused_and_after_a_change(world):
    world.arm(schedule=("0 * * * *",))
    world.pause(note="a look")
    world.now += 2 * H + M
    assert why(world, "2026-12-01T11:00Z") == ("not due", "paused")
    world.resume()
    assert why(world, "2026-12-01T11:00Z") == ("skipped", "paused")
    world.now += 30 * M
    world.change(schedule=("15 * * * *",))
    assert why(world, "2026-12-01T12:15Z") == ("not due", "other-schedule")


# nights ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schedule", "zone", "options", "year", "said"),
    [
        ("30 2 * * *", "Europe/Berlin", {}, 2026, [
            "Sun 2026-03-29: the clock skips 02:00 to 03:00; a time due there runs once, right after",
            "Sun 2026-10-25: the clock shows 02:00 to 03:00 twice; a time due there runs once"]),
        ("0,30 2 * * *", "Europe/Berlin", {"dst_gap": "skip", "dst_overlap": "both"}, 2026, [
            "Sun 2026-03-29: the clock skips 02:00 to 03:00; 2 times due there are left out",
            "Sun 2026-10-25: the clock shows 02:00 to 03:00 twice; 2 times due there run twice each"]),
        ("*/15 * * * *", "Australia/Lord_Howe", {}, 2026, [
            "Sun 2026-04-05: the clock shows 01:30 to 02:00 twice; 2 times due there run twice each",
            "Sun 2026-10-04: the clock skips 02:00 to 02:30; 2 times due there are left out"]),
        ("0,30 2 * * *", "Antarctica/Troll", {}, 2026, [
            "Sun 2026-03-29: the clock skips 01:00 to 03:00; 2 times due there run once together, right after",
            "Sun 2026-10-25: the clock shows 01:00 to 03:00 twice; 2 times due there run once each"]),
        ("30 4 * * *", "Europe/Berlin", {}, 2026, []), ("@hourly", "UTC", {}, 2026, []),
        ("30 2 * * 1-5", "Europe/Berlin", {}, 2026, []),
        ("0 0 30 12 *", "Pacific/Apia", {}, 2011, [
            "Fri 2011-12-30: the clock skips 00:00 to 00:00; a time due there is left out"]),
    ],
)
def test_nights_of_change_are_told(schedule, zone, options, year, said):
    found = compile_schedule([schedule], timezone=zone, **options)
    assert [str(change) for change in found.changes(at(f"{year}-01-01"), at(f"{year + 1}-01-01"))] == said


def test_the_instants_of_a_night_are_known():
    found = compile_schedule(["30 2 * * *"], timezone="Europe/Berlin")
    spring, autumn = found.changes(at("2026-01-01"), at("2027-01-01"))
    assert [spring.has(at(text)) for text in ("2026-03-29T00:30Z", "2026-03-29T01:00Z", "2026-03-29T01:30Z")] == [
        False, True, False]
    assert [autumn.has(at(f"2026-10-{text}:30Z")) for text in ("24T23", "25T00", "25T01", "25T02")] == [
        False, True, True, False]


# backfill --------------------------------------------------------------------------------------------------------


def backfill(world, start, end, *, dry_run=False, name="job"):
    return len(world.ask(events.BackfillRequested, cron=name, start=at(start), end=at(end), dry_run=dry_run))


def test_backfill_serves_each_instant_that_nothing_has_served(world):
    world.arm(schedule=("0 * * * *",), overlap="skip", targets=("a", "b"), target_parallel=2)
    world.wake(H)
    world.end_all()
    world.now = at("2026-12-01T15:30Z")
    world.wake()
    world.end_all()
    before = world.dump()
    assert backfill(world, "2026-12-01T09:00Z", "2026-12-01T15:00Z", dry_run=True) == 5
    assert world.dump() == before
    assert backfill(world, "2026-12-01T09:00Z", "2026-12-01T15:00Z") == 5
    made = [row for row in world.rows() if row.origin == "backfill"]
    assert [row.instant for row in made] == [at(f"2026-12-01T{hour:02}:00Z") for hour in (9, 10, 12, 13, 14)]
    assert backfill(world, "2026-12-01T09:00Z", "2026-12-01T15:00Z") == 0
    for _ in range(5):
        assert {run.scheduled_at for run in world.live()} == {made[0].instant}, "one after the other, in order"
        assert {run.trigger for run in world.live()} == {"backfill"}
        assert len(world.live()) == 2
        world.end_all()
        made.pop(0)
    assert world.live() == []
    assert {row.status for row in world.rows() if row.origin == "backfill"} == {"success"}


def test_backfill_waits_for_what_runs(world):
    world.arm(schedule=("0 * * * *",), overlap="allow")
    world.wake(H)
    world.begin()
    assert backfill(world, "2026-12-01T08:00Z", "2026-12-01T10:30Z") == 3
    assert len(world.live()) == 1
    world.end_all()
    assert len(world.live()) == 1


def test_backfill_obeys_the_schedule_as_it_is(world):
    world.arm(schedule=("0 2 * * *",), timezone="Europe/Berlin", exclude=("2026-11-28",), catch_up=CatchUp.NONE)
    assert backfill(world, "2026-11-27T00:00Z", "2026-11-30T00:59Z") == 2
    assert backfill(world, "2026-11-30T01:00Z", "2026-11-30T01:00Z") == 1, "both ends belong to it"


@pytest.mark.parametrize(
    ("start", "end", "code"),
    [
        ("2026-11-30", "2026-11-29", Code.INVALID_ARGUMENT), ("2026-11-30", "2026-12-02", Code.INVALID_ARGUMENT),
        ("2026-01-01", "2026-12-01", Code.LIMIT_EXCEEDED), ("1970-01-01", "2026-12-01", Code.LIMIT_EXCEEDED),
    ],
)
def test_backfill_is_bounded(world, start, end, code):
    world.arm(schedule=("* * * * *",))
    assert world.refused(backfill, world, start, end) is code


def test_backfill_of_the_most_it_may(world):
    world.arm(schedule=("* * * * *",))
    world.now = at("2026-12-01") + MOST * M - M
    world.change(retries=1)
    start = world.now - MOST * M + M
    found = world.ask(events.BackfillRequested, cron="job", start=start, end=world.now, dry_run=False)
    running = sum(row.status == "running" and start <= row.instant for row in world.rows() if row.origin == "schedule")
    assert len(found) == MOST - running
    assert backfill(world, "2026-11-01", "2026-11-01T00:00Z") == 1


def test_backfill_of_a_paused_cron_is_refused(world):
    world.arm(schedule=("0 2 * * *",))
    world.pause()
    assert world.refused(backfill, world, "2026-11-29", "2026-11-30") is Code.INVALID_STATE
