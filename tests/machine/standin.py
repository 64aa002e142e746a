"""A daemon of thirty lines in crtrd's place: for tests of the units that must not depend on crtrd's own idleness.

Answers each connection with its pid, takes the name on the bus when asked to, and leaves IDLE seconds after the
last call. With /root/standin-fails it exits as crtrd does with a ledger that it must not touch.
"""

import os
import select
import socket
import sys
import time
from pathlib import Path

IDLE = 0.05


def notify(message: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.connect(os.environ["NOTIFY_SOCKET"])
        sock.send(message.encode())


def main() -> None:
    with Path("/root/standin-starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if Path("/root/standin-fails").exists():
        time.sleep(2)
        sys.exit(78)
    listener = socket.socket(fileno=3)
    notify("READY=1")
    while select.select([listener], [], [], IDLE)[0]:
        connection, _ = listener.accept()
        with connection:
            connection.send(f"{os.getpid()}\n".encode())
    notify("STOPPING=1")


if __name__ == "__main__":
    main()
