"""Run on a machine: calls by bus and by socket, all at one moment that is swept over the daemon's idle exit (C55).

    sweep.py ROUNDS CALLS FROM_MS TO_MS     prints one line of JSON
"""

import json
import socket
import sys
import threading
import time

from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

MANAGER = DBusAddress("/org/crtrd/Crtrd1", "org.crtrd.Crtrd1", "org.crtrd.Crtrd1.Manager")
REQUEST = b"GET /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"
DEADLINE = 30.0


class Caller(threading.Thread):
    """One of many: waits for the moment, asks, notes what came and how long it took."""

    def __init__(self, ask, rounds, start):
        super().__init__(daemon=True)
        self.ask, self.rounds, self.start_line = ask, rounds, start
        self.moment = 0.0
        self.answers, self.slowest, self.wrong = 0, 0.0, []

    def run(self):
        for _ in range(self.rounds):
            self.start_line.wait()
            time.sleep(max(self.moment - time.monotonic(), 0))
            began = time.monotonic()
            try:
                said = self.ask()
            except Exception as error:  # noqa: BLE001 - whatever it was, it is counted
                said = f"{type(error).__name__}: {error}"
            if said:
                self.wrong.append(said)
            else:
                self.answers += 1
            self.slowest = max(self.slowest, time.monotonic() - began)
            self.start_line.wait()


def by_bus():
    connection = open_dbus_connection("SYSTEM")

    def ask():
        reply = connection.send_and_get_reply(new_method_call(MANAGER, "Next", "su", ("tick", 1)), timeout=DEADLINE)
        return "" if reply.header.message_type is MessageType.method_return else str(reply.body)

    return ask


def by_socket():
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(DEADLINE)
        connection.connect("/run/crtrd/trigger.sock")
        connection.sendall(REQUEST)
        answer = b""
        while data := connection.recv(4096):
            answer += data
    return "" if answer.startswith(b"HTTP/1.1 200") else repr(answer[:60])


def main():
    rounds, calls, first, last = (int(word) for word in sys.argv[1:])
    line = threading.Barrier(2 * calls + 1)
    bus = [Caller(by_bus(), rounds, line) for _ in range(calls)]
    sockets = [Caller(by_socket, rounds, line) for _ in range(calls)]
    for caller in (*bus, *sockets):
        caller.start()
    base = by_bus()
    for number in range(rounds):
        assert base() == ""
        moment = time.monotonic() + (first + (last - first) * number / rounds) / 1000
        for caller in (*bus, *sockets):
            caller.moment = moment
        line.wait()
        line.wait()
    print(json.dumps({  # noqa: T201 - it is a program
        name: {"answers": sum(each.answers for each in group), "slowest_s": round(max(c.slowest for c in group), 3),
               "wrong": [said for each in group for said in each.wrong][:5]}
        for name, group in (("bus", bus), ("socket", sockets))}))


if __name__ == "__main__":
    main()
