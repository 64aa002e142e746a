"""The door to the service manager: transient units through pystemd.

pystemd is imported only here, only when it is first needed, and used only in one worker thread (worker.py). Which
properties make which unit is told in transient.py.
"""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from crtrd.errors import ManagerError
from crtrd.loop.reactor import Reactor
from crtrd.names import SERVICE_UNIT, WAKE_UNIT
from crtrd.schedule.spans import format_instant
from crtrd.systemd.probe import ask_for_life
from crtrd.systemd.transient import LATEST, Property, scope, unit_path, wake_timer
from crtrd.systemd.worker import Worker
from crtrd.values import dataclass

DEADLINE = 10_000_000
"""Microseconds within which a request is answered."""
CALL_SECONDS = 2
"""The longest wait of one call, during which Python's global lock is held: see probe.py for why it hardly ever is."""
JOB_SECONDS = 2.0
STEP_SECONDS = 0.002
MARGINS = 100_000, 500_000
"""Microseconds ahead that a wake-up must lie to be armed before it passes; the second for a machine that is busy."""
DESTINATION = b"org.freedesktop.systemd1"
ROOT = b"/org/freedesktop/systemd1"
EXISTS, NO_SUCH_UNIT = "UnitExists", "NoSuchUnit"

T = TypeVar("T")


class _Refused(ManagerError):
    """The manager's own error reply; `name` is the last part of its D-Bus name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True, slots=True)
class Fared:
    """What became of a service that was started: at work, failed for this reason, or neither: it has ended well."""

    at_work: bool = False
    failure: str = ""


class Manager:
    """Each `done` is called once, in the reactor's thread, unless `close` comes first."""

    def __init__(self, reactor: Reactor, *, user: bool) -> None:
        self._clock = reactor.clock
        self._user = user
        self._worker = Worker(reactor, "service manager", DEADLINE)
        # sd-bus reads it when it makes a call; its own default of 25 s would hold the whole daemon up
        os.environ.setdefault("SYSTEMD_BUS_TIMEOUT", str(CALL_SECONDS))

    def arm_wake(
        self, instant_us: int, done: Callable[[int | ManagerError | None], None], *, enough: tuple[int, int] = (0, 0)
    ) -> None:
        """Have the service started at `instant_us`, in place of any earlier wake-up.

        One that is armed already is left as it is where it lies between the two instants that are `enough`: to replace
        it costs the manager milliseconds. `done` gets the instant that the manager itself names when it is asked
        afterwards: the one that was left; the one wanted; for one that has passed or is closer than MARGINS, the
        earliest that is possible; for one beyond systemd's calendar, LATEST. After an error nothing is known about an
        earlier wake-up either.
        """

        def work(connection: _Connection) -> int | None:
            if enough[1] and min(enough[0], LATEST) <= (stands := self._stands(connection)) <= enough[1]:
                return stands
            for margin in MARGINS:
                instant = min(max(instant_us, self._clock.wall() + margin), LATEST)
                try:
                    self._arm(connection, instant)
                except ManagerError:
                    if instant > self._clock.wall():
                        raise
                else:
                    return instant
            message = f"cannot arm {WAKE_UNIT}: every instant has passed before the manager took it up"
            raise ManagerError(message)

        self._ask(work, done)

    def disarm_wake(self, done: Callable[[ManagerError | None], None]) -> None:
        """No wake-up any more; `done` gets None also where there was none."""
        self._ask(lambda connection: connection.stop(WAKE_UNIT), done)

    def ask_job(self, done: Callable[[str | ManagerError], None]) -> None:
        """The type of the job that is queued for our own unit (`stop`, `restart`), '' where there is none."""

        def work(connection: _Connection) -> str:
            number, path = connection.get(SERVICE_UNIT, "Unit", "Job", b"(uo)")
            return connection.job_type(path) if number else ""

        self._ask(work, done)

    def start_scope(
        self, name: str, pid: int, properties: Mapping[str, str | int], done: Callable[[str | ManagerError], None]
    ) -> None:
        """Move the process into a transient scope; `done` gets its control group, as /proc/PID/cgroup names it.

        Raises ValueError for a property that crtrd does not know.
        """
        wanted = scope(pid, properties)

        def work(connection: _Connection) -> str:
            connection.start_transient(name, wanted)
            connection.wait_active(name)
            return os.fsdecode(connection.get(name, "Scope", "ControlGroup", b"s"))

        self._ask(work, done)

    def look_after(self, name: str, done: Callable[["Fared | ManagerError"], None]) -> None:
        """How a service fares that was started in this boot; one that has ended well is put away. The error: nobody can
        tell."""
        def work(connection: _Connection) -> Fared:
            fared = connection.fares(name)
            if fared == Fared():
                connection.stop(name)
            return fared

        self._ask(work, done)

    def start_unit(self, name: str, done: Callable[[ManagerError | None], None]) -> None:
        """Have a unit started; `done` hears whether the job was taken, not how the unit fares."""
        self._ask(lambda connection: connection.start(name), done)

    def _stands(self, connection: "_Connection") -> int:
        """In the worker: the instant of the wake-up that is armed already, as the manager names it; 0 for none."""
        if connection.get(WAKE_UNIT, "Unit", "ActiveState", b"s") != b"active":
            return 0
        if os.fsdecode(connection.get(WAKE_UNIT, "Timer", "Unit", b"s")) != SERVICE_UNIT:
            return 0
        named: int = connection.get(WAKE_UNIT, "Timer", "NextElapseUSecRealtime", b"t")
        return named if named > self._clock.wall() else 0

    def _arm(self, connection: "_Connection", instant: int) -> None:
        """In the worker. Raises ManagerError unless the timer is active and names the service and exactly `instant`."""
        connection.replace_transient(WAKE_UNIT, wake_timer(instant))
        connection.wait_active(WAKE_UNIT, lambda: self._clock.wall() > instant)
        starts = os.fsdecode(connection.get(WAKE_UNIT, "Timer", "Unit", b"s"))
        if starts != SERVICE_UNIT:
            message = f"cannot arm {WAKE_UNIT}: it would start {starts}, its drop-in with Unit= is missing"
            raise ManagerError(message)
        named = connection.get(WAKE_UNIT, "Timer", "NextElapseUSecRealtime", b"t")
        if named != instant:
            other = format_instant(named) if 0 < named <= LATEST else "none"
            message = f"cannot arm {WAKE_UNIT}: asked for {format_instant(instant)}, the manager names {other}"
            raise ManagerError(message)

    def close(self) -> None:
        self._worker.close(CALL_SECONDS)

    def _ask(self, work: Callable[["_Connection"], T], done: Callable[[T | ManagerError], None]) -> None:
        def connected() -> T:
            with _connect(user=self._user, closed=self._worker.closed) as connection:
                return work(connection)

        self._worker.ask(connected, done)


class _Connection:
    """Calls on one connection to the bus; lives in the worker and for one request."""

    def __init__(self, bus: Any, marshal: Callable[[bytes, list[Any]], list[Any]], closed: threading.Event) -> None:  # noqa: ANN401  pystemd has no types
        self._bus, self._marshal, self._closed = bus, marshal, closed

    def start_transient(self, name: str, properties: Sequence[Property]) -> None:
        arguments = [*self._marshal(b"ss", [name.encode(), b"fail"]), (ord("a"), b"(sv)")]
        for key, signature, value in properties:
            arguments += [(ord("r"), b"sv"), (ord("s"), key.encode()), (ord("v"), signature)]
            arguments += [*self._marshal(signature, [_native(value)]), (-1, None), (-1, None)]
        arguments += [(-1, None), (ord("a"), b"(sa(sv))"), (-1, None)]
        self._call(b"StartTransientUnit", arguments)

    def replace_transient(self, name: str, properties: Sequence[Property]) -> None:
        """A transient unit can be made only where none of its name is loaded, and one goes only after its stop job."""
        for _ in self._attempts():
            try:
                self.start_transient(name, properties)
            except _Refused as refusal:
                if refusal.name != EXISTS:
                    raise
                self.stop(name)
            else:
                return
        message = f"cannot replace {name}: the old one does not go away (is there a unit file of that name?)"
        raise ManagerError(message)

    def start(self, name: str) -> None:
        self._call(b"StartUnit", self._marshal(b"ss", [name.encode(), b"replace"]))

    def fares(self, name: str) -> "Fared":
        """Asked for its job first: one that has none any more is in the state in which its start has left it.

        One that has ended well is forgotten at once, and looks as if it had never been started, for want of something
        that it depends on or of a condition. With RemainAfterExit=yes it stays, and the two can be told apart.
        """
        waits = self.get(name, "Unit", "Job", b"(uo)")[0]
        found = self.get(name, "Unit", "ActiveState", b"s").decode()
        if found == "failed":
            return Fared(failure=f"{name} failed: {self.get(name, 'Service', 'Result', b's').decode()}")
        if found == "active":
            return Fared(at_work=self.get(name, "Unit", "SubState", b"s") != b"exited")
        if waits or found != "inactive":
            return Fared(at_work=True)
        if self.get(name, "Service", "RemainAfterExit", b"b"):
            return Fared(failure=f"{name} has not been started: a dependency or condition is not met")
        return Fared()

    def stop(self, name: str) -> None:
        """Stop the unit, forget its failure, and wait until it is inactive. No unit, nothing to do."""
        for method, arguments in ((b"StopUnit", [name.encode(), b"replace"]), (b"ResetFailedUnit", [name.encode()])):
            try:
                self._call(method, self._marshal(b"s" * len(arguments), arguments))
            except _Refused as refusal:
                if refusal.name != NO_SUCH_UNIT:
                    raise
        self._wait_state(name, {"inactive", "failed"})

    def wait_active(self, name: str, in_vain: Callable[[], bool] = lambda: False) -> None:
        """Raises ManagerError when it does not become active, at once when it has failed or `in_vain` says so."""
        self._wait_state(name, {"active"}, in_vain)

    def get(self, name: str, interface: str, key: str, signature: bytes) -> Any:  # noqa: ANN401  of the signature's type
        full = b"org.freedesktop.systemd1." + interface.encode()
        with _errors_of_pystemd():
            return self._bus.get_property(DESTINATION, unit_path(name), full, key.encode(), signature)

    def job_type(self, path: bytes) -> str:
        with _errors_of_pystemd():
            return os.fsdecode(self._bus.get_property(
                DESTINATION, path, b"org.freedesktop.systemd1.Job", b"JobType", b"s"))

    def _call(self, method: bytes, arguments: list[Any]) -> None:
        with _errors_of_pystemd():
            self._bus.call_method(DESTINATION, ROOT, b"org.freedesktop.systemd1.Manager", method, arguments)

    def _wait_state(self, name: str, states: set[str], in_vain: Callable[[], bool] = lambda: False) -> None:
        found = ""
        for _ in self._attempts():
            found = self.get(name, "Unit", "ActiveState", b"s").decode()
            if found in states:
                return
            if found == "failed" or in_vain():
                break
        message = f"cannot have {name} {' or '.join(sorted(states))}: it is {found}"
        raise ManagerError(message)

    def _attempts(self) -> Iterator[None]:
        """Turns with a short pause in between, for JOB_SECONDS; the jobs awaited here take a millisecond or two."""
        for _ in range(int(JOB_SECONDS / STEP_SECONDS)):
            yield
            if self._closed.wait(STEP_SECONDS):
                message = "cannot finish a request to the service manager: closed"
                raise ManagerError(message)


@contextmanager
def _connect(*, user: bool, closed: threading.Event) -> Iterator[_Connection]:
    """A connection per request: a bus that was started anew in the meantime is met like any other."""
    ask_for_life(os.environ, user=user, patience=CALL_SECONDS)
    try:
        from pystemd.dbuslib import DBus, apply_signature  # noqa: PLC0415  50 ms that only some lives need
    except ImportError as error:
        message = f"cannot reach the service manager: {error}"
        raise ManagerError(message) from error
    bus = DBus(user_mode=user)
    with _errors_of_pystemd():
        bus.open()
    try:
        yield _Connection(bus, apply_signature, closed)
    finally:
        bus.close()


@contextmanager
def _errors_of_pystemd() -> Iterator[None]:
    from pystemd.dbusexc import DBusBaseError  # noqa: PLC0415  see _connect

    try:
        yield
    except DBusBaseError as error:
        # pystemd keeps the D-Bus name only of errors that it has no class for
        name = os.fsdecode(error.err_name) or type(error).__name__.removeprefix("DBus").removesuffix("Error")
        text = os.fsdecode(error.err_message) or os.strerror(abs(error.errno))
        message = f"cannot reach the service manager: {text}"
        raise _Refused(name.rpartition(".")[2], message) from error


def _native(value: Any) -> Any:  # noqa: ANN401  a property's value
    """sd-bus wants bytes where Python has text."""
    match value:
        case str():
            return value.encode()
        case list():
            return [_native(item) for item in value]
        case tuple():
            return tuple(_native(item) for item in value)
        case _:
            return value
