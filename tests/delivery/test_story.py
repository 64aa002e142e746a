"""Whole stories with a real daemon: days of outage under another clock, failure and recovery, damage, no sendmail."""

import json
import os
from contextlib import closing
from pathlib import Path

import pytest

from crtrd.delivery.mta import sendmail as mta
from tests.delivery.conftest import Receiver
from tests.instance import Instance

pytestmark = pytest.mark.process
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def rows(crtrd, what="state"):
    return [row[0] for row in crtrd.rows(f"SELECT {what} FROM outbox ORDER BY serial")]


@pytest.mark.skipif(FAKETIME is None, reason="libfaketime is not installed")
def test_an_outage_of_three_days_loses_nothing(tmp_path):
    """A life a day, each under the clock of its day; then the receiver is back."""
    gone = Receiver()
    gone.close()
    with Instance(tmp_path / "home") as crtrd:
        for day in range(4):
            crtrd.start(env={"LD_PRELOAD": str(FAKETIME), "FAKETIME": f"+{day}d", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
            if not day:
                crtrd.ctl("arm", "job", "--on-failure", "continue", "--sink", f"webhook:{gone.url()}", "--", "false")
            crtrd.ctl("run", "job", "--wait", check=False)
            crtrd.wait_for(lambda n=day + 1: crtrd.rows("SELECT failures FROM queues") == [(n,)])
            assert rows(crtrd) == ["pending"] * (day + 1)
            if day < 3:
                crtrd.kill()
        assert crtrd.said().count("outbox.retrying") == 1
        first, *_ = names = rows(crtrd, "id")
        with closing(Receiver(gone.port)) as back:
            crtrd.ctl("outbox", "retry", first)
            crtrd.wait_for(lambda: rows(crtrd) == ["delivered"] * 4)
            assert [head["X-Crtrd-Delivery"] for _, head, _ in back.seen] == names
            days = [json.loads(body)["at"][:10] for _, _, body in back.seen]
            assert len(set(days)) == 4  # when it happened, not when it was told
            assert days == sorted(days)


def test_an_alarm_a_failure_and_a_recovery_with_heartbeats(tmp_path, receiver):
    ready = tmp_path / "ready"
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "job", "--alert-after", "1s", "--on-failure", "continue", "--retries", "1", "--retry-delay",
                  "100ms", "--sink", "inbox", "--sink", f"heartbeat:{receiver.url('/ping')}",
                  "--shell", f"test -e {ready} || sleep 0.7; test -e {ready}")
        for _ in range(2):
            crtrd.ctl("trigger", "job")
            crtrd.wait_for(lambda: not crtrd.rows("SELECT 1 FROM occurrences WHERE settled_at IS NULL"))
        ready.touch()
        crtrd.ctl("trigger", "job")
        crtrd.wait_for(lambda: len(rows(crtrd)) == 11 and set(rows(crtrd)) == {"delivered"})
        inbox = crtrd.json("inbox", "--all")
        assert [each["kind"] for each in inbox] == ["late", "failed", "late", "failed", "recovered"]
        assert inbox[-1]["subject"].startswith("job recovered after 2 failures in ")
        assert [path for path, _, _ in receiver.seen] == ["/ping/start", "/ping/fail"] * 2 + ["/ping/start", "/ping"]
        assert "cron.recovered: job: succeeded again after 2 failures" in crtrd.said()


def test_a_receiver_that_asks_for_two_hours_gets_them_over_another_life_too(tmp_path, receiver):
    receiver.script = [(429, {"Retry-After": "7200"})]
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "job", "--on-failure", "continue", "--sink", f"webhook:{receiver.url()}", "--", "false")
        crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: crtrd.rows("SELECT failures FROM queues"))
        crtrd.kill()
        crtrd.start()
        crtrd.ctl("run", "job", "--wait", check=False)
        ((until, made),) = crtrd.rows("SELECT q.until, d.created_at FROM queues q, outbox d ORDER BY d.serial LIMIT 1")
        assert until - made >= 7200 * 10**6
        assert [row["state"] for row in crtrd.json("outbox")] == ["pending"] * 2
        assert len(receiver.seen) == 1
        crtrd.ctl("outbox", "retry", rows(crtrd, "id")[0])
        crtrd.wait_for(lambda: rows(crtrd) == ["delivered"] * 2)


def test_an_inbox_with_a_damaged_line_says_so_and_is_whole_after_the_next_start(tmp_path):
    with Instance(tmp_path / "home") as crtrd:
        crtrd.start()
        crtrd.ctl("arm", "job", "--on-failure", "continue", "--", "false")
        crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: rows(crtrd) == ["delivered"])
        (path,) = crtrd.places.inbox.glob("*.jsonl")
        crtrd.ctl("inbox", "--ack")
        with path.open("a") as file:
            file.write('{"id": "half\n')
        crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: rows(crtrd) == ["delivered"] * 2)
        refused = crtrd.ctl("inbox", check=False)
        assert refused.returncode == 1
        assert "line 2 is damaged; the next start sets it aside" in refused.stderr
        crtrd.stop()
        crtrd.start()
        assert [each["id"] for each in crtrd.json("inbox")] == rows(crtrd, "id")[1:]  # what was read stays read
        crtrd.ctl("inbox", "--ack")
        assert crtrd.ctl("inbox").stdout == "Nothing new.\n"
        assert '{"id": "half' in "".join(each.read_text() for each in crtrd.places.inbox.rglob("*") if each.is_file())


@pytest.mark.skipif(mta() is not None, reason="this host has a sendmail")
def test_without_a_sendmail_that_is_said_once_and_nothing_is_lost(tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    with Instance(tmp_path / "home") as crtrd:
        crtrd.env["PATH"] = f"{bin_folder}:{os.environ['PATH']}"
        crtrd.start()
        crtrd.ctl("arm", "job", "--on-failure", "continue", "--sink", "mail:root", "--", "false")
        for _ in range(3):
            crtrd.ctl("run", "job", "--wait", check=False)
        crtrd.wait_for(lambda: crtrd.rows("SELECT failures FROM queues") == [(2,)])
        assert crtrd.said().count("there is no sendmail program") == 1
        (bin_folder / "sendmail").write_text(f"#!/bin/sh\ngrep ^Message-ID: >> {tmp_path}/mails\n")
        (bin_folder / "sendmail").chmod(0o755)
        crtrd.ctl("outbox", "retry", rows(crtrd, "id")[0])
        crtrd.wait_for(lambda: rows(crtrd) == ["delivered"] * 3)
        assert [line[13:45] for line in (tmp_path / "mails").read_text().splitlines()] == rows(crtrd, "id")
