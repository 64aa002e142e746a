"""Parse plus next, beside cronsim and croniter; long absences; ten thousand cron files.

    python bench/schedule.py [ROUNDS]               # 9 rounds, interleaved; medians and ratios, no verdict

Each expression is one that nobody has asked for before: what a cache would give away is measured apart ("again").
"""

import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from crtrd import names
from crtrd.config.cronfiles import load_crons, mark_of
from crtrd.schedule.spec import compile_schedule

NOW = 1_796_119_200_000_000  # 2026-12-01T10:00:00Z
ZONE = "Europe/Berlin"
EACH = 200
GOAL = 40  # microseconds
FILES = 10_000


def expressions(seed):
    """Ordinary ones: fixed times, steps, weekdays, days of the month."""
    dice = random.Random(seed)
    shapes = (
        lambda: f"{dice.randrange(60)} {dice.randrange(24)} * * *",
        lambda: f"*/{dice.randrange(2, 30)} * * * *",
        lambda: f"{dice.randrange(60)} {dice.randrange(12)}-{dice.randrange(12, 24)} * * 1-5",
        lambda: f"{dice.randrange(60)},{dice.randrange(60)} {dice.randrange(24)} {dice.randrange(1, 29)} * *",
        lambda: f"{dice.randrange(60)} {dice.randrange(24)} * * {dice.randrange(7)}",
    )
    return [shapes[number % len(shapes)]() for number in range(EACH)]


def ours(text):
    return compile_schedule([text], timezone=ZONE).next_after(NOW)


def cronsim(text):
    return next(CronSim(text, MOMENT))


def other(text):
    return croniter(text, MOMENT).get_next(datetime)


MOMENT = datetime.fromtimestamp(NOW / 1_000_000, UTC).astimezone(ZoneInfo(ZONE))


def median_of(function, texts):
    """Microseconds of the median expression."""
    taken = []
    for text in texts:
        begin = time.perf_counter_ns()
        function(text)
        taken.append(time.perf_counter_ns() - begin)
    return statistics.median(taken) / 1000


def parse_and_next(rounds):
    ours("0 0 * * *"), cronsim("0 0 * * *"), other("0 0 * * *")  # zone data and imports are not what is measured
    found = {"crtrd": [], "crtrd again": [], "cronsim": [], "croniter": []}
    for number in range(rounds):
        texts = expressions(number)
        found["crtrd"].append(median_of(ours, texts))
        found["crtrd again"].append(median_of(ours, texts))
        found["cronsim"].append(median_of(cronsim, texts))
        found["croniter"].append(median_of(other, texts))
    print(f"parse plus next, {EACH} expressions a round, zone {ZONE}")
    mine = statistics.median(found["crtrd"])
    for name, values in found.items():
        value = statistics.median(values)
        print(f"  {name:<12} {value:8.1f} us   {value / mine:6.2f}x")
    print(f"  goal: {GOAL} us; reached: {'yes' if mine <= GOAL else 'no'}")


def long_absence(rounds):
    year = 31_557_600_000_000
    for years in (1, 10):
        taken = []
        for _ in range(rounds):
            schedule = compile_schedule(["* * * * *"], timezone=ZONE)
            begin = time.perf_counter_ns()
            span = schedule.span(NOW - years * year, NOW)
            taken.append((time.perf_counter_ns() - begin) / 1000)
        print(f"count {span.count} missed minutes of {years} years: {statistics.median(taken):.0f} us")


def many_files():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        places = names.Places(root, (), root, root, user=False, home=root)
        (root / "crons.d").mkdir()
        for number in range(FILES):
            text = f'[cron]\nschedule = ["{number % 60} {number % 24} * * *"]\ncommand = ["true"]\n'
            (root / "crons.d" / f"c{number}.toml").write_text(text)
        begin = time.perf_counter()
        found = load_crons(places, "UTC")
        read = time.perf_counter() - begin
        begin = time.perf_counter()
        mark_of(places, "UTC")
        looked = time.perf_counter() - begin
    print(f"{len(found.crons)} cron files: read in {read:.2f} s, found unchanged in {looked * 1000:.0f} ms")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    parse_and_next(rounds)
    long_absence(rounds)
    many_files()


if __name__ == "__main__":
    main()
