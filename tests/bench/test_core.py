"""The bench's own arithmetic: what it says of given numbers."""

import pytest

from bench import results
from bench.__main__ import rows
from bench.burst import burst_of
from bench.core import Table, at_least, at_most, figure, interleave, quantile, ratio, short, stamp, told
from bench.world import pick


def test_a_figure_tells_its_median_and_its_spread():
    assert figure([3, 1, 2]).text(" ms") == "2 (1 to 3) ms"
    assert figure([7]).text() == "7"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (0.12345, "0.123"), (12.345, "12.3"), (1234.6, "1235")])
def test_numbers_are_short(value, text):
    assert short(value) == text


def test_ratios_are_of_the_same_round():
    assert ratio([1, 20], [2, 10]).values == (0.5, 2)
    with pytest.raises(ValueError, match="longer"):
        ratio([1], [1, 2])


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1, 100), (0.001, 1)])
def test_a_quantile_is_one_of_the_values(share, value):
    assert quantile(range(1, 101), share) == value


def test_rounds_are_interleaved_begun_by_turns_and_warmed():
    said = []
    found = interleave(2, {name: lambda name=name: said.append(name) or len(said) for name in "ab"})
    assert "".join(said) == "abbaab"
    assert found == {"a": [4, 5], "b": [3, 6]}


def test_verdicts_tell_the_factor():
    assert at_most("g", figure([3]), 2).verdict == "**missed** by 1.50x"
    assert at_most("g", figure([2]), 2).verdict == "met"
    assert at_most("g", figure([1]), 0).verdict == "**missed**"
    assert at_most("g", figure([0]), 0).verdict == "met"
    assert at_least("g", figure([0.3]), 0.6).verdict == "**missed** by 2.00x"
    assert at_least("g", figure([0.6]), 0.6).verdict == "met"
    assert told("g", "1").verdict == "no goal"


def test_the_table_names_a_row_once_and_keeps_an_error_to_a_line():
    table = Table()
    table.add("P1", [told("one", "a|b"), told("two", "c")])
    table.error("P2", RuntimeError("first\nlast"))
    lines = table.markdown().splitlines()
    assert lines[2] == "| P1 | one | a\\|b |  | no goal |"
    assert lines[3].startswith("|  | two ")
    assert lines[4] == "| P2 |  |  |  | error: last |"
    assert {line.count(" | ") for line in (lines[0], lines[2], lines[4])} == {4}


def test_a_burst_is_counted_from_its_instant_to_its_end():
    burst = burst_of(10.0, [10_100_000_000, 10_500_000_000], end=12.0, cpu=0.006)
    assert (burst.rate, burst.cpu) == (1.0, 3.0)
    assert (burst.p50, burst.p99) == (pytest.approx(100), pytest.approx(500))
    assert burst_of(10.0, [10_500_000_000]).rate == 2
    with pytest.raises(ValueError, match="before it was due"):
        burst_of(10.0, [9_990_000_000])


def test_an_instant_is_written_with_its_microseconds():
    assert stamp(1.25) == "1970-01-01T00:00:01.250000Z"


def test_rows_are_picked_in_the_tables_order():
    assert pick(["P2", "P1"], ["P1", "P2", "P3"]) == ["P1", "P2"]
    assert pick([], ["P1", "P2"]) == ["P1", "P2"]
    with pytest.raises(SystemExit, match="P9"):
        pick(["P9"], ["P1"])


def test_every_row_can_be_asked_for_by_its_name_in_the_order_of_the_table():
    found = rows()
    assert list(found) == [*(f"P{number}" for number in range(1, 15)), "scale"]
    assert all(callable(module.measure) for module in found.values())


def test_single_rows_take_their_place_in_the_kept_table():
    old, new = Table(), Table()
    for name in ("P1", "P2"):
        old.add(name, [told("one", "old"), told("two", "old")])
    new.add("P1", [told("one", "new")])
    blocks = {name: (lines, "then") for name, (lines, _) in results.read(old.markdown()).items()}
    text = results.write(blocks, ["P1", "P2"], ["CPU: some"])
    assert results.read(text) == blocks
    mixed = {**results.read(text), "P1": (results.read(new.markdown())["P1"][0], "now")}
    text = results.write(mixed, ["P1", "P2"], ["CPU: some"])
    assert (text.count("| new |"), text.count("| old |")) == (1, 2)
    assert "- P1: now\n- P2: then" in text
