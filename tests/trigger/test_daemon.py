"""Triggers through the real socket of a real daemon: C66, clients that give up, kills, many clients, figures."""

import http.client
import json
import re
import signal
import socket
import threading
from collections import Counter

import pytest

from tests.instance import Instance

pytestmark = pytest.mark.process
CLIENTS, KEYS, TRIGGERS = 8, 10, 400


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("crtrd", timeout=20)
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(crtrd, method, path, content=None):
    connection = Unix(crtrd.places.socket)
    connection.request(method, path, body=None if content is None else json.dumps(content))
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    kind = response.headers["Content-Type"]
    return response.status, json.loads(text) if "json" in kind else text, response.headers


def trigger(crtrd, name="job", **content):
    return ask(crtrd, "POST", f"/v1/crons/{name}/trigger", content)


def marked(crtrd, tmp_path, *more):
    crtrd.ctl("arm", "job", *more, "--shell", f"echo $CRTR_OCCURRENCE_ID >> {tmp_path}/ran")
    return lambda: (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []


def answers_before_the_kill(crtrd):
    """Which commit is the second one is a matter of time: asked again until the daemon dies."""
    for answered in range(5):
        try:
            trigger(crtrd, key="K")
        except (OSError, http.client.HTTPException):
            return answered
    raise AssertionError("it was not killed")


@pytest.mark.parametrize("point", ["answer.before", "commit.after", "commit.before"])
def test_c66_killed_after_the_commit_before_the_reply(point, tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        ran = marked(crtrd, tmp_path)
        assert crtrd.stop() == 0
        crtrd.start(crash_at=f"{point}:{1 if point == 'answer.before' else 2}", wait=False)
        crtrd.wait_for(lambda: "daemon.started" in crtrd.said().rpartition("stopping")[2])
        crtrd.wait_for(crtrd.places.socket.exists)
        answered = answers_before_the_kill(crtrd)
        crtrd.wait_for(lambda: crtrd.ended)
        assert crtrd.daemon.returncode == -signal.SIGKILL
        assert len(crtrd.rows("SELECT 1 FROM trigger_keys")) == (0 if point == "commit.before" and not answered else 1)
        crtrd.start()
        answers = [trigger(crtrd, key="K") for _ in range(3)]
        assert {status for status, _, _ in answers} <= {200, 202}
        (name,) = {answer["occurrence_id"] for _, answer, _ in answers}
        crtrd.wait_for(lambda: len(ran()) == 1)
        crtrd.kill()
        crtrd.start()
        status, answer, _ = trigger(crtrd, key="K")
        assert (answer["occurrence_id"], ran()) == (name, [name])
        crtrd.wait_for(lambda: trigger(crtrd, key="K")[1]["disposition"] == "already_completed")
        status, answer, _ = trigger(crtrd, key="K")
        assert (status, answer["cells"][0]["status"]) == (200, answer["status"])
        assert answer["status"] in {"success", "unobserved"}  # it may have ended while no daemon was there
        status, answer, _ = trigger(crtrd, key="K", label="other")
        assert (status, answer["error"]["code"]) == (409, "Conflict")
        assert crtrd.rows("SELECT count(*) FROM runs WHERE started_at IS NOT NULL") == [(1,)]
        assert crtrd.rows("SELECT count(*) FROM occurrences") == [(1,)]


def test_c66_a_client_that_does_not_wait_for_the_reply(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        ran = marked(crtrd, tmp_path)
        body = b'{"key":"K"}'
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(crtrd.places.socket))
            head = f"POST /v1/crons/job/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            client.sendall(head.encode() + body)
        crtrd.wait_for(lambda: len(ran()) == 1)
        assert trigger(crtrd, key="K")[1]["occurrence_id"] == ran()[0]


def test_many_triggers_with_few_keys_from_eight_clients(tmp_path):
    """A tenth of the whole size, which is bench/triggers.py: every key is one run, whoever asks how often."""
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        ran = marked(crtrd, tmp_path, "--overlap", "allow")
        named, faults = [Counter() for _ in range(KEYS)], []

        def client(first):
            for number in range(first, TRIGGERS, CLIENTS):
                status, answer, _ = trigger(crtrd, key=f"k{number % KEYS}")
                if status not in {200, 202}:
                    faults.append((status, answer))
                else:
                    named[number % KEYS][answer["occurrence_id"]] += 1

        threads = [threading.Thread(target=client, args=(first,)) for first in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert [len(each) for each in named] == [1] * KEYS
        crtrd.wait_for(lambda: len(ran()) == KEYS)
        assert Counter(ran()) == Counter(next(iter(each)) for each in named)


def test_what_makes_no_sense_empty_is_refused_by_name_on_every_surface(tmp_path):
    """An empty key would lose the idempotency that it was given for."""
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        marked(crtrd, tmp_path)
        for key, text in (("key", ""), ("key", " "), ("overlap", ""), ("at", "")):
            status, answer, _ = trigger(crtrd, **{key: text})
            assert (status, answer["error"]["code"]) == (400, "InvalidArgument")
            done = crtrd.ctl("trigger", "job", f"--{key}", text, check=False)
            assert done.returncode in {1, 2}
            assert all(key in said for said in (answer["error"]["message"], done.stderr)), (answer, done.stderr)
        assert crtrd.rows("SELECT count(*) FROM occurrences") == [(0,)]
        assert trigger(crtrd, key="K", label="", source="")[0] == 202


def test_dispositions_and_refusals(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "slow", "--overlap", "queue", "--", "sleep", "60")
        crtrd.ctl("arm", "hourly", "--cron", "0 * * * *", "--", "true")
        first = trigger(crtrd, "slow")
        assert (first[0], first[1]["disposition"]) == (202, "accepted")
        crtrd.wait_for(lambda: crtrd.rows("SELECT 1 FROM runs WHERE phase = 'running'"))
        assert trigger(crtrd, "slow", overlap="skip")[:2] == (200, {
            **trigger(crtrd, "slow", overlap="skip")[1], "disposition": "already_running",
            "occurrence_id": first[1]["occurrence_id"], "status": "running"})
        assert trigger(crtrd, "slow")[0] == 202
        status, answer, headers = trigger(crtrd, "slow")
        assert (status, answer["error"]["code"], headers["Retry-After"]) == (429, "LimitExceeded", "5")
        status, answer, headers = trigger(crtrd, "none")
        assert (status, answer["error"]["code"], headers["Retry-After"]) == (404, "NoSuchCron", None)
        for bad in ({"at": "yesterday"}, {"at": "2999-01-01T00:00:00Z"}, {"key": 7}, {"novel": "x"}, {"key": "a\nb"},
                    {"overlap": "sometimes"}, {"at": True}):
            assert trigger(crtrd, "hourly", **bad)[0] == 400, bad
        crtrd.ctl("pause", "hourly")
        assert trigger(crtrd, "hourly")[0] == 409
        crtrd.ctl("resume", "hourly")
        assert crtrd.rows("SELECT count(*) FROM occurrences WHERE cron_name = 'hourly'") == [(0,)]
        one, two = (trigger(crtrd, "hourly", at=at)[1] for at in ("2026-11-30T10:59:59Z", "2026-11-30T11:30+01:00"))
        assert one["instant"] == two["instant"] == "2026-11-30T10:00:00Z"
        assert one["occurrence_id"] == two["occurrence_id"]
        status, row, _ = ask(crtrd, "GET", f"/v1/occurrences/{one['occurrence_id']}")
        assert (status, row["origin"]) == (200, "schedule")
        assert ask(crtrd, "GET", "/v1/crons")[1]["crons"][0]["name"] == "slow"
        assert ask(crtrd, "GET", "/v1/status")[1]["state"] == "running"


def test_the_command_line(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "job", "--", "true")
        first = crtrd.json("trigger", "job", "--key", "K", "--source", "ci")[0]
        assert first["disposition"] == "accepted"
        crtrd.wait_for(lambda: crtrd.json("trigger", "job", "--key", "K", "--source", "ci")[0]["status"] == "success")
        conflict = crtrd.ctl("trigger", "job", "--key", "K", check=False)
        assert (conflict.returncode, "other arguments" in conflict.stderr) == (1, True)
        assert crtrd.ctl("trigger", "nobody", check=False).returncode == 4


def test_figures_have_bounded_labels(tmp_path):
    textfile = tmp_path / "crtrd.prom"
    with Instance(tmp_path / "home", f'clock = "internal"\nmetrics_textfile = "{textfile}"\n') as crtrd:
        crtrd.start()
        for name in ("first", "second"):
            crtrd.ctl("arm", name, "--on-failure", "continue", "--env", "A=hidden", "--", "false")
            crtrd.ctl("run", name, "--wait", check=False)
        status, text, _ = ask(crtrd, "GET", "/metrics")
        assert status == 200
        assert 'crtrd_crons{state="active"} 2\n' in text
        assert 'crtrd_runs_ended_total{result="exit-code"} 2\n' in text
        assert 'crtrd_events_total{kind="cron.armed"} 2\n' in text
        assert not {"first", "second", "hidden"} & set(re.findall(r"\w+", text))
        for line in text.splitlines():
            assert re.fullmatch(r'# (HELP|TYPE) crtrd_\w+ .+|crtrd_\w+(\{\w+="[^"]*"\})? [0-9.e+]+', line), line
        assert crtrd.stop() == 0
        assert "crtrd_crons" in textfile.read_text()
        assert textfile.stat().st_mode & 0o777 == 0o644
