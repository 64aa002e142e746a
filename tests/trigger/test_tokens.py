"""TCP callers and their token; pages of text."""

import contextlib
import socket

import pytest

from crtrd.control.access import TOKEN, Caller, has_token
from tests.trigger.test_requests import get, split


@contextlib.contextmanager
def over_tcp(server, token):
    server.server._token = lambda: token
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        server.server._sockets.append(listening)
        server.server.resume_accepting()
        yield listening.getsockname()
        server.server.stop_accepting()
        server.server._sockets.remove(listening)


def ask(server, address, extra, path="/v1/status"):
    with socket.create_connection(address) as client:
        client.sendall(get(path, extra=extra))
        client.settimeout(0)
        return split(server.answer(client))


def test_the_token_makes_a_caller(server):
    with over_tcp(server, "s3cret") as address:
        ask(server, address, "Authorization: Bearer s3cret\r\n")
        ask(server, address, "authorization: bearer  s3cret\r\n")
    callers = [call[2] for call in server.control.calls]
    assert [(caller.uid, caller.via) for caller in callers] == [(None, TOKEN)] * 2


@pytest.mark.parametrize(("verb", "may"), [
    ("status", True), ("trigger", True), ("list_crons", True), ("metrics", True), ("get_occurrence", True),
    ("arm", False), ("get_cron", False), ("get_run", False), ("run", False), ("cancel", False), ("kill", False),
    ("reload", False), ("discard_delivery", False)])
def test_what_the_token_opens(verb, may):
    assert has_token(verb, Caller(None, None, TOKEN)) is may
    assert not has_token(verb, Caller(None, None, "socket"))


@pytest.mark.parametrize("extra", [
    "", "Authorization: Bearer\r\n", "Authorization: Bearer wrong\r\n", "Authorization: Basic s3cret\r\n",
    "Authorization: s3cret\r\n", "Authorization: Bearer s3cret2\r\n"])
def test_everything_else_does_not(server, extra):
    with over_tcp(server, "s3cret") as address:
        assert ask(server, address, extra)[0] == 401
    assert server.control.calls == []


def test_without_a_credential_nobody_gets_in(server):
    with over_tcp(server, "") as address:
        assert ask(server, address, "Authorization: Bearer \r\n")[0] == 401
        assert ask(server, address, "")[0] == 401


def test_a_page_of_text_is_text(server):
    server.control.verb_metrics = lambda: "# TYPE a gauge\na 1\n"
    answer = server.ask(get("/metrics"))
    assert b"Content-Type: text/plain; version=0.0.4" in answer
    assert answer.endswith(b"\r\n\r\n# TYPE a gauge\na 1\n")
