"""Cursors: from times and UUIDs to the id of an entry."""

import pytest

from crtrd.migrations.inbox_cursor import at_boundary, moment, repair
from crtrd.migrations.inbox_entry import Number

HALF_PAST = 1_793_500_200_500_000
ENTRIES = [{"id": "a" * 32, "at": "2026-11-01T00:00:00Z"}, {"id": "b" * 32, "created_at": "2026-11-01T01:30:00+01:00"},
           {"id": "c" * 32}, {"id": "d" * 32, "at": Number("1793500000000000")}]


@pytest.mark.parametrize(("text", "microseconds"), [
    ("2026-11-01T02:30:00.5Z", HALF_PAST), ("2026-11-01t02:30:00.500z", HALF_PAST), ("20261101T023000.5Z", HALF_PAST),
    ("2026-11-01 02:30:00.5", HALF_PAST), ("2026-11-01T04:30:00,5+02:00", HALF_PAST),
    ("2026-10-31T21:30:00.500000000-0500", HALF_PAST), ("1970-01-01", 0), ("1969-12-31T23:59:59.999999Z", -1),
    ("19700101", 0), ("1970-W01-4", 0),
])
def test_iso_8601(text, microseconds):
    assert moment(text) == microseconds
    assert moment(f" {text}\n") == microseconds


@pytest.mark.parametrize("value", ["", "tick", "2026-13-01T00:00Z", None, 5, True, "1793493000000", "1" * 40, {}, [],
                                   "\N{SUPERSCRIPT TWO}"])
def test_what_is_no_time(value):
    assert moment(value) is None


@pytest.mark.parametrize(("number", "microseconds"), [
    ("1793493000", 1793493000_000000), ("1793493000.25", 1793493000_250000), ("1793493000123", 1793493000_123000),
    ("1793493000123456", 1793493000_123456), ("-1", None), ("1e999", None),
])
def test_numbers_are_told_by_their_size(number, microseconds):
    assert moment(Number(number)) == microseconds


@pytest.mark.parametrize(("boundary", "found"), [
    ("2026-10-31T23:59:59.999999Z", ""), ("2026-11-01T00:00:00Z", "a" * 32), ("2026-11-01T00:29:59Z", "a" * 32),
    ("2026-11-01T00:30:00Z", "b" * 32), ("2026-11-01T00:30:00", "b" * 32), ("2026-11-01T01:30:00+01:00", "b" * 32),
    ("2099-01-01", "d" * 32),
])
def test_boundary(boundary, found):
    assert repair(boundary, ENTRIES) == found
    assert repair(f"{boundary}\n", ENTRIES) == f"{found}\n"


def test_an_entry_after_the_boundary_is_never_counted_as_read():
    entries = [{"id": "a", "at": "2026-01-01"}, {"id": "b", "at": "2026-01-05"}, {"id": "c", "at": "2026-01-02"}]
    assert at_boundary(moment("2026-01-03"), entries) == "a"


@pytest.mark.parametrize("text", ["", "\n", "a" * 32, "a" * 32 + "\n", "unknown\n", "00000000000000000000000000001e10",
                                  "20261101" * 4])
def test_a_cursor_in_order_or_unknown_stays(text):
    assert repair(text, ENTRIES) == text


def test_a_uuid():
    assert repair("AAAAAAAA-aaaa-aaaa-aaaa-aaaaaaaaaaaa\n", []) == "a" * 32 + "\n"
