"""Boxes: where the descriptors of live runs lie while a crash of the daemon could lose them.

A box is a pair of connected sockets, both ends of which the service manager keeps (`descriptors.py`). What is sent into
it stays in the kernel, whoever dies: one message for each run, with copies of its descriptors (unix(7), SCM_RIGHTS).
So a run costs PID 1 nothing. Given to the manager each by itself, descriptors cost it more than the run costs us: it
compares each with all that it has (fcntl(2), F_DUPFD_QUERY), and forks a process to close one.

    OWNER KIND KIND …        one descriptor for each KIND, in this order

A queue gives up only its first message. So a message whose run is over stays until half of its box is of that kind;
then each is looked at (MSG_PEEK), sent in once more if its run lives, and taken out: at no moment is one in neither
place. A box that only holds such is emptied and used again, and nothing lingers for long: a survivor that writes to the
pipe of a run that is over must get SIGPIPE.
"""

import os
import socket
from collections import deque
from collections.abc import Callable, Mapping

from crtrd.engine.descriptors import Descriptors
from crtrd.loop.openfiles import close_all
from crtrd.loop.reactor import Reactor

ROOM = 64
"""Messages in a box; a tenth of what the usual buffer holds (socket(7), wmem_default)."""
SPARE = 1
"""Empty boxes of this life that are kept for the next runs. One of an earlier life goes with its last run."""
LINGER = 1_000_000
"""Microseconds that descriptors of a run that is over may stay."""
LONGEST = 256
MOST = 16
"""Descriptors of one run at most."""
OF_A_USER = 100
"""Runs of a user's instance in boxes. What is under way counts for all programs of a user together, and those that have
the usual limit of 1024 and no privilege could send no descriptor any more (unix(7), ETOOMANYREFS)."""
_MARK = "box"
_SPACE = socket.CMSG_SPACE(4 * MOST)
_CONTROL = "control"
"""The kind under which `descriptors.py` finds a socket again."""

Stored = dict[str, dict[str, int]]


class Box:
    """Owns both sockets. `owners` of its messages, in their order; those in `over` are not wanted any more."""

    def __init__(self, name: str, end: socket.socket, entrance: socket.socket) -> None:
        self.name, self.end, self.entrance = name, end, entrance
        self.owners: deque[str] = deque()
        self.over: set[str] = set()
        self.inherited = False
        self.waiting: list[Callable[[], None]] | None = []
        """Who waits until the manager has it; None once it has."""
        for each in (end, entrance):
            each.setblocking(False)  # noqa: FBT003 - the standard library's own signature

    def put(self, owner: str, fds: Mapping[str, int]) -> None:
        """Copies of `fds` are safe on return, as far as the box is. Raises OSError."""
        socket.send_fds(self.entrance, [" ".join([owner, *fds]).encode("ascii")], list(fds.values()))
        self.owners.append(owner)

    def sift(self) -> None:
        """Take out what is over."""
        for _ in range(len(self.owners)):
            owner = self.owners[0]
            if owner not in self.over:
                try:
                    self._renew()
                except OSError:  # no descriptor, or no room: it stays as it is
                    return
            self.end.recv(LONGEST)  # without room for descriptors: the kernel closes them
            self.owners.popleft()
            self.over.discard(owner)

    def take_up(self) -> Stored:
        """What an earlier life has put in. It stays here; the descriptors that are returned are the caller's."""
        mark = os.urandom(16).hex().encode("ascii")
        self.entrance.send(mark)
        found: Stored = {}
        while True:
            message, fds = self._look()
            if message == mark:
                self.end.recv(LONGEST)
                return found
            owner, *kinds = message.decode("ascii").split()
            if not kinds or owner in found:  # a mark, or a copy, of a life that ended while it did this
                close_all(fds)
            else:
                socket.send_fds(self.entrance, [message], fds)
                self.owners.append(owner)
                found[owner] = dict(zip(kinds, fds, strict=False))
            self.end.recv(LONGEST)

    def close(self) -> None:
        self.end.close()
        self.entrance.close()

    def _renew(self) -> None:
        """The first message once more, as the last."""
        message, fds = self._look()
        try:
            socket.send_fds(self.entrance, [message], fds)
        finally:
            close_all(fds)
        self.owners.append(self.owners[0])

    def _look(self) -> tuple[bytes, list[int]]:
        flags = socket.MSG_PEEK | socket.MSG_CMSG_CLOEXEC
        message, ancillary, _, _ = self.end.recvmsg(LONGEST, _SPACE, flags)
        return message, [fd for _, _, data in ancillary for fd in memoryview(data).cast("i")]


class Boxes:
    """`keep` and `drop` while runs live, in place of those of `descriptors`, which has what goes into no box."""

    def __init__(self, reactor: Reactor, descriptors: Descriptors, most: int | None = None) -> None:
        """At most MOST runs are put into boxes; None: any number. The others' descriptors go to the manager."""
        self._reactor, self._descriptors, self._most = reactor, descriptors, most
        self._sifting = False
        """A timer is set."""
        self._boxes: list[Box] = []
        self._where: dict[str, Box] = {}
        self.stored = self._take_up(descriptors.stored())
        """What earlier lives left, by run id or spawner's name, then by kind."""

    def keep(self, owner: str, fds: Mapping[str, int], kept: Callable[[], None]) -> None:
        """Copies of `fds` are kept; `kept` is called when they are safe, or the manager is too busy for too long."""
        try:
            # sockets in sockets: a cycle is never freed
            box = self._put(owner, fds) if _CONTROL not in fds and not self._full() else None
        except OSError:  # no descriptor, no room, or too many under way (unix(7), ETOOMANYREFS)
            box = None
        if box is None:
            self._descriptors.keep(owner, fds, kept)
        elif box.waiting is None:
            kept()
        else:
            box.waiting.append(kept)

    def drop(self, owner: str) -> None:
        box = self._where.pop(owner, None)
        if box is None:
            self._descriptors.drop(owner)
            return
        box.over.add(owner)
        if 2 * len(box.over) >= len(box.owners):
            box.sift()
            self._tidy()
        elif not self._sifting:
            self._sifting = True
            self._reactor.later(LINGER, self._sift)

    def pass_on(self) -> Stored:
        """The boxes themselves, for the program about to be executed."""
        return {name: {_CONTROL: each.fileno()} for box in self._boxes for name, each in _ends(box)}

    def close(self) -> None:
        """Our ends; the manager's stay as they are."""
        for box in self._boxes:
            box.close()

    def _full(self) -> bool:
        return self._most is not None and sum(len(box.owners) for box in self._boxes) >= self._most

    def _put(self, owner: str, fds: Mapping[str, int]) -> Box:
        box = next((each for each in self._boxes if len(each.owners) < ROOM), None) or self._make()
        box.put(owner, fds)
        self._where[owner] = box
        return box

    def _make(self) -> Box:
        name = f"{_MARK}{os.urandom(14).hex()}"
        box = Box(name, *socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        self._boxes.append(box)
        (first, end), (second, entrance) = _ends(box)
        self._descriptors.keep(first, {_CONTROL: end.fileno()}, lambda: None)
        self._descriptors.keep(second, {_CONTROL: entrance.fileno()}, lambda: _safe(box))  # in order, so both are
        return box

    def _sift(self) -> None:
        self._sifting = False
        for box in self._boxes:
            if box.over:
                box.sift()
        self._tidy()

    def _tidy(self) -> None:
        """Let go of the empty boxes that are too many."""
        empty = [box for box in self._boxes if not box.owners]
        own = [box for box in empty if not box.inherited]
        for box in [box for box in empty if box not in own[:SPARE]]:
            self._boxes.remove(box)
            for name, _ in _ends(box):
                self._descriptors.drop(name)
            box.close()

    def _take_up(self, stored: Stored) -> Stored:
        ends = {owner: stored.pop(owner)[_CONTROL] for owner in list(stored) if owner.startswith(_MARK)}
        for name in sorted({owner[:-1] for owner in ends}):
            found = [socket.socket(fileno=ends[each]) for each in (f"{name}r", f"{name}w") if each in ends]
            if len(found) < 2:  # noqa: PLR2004 - that life ended when the manager had the one end: nothing is in it
                self._descriptors.drop(f"{name}r")
                found[0].close()
                continue
            box = Box(name, *found)
            box.waiting, box.inherited = None, True
            self._boxes.append(box)
            for owner, fds in box.take_up().items():
                self._where[owner] = box
                if owner in stored:
                    close_all(fds.values())
                else:
                    stored[owner] = fds
        self._tidy()
        return stored


def _ends(box: Box) -> tuple[tuple[str, socket.socket], tuple[str, socket.socket]]:
    """By the names under which the manager has them."""
    return (f"{box.name}r", box.end), (f"{box.name}w", box.entrance)


def _safe(box: Box) -> None:
    waiting, box.waiting = box.waiting or [], None
    for kept in waiting:
        kept()
