"""C67 against real receivers: what an attempt sends, and what each answer means."""

import hmac
import socket
from hashlib import sha256

import pytest

from crtrd.core.delivery import Outcome
from crtrd.delivery.webhook import deliver, seconds
from tests.delivery.conftest import job

WHO = "user:s3cret@"


@pytest.mark.parametrize(("status", "outcome"), [
    (200, "taken"), (202, "taken"), (204, "taken"), (500, "failed"), (502, "failed"), (503, "down"), (429, "down"),
    (408, "down"), (400, "refused"), (413, "refused"), (422, "refused"), (401, "failed"), (404, "failed"),
    (304, "failed"),
])
def test_what_each_status_means(receiver, status, outcome):
    receiver.script = [(status, {})]
    said = deliver(job(argument=receiver.url()))
    assert said.outcome == outcome
    assert (str(status) in said.error) == (outcome != "taken")


def test_retry_after_as_a_number_and_as_a_date(receiver):
    receiver.script = [(429, {"Retry-After": "120"}), (503, {"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"})]
    assert deliver(job(argument=receiver.url())).retry_after == 120_000_000
    assert deliver(job(argument=receiver.url())).retry_after > 10**15
    assert [seconds(text) for text in ("", "soon", "-5", "1e9", "Thu, 01 Jan 1970 00:00:00 GMT", "9" * 99)] == [
        0, 0, 0, 0, 0, 10**8]


def test_every_attempt_is_the_same_but_for_the_number_in_a_header(receiver):
    receiver.script = [(500, {}), "hang", (429, {"Retry-After": "1"}), "close", (200, {})]
    outcomes = [deliver(job(argument=receiver.url(), attempt=n, timeout=3.0)).outcome for n in range(1, 6)]
    assert outcomes == ["failed", "failed", "down", "failed", "taken"]
    assert len({body for _, _, body in receiver.seen}) == 1
    assert {headers["X-Crtrd-Delivery"] for _, headers, _ in receiver.seen} == {"d" * 32}
    assert [headers["X-Crtrd-Attempt"] for _, headers, _ in receiver.seen] == list("12345")
    plain = [{key: value for key, value in headers.items() if key != "X-Crtrd-Attempt"}
             for _, headers, _ in receiver.seen]
    assert all(each == plain[0] for each in plain)


def test_who_has_said_yes_has_taken_it_whatever_comes_of_the_connection(receiver):
    receiver.script = ["early"]
    assert deliver(job(argument=receiver.url())).outcome is Outcome.TAKEN


def test_nobody_there_is_down():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = deliver(job(argument=f"http://{WHO}127.0.0.1:{port}/private?token=abc"))
    assert said.outcome is Outcome.DOWN
    assert "refused" in said.error
    assert not any(word in said.error for word in ("s3cret", "user", "private", "abc"))


def test_credentials_of_the_url_and_the_signature(receiver):
    deliver(job(argument=receiver.url(who=WHO), secret="k"))
    _, headers, body = receiver.seen[0]
    assert headers["Authorization"] == "Basic dXNlcjpzM2NyZXQ="
    assert headers["X-Crtrd-Signature"] == "sha256=" + hmac.new(b"k", body, sha256).hexdigest()
    assert headers["Host"] == f"127.0.0.1:{receiver.port}"


def test_the_fragment_that_names_the_secret_is_not_sent(receiver):
    deliver(job(argument=receiver.url("/hook?a=b#secret=name"), secret="k"))
    assert receiver.seen[0][0] == "/hook?a=b"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_carries_no_credentials(receiver, other, status):
    receiver.script = [(status, {"Location": other.url("/there")})]
    assert deliver(job(argument=receiver.url(who=WHO), secret="k")).outcome is Outcome.TAKEN
    path, headers, body = other.seen[0]
    assert (path, body) == ("/there", receiver.seen[0][2])
    assert not {"Authorization", "X-Crtrd-Signature"} & set(headers)
    assert headers["X-Crtrd-Delivery"] == "d" * 32


def test_a_redirect_within_the_host_carries_them(receiver):
    receiver.script = [(307, {"Location": "/there"})]
    deliver(job(argument=receiver.url(who=WHO), secret="k"))
    assert {"Authorization", "X-Crtrd-Signature"} <= set(receiver.seen[1][1])


@pytest.mark.parametrize("where", [
    "http://example.com/", "ftp://127.0.0.1/", "", "http://127.0.0.1@example.com/", "https://[", "https://[1]/",
    "https://a:99999/", "https://a..b/", "https://\xe9.example/", "https://a b/", None])
def test_redirects_to_where_nothing_is_sent(receiver, where):
    receiver.script = [(302, {} if where is None else {"Location": where})] * 7
    said = deliver(job(argument=receiver.url()))
    assert (said.outcome, "to where nothing is sent" in said.error) == (Outcome.FAILED, True)
    assert len(receiver.seen) == 1


@pytest.mark.parametrize("where", ["/hook", "//"])
def test_a_circle_of_redirects_ends(receiver, where):
    receiver.script = [(307, {"Location": where})] * 20
    assert "more than" in deliver(job(argument=receiver.url())).error
    assert len(receiver.seen) == 6


@pytest.mark.parametrize(("kind", "path"), [
    ("started", "/ping/start"), ("succeeded", "/ping"), ("failed", "/ping/fail")])
def test_heartbeats_have_their_paths(receiver, kind, path):
    deliver(job("heartbeat", receiver.url("/ping"), kind=kind))
    assert receiver.seen[0][0] == path


def test_https_is_spoken_with_who_is_vouched_for(secure, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    said = deliver(job(argument=secure.url(host="localhost", who=WHO), secret="k"))
    assert said.outcome is Outcome.TAKEN, said.error
    assert secure.seen[0][1]["Authorization"] == "Basic dXNlcjpzM2NyZXQ="


@pytest.mark.parametrize("trusted", [False, True])
def test_https_with_a_stranger_or_under_another_name_sends_nothing(secure, certificate, trusted, monkeypatch):
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    said = deliver(job(argument=secure.url(host="127.0.0.1" if trusted else "localhost", who=WHO)))
    assert said.outcome is Outcome.DOWN
    assert "s3cret" not in said.error
    assert secure.seen == []
