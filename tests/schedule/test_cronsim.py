"""cronsim as a third opinion, where it is right.

Its known faults, kept out of the comparison and each shown to exist, so that a release that mends
one is noticed:

- asked inside a repeated hour it may answer with a time that is past (it drops the fold);
- a whole day that is skipped is slid to the next one (cron(8): a change of more than three hours is
  a correction);
- on the day of a half-hour gap it loses half an hour of a wildcard job, far from the gap;
- it takes `5/10` as `5-59/10` and refuses `fri-sun` and `~` (not asked for here).
"""

from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from zoneinfo import ZoneInfo

import pytest

from crtrd.errors import ScheduleError
from crtrd.schedule.spec import compile_schedule
from tests.schedule.walk import due, minutes

cronsim = pytest.importorskip("cronsim", reason="cronsim (PyPI) is not installed")

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/Santiago", "Asia/Kathmandu")
SECOND = 1_000_000


def micros(moment):
    return int(moment.timestamp()) * SECOND


def random_expression(chance):
    def field(low, high):
        kind = chance.randrange(6)
        if kind <= 1:
            return "*"
        if kind == 2:
            return f"*/{chance.randint(1, high - low)}"
        first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
        if kind == 3:
            return f"{first}-{last}"
        return ",".join(str(chance.randint(low, high)) for _ in range(chance.randint(1, 3)))

    return " ".join(field(low, high) for low, high in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7)))


@pytest.mark.parametrize("zone", ZONES)
def test_the_same_instants(zone):
    chance = Random(zone)
    info = ZoneInfo(zone)
    compared = 0
    for _ in range(150):
        text = random_expression(chance)
        start = datetime(2019, 1, 1, 12, tzinfo=UTC) + timedelta(days=chance.randrange(700))
        try:
            theirs = cronsim.CronSim(text, start.astimezone(info))
        except cronsim.CronSimError:
            with pytest.raises(ScheduleError):
                compile_schedule([text], timezone=zone)
            continue
        schedule = compile_schedule([text], timezone=zone)
        at = micros(start)
        for expected in islice(theirs, 40):
            at = schedule.next_after(at)
            assert at == micros(expected), f"{text} from {start}"
            compared += 1
    assert compared > 3_000


def test_its_fault_in_the_repeated_hour_is_still_there():
    asked = datetime(2019, 11, 3, 6, 10, tzinfo=UTC)
    theirs = next(cronsim.CronSim("50 1 * * *", asked.astimezone(ZoneInfo("America/New_York"))))
    assert theirs.astimezone(UTC) <= asked
    assert compile_schedule(["50 1 * * *"], timezone="America/New_York").next_after(micros(asked)) > micros(asked)


def test_its_slide_over_a_skipped_day_is_still_there():
    start = datetime(2011, 1, 1, tzinfo=UTC)
    theirs = next(cronsim.CronSim("0 0 30 12 *", start.astimezone(ZoneInfo("Pacific/Apia"))))
    assert theirs.astimezone(UTC) == datetime(2011, 12, 30, 10, tzinfo=UTC)
    ours = compile_schedule(["0 0 30 12 *"], timezone="Pacific/Apia").next_after(micros(start))
    assert ours == micros(datetime(2012, 12, 29, 10, tzinfo=UTC))


def test_its_lost_half_hour_is_still_there():
    text, zone = "*/15 11 * * *", "Australia/Lord_Howe"
    start = datetime(2020, 10, 3, 12, tzinfo=UTC)
    theirs = next(cronsim.CronSim(text, start.astimezone(ZoneInfo(zone))))
    walked = list(minutes(zone, start, start + timedelta(hours=20)))
    right = due(text, walked)
    assert right[0] == micros(datetime(2020, 10, 4, 0, 0, tzinfo=UTC))
    assert micros(theirs) == right[2]
    assert compile_schedule([text], timezone=zone).next_after(micros(start)) == right[0]
