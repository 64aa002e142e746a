"""The core driven through a real ledger session on a real file: events in, acts out, no clock but the test's own."""

from dataclasses import replace

from peewee import SqliteDatabase

from crtrd.core import events
from crtrd.core.cron import Definition
from crtrd.core.effects import Act, Announce, Answer, PutDelivery, Spawn
from crtrd.core.facts import Limits
from crtrd.core.occurrence import Identity, Origin, Output
from crtrd.core.scheduler import decide, follow_up, looks
from crtrd.errors import RequestError
from crtrd.ledger import rows
from crtrd.ledger.models import MODELS
from crtrd.ledger.schema import migrate
from crtrd.ledger.session import Session
from crtrd.schedule.spans import parse_instant

S, M, H, D = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
BOOT = "b" * 32


def at(text):
    return parse_instant(text, "UTC")


T0 = at("2026-12-01T10:00:00Z")


def handle(event, facts, limits):
    """The effects of an event that comes alone."""
    tells = False
    for effect in decide(event, facts, limits):
        tells = tells or isinstance(effect, PutDelivery)
        yield effect
    yield from follow_up((event,), event.at, facts, limits, tells=looks((event,), limits, tells=tells))


class World:
    """`now` moves by hand. Each event is one committed transaction; a refused request leaves nothing behind."""

    def __init__(self, path, limits=None):
        self.path, self.now, self.tickets = path, T0, 0
        self.limits = limits or Limits(BOOT)
        self.said = []
        self.open("life-1")

    def open(self, owner):
        self.database = SqliteDatabase(str(self.path), pragmas={"journal_mode": "wal", "synchronous": "off"})
        self.database.bind(MODELS)
        self.database.connect()
        migrate(self.database, self.path)
        self.owner = owner
        self.begin_session()

    def begin_session(self):
        self.session = Session(self.database, self.owner, self.limits.boot_id, 0)

    def restart(self, boot_id=None):
        """The daemon is gone; another life on the same file begins."""
        self.database.close()
        if boot_id:
            self.limits = replace(self.limits, boot_id=boot_id)
        self.open("life-2")
        return self.do(events.DaemonStarted(self.now, self.limits.boot_id))

    def do(self, event, limits=None):
        acts = []
        self.begin_session()
        with self.database.atomic("IMMEDIATE"), self.session.undoable():
            for effect in handle(event, self.session, limits or self.limits):
                if isinstance(effect, Act):
                    acts.append(effect)
                else:
                    self.session.put(effect)
        self.said += [act for act in acts if isinstance(act, Announce)]
        return acts

    # time and requests -----------------------------------------------------------------------------------------

    def wake(self, later=0):
        self.now += later
        acts = self.do(events.WokeUp(self.now))
        while self.limits.own_clock and self.session.crons_due(self.now):  # the alarm rings at once
            acts += self.do(events.WokeUp(self.now))
        return acts

    def clock_set(self, now):
        self.now = now
        return self.do(events.ClockSet(now))

    def ask(self, kind, **fields):
        self.tickets += 1
        acts = self.do(kind(at=self.now, ticket=self.tickets, caller=0, **fields))
        answers = [act for act in acts if isinstance(act, Answer)]
        assert [answer.ticket for answer in answers] == [self.tickets]
        return answers[0].value

    def arm(self, name="job", **keys):
        keys.setdefault("command", ("true",))
        cron_id = f"{self.tickets + 1:032x}"
        return self.ask(events.ArmRequested, cron_id=cron_id, definition=Definition(name, **keys))

    def change(self, name="job", **changes):
        return self.ask(events.ChangeRequested, cron=name, changes=changes)

    def pause(self, name="job", note=""):
        return self.ask(events.PauseRequested, cron=name, note=note)

    def resume(self, name="job"):
        return self.ask(events.ResumeRequested, cron=name)

    def skip(self, instant=0, name="job"):
        return self.ask(events.SkipRequested, cron=name, instant=instant)

    def poke(self, name="job"):
        return self.ask(events.PokeRequested, cron=name)

    def cancel(self, name="job", *, kill=False):
        return self.ask(events.CancelRequested, cron=name, kill=kill)

    def run(self, name="job", **options):
        """A manual run: (occurrence, ids of its live runs)."""
        key = f"k{self.tickets}"
        return self.ask(events.DispatchRequested, cron=name, origin=Origin.MANUAL, key=key, instant=self.now, **options)

    def trigger(self, key, name="job", **options):
        fields = {"origin": Origin.TRIGGER, "key": key, "instant": self.now, **options}
        return self.ask(events.DispatchRequested, cron=name, **fields)

    def refused(self, call, *arguments, **options):
        """The code of the refusal; and nothing in the file has changed."""
        before = self.dump()
        try:
            call(*arguments, **options)
        except RequestError as error:
            assert self.dump() == before
            return error.code
        raise AssertionError("it was not refused")

    # runs ------------------------------------------------------------------------------------------------------

    def held(self, run):
        return self.do(events.RunHeld(self.now, run.id, Identity(BOOT, 4242, 7), "cg"))

    def begin(self, name="job"):
        """Release every run of the cron that stands at the gate."""
        for run in self.live(name):
            if run.phase == "starting":
                self.held(run)

    def end(self, run, code=0, signal=None, *, oom=False, stderr=b""):
        acts = self.held(run) if self.session.run(run.id).phase == "starting" else []
        ending = events.Ending(code, signal, oom, 5 * S, Output(), Output(stderr, len(stderr)))
        return acts + self.do(events.RunEnded(self.now, run.id, ending))

    def end_all(self, code=0, name="job"):
        for run in self.live(name):
            self.end(run, code)

    def fail_to_launch(self, run, *, shortage=False):
        return self.do(events.LaunchFailed(self.now, run.id, "fork", 11, "cannot start fork: EAGAIN", shortage))

    def time_out(self, run):
        return self.do(events.TimeoutReached(self.now, run.id))

    def lose(self, run, *, executed=True):
        return self.do(events.RunLost(self.now, run.id, executed))

    # looking ---------------------------------------------------------------------------------------------------

    def cron(self, name="job"):
        return self.session.find_cron(name)

    def rows(self, name="job"):
        sql = rows.OCCURRENCE_SELECT + " WHERE o.cron_name = ? ORDER BY o.serial"
        return [rows.occurrence_from_row(row) for row in self.database.execute_sql(sql, (name,))]

    def story(self, name="job"):
        """[(instant as offset from T0 in seconds, status, reason)] in the order of their rows."""
        return [((row.instant - T0) / S, str(row.status), str(row.reason)) for row in self.rows(name)]

    def runs(self, name="job"):
        sql = rows.RUN_SELECT + " WHERE r.cron_name = ? ORDER BY r.serial"
        return [rows.run_from_row(row) for row in self.database.execute_sql(sql, (name,))]

    def live(self, name="job"):
        return [run for run in self.session.live_runs() if run.cron_name == name]

    def cells(self, name="job", which=-1):
        cells = self.session.cells(self.rows(name)[which].id)
        return {cell.target: str(cell.status) for cell in cells}

    def owed(self):
        return self.session.owed(self.now)

    def dump(self):
        return [
            list(self.database.execute_sql(f"SELECT * FROM {model._meta.table_name} ORDER BY 1, 2")) for model in MODELS
        ]


def kinds(acts, kind):
    return [act for act in acts if isinstance(act, kind)]


def spawned(acts):
    return [act.run for act in kinds(acts, Spawn)]
