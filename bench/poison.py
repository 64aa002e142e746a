"""100 messages that their receiver never takes, then one that it would: how long that one is held up."""

import http.server
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.triggers import Unix
from tests.instance import Instance

POISON = 100


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what says `good` and nothing else."""

    asked = 0

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).asked += 1
        self.send_response(200 if json.loads(body)["stdout_head"] == "good\n" else 500)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def trigger(crtrd, key):
    connection = Unix(crtrd.places.socket)
    connection.request("POST", "/v1/crons/job/trigger", json.dumps({"key": key}))
    connection.getresponse().read()
    connection.close()


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder, Instance(Path(folder) / "home") as crtrd:
        crtrd.start()
        word = Path(folder) / "word"
        word.write_text("poison\n")
        crtrd.ctl("arm", "job", "--overlap", "allow", "--on-output", "always",
                  "--sink", f"webhook:http://127.0.0.1:{server.server_address[1]}/", "--", "cat", str(word))
        for number in range(POISON):
            trigger(crtrd, f"p{number}")
        crtrd.wait_for(lambda: crtrd.rows("SELECT count(*) FROM outbox") == [(POISON,)], 60)
        word.write_text("good\n")
        began = time.monotonic()
        trigger(crtrd, "good")
        crtrd.wait_for(lambda: crtrd.rows("SELECT count(*) FROM outbox WHERE state = 'delivered'") == [(1,)], 120)
        took = time.monotonic() - began
        waiting = crtrd.rows("SELECT count(*) FROM outbox WHERE state <> 'delivered'")[0][0]
    server.shutdown()
    assert waiting == POISON
    print(f"{POISON} poisonous messages, {Receiver.asked} attempts: the good one was taken after {took:.1f} s")


if __name__ == "__main__":
    main()
