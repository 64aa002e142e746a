"""Mail to a real program, commands, files and inboxes on a real disk; and which texts are sinks."""

import email
import email.policy
import json
import os
import stat

import pytest

from crtrd.core.delivery import Outcome
from crtrd.core.sinks import parse, safe_url, secret_of
from crtrd.delivery import exec as command
from crtrd.delivery import file, inbox, mail
from tests.delivery.conftest import MESSAGE, job


def written(folder):
    (path,) = folder.glob("mail.*")
    return email.message_from_bytes(path.read_bytes(), policy=email.policy.default)


# mail -------------------------------------------------------------------------------------------------------------


def test_mail_has_what_mail_must_have(sendmail):
    subject, body = "naïve-日本 failed\nBcc: x@y", "höhe\n.\nFrom x\n"
    text = json.dumps({"at": "2026-12-01T10:00:00Z", "subject": subject, "text": body})
    said = mail.deliver(job("mail", "ops@example.com", message=text, mail_from="crtrd <cron@host.example>"))
    assert said.outcome is Outcome.TAKEN
    found = written(sendmail)
    assert (sendmail / "argv").read_text() == "-i -t\n"
    assert found["To"] == "ops@example.com"
    assert found["From"] == "crtrd <cron@host.example>"
    assert found["Subject"] == "naïve-日本 failed Bcc: x@y"
    assert found["Bcc"] is None
    assert found["Message-ID"] == f"<{'d' * 32}@host.example>"
    assert found["Date"].datetime.isoformat() == "2026-12-01T10:00:00+00:00"
    assert found["Auto-Submitted"] == "auto-generated"
    assert found.get_content_type() == "text/plain"
    assert found.get_content() == "höhe\n.\nFrom x\n"
    assert next(sendmail.glob("mail.*")).read_bytes().isascii()


def test_every_attempt_is_the_same_mail_but_for_its_number():
    first, second = (mail.compose(job("mail", "a@b", attempt=n)) for n in (1, 2))
    assert first.replace(b"X-Crtrd-Attempt: 1", b"X-Crtrd-Attempt: 2") == second


@pytest.mark.parametrize(("status", "outcome"), [(0, "taken"), (75, "failed"), (1, "failed"), (67, "refused"),
                                                  (65, "refused")])
def test_what_sendmail_says(sendmail, status, outcome):
    (sendmail / "status").write_text(str(status))
    assert mail.deliver(job("mail", "a@b")).outcome == outcome


def test_a_slow_sendmail_is_not_waited_for(sendmail):
    (sendmail / "slow").touch()
    said = mail.deliver(job("mail", "a@b", timeout=2.5))
    assert (said.outcome, "did not end" in said.error) == ("failed", True)


def test_without_a_sendmail_the_sink_is_down(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("crtrd.delivery.mta.FOLDERS", str(tmp_path))
    assert mail.deliver(job("mail", "a@b")).outcome is Outcome.DOWN


def test_odd_bytes_and_size_are_mailed_in_bounds(sendmail):
    body = "\x1b[31m\0\x85\ud800" + "y" * 10**6
    text = json.dumps({"at": "2026-12-01T10:00:00Z", "subject": "x" * 5000, "text": body})
    assert mail.deliver(job("mail", "a@b", message=text)).outcome is Outcome.TAKEN
    found = written(sendmail)
    content = found.get_content()
    assert not set("\x1b\0\x85") & set(content)
    assert len(content) < 300_000
    assert "the whole text has" in content
    assert len(found["Subject"]) == 200


# exec -------------------------------------------------------------------------------------------------------------


def test_a_command_gets_the_document_on_stdin_and_nothing_of_ours(tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET", "ours")
    out = tmp_path / "out"
    said = command.deliver(job("exec", f"cat > {out}; env > {out}.env; tr '\\0' ' ' < /proc/self/cmdline > {out}.argv"))
    assert said.outcome is Outcome.TAKEN
    assert json.loads(out.read_text())["subject"] == "job failed"
    env = (tmp_path / "out.env").read_text()
    assert f"CRTR_DELIVERY_ID={'d' * 32}\n" in env
    assert "CRTR_DELIVERY_ATTEMPT=1\n" in env
    assert "ours" not in env
    assert "job failed" not in (tmp_path / "out.argv").read_text() + env


@pytest.mark.parametrize(("text", "outcome"), [
    ("exit 0", "taken"), ("exit 3", "failed"), ("kill -9 $$", "failed"), ("no-such-program", "failed")])
def test_a_command_need_not_read(text, outcome):
    """C34: a message larger than any argument could be, and a command that does not look at it."""
    assert command.deliver(job("exec", text, message=MESSAGE % ("d" * 32) + " " * 300_000)).outcome == outcome


def test_a_command_that_hangs_is_ended():
    assert "did not end" in command.deliver(job("exec", "sleep 30", timeout=2.2)).error


# file -------------------------------------------------------------------------------------------------------------


def test_a_file_gets_a_line_once(tmp_path):
    path = tmp_path / "log"
    for attempt in (1, 2, 3):
        assert file.deliver(job("file", str(path), attempt=attempt)).outcome is Outcome.TAKEN
    file.deliver(job("file", str(path), name="e" * 32))
    assert [json.loads(line)["id"][0] for line in path.read_text().splitlines()] == ["d", "e"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_files_that_are_none(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/etc/passwd")
    assert file.deliver(job("file", str(tmp_path / "fifo"))).outcome is Outcome.REFUSED
    assert file.deliver(job("file", "/dev/null")).outcome is Outcome.REFUSED
    assert file.deliver(job("file", str(tmp_path / "link"))).outcome is Outcome.FAILED
    assert file.deliver(job("file", str(tmp_path / "none" / "x"))).outcome is Outcome.FAILED


# inbox ------------------------------------------------------------------------------------------------------------


def put(folder, name, *, first=True):
    inbox.append(folder, "root", name * 32, MESSAGE % (name * 32), first=first)


def ids(page):
    return "".join(entry["id"][0] for entry in page.entries)


def test_an_inbox_is_read_page_by_page_and_acknowledged(tmp_path):
    for name in "abcde":
        put(tmp_path, name)
    page = inbox.read(tmp_path, "root", None, 2)
    assert (ids(page), page.onward) == ("ab", "b" * 32)
    page = inbox.read(tmp_path, "root", page.onward, 10)
    assert (ids(page), page.onward) == ("cde", "")
    inbox.acknowledge(tmp_path, "root", "c" * 32)
    assert (tmp_path / "root.cursor").read_text() == "c" * 32 + "\n"
    assert ids(inbox.read(tmp_path, "root", None, 10)) == "de"
    assert ids(inbox.read(tmp_path, "root", "", 10)) == "abcde"
    inbox.acknowledge(tmp_path, "root", "")
    assert ids(inbox.read(tmp_path, "root", None, 10)) == ""
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_an_id_is_there_once_however_often_it_is_tried(tmp_path):
    put(tmp_path, "a")
    put(tmp_path, "b")
    for _ in range(3):
        put(tmp_path, "a", first=False)
    assert ids(inbox.read(tmp_path, "root", "", 10)) == "ab"


def test_the_id_is_found_across_the_edge_of_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(inbox, "CHUNK", 37)
    put(tmp_path, "a")
    put(tmp_path, "b")
    put(tmp_path, "b", first=False)
    assert ids(inbox.read(tmp_path, "root", "", 10)) == "ab"


def test_half_a_line_is_not_read_and_does_not_take_the_next_one_along(tmp_path):
    put(tmp_path, "a")
    with (tmp_path / "root.jsonl").open("ab") as lines:
        lines.write(b'{"id":"torn')
    assert ids(inbox.read(tmp_path, "root", "", 10)) == "a"
    put(tmp_path, "b")
    lines = (tmp_path / "root.jsonl").read_bytes().splitlines()
    assert json.loads(lines[2])["id"] == "b" * 32


@pytest.mark.parametrize("line", [b"{}", b"[]", b'{"id":7}', b'{"id":"ABC"}', b"\xff", b'{"id":"%s"' % (b"a" * 32)])
def test_damaged_lines_are_named_not_guessed_at(tmp_path, line):
    put(tmp_path, "a")
    with (tmp_path / "root.jsonl").open("ab") as lines:
        lines.write(line + b"\n")
    with pytest.raises(inbox.InboxError, match="line 2 is damaged"):
        inbox.read(tmp_path, "root", "", 10)


@pytest.mark.parametrize("owner", ["", ".", "../x", "a/b", "x" * 65, "-"])
def test_no_owner_leads_out_of_the_folder(tmp_path, owner):
    with pytest.raises(inbox.InboxError):
        inbox.read(tmp_path, owner, "", 10)
    with pytest.raises(inbox.InboxError):
        inbox.acknowledge(tmp_path, owner, "")


def test_unknown_cursors_are_refused(tmp_path):
    put(tmp_path, "a")
    with pytest.raises(inbox.InboxError, match="no entry"):
        inbox.read(tmp_path, "root", "f" * 32, 10)
    with pytest.raises(inbox.InboxError, match="no such entry"):
        inbox.acknowledge(tmp_path, "root", "f" * 32)


# texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "inbox", "inbox:alice", "journal", "mail:root", "mail:a.b+c@example.com", "exec:cat >> /tmp/x", "file:/var/log/x",
    "webhook:https://example.com/a?b=c", "webhook:https://u:p@example.com:8443/x#secret=hook", "unit:a@b.service",
    "webhook:http://127.0.0.1:80/x", "webhook:http://localhost/x", "webhook:https://[::1]:8/x", "cron:other",
    "heartbeat:https://hc.example/uuid", "webhook:https://x.example.:65535/",
    "mail:o'brien+x=y@a_b.example", "mail:a..b@c"])
def test_sinks(text):
    assert parse(text).kind == text.partition(":")[0]


@pytest.mark.parametrize("text", [
    "", "x", "inbox:", "inbox:../x", "inbox:a/b", "journal:x", "mail", "mail:", "mail:a b", "mail:-f", "mail:a@b,c@d",
    "mail:a\nb",
    "mail:a@", "mail:@b", "mail:a@@b", "mail:a@b@c", "mail:ä@b", "mail:a@ä.example", "mail:a\u200bb",
    "exec:", "exec: ", "file:x", "file:/x/", "webhook:", "webhook:http://example.com/", "webhook:ftp://x/",
    "webhook:https://", "webhook:https://x/\n", "webhook:https://x/#frag", "webhook:https://x/#secret=../a",
    "unit:x", "unit:../a.service", "unit:-x", "cron:", "cron:a b", "heartbeat:https:x",
    "webhook:https://x:0/", "webhook:https://x:65536/", "webhook:https://[1]/", "webhook:https://[::ffff:999.1.1.1]/",
    "webhook:https://a..b/", "webhook:https://.a/", f"webhook:https://{'a' * 64}.example/",
    f"webhook:https://{'.'.join(['a' * 60] * 5)}/"])
def test_what_is_no_sink_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        parse(text)


def test_of_a_url_only_the_host_is_shown():
    text = "webhook:https://us3r:pa55@example.com:8443/T0K3N?k3y=1#secret=n4me"
    assert parse(text).label == "webhook:https://example.com:8443/…"
    assert safe_url("nonsense pa55") == "…"
    assert secret_of(text.partition(":")[2]) == "n4me"
    with pytest.raises(ValueError, match="https") as caught:
        parse("webhook:http://us3r:pa55@example.com/T0K3N")
    assert "pa55" not in str(caught.value)
    assert parse("exec:curl https://us3r:pa55@example.com").label == "exec:curl"
