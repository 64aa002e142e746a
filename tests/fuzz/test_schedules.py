"""Schedule texts: compiled or refused with a reason, in time; what is compiled gives instants that only go on."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.core.cron import Definition
from crtrd.core.timetable import compiled
from crtrd.errors import ScheduleError
from tests.fuzz.driver import hostile, inputs, seeds

NOW = 1_790_000_000_000_000
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe"])
QUICK = 2.0
"""Seconds of work; the promise is one, on a machine that does nothing else."""


def check(text, zone="Europe/Berlin"):
    began = time.thread_time()
    try:
        schedule = compiled(Definition("x", schedule=tuple(text.split("\n")[:3]), timezone=zone), NOW, "salt")
    except (ScheduleError, ValueError) as error:
        assert str(error).isprintable() or "\n" not in str(error)  # noqa: PT017 - both are right
    else:
        instant = NOW
        for _ in range(5):
            following = schedule.next_after(instant)
            if following is None:
                break
            assert following > instant
            instant = following
    assert time.thread_time() - began < QUICK


@pytest.mark.parametrize("data", seeds("schedules"))
def test_the_corpus(data):
    check(data.decode())


@given(inputs("schedules"), ZONES)
@hostile
def test_whatever_is_written(data, zone):
    check(data.decode("utf-8", "replace"), zone)
