"""P7: nothing runs, a trigger comes by socket or bus: how long its answer takes, beside two lean services."""

import json

from bench.core import Line, at_most, figure, ratio
from bench.world import INSIDE, POLICY, World

NAME = "P7"
ROUNDS, WARM = 15, 2
SETTINGS = 'idle_grace = "100ms"\n'
UNITS = "/run/systemd/system"


def measure(world: World) -> list[Line]:
    lean_services(world)
    world.crtrd(SETTINGS)
    world.arm({"name": "job", "command": ["true"], "overlap": "allow"})
    found = json.loads(world.program("cold_calls.py", str(ROUNDS), str(WARM)))
    figures = {name: figure(values) for name, values in found.items()}
    by_socket = ratio([figures["socket"].median], [figures["lean socket"].median])
    by_bus = ratio([figures["bus"].median], [figures["lean bus"].median])
    both = f"{figures['socket'].text(' ms')}, lean {figures['lean socket'].text()}"
    return [
        at_most("cold, socket to answered trigger ≤ 2x a lean service", by_socket, 2, "x", more=both),
        at_most("the same, stretch: ≤ 1.5x", by_socket, 1.5, "x"),
        at_most("cold, by D-Bus ≤ 1.4x a service that imports only jeepney", by_bus, 1.4, "x",
                more=f"{figures['bus'].text(' ms')}, lean {figures['lean bus'].text()}"),
    ]


def lean_services(world: World) -> None:
    """Both are installed as the daemon is: one behind a socket, one behind a name on the bus."""
    machine = world.machine
    machine.write(f"{UNITS}/bench-lean-socket.socket", "[Unit]\nStartLimitIntervalSec=0\n"
                  "[Socket]\nListenStream=/run/bench/lean.sock\nTriggerLimitIntervalSec=0\n")
    for name, program in (("socket", "lean_socket.py"), ("bus", "lean_bus.py once")):
        machine.write(f"{UNITS}/bench-lean-{name}.service", "[Unit]\nStartLimitIntervalSec=0\n"
                      f"[Service]\nExecStart=/usr/bin/python3 -I {INSIDE}/{program}\n")
    machine.write("/usr/share/dbus-1/system-services/org.crtrd.Bench1.service", "[D-BUS Service]\n"
                  "Name=org.crtrd.Bench1\nExec=/bin/false\nUser=root\nSystemdService=bench-lean-bus.service\n")
    machine.write("/etc/dbus-1/system.d/org.crtrd.Bench1.conf", POLICY)
    machine.run("systemctl daemon-reload; systemctl reload dbus.service; systemctl start bench-lean-socket.socket")
