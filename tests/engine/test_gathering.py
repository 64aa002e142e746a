"""Which commits wait for company, and how long."""

from crtrd.engine.gathering import BUSY, COMPANY, LONGEST, WITHIN, Gathering


def test_a_lone_run_never_waits():
    gathering = Gathering()
    for now in range(0, 10 * WITHIN, WITHIN // 10):  # one every 20 ms, ended and begun by turns
        assert gathering.wait(now, 1, 1) == 0
        gathering.committed(now, 1)


def test_the_first_of_a_burst_does_not_wait_and_the_next_ones_do():
    gathering = Gathering()
    assert gathering.wait(0, 1, 500) == 0
    gathering.committed(0, BUSY)
    assert gathering.wait(1000, 1, 500) == LONGEST - 1000
    assert gathering.wait(1000, COMPANY - 1, 500) > 0
    assert gathering.wait(1000, COMPANY, 500) == 0
    assert gathering.wait(LONGEST, 1, 500) == 0


def test_nobody_waits_for_more_than_can_come():
    gathering = Gathering()
    gathering.committed(0, BUSY)
    assert gathering.wait(1, 19, 32) > 0
    assert gathering.wait(1, 20, 32) == 0
    assert gathering.wait(1, 1, 1) == 0


def test_a_burst_is_over_when_nothing_has_come_for_a_while():
    gathering = Gathering()
    gathering.committed(0, 1000)
    assert gathering.wait(WITHIN + 1, 1, 500) == 0
