"""Runs inside a machine: arms N crons for one instant, then asks the bus all the while; prints what it saw as JSON.

    PYTHONPATH=/usr/lib/crtrd python3 many.py N SECONDS
"""

import json
import os
import sys
import time

from crtrd.cli.client import Client, choose_bus
from crtrd.cli.session import packed


def main():
    count, seconds = int(sys.argv[1]), float(sys.argv[2])
    with Client(*choose_bus(os.environ, user=False)) as client:
        begun = time.time()
        instant = int(begun) + 12
        due = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(instant))
        for number in range(count):
            client.call("Arm", "a{sv}", packed({
                "name": f"many-{number:03}", "schedule": [f"at {due}"],
                "shell": f"echo {number} >> /root/many; sleep {seconds}"}))  # fmt: skip
        armed = time.time()
        slowest, asked, settled = 0.0, 0, 0
        while settled < count and time.time() < instant + 90:
            before = time.monotonic()
            views, _ = client.call("ListOccurrences", "a{sv}us", packed({"status": "success"}), 500, "")
            slowest = max(slowest, time.monotonic() - before)
            asked, settled = asked + 1, len(views)
            time.sleep(0.1)
    sys.stdout.write(json.dumps({
        "due": due, "armed_after": armed - begun, "early": instant - armed, "slowest": slowest, "asked": asked,
        "settled": settled, "took": time.time() - instant}))


if __name__ == "__main__":
    main()
