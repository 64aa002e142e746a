"""Runs in the machine: talks to the bus and prints JSON.

    bus.py reload               seconds until Reload() is answered
    bus.py list LIMIT           the number of crons, and milliseconds of each page of ListCrons
    bus.py calls ROUNDS         one at a time and 64 in flight, the daemon and the echo by turns (see P11)
    bus.py ask SECONDS          milliseconds of each answer, asked again and again
"""

import json
import sys
import time

from jeepney import DBusAddress, MessageType, Properties, new_method_call
from jeepney.io.blocking import open_dbus_connection

MANAGER = DBusAddress("/org/crtrd/Crtrd1", "org.crtrd.Crtrd1", "org.crtrd.Crtrd1.Manager")
ECHO = DBusAddress("/", "org.crtrd.Bench1", "org.crtrd.Bench1")
ONE_AT_A_TIME, IN_FLIGHT, MANY, TRIGGERS = 300, 64, 1500, 30


def call(connection, message, timeout=600):
    reply = connection.send_and_get_reply(message, timeout=timeout)
    if reply.header.message_type is not MessageType.method_return:
        raise SystemExit(f"refused: {reply.body}")
    return reply.body


def timed(connection, message):
    """Milliseconds."""
    begun = time.monotonic()
    call(connection, message)
    return (time.monotonic() - begun) * 1000


def many(connection, make):
    """Answers in a second with IN_FLIGHT calls out at any time."""
    begun, out, answered = time.monotonic(), 0, 0
    while answered < MANY:
        while out < IN_FLIGHT and answered + out < MANY:
            connection.send(make())
            out += 1
        kind = connection.receive(timeout=600).header.message_type
        if kind is MessageType.error:
            raise SystemExit("refused")
        if kind is MessageType.method_return:
            out, answered = out - 1, answered + 1
    return MANY / (time.monotonic() - begun)


def calls(rounds):
    connection = open_dbus_connection("SYSTEM")
    makers = {
        "echo": lambda: new_method_call(ECHO, "Ask"),
        "GetCron": lambda: new_method_call(MANAGER, "GetCron", "s", ("job",)),
        "Next": lambda: new_method_call(MANAGER, "Next", "su", ("tick", 1)),
        "State": lambda: Properties(MANAGER).get("State"),
    }
    found = {"alone": {}, "together": {}, "trigger": [], "busy": []}
    for number in range(rounds + 1):
        for name, make in makers.items():
            alone = sorted(timed(connection, make()) for _ in range(ONE_AT_A_TIME))[ONE_AT_A_TIME // 2]
            together = many(connection, make)
            if number:
                found["alone"].setdefault(name, []).append(alone)
                found["together"].setdefault(name, []).append(together)
        for kind, pause in (("trigger", 0.1), ("busy", 0)):
            took = triggers(connection, pause)
            time.sleep(1)  # their runs end
            if number:
                found[kind].append(took)
    return found


def triggers(connection, pause):
    """The median of the milliseconds; each starts a run, which is over after `pause` seconds, or not."""
    took = []
    for _ in range(TRIGGERS):
        took.append(timed(connection, new_method_call(MANAGER, "Trigger", "sa{sv}", ("job", {}))))
        time.sleep(pause)
    return sorted(took)[TRIGGERS // 2]


def pages(limit):
    connection = open_dbus_connection("SYSTEM")
    count, cursor, took = 0, "", []
    while True:
        begun = time.monotonic()
        views, cursor = call(connection, new_method_call(MANAGER, "ListCrons", "a{sv}us", ({}, limit, cursor)))
        took.append((time.monotonic() - begun) * 1000)
        count += len(views)
        if not cursor:
            return {"count": count, "pages": took}


def ask(seconds):
    connection = open_dbus_connection("SYSTEM")
    end, took = time.monotonic() + seconds, []
    while time.monotonic() < end:
        took.append(timed(connection, Properties(MANAGER).get("State")))
        time.sleep(0.002)
    return took


def main():
    match sys.argv[1:]:
        case ["reload"]:
            begun = time.monotonic()
            call(open_dbus_connection("SYSTEM"), new_method_call(MANAGER, "Reload"), 600)
            print(time.monotonic() - begun)
        case ["list", limit]:
            print(json.dumps(pages(int(limit))))
        case ["calls", rounds]:
            print(json.dumps(calls(int(rounds))))
        case ["ask", seconds]:
            print(json.dumps(ask(float(seconds))))


if __name__ == "__main__":
    main()
