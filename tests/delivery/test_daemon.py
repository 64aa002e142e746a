"""The whole daemon and its sinks: killed in the worst moment, held up, turned away; and what it keeps to itself."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from crtrd.core.idle import may_leave
from crtrd.ledger.store import Store
from tests.delivery.conftest import Receiver
from tests.instance import Instance
from tests.proc import of_process

pytestmark = pytest.mark.process
FAIL = "echo out; exit 1"


def arm(crtrd, sink, name="job", shell=FAIL, *more):
    crtrd.ctl("arm", name, "--sink", sink, "--on-failure", "continue", *more, "--shell", shell)


def outbox(crtrd, what="state"):
    return [row[0] for row in crtrd.rows(f"SELECT {what} FROM outbox ORDER BY serial")]


def settled(crtrd):
    states = outbox(crtrd)
    return states and all(state == "delivered" for state in states)


def ids(path):
    return [json.loads(line)["id"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("sink", ["inbox", "file", "exec", "webhook", "mail"])
@pytest.mark.parametrize("point", ["deliver.before", "deliver.taken"])
def test_c67_killed_between_acceptance_and_our_mark(sink, point, tmp_path, receiver, sendmail):
    """At least once, always under the same id, with the same bytes; where the place is ours, exactly once."""
    out = tmp_path / "out"
    command = f"exec:sh -c 'cat; echo \" $CRTR_DELIVERY_ATTEMPT\"' | tr -d '\\n' >> {out}; echo >> {out}"
    texts = {"inbox": "inbox", "file": f"file:{out}", "exec": command, "webhook": f"webhook:{receiver.url()}",
             "mail": "mail:root@example.com"}
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start(crash_at=point)
        arm(crtrd, texts[sink])
        crtrd.ctl("run", "job", check=False)
        crtrd.wait_for(lambda: crtrd.ended)
        assert crtrd.daemon.returncode == -signal.SIGKILL
        assert outbox(crtrd) == ["sending"]
        crtrd.start()
        crtrd.wait_for(lambda: settled(crtrd))
        assert outbox(crtrd, "attempts") == [2]
        (name,) = outbox(crtrd, "id")
        made = 1 if point == "deliver.before" else 2
        match sink:
            case "inbox":
                assert ids(crtrd.places.inbox / "root.jsonl") == [name]
            case "file":
                assert ids(out) == [name]
            case "exec":
                lines = out.read_text().splitlines()
                assert [line[-1] for line in lines] == ["1", "2"][-made:]
                assert {json.loads(line[:-2])["id"] for line in lines} == {name}
            case "webhook":
                assert [head["X-Crtrd-Attempt"] for _, head, _ in receiver.seen] == ["1", "2"][-made:]
                assert {(head["X-Crtrd-Delivery"], body) for _, head, body in receiver.seen} == {
                    (name, zlib.decompress(outbox(crtrd, "message")[0]))}
            case "mail":
                mails = [path.read_text() for path in sendmail.glob("mail.*")]
                assert len(mails) == made
                assert all(f"Message-ID: <{name}@" in text for text in mails)


def test_a_sink_that_hangs_holds_up_nobody_and_dies_with_the_daemon(tmp_path, receiver):
    receiver.script = ["for ever"] * 3
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm(crtrd, f"webhook:{receiver.url()}")
        arm(crtrd, "inbox", "other")
        crtrd.ctl("run", "job")
        assert receiver.taken.wait(10)
        crtrd.ctl("run", "other", "--wait", check=False)
        crtrd.wait_for(lambda: "delivered" in outbox(crtrd))
        assert outbox(crtrd)[0] == "sending"
        helpers = helper_pids(crtrd)
        assert len(helpers) == 2  # the helper, and its attempt
        crtrd.kill()
        crtrd.wait_for(lambda: not [pid for pid in helpers if of_process(pid, "cmdline")], 5)


def helper_pids(crtrd):
    parent = str(crtrd.daemon.pid)
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        words = of_process(int(folder.name), "cmdline").split(b"\0")
        if b"crtrd.delivery.send" in b" ".join(words) and parent.encode() in words:
            found.append(int(folder.name))
    return found


def test_poisonous_messages_hurt_themselves_alone(tmp_path, receiver):
    """A receiver that fails on every message but the last one, which comes seconds later at most."""
    receiver.script = [(500, {})] * 8
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm(crtrd, f"webhook:{receiver.url()}")
        for _ in range(9):
            crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: outbox(crtrd)[-1] == "delivered", 60)
        count = Counter(outbox(crtrd))
        assert count["pending"] + count["delivered"] + count["sending"] == 9
        assert crtrd.json("outbox", "--state", "pending")[0]["last_error"] == "127.0.0.1 answered with status 500"


def test_a_sink_that_was_down_gets_everything_in_order(tmp_path):
    gone = Receiver()
    gone.close()
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm(crtrd, f"webhook:{gone.url()}")
        for _ in range(4):
            crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: crtrd.rows("SELECT failures FROM queues"))
        assert set(outbox(crtrd)) == {"pending"}
        assert crtrd.said().count("outbox.retrying") == 1
        first, *_, last = sorted(crtrd.json("outbox"), key=lambda row: outbox(crtrd, "id").index(row["id"]))
        assert first["sink"] == f"webhook:http://127.0.0.1:{gone.port}/…"
        shown = on_a_terminal(crtrd, "outbox")
        assert max(map(len, shown)) <= 80
        assert shown[-1] == "4 deliveries listed."
        crtrd.ctl("outbox", "discard", last["id"][:10])
        assert crtrd.ctl("outbox", "discard", last["id"], check=False).returncode == 1
        assert crtrd.ctl("outbox", "retry", "nonsense", check=False).returncode == 1
        with closing(Receiver(gone.port)) as back:
            crtrd.ctl("outbox", "retry", first["id"])
            crtrd.wait_for(lambda: outbox(crtrd) == ["delivered"] * 3 + ["discarded"])
            assert [head["X-Crtrd-Delivery"] for _, head, _ in back.seen] == outbox(crtrd, "id")[:3]


def on_a_terminal(crtrd, *words):
    """The lines that crtrctl shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    env = {**crtrd.env, "COLUMNS": "80", "NO_COLOR": "1", "TERM": "xterm"}
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        subprocess.run([sys.executable, "-m", "crtrd.cli.main", "--no-pager", *words], env=env, cwd="/", stdout=theirs,
                       stdin=subprocess.DEVNULL, check=True, timeout=60)
        os.close(theirs)
        return terminal.read(65536).decode().splitlines()


def test_a_cron_as_a_sink_runs_once_for_each_message(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start(crash_at="deliver.taken")
        crtrd.ctl("arm", "after", "--overlap", "allow", "--shell", f"echo $CRTR_TRIGGER >> {tmp_path}/ran")
        arm(crtrd, "cron:after")
        refused = crtrd.ctl("change", "after", "--sink", "cron:job", check=False)
        assert refused.returncode == 1
        assert "sinks" in refused.stderr
        crtrd.ctl("run", "job", check=False)
        crtrd.wait_for(lambda: crtrd.ended)
        crtrd.start()
        crtrd.wait_for(lambda: settled(crtrd) and (tmp_path / "ran").exists())
        assert outbox(crtrd, "attempts") == [2]
        crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: (tmp_path / "ran").read_text() == "trigger\n" * 2)


def test_secrets_stand_in_no_event_list_error_or_process_list(tmp_path, receiver, sendmail):
    """Environment values and what a URL carries; the owner alone sees them, by `show`."""
    secrets = ["pa55w0rd", "t0k3n", "s3cr3tpath", "s1gn1ng"]
    (tmp_path / "home").mkdir()
    receiver.script = [(500, {}), "hang"]
    with Instance(tmp_path / "home") as crtrd:
        (crtrd.places.config / "secrets").mkdir()
        (crtrd.places.config / "secrets" / "hook").write_text("s1gn1ng\n")
        crtrd.start()
        url = receiver.url("/s3cr3tpath?k=t0k3n#secret=hook", "user:pa55w0rd@")
        crtrd.ctl("arm", "job", "--env", "KEY=t0k3n", "--sink", f"webhook:{url}", "--sink", "mail:root", "--sink",
                  "inbox", "--shell", "exit 1", "--every", "1s")
        crtrd.wait_for(lambda: len(outbox(crtrd)) >= 3)
        crtrd.ctl("resume", "job")
        crtrd.wait_for(lambda: len(receiver.seen) >= 2)
        seen = b"".join(of_process(pid, "cmdline") + of_process(pid, "environ") for pid in helper_pids(crtrd))
        assert b"crtrd.delivery.send" in seen
        shown = [crtrd.ctl(*words, check=False) for words in (
            ("list",), ("outbox",), ("outbox", "--json"), ("escalations", "--json"), ("inbox", "--all"), ("status",),
            ("runs", "--json"), ("occurrences", "job", "--json"), ("status", "job"), ("next", "job"),
            ("change", "job", "--sink", "heartbeat:http://u:pa55w0rd@example.com/t0k3n"), ("run", "job", "--wait"),
            ("arm", "bad", "--sink", "webhook:http://u:pa55w0rd@example.com/t0k3n", "--", "true"))]
        texts = [seen.decode(), crtrd.said(), *(asked(crtrd, path) for path in ("/metrics", "/v1/crons", "/v1/status"))]
        texts += [*(done.stdout + done.stderr for done in shown)]
        texts += [path.read_text() for path in sendmail.glob("mail.*")]
        texts += [path.read_text() for path in crtrd.places.inbox.iterdir()]
        texts += [body.decode() for _, _, body in receiver.seen]
        assert not [(secret, text) for secret in secrets for text in texts if secret in text]
        assert "t0k3n" in crtrd.ctl("show", "job").stdout
        assert "X-Crtrd-Signature" in receiver.seen[0][1]


def asked(crtrd, path):
    """What the socket answers."""
    with socket.socket(socket.AF_UNIX) as client, client.makefile("rb") as answer:
        client.connect(str(crtrd.places.socket))
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return answer.read().decode()


def test_waiting_deliveries_do_not_keep_the_daemon_awake(tmp_path):
    """The ledger's word for it: nothing owed now, and the next attempt is the next wake-up."""
    gone = Receiver()
    gone.close()
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm(crtrd, f"webhook:{gone.url()}")
        crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: crtrd.rows("SELECT failures FROM queues"))
        crtrd.kill()
        found = []
        store = Store(crtrd.places.ledger, owner="x", boot_id="b", post=lambda done: done(), lease_end=lambda: 0)
        store.open()
        now = time.time_ns() // 1000
        store.submit(lambda session: session.owed(now), found.append)
        store.close()
        until = crtrd.rows("SELECT until FROM queues")[0][0]
        assert found[0].next_wake == until
        assert (may_leave(found[0], now, 0), may_leave(found[0], now, 3600 * 10**6)) == (until > now, False)


def test_c67_on_change_compares_all_of_the_output(tmp_path):
    """Equal heads with different ends are told; what is masked is not; A, B, A are three changes."""
    what, out = tmp_path / "what", tmp_path / "out"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        arm(crtrd, f"file:{out}", "job", f"cat {what}", "--on-output", "on-change", "--change-ignore", "took [0-9]+")
        told = 0
        for text, new in (("A" * 4096 + "B", 1), ("A" * 4096 + "C", 1), ("A" * 4096 + "C", 0), ("", 0), ("a\n", 1),
                          ("b\n", 1), ("a\n", 1), ("a\n", 0), ("a\ntook 3 s\n", 1), ("a\ntook 12 s\n", 0)):
            what.write_text(text)
            crtrd.json("trigger", "job")
            told += new
            crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"))
            crtrd.wait_for(lambda n=told: len(outbox(crtrd)) == n and settled(crtrd))
        documents = [json.loads(line) for line in out.read_text().splitlines()]
        assert [each["stdout_head"][:2] for each in documents] == ["AA", "AA", "a\n", "b\n", "a\n", "a\n"]
        assert documents[3]["diff"].splitlines()[-2:] == ["-a", "+b"]
