"""Runs in the machine: the time of `crtrctl status` and of an empty interpreter by turns; prints JSON.

    starts.py ROUNDS
"""

import json
import subprocess
import sys
import time

COMMANDS = {"status": ["crtrctl", "status"], "empty": ["python3", "-I", "-c", "pass"]}
WATCHED = ("asyncio", "peewee", "pystemd")


def main():
    found = {name: [] for name in COMMANDS}
    for number in range(int(sys.argv[1]) + 3):
        for name, command in COMMANDS.items():
            begun = time.monotonic()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            if number >= 3:
                found[name].append((time.monotonic() - begun) * 1000)
    said = subprocess.run(["python3", "-I", "-X", "importtime", "-m", "crtrd.cli.main", "status"], check=True,
                          capture_output=True, text=True).stderr
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in said.splitlines()}
    print(json.dumps({**found, "imports": [name for name in WATCHED if name in names]}))


if __name__ == "__main__":
    main()
