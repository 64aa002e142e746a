"""Requests and their answers over a real socket: routes, refusals, limits."""

import json
import os
import socket

import pytest

from crtrd.errors import Code, RequestError
from crtrd.trigger.request import BODY_MOST, HEAD_MOST
from crtrd.trigger.routes import STATUSES
from tests.dbus.standin import NOON


def split(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("ascii").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, json.loads(body) if body else None


def get(path, method="GET", body=b"", extra=""):
    head = f"{method} {path} HTTP/1.1\r\nHost: crtrd\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode("ascii") + body


def test_status(server):
    status, headers, content = split(server.ask(get("/v1/status")))
    assert (status, content["state"]) == (200, "running")
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    verb, _, caller = server.control.calls[0]
    assert (verb, caller.uid, caller.pid, caller.via) == ("status", os.geteuid(), os.getpid(), "socket")
    assert server.control.touches == 1
    assert server.server.open_requests() == 0


def test_crons_and_occurrences(server):
    server.control.verb_arm({"name": "tick", "schedule": ["every 1m"]})
    occurrence = server.control.verb_run("tick", {"target": ""})["occurrence"]
    server.control.verb_get_occurrence = lambda wanted: server.control.occurrences[wanted]
    status, _, content = split(server.ask(get("/v1/crons?limit=10")))
    assert (status, content["next"]) == (200, None)
    assert content["crons"][0]["name"] == "tick"
    assert content["crons"][0]["next"] == "2025-12-01T12:00:00Z"
    status, _, content = split(server.ask(get(f"/v1/occurrences/{occurrence}")))
    assert (status, content["status"], content["key"]) == (200, "success", "")
    status, _, content = split(server.ask(get("/v1/crons/%74ick")))
    assert (status, content["timezone"]) == (200, "UTC")
    assert split(server.ask(get("/v1/crons?limit=x")))[0] == 400


def test_trigger(server):
    server.control.verb_arm({"name": "tick"})
    body = json.dumps({"key": "k", "label": None}).encode()
    status, _, content = split(server.ask(get("/v1/crons/tick/trigger", "POST", body)))
    assert (status, content["disposition"]) == (202, "accepted")
    assert server.control.calls[-1][1] == ("tick", {"key": "k"})
    server.control.verb_trigger = lambda name, options: {
        "disposition": "already_completed", "occurrence_id": "1", "status": "success"}
    assert split(server.ask(get("/v1/crons/tick/trigger", "POST")))[0] == 200


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b'{"a": NaN}', b"[" * 50000, b'"x"',
                                  b'{"key": "a", "key": "b"}', b'{"key": "a", "\\u006bey": "a"}', b"null",
                                  b"\xef\xbb\xbf{}",
                                  b'{"key": "a"} {}', b"key=a", b"\x1f\x8b", '{"key": "a"}'.encode("utf-16")])
def test_bodies_that_are_no_object(server, body):
    status, _, content = split(server.ask(get("/v1/crons/tick/trigger", "POST", body)))
    assert (status, content["error"]["code"]) == (400, "BadRequest")
    assert not server.control.calls


@pytest.mark.parametrize("path", ["/v1/crons/tick/trigger?key=k", "/v1/crons/tick/trigger?a", "/v1/crons?state=held"])
def test_a_query_that_nobody_would_look_at_is_refused(server, path):
    """A key in the query would be no key: each retry would run once more."""
    method = "POST" if "trigger" in path else "GET"
    status, _, content = split(server.ask(get(path, method)))
    assert (status, content["error"]["code"]) == (400, "InvalidArgument")
    assert not server.control.calls


def test_a_request_as_to_a_proxy_is_taken(server):
    server.control.verb_arm({"name": "tick"})
    assert split(server.ask(get("http://host:80/v1/crons/tick/trigger", "POST")))[0] == 202
    assert split(server.ask(get("HTTPS://host/v1/status?x")))[0] == 200
    assert split(server.ask(get("http://host")))[0] == 404
    assert split(server.ask(get("ftp://host/v1/status")))[0] == 404


CHUNKED = b"POST /v1/crons/tick/trigger HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
SMUGGLED = get("/v1/crons/tick/trigger", "POST", b'{"key": "smuggled"}')


@pytest.mark.parametrize("first", [
    get("/v1/crons/tick/trigger", "POST", b"{}"), get("/v1/status"),
    CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n", CHUNKED + b"\r\n2;a=b\r\n{}\r\n0\r\nX: y\r\n\r\n",
    b"POST /v1/crons/tick/trigger HTTP/1.0\r\n\r\n"])
def test_one_request_a_connection_whatever_follows_it(server, first):
    server.control.verb_arm({"name": "tick"})
    answer = server.ask(first + SMUGGLED)
    assert answer.count(b"HTTP/1.1 ") == 1
    assert split(answer)[0] in {200, 202}
    assert len(server.control.calls) == 1


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ", 400),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}", 400),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}", 400),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (get("/v1/nothing"), 404),
        (get("/"), 404),
        (get("/v1/status", "POST"), 405),
        (get("/v1/crons/x/trigger"), 405),
        (b"hello\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (get("/v1/crons/x/trigger", "POST", b"x" * (BODY_MOST + 1)), 413),
        (b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (get("/v1/status", extra="X: " + "y" * HEAD_MOST + "\r\n"), 431),
        (b"GET /" + b"y" * (2 * HEAD_MOST), 431),
    ],
)
def test_refused_before_any_verb(server, request_bytes, status):
    client = server.client()
    client.settimeout(5)
    try:
        client.sendall(request_bytes[: 1 << 15])
    finally:
        client.settimeout(0)
    found, headers, content = split(server.answer(client))
    assert found == status
    assert content["error"]["message"].startswith("cannot ")
    assert ("allow" in headers) == (status == 405)
    assert not server.control.calls


def test_chunked_body_has_the_same_limit(server):
    client = server.client()
    client.sendall(b"POST /v1/crons/x/trigger HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(5):
        client.sendall(b"4000\r\n" + b"x" * 0x4000 + b"\r\n")
        server.turns()
    assert split(server.answer(client))[0] == 413


def test_continue_is_sent_to_who_waits_for_it(server):
    server.control.verb_arm({"name": "tick"})
    client = server.client()
    client.sendall(b"POST /v1/crons/tick/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                   b"Expect: 100-continue\r\n\r\n")
    server.turns()
    assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
    client.sendall(b"{}")
    assert split(server.answer(client))[0] == 202


@pytest.mark.parametrize("code", Code)
def test_each_refusal_has_its_status(server, code):
    def refuse(name):
        raise RequestError(code, "cannot find x: because")

    server.control.verb_get_cron = refuse
    status, headers, content = split(server.ask(get("/v1/crons/x")))
    assert status == STATUSES[code]
    assert content == {"error": {"code": str(code), "message": "cannot find x: because"}}
    assert ("retry-after" in headers) == (status in {503, 429})


def test_strangers_are_refused(server):
    server.control.allowed.clear()
    for path, method in (("/v1/status", "GET"), ("/v1/crons", "GET"), ("/v1/crons/x/trigger", "POST")):
        assert split(server.ask(get(path, method)))[0] == 403


def test_tcp_callers_are_nobody(server, tmp_path):
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0)
    server.server._sockets.append(listening)
    server.server.resume_accepting()
    with socket.create_connection(listening.getsockname()) as client, listening:
        client.sendall(get("/v1/status"))
        client.settimeout(0)
        status, headers, _ = split(server.answer(client))
        assert (status, headers["www-authenticate"]) == (401, "Bearer")
        server.server.stop_accepting()
        server.server._sockets.remove(listening)
    assert server.control.calls == []


def test_text_of_any_kind_is_valid_json(server):
    server.control.verb_arm({"name": "odd"})
    server.control.crons[next(iter(server.control.crons))].update(note="a\0b\ud800\x1b[31m\u202e", next=NOON)
    _, _, content = split(server.ask(get("/v1/crons/odd")))
    assert content["note"] == "a\0b\ud800\x1b[31m\u202e"  # escaped on its way: JSON is ASCII here
