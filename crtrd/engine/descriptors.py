"""The descriptors that outlive a life: in the manager's store for a crash, passed through execve(2) for a re-execution.

Named `KIND-ID`: of a run its pipes (`out`, `err`), their spools (`spo`, `spe`) and its pidfd (`pid`), by its id; of a
spawner its control socket (`control`) and its pidfd, by its name. What has no such name is a listening socket.
"""

from collections.abc import Mapping, MutableMapping

from crtrd.loop.clock import Clock
from crtrd.systemd.activation import pass_listen_fds
from crtrd.systemd.notify import Notifier

KINDS = ("out", "err", "spo", "spe", "pid", "control")
ID_LENGTH = 32
EXECUTED_AT, DRAINED = "CRTRD_EXECUTED_AT", "CRTRD_DRAINED"

Passed = Mapping[str, list[int]]


class Descriptors:
    """`keep` and `drop` while runs live; `sockets` and `stored` of what this life was given."""

    def __init__(self, notifier: Notifier, passed: Passed) -> None:
        self._notifier, self._passed = notifier, passed
        self._kept: dict[str, set[str]] = {}
        """What this life gave away, by name; what an earlier one did is not known."""
        self._earlier = frozenset(self.stored())

    def keep(self, name: str, fds: Mapping[str, int]) -> None:
        for kind, fd in fds.items():
            self._notifier.store_fd(f"{kind}-{name}", fd)
        self._kept.setdefault(name, set()).update(fds)

    def drop(self, name: str) -> None:
        """Each message is work for the manager too, so only what can be there is named."""
        kept = self._kept.pop(name, set())
        for kind in KINDS if name in self._earlier or not kept else [kind for kind in KINDS if kind in kept]:
            self._notifier.drop_fd(f"{kind}-{name}")

    def sockets(self) -> dict[str, list[int]]:
        return {name: fds for name, fds in self._passed.items() if _stored(name) is None}

    def stored(self) -> dict[str, dict[str, int]]:
        """By run id or spawner's name, then by kind."""
        kept: dict[str, dict[str, int]] = {}
        for name, fds in self._passed.items():
            if (stored := _stored(name)) is not None:
                kind, owner = stored
                kept.setdefault(owner, {})[kind] = fds[0]
        return kept

    def pass_on(
        self, handed: Mapping[str, Mapping[str, int]], sockets: Passed, environ: MutableMapping[str, str]
    ) -> None:
        """For the program about to be executed: as if the manager passed them all. Nothing but execve may follow."""
        named = {f"{kind}-{owner}": [fd] for owner, fds in handed.items() for kind, fd in fds.items()}
        environ.update(self._notifier.environment)
        environ[EXECUTED_AT] = str(Clock().boot())
        pass_listen_fds({**sockets, **named}, environ)


def _stored(name: str) -> tuple[str, str] | None:
    """(`out`, run id) of a descriptor that an earlier life stored, None for a socket."""
    kind, _, owner = name.partition("-")
    return (kind, owner) if kind in KINDS and len(owner) == ID_LENGTH else None
