"""Runs in the machine: calls by the socket one after another; prints how many were not answered and the seconds of all.

    activations.py N            # each begins when the one before has its answer
    activations.py N stop       # and the service is stopped in between
"""

import json
import subprocess
import sys
import time

CALL = ["python3", "-I", "-S", "/opt/bench/call.py"]


def main():
    failed, begun = 0, time.monotonic()
    for _ in range(int(sys.argv[1])):
        failed += subprocess.run(CALL, check=False).returncode != 0
        if sys.argv[2:] == ["stop"]:
            failed += subprocess.run(["systemctl", "stop", "crtrd.service"], check=False).returncode != 0
    print(json.dumps([failed, time.monotonic() - begun]))


if __name__ == "__main__":
    main()
