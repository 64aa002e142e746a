"""Runs in the machine: calls services that are not running, turn by turn; prints the milliseconds of each as JSON.

    cold_calls.py ROUNDS WARM           # before each call it is made sure that the service has ended
"""

import json
import socket
import subprocess
import sys
import time

from jeepney import DBusAddress, MessageType, new_method_call
from jeepney.io.blocking import open_dbus_connection

TRIGGER = b"POST /v1/crons/job/trigger HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
MANAGER = DBusAddress("/org/crtrd/Crtrd1", "org.crtrd.Crtrd1", "org.crtrd.Crtrd1.Manager")
LEAN = DBusAddress("/", "org.crtrd.Bench1", "org.crtrd.Bench1")


def over_socket(path):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(600)
        connection.connect(path)
        connection.sendall(TRIGGER)
        answer = b""
        while data := connection.recv(4096):
            answer += data
    if not answer.startswith(b"HTTP/1.1 20"):
        raise SystemExit(answer)


def over_bus(connection, message):
    reply = connection.send_and_get_reply(message, timeout=600)
    if reply.header.message_type is not MessageType.method_return:
        raise SystemExit(reply.body)


def await_end(unit):
    """Until it is inactive: it leaves by itself, and a call of ours does not find it on its way."""
    while subprocess.run(["systemctl", "is-active", "--quiet", unit], check=False).returncode == 0:
        time.sleep(0.05)
    subprocess.run(["systemctl", "stop", unit], check=True)
    time.sleep(0.05)


def main():
    rounds, warm = int(sys.argv[1]), int(sys.argv[2])
    bus = open_dbus_connection("SYSTEM")
    calls = {
        "lean socket": ("bench-lean-socket.service", lambda: over_socket("/run/bench/lean.sock")),
        "socket": ("crtrd.service", lambda: over_socket("/run/crtrd/trigger.sock")),
        "lean bus": ("bench-lean-bus.service", lambda: over_bus(bus, new_method_call(LEAN, "Ask"))),
        "bus": ("crtrd.service", lambda: over_bus(bus, new_method_call(MANAGER, "Trigger", "sa{sv}", ("job", {})))),
    }
    found = {name: [] for name in calls}
    for number in range(rounds + warm):
        for name, (unit, call) in calls.items():
            await_end(unit)
            begun = time.monotonic()
            call()
            if number >= warm:
                found[name].append((time.monotonic() - begun) * 1000)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
