"""Transient scopes: a run with `resources` is moved into one of the service manager while it waits at its gate.

    Spawn -> child at the gate -> RunHeld comes in here -> scope asked for -> RunHeld goes on, with the scope's cgroup
                                                       \\-> refused: the child is withheld, LaunchFailed goes on

So the identity and the cgroup that are recorded are the ones that the command will have. A manager that does not answer
is a shortage of ours: tried again with backoff.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from crtrd.config.resources import controllers
from crtrd.core.events import Event, LaunchFailed, RunHeld
from crtrd.errors import ManagerError
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.supervisor import Supervisor
from crtrd.systemd.manager import Manager

Properties = tuple[tuple[str, int], ...]


class Scopes:
    """`manager` None: there is no service manager, and whatever needs a scope is refused."""

    def __init__(self, manager: Manager | None, supervisor: Supervisor, cgroups: Cgroups | None) -> None:
        self._manager, self._supervisor, self._cgroups = manager, supervisor, cgroups
        self._wanted: dict[str, Properties] = {}
        self._waiting: set[str] = set()

    def lacking(self, resources: tuple[tuple[str, str], ...]) -> str:
        """Why one of these resources cannot be applied here, beginning with its name; '' where all can."""
        there = self._controllers()
        for name, controller in controllers(resources).items():
            if self._manager is None:
                return f"{name} needs the service manager, and crtrd does not run under one here"
            if there is not None and controller not in there:
                return f"{name} needs the control group controller {controller!r}, which this host does not offer"
        return ""

    def want(self, run_id: str, properties: Properties) -> None:
        """The run is about to be started and needs a scope."""
        if properties:
            self._wanted[run_id] = properties

    def forget(self, run_id: str) -> None:
        """It has ended, or was never held."""
        self._wanted.pop(run_id, None)
        self._waiting.discard(run_id)

    def place(self, event: RunHeld, then: Callable[[Event], None], failed: Callable[[Event], None]) -> None:
        """Hand `event` on by `then`, at once or when the child is in its scope; or a LaunchFailed by `failed`."""
        properties = self._wanted.pop(event.run_id, None)
        if properties is None:
            then(event)
            return
        if self._manager is None:
            self._fail(event, "there is no service manager", failed, shortage=False)
            return
        self._waiting.add(event.run_id)
        name = f"crtrd-run-{event.run_id}.scope"
        values: dict[str, str | int] = {"Description": f"crtrd run {event.run_id}", **dict(properties)}
        self._manager.start_scope(name, event.identity.pid, values,
                                  lambda value: self._placed(event, value, then, failed))

    def _placed(
        self, event: RunHeld, value: str | ManagerError, then: Callable[[Event], None], failed: Callable[[Event], None]
    ) -> None:
        if event.run_id not in self._waiting:
            return  # stopped or dead meanwhile: supervision has told
        self._waiting.discard(event.run_id)
        if isinstance(value, ManagerError):
            self._fail(event, str(value), failed, shortage=True)
            return
        self._supervisor.moved(event.run_id, value)
        then(replace(event, cgroup=value))

    def _fail(self, event: RunHeld, why: str, failed: Callable[[Event], None], *, shortage: bool) -> None:
        self._supervisor.withhold(event.run_id)
        failed(LaunchFailed(event.at, event.run_id, "limits", 0, f"cannot start limits: {why}", shortage))

    def _controllers(self) -> set[str] | None:
        """What the service manager can hand out: of the whole host, or of a user's part of it. None: cannot tell."""
        if self._cgroups is None:
            return None
        parts = self._cgroups.unit.split("/")
        users = [number for number, part in enumerate(parts) if part.startswith("user@")]
        root = "/".join(parts[: users[0] + 1]) if users else ""
        try:
            return set(Path(f"{self._cgroups.mount}{root}/cgroup.controllers").read_text(encoding="ascii").split())
        except OSError:
            return None
