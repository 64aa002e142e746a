"""C60: slow, silent, dead and half-open clients; shortage of descriptors; stopping."""

import contextlib
import os
import resource
import socket
import time

from crtrd.trigger.exchange import DRAIN_WITHIN, RECEIVE_WITHIN, SEND_WITHIN
from crtrd.trigger.server import CONNECTIONS_MOST

REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: crtrd\r\n\r\n"
SECOND = 1_000_000


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_two_hundred_silent_clients_hurt_nobody(server):
    base = descriptors()
    for _ in range(200):
        server.client()
    half = server.client()
    half.sendall(b"GET /v1/sta")
    server.until(lambda: server.server.open_requests() == 201)
    start = time.monotonic()
    assert server.ask(REQUEST).startswith(b"HTTP/1.1 200 ")
    assert time.monotonic() - start < 1
    server.wait(RECEIVE_WITHIN / SECOND + 1)
    assert server.answer(half).startswith(b"HTTP/1.1 408 ")
    server.until(lambda: server.server.open_requests() == 0)
    server.wait(DRAIN_WITHIN / SECOND + 1)
    assert descriptors() == base + len(server.clients)


def test_too_many_connections_cost_the_oldest_silent_one(server):
    busy = server.client()
    busy.sendall(b"GET ")
    server.turns()
    silent = []
    for _ in range(CONNECTIONS_MOST):
        silent.append(server.client())
        if len(silent) % 100 == 0:
            server.turns()
    server.turns(20)
    assert server.answer(silent[0]) == b""
    busy.sendall(REQUEST[4:])
    assert server.answer(busy).startswith(b"HTTP/1.1 200 ")


def test_connecting_and_leaving_at_once(server):
    base = descriptors()
    for _ in range(1000):
        client = socket.socket(socket.AF_UNIX)
        client.connect(server.path)
        client.close()
        server.reactor.turn(0)
    server.turns(20)
    assert server.server.open_requests() == 0
    assert descriptors() == base
    assert server.ask(REQUEST).startswith(b"HTTP/1.1 200 ")


def test_half_closed_client_gets_its_answer(server):
    client = server.client()
    client.sendall(REQUEST)
    client.shutdown(socket.SHUT_WR)
    assert server.answer(client).startswith(b"HTTP/1.1 200 ")
    incomplete = server.client()
    incomplete.sendall(b"GET /v1/st")
    incomplete.shutdown(socket.SHUT_WR)
    assert server.answer(incomplete).startswith(b"HTTP/1.1 400 ")


def test_client_that_leaves_before_its_answer(server):
    server.control.hold = True
    client = server.client()
    client.sendall(REQUEST)
    server.until(lambda: len(server.control.held) == 1)
    client.close()
    assert server.server.open_requests() == 1
    server.control.release_held()
    server.turns()
    assert server.server.open_requests() == 0


def test_client_that_never_reads_is_dropped(server):
    server.control.verb_status = lambda: {"long": "x" * (8 << 20)}
    client = server.client()
    client.sendall(REQUEST)
    server.turns()
    assert server.server.open_requests() == 1
    server.wait(SEND_WITHIN / SECOND + 1)
    assert server.server.open_requests() == 0


def test_answer_that_never_comes(server):
    server.control.hold = True
    client = server.client()
    client.sendall(REQUEST)
    server.until(lambda: len(server.control.held) == 1)
    server.wait(61)
    assert server.answer(client).startswith(b"HTTP/1.1 503 ")
    server.control.release_held()


def test_shortage_of_descriptors_is_waited_out(server):
    silent = [server.client() for _ in range(3)]
    server.until(lambda: server.server.open_requests() == 3)
    client, late = server.client(), server.client()
    for each in (client, late):
        each.sendall(REQUEST)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        start = time.monotonic()
        turns = 0
        while time.monotonic() - start < 0.3:
            server.reactor.turn(20_000)
            turns += 1
        assert turns < 40, "the loop spins"
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    server.wait(1)
    assert server.answer(client).startswith(b"HTTP/1.1 200 ")
    assert server.answer(late).startswith(b"HTTP/1.1 200 ")
    assert server.answer(silent[0]) == b""


def test_what_comes_after_stopping_waits_for_the_next_life(server):
    server.control.hold = True
    first = server.client()
    first.sendall(REQUEST)
    server.until(lambda: len(server.control.held) == 1)
    server.server.stop_accepting()
    second = server.client()
    second.sendall(REQUEST)
    server.turns()
    assert server.server.open_requests() == 1
    server.control.release_held()
    assert server.answer(first).startswith(b"HTTP/1.1 200 ")
    assert server.server.open_requests() == 0
    server.control.hold = False
    server.server.resume_accepting()
    assert server.answer(second).startswith(b"HTTP/1.1 200 ")
