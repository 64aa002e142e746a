"""A lean service on a socket of systemd's: imports what a daemon with a ledger cannot do without, answers, ends."""

import select
import signal
import socket
import sqlite3

signal.signal(signal.SIGTERM, signal.SIG_DFL)
ledger = sqlite3.connect("/var/lib/bench/lean.sqlite3")
listening = socket.socket(fileno=3)
select.select([listening], [], [])
connection, _ = listening.accept()
connection.recv(65536)
connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
connection.shutdown(socket.SHUT_WR)
connection.close()
