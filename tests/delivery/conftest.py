"""Real receivers for deliveries: an HTTP server on the loopback that answers as it is told, a sendmail program."""

import http.server
import os
import ssl
import subprocess
import threading
from contextlib import closing

import pytest

from crtrd.delivery.attempt import Job

MESSAGE = '{"at":"2026-12-01T10:00:00Z","id":"%s","subject":"job failed","text":"why\\n"}'
SENDMAIL = """#!/bin/sh
# A stand-in for an MTA: keeps what it is given. SENDMAIL_STATUS, read from a file beside it, is how it ends.
folder=$(dirname "$0")
[ ! -e "$folder/slow" ] || sleep 30
echo "$@" >> "$folder/argv"
name=$(mktemp "$folder/mail.XXXXXX") && cat > "$name"
exit $(cat "$folder/status" 2>/dev/null || echo 0)
"""


def job(sink="webhook", argument="", name="d" * 32, **more):
    values = {"attempt": 1, "kind": "failed", "cron_id": "c" * 32, "cron_name": "job", "run_id": "r" * 32,
              "message": MESSAGE % name, "timeout": 4.0, **more}
    return Job(id=name, sink=sink, argument=argument, **values)


class Receiver:
    """`script` holds an answer for each request: (status, headers); or a word for how it goes wrong."""

    def __init__(self, port=0, tls=None):
        """`tls` is a certificate file with its key: then it speaks https."""
        self.script, self.seen = [], []
        self.taken, self.closing = threading.Event(), threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append((self.path, dict(self.headers), body))
                outer.taken.set()
                answer = outer.script.pop(0) if outer.script else (200, {})
                if isinstance(answer, str) and answer in {"hang", "for ever"}:
                    outer.closing.wait(3 if answer == "hang" else 60)
                    answer = (200, {})
                if answer == "close":
                    self.close_connection = True
                    return
                early = answer == "early"
                status, headers = (200, {}) if early else answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", "10" if early else "0")
                self.end_headers()
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def url(self, path="/hook", who="", host="127.0.0.1"):
        return f"{self.scheme}://{who}{host}:{self.port}{path}"

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver():
    with closing(Receiver()) as server:
        yield server


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """A certificate for localhost that nobody but itself vouches for, its key in the same file."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"],
        check=True, capture_output=True)
    both = folder / "both"
    both.write_text((folder / "key").read_text() + (folder / "cert").read_text())
    return both


@pytest.fixture
def secure(certificate):
    with closing(Receiver(tls=certificate)) as server:
        yield server


@pytest.fixture
def other():
    with closing(Receiver()) as server:
        yield server


@pytest.fixture
def sendmail(tmp_path, monkeypatch):
    """A folder with the program, first in PATH; what it got lies there."""
    folder = tmp_path / "mta"
    folder.mkdir()
    program = folder / "sendmail"
    program.write_text(SENDMAIL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder
