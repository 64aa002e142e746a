"""The composition root: builds the rooms, wires them, turns signals into calls and the end into an exit status.

    0   left or stopped as asked            78  the ledger cannot be used by this crtrd: an administrator must act
    1   could not start for another reason  2   wrong usage

A configuration file that cannot be read does not keep the daemon from running: defaults hold and the fault is told.
"""

import contextlib
import itertools
import os
import select
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path

from crtrd import __version__, names
from crtrd.config.loader import load_last_good, load_settings
from crtrd.config.settings import ClockMode, Settings
from crtrd.control.arming import new_definition
from crtrd.control.metrics import Textfile
from crtrd.control.verbs import Control, Hooks
from crtrd.core.delivery import Delivery
from crtrd.core.effects import Announce
from crtrd.core.events import TriggerRequested
from crtrd.core.facts import Limits
from crtrd.dbus.service import BusService
from crtrd.delivery.attempt import TAKEN, Said, failed
from crtrd.delivery.worker import Couriers, Lent
from crtrd.engine import crashpoints
from crtrd.engine.boxes import OF_A_USER, Boxes
from crtrd.engine.context import Contexts
from crtrd.engine.descriptors import DRAINED, EXECUTED_AT, Descriptors
from crtrd.engine.engine import Engine
from crtrd.engine.escalations import Escalations
from crtrd.engine.executor import Executor
from crtrd.engine.forgetting import Forgetting
from crtrd.engine.heartbeat import Heartbeat
from crtrd.engine.hostfiles import HostFiles
from crtrd.engine.lifecycle import Lifecycle, Stage, Surfaces
from crtrd.engine.output import OutputLog
from crtrd.engine.recovery import Recovery
from crtrd.engine.scopes import Scopes
from crtrd.errors import (
    ConfigError,
    LeaseLost,
    LedgerError,
    LedgerRefused,
    LedgerSpoiled,
    ManagerError,
    RequestError,
)
from crtrd.ledger.retention import Keep
from crtrd.ledger.store import Store
from crtrd.loop import openfiles
from crtrd.loop.clock import Clock
from crtrd.loop.reactor import IN, Reactor
from crtrd.migrations.boot import Applied, run_boot_list
from crtrd.supervision.cgroup import Cgroups
from crtrd.supervision.supervisor import Supervisor
from crtrd.systemd.activation import take_listen_fds
from crtrd.systemd.journal import Journal, is_journal
from crtrd.systemd.manager import Manager
from crtrd.systemd.notify import Notifier
from crtrd.trigger.server import TriggerServer, turn_away

STANDARD = 2  # the last of the standard descriptors
EX_USAGE, EX_CONFIG = 2, 78
USAGE = "usage: crtrd [--system|--user] [--version]"
READY_WITHIN = 2_000_000  # the bus may be away; the socket and the schedule work without it
SOON = 5_000_000  # the spawner comes up while we wait for an instant this near
COLD_START_MARGIN = 50_000  # what systemd itself needs between its timer and our first instruction
LONGEST_START = 5_000_000  # more than that was a repair, or a wait for the ledger, and says nothing of the next start
REFUSED_PAUSE = 2.0
OPEN_AGAIN = (200_000, 1_000_000, 5_000_000)  # the last one again and again
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
HEARD = 1 << 20
"""Bytes that the bus need not have taken yet while more cron files are read."""
TICKS = os.sysconf("SC_CLK_TCK")


class Daemon:
    """One life. `run` returns the exit status."""

    def __init__(self, environ: MutableMapping[str, str], *, user: bool) -> None:
        self.places = names.places(environ, user=user)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by whoever started us, it would eat exit statuses
        self.environ = environ
        self.notifier = Notifier(environ)
        passed = _take_descriptors(environ)
        self.executed_at = int(environ.pop(EXECUTED_AT, "0"))
        self.drained = environ.pop(DRAINED, "") == "1"
        crashpoints.arm(environ)
        self.clock = Clock()
        self.reactor = Reactor(self.clock)
        self.descriptors = Descriptors(self.reactor, self.notifier, passed)
        self.boxes = Boxes(self.reactor, self.descriptors, None if os.geteuid() == 0 else OF_A_USER)
        self.journal = Journal(sys.stderr)
        self.journal.aloud = not is_journal(sys.stderr, environ)
        self.boot_id = self.clock.boot_id()
        self.instance = uuid.uuid4().hex
        self.settings = self._first_settings()
        self.ready = False
        self.repairs: list[Announce] = []
        """Events of the boot list, told once there are listeners."""

    def run(self) -> int:
        """Build everything, serve until told to end, take it down again."""
        self.cgroups = cgroups = Cgroups.find()
        self._repair(cgroups)
        try:
            self._open_store()
        except LedgerRefused as error:
            self._say("daemon.failed", str(error), 2)
            if self.notifier.present:
                self._turn_away(str(error))
                select.select([], [], [], REFUSED_PAUSE)  # who keeps calling would have us started again at once
            return EX_CONFIG
        self._build_engine(cgroups)
        self._build_surfaces()
        self._watch_signals()
        self._begin()
        self.reactor.run()
        handed = self.supervisor.hand_over() if self.lifecycle.handing_over else {}
        self._close()
        if self.lifecycle.again and self.lifecycle.handing_over:
            self._execute_again(handed)
        return 1 if self.lifecycle.failed else 0

    def _turn_away(self, reason: str) -> None:
        """Who had us started learns why there is no service."""
        from crtrd.dbus import refusing  # noqa: PLC0415 - not on the path of a good start

        turn_away([each for group in self._sockets().values() for each in group], reason)
        refusing.turn_away(reason, self._bus_address(), user=self.places.user)

    # building ----------------------------------------------------------------------------------------------------

    def _first_settings(self) -> Settings:
        try:
            return load_settings(self.places)
        except ConfigError as error:
            settings, faults = load_last_good(self.places)
            for fault in faults or [error]:
                self._say("config.rejected", f"{fault}; what it said when it was last good holds", 3)
            return settings

    def _repair(self, cgroups: Cgroups | None) -> None:
        """The boot list, before supervision touches anything."""
        self.places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        if cgroups is None and self.notifier.present:
            self._say("daemon.no_cgroups", f"runs get no cgroup of their own: {Cgroups.refusal}", 4)
        for outcome in run_boot_list(self.places, cgroup_orphans=cgroups.orphans if cgroups else None):
            if isinstance(outcome, Applied):
                changes = ", ".join(f"{key} {value}" for key, value in outcome.changes.items())
                fields = {"CRTRD_MIGRATION": outcome.id, **{f"CRTRD_{key.upper()}": value
                                                            for key, value in outcome.changes.items()}}
                event = Announce("daemon.boot_migration.applied", f"{outcome.id}: {changes}", fields, 5)
            else:
                event = Announce("daemon.boot_migration.failed", f"{outcome.id}: {outcome.reason}",
                                 {"CRTRD_MIGRATION": outcome.id}, 3)
            self.repairs.append(event)

    def _open_store(self) -> None:
        def lease_end() -> int:
            return self.clock.boot() + self.settings.lease_ttl
        self.store = Store(self.places.ledger, owner=self.instance, boot_id=self.boot_id,
                           post=self.reactor.wake_from_thread, lease_end=lease_end)
        self.store.lost, self.store.log_large = self._lost, self._log_large
        self._await_store()
        if self.store.damage:
            self.repairs.append(Announce("ledger.damaged", self.store.damage, {}, 2))

    def _await_store(self) -> None:
        """A ledger that cannot be opened now (locked, disk full) is waited for: said once, and no restart in a loop."""
        for turn in itertools.count():
            try:
                self.store.open(self._still_starting)
            except LedgerRefused:
                raise
            except LedgerError as error:
                if not turn:
                    self._say("ledger.unavailable", f"{error}; waiting for it", 3)
                self._still_starting()
                select.select([], [], [], OPEN_AGAIN[min(turn, len(OPEN_AGAIN) - 1)] / 1_000_000)
            else:
                break

    def _still_starting(self) -> None:
        """Called every five seconds at least: however long it takes, the start does not count as hung."""
        self.notifier.extend_start(2 * OPEN_AGAIN[-1])

    def _build_engine(self, cgroups: Cgroups | None) -> None:
        self.executor = Executor(self.reactor, Contexts(self.places), head=self.settings.output_head)
        self.output = OutputLog(self.journal, self.settings.journal_limit, self.reactor.soon)
        self.executor.output = self.output
        self.supervisor = Supervisor(self.reactor, cgroups, self.executor.report, self.output.lines)
        self.executor.supervisor = self.supervisor
        self.supervisor.confirm = lambda go_on: self.store.submit(lambda _: None, lambda _: go_on())
        self.output.mute = self.supervisor.mute
        heartbeat = Heartbeat(self.reactor, self.store, self.supervisor, self.settings.lease_ttl)
        self.executor.live = heartbeat.begin
        if self.notifier.present:
            self.supervisor.handed = self.boxes.keep
            self.supervisor.returned = self.boxes.drop
        self.engine = Engine(self.reactor, self.store, self.executor, self._limits())
        self.executor.post = self.engine.post
        self.forgetting = Forgetting(self.reactor, self.store, keep=self._keep, busy=self._busy)
        self.files = HostFiles(self.engine, self.places, lambda table, where, zone: new_definition(
            table, self.executor, os.geteuid(), where=where, timezone=zone, pools=self.engine.limits.pools))
        self.executor.listeners.append(self.journal.event)

    def _limits(self) -> Limits:
        return Limits(self.boot_id, self.settings.max_runs_at_once, self.settings.clock is not ClockMode.EXTERNAL,
                      self.settings.pools)

    def _build_surfaces(self) -> None:
        hooks = Hooks(reload=self.reload, inbox=lambda: self.places.inbox)
        self.control = Control(self.engine, self.instance, hooks)
        self.bus = BusService(self.reactor, self.control, address=self._bus_address(), user=self.places.user)
        self.bus.on_trouble = self._bus_trouble
        self.files.crons.heard = lambda: self.bus.unsent < HEARD
        if not self.places.user:
            hooks.authority = self.bus.polkit.check
        hooks.log_level, hooks.set_log_level = lambda: self.journal.level, self.journal.set_level
        hooks.follow = self.output.follow
        self.bus.on_owned = self._be_ready
        self.sockets = self._sockets()
        listening = [each for some in self.sockets.values() for each in some]
        self.trigger = TriggerServer(self.reactor, self.control, listening, self._token)
        self.textfile = Textfile(self.reactor, self.control.metrics)
        self.textfile.path = self.settings.metrics_textfile
        self.control.subscribe(self.textfile.heard)
        manager = Manager(self.reactor, user=self.places.user) if self.notifier.present else None
        self.executor.scopes = Scopes(manager, self.supervisor, self.cgroups)
        surfaces = Surfaces(quiet=self._quiet, release=self.bus.release, stop_accepting=self.trigger.stop_accepting)
        self._build_couriers(manager)
        self.lifecycle = Lifecycle(self.engine, self.settings, self.notifier, manager, surfaces)
        hooks.reexecute = lambda: self.lifecycle.hand_over(again=True)
        hooks.touched, hooks.stage = self.lifecycle.touched, lambda: self.lifecycle.stage

    def _bus_address(self) -> str | None:
        bus = self.places.private_bus
        return names.bus_address(bus) if self.places.home and bus.exists() else None

    def _build_couriers(self, manager: Manager | None) -> None:
        lent = Lent(manager, self._dispatch, self.executor.report, lambda: self.settings.mail_from)
        self.couriers = Couriers(self.reactor, self.places, self.journal, self.environ, lent)
        self.executor.deliver = self.couriers.deliver
        escalations = Escalations(self.engine, self.store.queries, manager)
        self.executor.escalate, self.executor.look_after = escalations.start, escalations.look_after

    def _dispatch(self, name: str, delivery: Delivery, done: Callable[[Said], None]) -> None:
        """A cron as a sink: its occurrence has the delivery's id for a key, so that it is asked for once."""
        def answered(value: object) -> None:
            done(failed(str(value)) if isinstance(value, RequestError) else TAKEN)

        now = self.clock.wall()
        self.engine.post(TriggerRequested(
            now, self.executor.ticket(answered), delivery.owner, name, uuid.uuid4().hex, key=delivery.id,
            source=f"cron {delivery.cron_name}"))

    def _token(self) -> str:
        """The credential that callers over TCP must show (systemd.exec(5), LoadCredential=), '' where there is none."""
        folder = self.environ.get("CREDENTIALS_DIRECTORY")
        try:
            return Path(folder, "trigger-token").read_text(encoding="utf-8").strip() if folder else ""
        except (OSError, UnicodeDecodeError):
            return ""

    def _quiet(self) -> bool:
        waiting = self.bus.pending() or self.trigger.open_requests() or self.executor.unanswered
        return not (waiting or self.files.crons.busy)

    def _sockets(self) -> dict[str, list[socket.socket]]:
        """The manager's, or, from a terminal, one of our own. By name."""
        passed = self.descriptors.sockets()
        if passed or self.notifier.present:
            return {name: [socket.socket(fileno=fd) for fd in fds] for name, fds in passed.items()}
        path = self.places.socket
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        own = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        own.bind(str(path))
        path.chmod(0o660)
        own.listen(128)
        return {names.SOCKET_UNIT: [own]}

    # beginning and ending ----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.notifier.attach(self.reactor)
        self.executor.perform(self.repairs)
        self._say("daemon.started", f"crtrd {__version__} started, clock {self.settings.clock}")
        stored = self.boxes.stored
        for name in [name for name, fds in stored.items() if fds.keys() == {"control", "pid"}]:
            self.supervisor.inherit(name, stored.pop(name))
        recovery = Recovery(self.engine, self.supervisor, self.boxes.drop)
        self.engine.drained = self.drained
        self.engine.recover()
        recovery.begin(stored, self._recovered)
        self.bus.start()
        self.reactor.later(READY_WITHIN, self._be_ready)
        self._feed_watchdog()
        self.forgetting.begin()

    def _recovered(self) -> None:
        self.engine.recovered(self.boot_id)
        self.files.begin()

    def _be_ready(self) -> None:
        if self.ready:
            return
        self.ready = True
        self.notifier.ready("running")
        self.lifecycle.lead = min(self._age() + COLD_START_MARGIN, LONGEST_START)
        self.lifecycle.start()
        owed = self.engine.owed
        if owed and owed.next_wake is not None and owed.next_wake - self.clock.wall() < SOON:
            self.supervisor.prepare()

    def _age(self) -> int:
        """Microseconds since our program was started: start ticks count from boot, as CLOCK_BOOTTIME does."""
        if self.executed_at:
            return self.clock.boot() - self.executed_at
        with open("/proc/self/stat", "rb") as file:
            ticks = int(file.read().rpartition(b")")[2].split()[19])
        return self.clock.boot() - ticks * 1_000_000 // TICKS

    def _feed_watchdog(self) -> None:
        if self.notifier.watchdog_usec:
            self.notifier.alive()
            self.reactor.later(self.notifier.watchdog_usec // 2, self._feed_watchdog)

    def _busy(self) -> bool:
        return self.engine.busy or self.supervisor.count > 0

    def _keep(self) -> Keep:
        kept = self.settings.retention
        return Keep(kept.success, kept.failure, kept.runs_per_cron)

    def _bus_trouble(self, text: str) -> None:
        self._say("bus.trouble", text, 4)

    def reload(self, done: Callable[[object], None]) -> None:
        """Read every file again; a bad crtrd.toml is refused whole and the old settings stay. Raises ConfigError."""
        try:
            settings = load_settings(self.places)
        except ConfigError as error:
            self._say("config.rejected", f"{error}; the settings in force stay", 3)
            self.files.reload(lambda _: None)
            raise
        self.settings = self.lifecycle.settings = settings
        self.engine.limits = self._limits()
        self.executor.head, self.output.limit = settings.output_head, settings.journal_limit
        self.textfile.path = settings.metrics_textfile
        self._say("config.reloaded", "configuration read again")
        self.files.reload(done)
        self.engine.wake()

    def _watch_signals(self) -> None:
        """Signals arrive as bytes on a socket pair, so that they are events like all others (signal.set_wakeup_fd)."""
        self._signals, self._signal_end = socket.socketpair()
        for end in (self._signals, self._signal_end):
            end.setblocking(False)  # noqa: FBT003 - the standard library's own signature
        signal.set_wakeup_fd(self._signal_end.fileno())
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # see _execute_again
        self.reactor.watch(self._signals.fileno(), IN, lambda _: self._signaled())

    def _signaled(self) -> None:
        for number in self._signals.recv(64):
            if number == signal.SIGTERM:
                self.lifecycle.terminate()
            elif number == signal.SIGINT:
                self.lifecycle.stop()
            elif number == signal.SIGHUP:
                try:
                    self.reload(lambda _: None)
                except ConfigError:
                    continue  # told in the journal

    def _log_large(self, size: int) -> None:
        self._say("ledger.growing", f"{self.places.ledger}-wal has {size >> 20} MiB and grows: another process reads "
                  f"the ledger and does not end; fuser -v {self.places.ledger} names it", 4)

    def _say(self, kind: str, message: str, priority: int = 6) -> None:
        event = Announce(kind, message, {}, priority)
        if hasattr(self, "executor"):
            self.executor.perform([event])
        else:
            self.journal.event(event)

    def _lost(self, lost: LeaseLost | LedgerSpoiled) -> None:
        """Another life took over while we were paused, or the ledger is spoiled: end at once, leave everything alone.

        The next life adopts the runs, by a ledger that it has looked at.
        """
        kind = "ledger.damaged" if isinstance(lost, LedgerSpoiled) else "daemon.lease.lost"
        self._say(kind, f"{lost}; ending", 2)
        self.supervisor.handed = self.supervisor.returned = None
        self.lifecycle.failed = True
        self.reactor.stop()

    def _execute_again(self, handed: Mapping[str, Mapping[str, int]]) -> None:
        """The same process, so children stay children. Signals wait until the next life looks at them."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._leave_signals_to_the_next_life()
        environ = dict(self.environ)
        if self.engine.drained:
            environ[DRAINED] = "1"
        sockets = {name: [each.fileno() for each in some] for name, some in self.sockets.items()}
        self.descriptors.pass_on({**handed, **self.boxes.pass_on()}, sockets, environ)
        openfiles.give_back()
        program, *arguments = sys.orig_argv
        os.execve(program if program.startswith("/") else sys.executable,  # noqa: S606 - ourselves
                  [program, *arguments], environ)

    def _leave_signals_to_the_next_life(self) -> None:
        """What came too late for this life becomes pending again: a blocked signal outlives execve(2)."""
        late = {signal.SIGTERM} if self.lifecycle.stage is Stage.STOPPING else set()
        with contextlib.suppress(BlockingIOError):
            late |= {signal.Signals(number) for number in self._signals.recv(64) if number in SIGNALS}
        for number in late:
            os.kill(os.getpid(), number)

    def _close(self) -> None:
        self.bus.close()
        self.trigger.close()
        self.supervisor.close()
        self.output.flush()
        self.couriers.close()
        self.textfile.write()
        self.files.close()
        self.engine.close()
        self.store.close()
        self.notifier.flush()
        self.journal.close()


def _take_descriptors(environ: MutableMapping[str, str]) -> dict[str, list[int]]:
    try:
        return take_listen_fds(environ)
    except ManagerError as error:
        print(f"crtrd: {error}", file=sys.stderr)  # noqa: T201 - before there is a journal
        return {}


def _fill_standard_descriptors() -> None:
    """Closed by whoever started us, 0 to 2 would become descriptors of ours and be handed on as standard ones."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= STANDARD:
        os.set_inheritable(fd, True)  # noqa: FBT003 - the standard library's own signature
    os.close(fd)


def main() -> int:
    """Entry point of `crtrd`."""
    _fill_standard_descriptors()
    user = False
    for argument in sys.argv[1:]:
        if argument == "--version":
            print(f"crtrd {__version__}")  # noqa: T201 - asked for
            return 0
        if argument in {"--help", "-h"}:
            print(USAGE)  # noqa: T201 - asked for
            return 0
        if argument not in {"--user", "--system"}:
            print(f"crtrd: unknown argument {argument}\n{USAGE}", file=sys.stderr)  # noqa: T201 - usage
            return EX_USAGE
        user = argument == "--user"
    os.umask(0o077)
    openfiles.take_all()
    return Daemon(os.environ, user=user).run()


