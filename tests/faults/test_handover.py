"""A few hand-overs around an instant (C63); `python -m tests.faults.handover` makes three hundred."""

import pytest

from tests.faults.handover import sweep

pytestmark = pytest.mark.process


def test_no_instant_is_lost_or_run_twice_at_a_hand_over(tmp_path):
    found, statuses = sweep(tmp_path, 3, first=9)
    assert found == []
    assert statuses["success"] >= 3
