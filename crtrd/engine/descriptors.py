"""The descriptors that outlive a life: in the manager's store for a crash, passed through execve(2) for a re-execution.

Of a run its pipes (`out`, `err`), their spools (`spo`, `spe`) and its pidfd (`pid`); of a spawner its control socket
(`control`) and its pidfd. All of one owner go in one message under one name: each message is work for PID 1, and a
run whose descriptors are there by half would be told by half. What is what, the descriptors show themselves (proc(5),
/proc/PID/fd); of two pipes the name holds the inodes:

    kept-OWNER-OUT-ERR     of a run, OWNER is its id        kept-OWNER     of a spawner

What has no such name is a listening socket.
"""

import os
from collections.abc import Callable, Mapping, MutableMapping

from crtrd.loop.clock import Clock
from crtrd.loop.reactor import Reactor
from crtrd.systemd.activation import pass_listen_fds
from crtrd.systemd.notify import Notifier

EXECUTED_AT, DRAINED = "CRTRD_EXECUTED_AT", "CRTRD_DRAINED"
PATIENCE = 10_000_000
"""Microseconds that a run waits at its gate for a manager that takes nothing; then it runs, and a crash before the
manager has taken its descriptors would cost its output."""

ID_LENGTH = 32
_MARK = "kept"
_PIPE, _SOCKET, _SPOOL = "pipe:[", "socket:[", "/memfd:crtrd-"
_LINK = "/proc/self/fd"

Passed = Mapping[str, list[int]]


class Descriptors:
    """`keep` and `drop` while runs live; `sockets` and `stored` of what this life was given."""

    def __init__(self, reactor: Reactor, notifier: Notifier, passed: Passed) -> None:
        self._reactor, self._notifier, self._passed = reactor, notifier, passed
        self._names = {owner: name for name in passed if (owner := _owner(name))}
        """Under what name the manager may have something of an owner."""

    def keep(self, owner: str, fds: Mapping[str, int], kept: Callable[[], None]) -> None:
        """Copies of `fds` go to the manager; `kept` is called when it has them, or is too busy for too long."""
        self._names[owner] = name = _name(owner, fds)
        waiting = [kept]

        def go_on() -> None:
            while waiting:
                waiting.pop()()

        self._notifier.store_fds(name, list(fds.values()), go_on)
        if waiting:
            self._reactor.later(PATIENCE, go_on)

    def drop(self, owner: str) -> None:
        if (name := self._names.pop(owner, None)) is not None:
            self._notifier.drop_fds(name)

    def sockets(self) -> dict[str, list[int]]:
        return {name: fds for name, fds in self._passed.items() if not _owner(name)}

    def stored(self) -> dict[str, dict[str, int]]:
        """By run id or spawner's name, then by kind."""
        return {owner: _kinds(name, fds) for name, fds in self._passed.items() if (owner := _owner(name))}

    def pass_on(
        self, handed: Mapping[str, Mapping[str, int]], sockets: Passed, environ: MutableMapping[str, str]
    ) -> None:
        """For the program about to be executed: as if the manager passed them all. Nothing but execve may follow."""
        self._notifier.flush()
        named = {self._names.get(owner) or _name(owner, fds): list(fds.values()) for owner, fds in handed.items()}
        environ.update(self._notifier.environment)
        environ[EXECUTED_AT] = str(Clock().boot())
        pass_listen_fds({**sockets, **named}, environ)


def _name(owner: str, fds: Mapping[str, int]) -> str:
    pipes = [str(os.fstat(fds[kind]).st_ino) if kind in fds else "" for kind in ("out", "err")]
    return "-".join([_MARK, owner, *(pipes if any(pipes) else [])])


def _owner(name: str) -> str:
    """'' for a socket."""
    mark, owner = (*name.split("-"), "")[:2]
    return owner if mark == _MARK and len(owner) == ID_LENGTH else ""


def _kinds(name: str, fds: list[int]) -> dict[str, int]:
    out, err = (*name.split("-"), "", "")[2:4]
    pipes = {f"{_PIPE}{out}]": "out", f"{_PIPE}{err}]": "err"}
    return {_kind(os.readlink(f"{_LINK}/{fd}"), pipes): fd for fd in fds}


def _kind(link: str, pipes: Mapping[str, str]) -> str:
    if link.startswith(_PIPE):
        return pipes.get(link, "pipe")
    if link.startswith(_SPOOL):
        return link.removeprefix(_SPOOL).split()[0]
    return "control" if link.startswith(_SOCKET) else "pid"
