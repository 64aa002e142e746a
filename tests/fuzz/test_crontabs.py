"""Crontabs: every line becomes an entry or a refusal with its number, and nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.config.crontab import Entry, Refusal, read_crontab
from tests.fuzz.driver import hostile, inputs, seeds


def check(data, *, system):
    text = data.decode("utf-8", "surrogateescape")
    numbers = []
    for found in read_crontab(text, system=system):
        numbers.append(found.number)
        match found:
            case Entry():
                assert found.command.strip()
                assert found.schedule
                assert bool(found.user) == system
                assert "\0" not in found.command + found.stdin + found.user
            case Refusal():
                assert found.reason
    assert numbers == sorted(set(numbers))
    assert all(1 <= number <= text.count("\n") + 1 for number in numbers)


@pytest.mark.parametrize("data", seeds("crontabs"))
@pytest.mark.parametrize("system", [False, True])
def test_the_corpus(data, system):
    check(data, system=system)


@given(inputs("crontabs"), st.booleans())
@hostile
def test_whatever_is_written(data, system):
    check(data, system=system)
