"""APScheduler 3 as its documentation begins: a scheduler with its default pool of ten threads, and date jobs.

    apscheduled.py COMMAND… <SECONDS          # since the epoch, one a line
    apscheduled.py --arm N                    # microseconds that each of N takes to add while it runs
"""

import subprocess
import sys
import time
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.schedulers.blocking import BlockingScheduler


def arm(count):
    scheduler = BackgroundScheduler(timezone=UTC)
    scheduler.start()
    begun = time.monotonic()
    for _ in range(count):
        scheduler.add_job(print, "cron", month=1, day=1, hour=0, minute=0)
    print((time.monotonic() - begun) * 1e6 / count)
    scheduler.shutdown()


def main():
    if sys.argv[1] == "--arm":
        arm(int(sys.argv[2]))
        return
    scheduler = BlockingScheduler(timezone=UTC, job_defaults={"misfire_grace_time": None, "max_instances": 1000})
    for line in sys.stdin:
        due = datetime.fromtimestamp(float(line), UTC)
        scheduler.add_job(subprocess.run, "date", run_date=due, args=[sys.argv[1:]],
                          kwargs={"stdin": subprocess.DEVNULL, "capture_output": True, "process_group": 0})
    scheduler.start()


if __name__ == "__main__":
    main()
