"""10 000 triggers with 100 keys from 8 clients are 100 runs. Prints the rate; a wrong count fails."""

import http.client
import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.instance import Instance

CLIENTS, KEYS, TRIGGERS = 8, 100, 10_000


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("crtrd", timeout=60)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def client(path, first, named, faults):
    for number in range(first, TRIGGERS, CLIENTS):
        connection = Unix(path)
        connection.request("POST", "/v1/crons/job/trigger", json.dumps({"key": f"k{number % KEYS}"}))
        response = connection.getresponse()
        content = json.loads(response.read())
        connection.close()
        if response.status not in {200, 202}:
            faults.append(content)
        else:
            named[number % KEYS].add(content["occurrence_id"])


def main():
    with tempfile.TemporaryDirectory() as folder, Instance(Path(folder) / "home") as crtrd:
        crtrd.start()
        ran = Path(folder) / "ran"
        crtrd.ctl("arm", "job", "--overlap", "allow", "--shell", f"echo $CRTR_OCCURRENCE_ID >> {ran}")
        named, faults = [set() for _ in range(KEYS)], []
        threads = [threading.Thread(target=client, args=(crtrd.places.socket, first, named, faults))
                   for first in range(CLIENTS)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        crtrd.wait_for(lambda: ran.exists() and len(ran.read_text().split()) >= KEYS)
        runs = Counter(ran.read_text().split())
    assert faults == [], faults[0]
    assert [len(each) for each in named] == [1] * KEYS
    assert runs == Counter(next(iter(each)) for each in named)
    print(f"{TRIGGERS} triggers, {KEYS} keys, {CLIENTS} clients: {len(runs)} runs; {TRIGGERS / took:.0f} triggers/s")


if __name__ == "__main__":
    main()
