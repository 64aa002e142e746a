"""The ledger's file, its one writer thread and its reader.

All writing happens in one thread, each piece of work in one `BEGIN IMMEDIATE` transaction that is durable
(`synchronous=FULL`) when its `done` is called; so a slow disk or a lock of another process never stops the loop.
Reading for views uses a second connection, in the caller's thread. One daemon per store: an flock(2) proves it.
"""

import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from peewee import DatabaseError, DataError, IntegrityError, InterfaceError, ProgrammingError, SqliteDatabase

from crtrd.errors import LeaseLost, LedgerError, LedgerRefused, LedgerSpoiled
from crtrd.ledger.damage import SUSPECT, beside, damage_of, is_damage, is_illegible, read_anything, set_aside
from crtrd.ledger.models import MODELS
from crtrd.ledger.place import Place
from crtrd.ledger.queries import Queries
from crtrd.ledger.schema import migrate, refuse_newer
from crtrd.ledger.session import Session

T = TypeVar("T")
Post = Callable[[Callable[[], None]], None]
LOG_PAGES, LOG_PAGES_SMALL = 1000, 32
SMALL_DISK = 64 << 20
BUSY_SECONDS = 5
LOG_LARGE = 64 << 20
"""Bytes of SQLite's log from which on it is told: somebody reads and does not end, so that it cannot be emptied."""
LOG_KEPT = 16 << 20
READER_CACHE = -1000
"""KiB, as SQLite wants them: views are answered by indexes, and a list goes through all pages once."""
ALIVE = 5.0
"""Seconds."""
PRAGMAS = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 1, "cache_size": -4000,
           "journal_size_limit": LOG_KEPT}


class Store:
    """Open with `open`, hand work to `submit`, ask `queries`; `close` waits for what was submitted."""

    def __init__(self, path: Path, *, owner: str, boot_id: str, post: Post, lease_end: Callable[[], int]) -> None:
        self.path, self.owner, self.boot_id = path, owner, boot_id
        self._post, self._lease_end = post, lease_end
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._database = SqliteDatabase(
            str(path), pragmas={**PRAGMAS, "wal_autocheckpoint": _log_pages(path)}, timeout=BUSY_SECONDS)
        self._database.bind(MODELS)
        self._thread: threading.Thread | None = None
        self._lock = -1
        self._fence: int | None = None
        """What the fence was when our last transaction committed; None before the first one."""
        self.damage = ""
        """Told by `open`: what was wrong with the file that was found, and where it is now."""
        self.lost: Callable[[LeaseLost | LedgerSpoiled], None] = lambda _: None
        """Called in the loop when another life has claimed the ledger, or the file is spoiled; nothing that is
        submitted comes back then."""
        self.log_large: Callable[[int], None] = lambda _: None
        """Called in the loop with the log's size in bytes, once until it is small again."""
        self._place = Place(path)
        self._over = self._told_large = False
        self.queries = Queries(self._database)

    def open(self, alive: Callable[[], None] = lambda: None) -> list[int]:
        """Lock, check and migrate the file; returns the versions reached. On LedgerError nothing stays locked.

        A step of the schema and the copy before it take their time on a large file, a look at all of a damaged one
        too: that is done in the ledger's thread, and `alive` is called here every `ALIVE` seconds.
        """
        opened: queue.SimpleQueue[list[int] | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._begin, args=(opened,), name="ledger", daemon=True)
        self._thread.start()
        reached: list[int] | BaseException | None = None
        while reached is None:
            try:
                reached = opened.get(timeout=ALIVE)
            except queue.Empty:
                alive()
        try:
            if isinstance(reached, BaseException):
                self._thread.join()
                self._thread = None
                raise reached
            with _speaking(self.path):
                self._database.connect()
                self._database.execute_sql(f"PRAGMA cache_size = {READER_CACHE}")
        except OSError as error:
            self.close()
            raise LedgerError(f"cannot open ledger {self.path}: {error.strerror}") from error
        except LedgerError:
            self.close()
            raise
        return reached

    def _begin(self, opened: "queue.SimpleQueue[list[int] | BaseException]") -> None:
        """In the ledger's thread, whose connection stays."""
        try:
            reached = self._open()
        except BaseException as error:  # noqa: BLE001 - raised where it was to be opened
            with suppress(DatabaseError, InterfaceError):
                self._database.close()
            opened.put(error)
        else:
            opened.put(reached)
            self._run()

    def _open(self) -> list[int]:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _lock(self.path)
        if damage := damage_of(self.path):
            self.damage = f"ledger {self.path} is damaged: {damage}; it was set aside as {set_aside(self.path)}"
        beside(self.path, SUSPECT).unlink(missing_ok=True)
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with _speaking(self.path):
            refuse_newer(self.path)
            self._database.connect()
            reached = migrate(self._database, self.path)
            _check(self._database)
        self._place.note()
        return reached

    def submit(self, work: Callable[[Session], T], done: Callable[[T | LedgerError], None]) -> None:
        """Run `work` in one transaction in the ledger's thread; `done` comes back through `post`.

        What `work` wrote is durable when `done` gets its value. On LedgerError nothing of it was written. Any other
        exception of `work` is a bug: it is raised again where `done` would have been called. The transaction first
        looks at the fence: whoever was paused while another life took over writes nothing.
        """
        def perform() -> None:
            if self._over:
                return
            try:
                value: T | LedgerError = self._transact(work)
            except LeaseLost as lost:
                self._end(lost)
                return
            except LedgerSpoiled as spoiled:
                self._end(self._rescued(spoiled))
                return
            except LedgerError as error:
                value = error
            except BaseException as bug:  # noqa: BLE001 - carried to the loop, where it ends the daemon
                self._post(_raiser(bug))
                return
            self._post(lambda: done(value))

        self._work.put(perform)

    def _end(self, why: LeaseLost | LedgerSpoiled) -> None:
        self._over = True
        self._post(lambda: self.lost(why))

    def _rescued(self, spoiled: LedgerSpoiled) -> LedgerSpoiled:
        """The same error, which now says what became of the content. In the ledger's thread, outside a transaction."""
        try:
            if spoiled.damaged:
                beside(self.path, SUSPECT).touch(0o600)
                return spoiled
            return LedgerSpoiled(f"{spoiled}; {self._place.save(self._database.connection())}")
        except (OSError, sqlite3.Error) as error:
            return LedgerSpoiled(f"{spoiled}; what it held could not be saved: {error}")

    def _transact(self, work: Callable[[Session], T]) -> T:
        """Once more where a text is illegible: nothing was written, and `work` has no effect but on its session."""
        try:
            return self._transact_once(work)
        except LedgerError as error:
            if not is_illegible(error):
                raise
        read_anything(self._database.connection())
        return self._transact_once(work)

    def _transact_once(self, work: Callable[[Session], T]) -> T:
        with _speaking(self.path), self._database.atomic("IMMEDIATE"):
            self._watch_log(self._place.look())
            session = Session(self._database, self.owner, self.boot_id, self._lease_end())
            if self._fence is None:
                session.claim()
            else:
                session.check(self._fence)
            value = work(session)
            session.write()
            fence = session.fence()
        self._fence = fence  # only now: a commit that fails takes it back
        return value

    def _watch_log(self, size: int) -> None:
        if size >= LOG_LARGE and not self._told_large:
            self._post(lambda: self.log_large(size))
        self._told_large = size >= LOG_LARGE

    def close(self) -> None:
        """Finish what was submitted, then close the file and give up the lock."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        if not self._database.is_closed():
            self._database.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
        with suppress(DatabaseError, InterfaceError):
            self._database.close()


BUGS = (IntegrityError, ProgrammingError, DataError, InterfaceError, sqlite3.IntegrityError, sqlite3.ProgrammingError,
        sqlite3.DataError, sqlite3.InterfaceError)
"""What SQLite refuses for what was asked of it (a settled row moved, a value of no type), not for its own state."""


class _speaking:
    """Turns the database's troubles into LedgerError with a sentence for people. Bugs stay what they are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or not isinstance(error, DatabaseError | sqlite3.DatabaseError):
            return
        first = _first(error)
        if isinstance(first, BUGS):
            return
        text = " ".join(str(part) for part in first.args)
        if is_damage(first):
            raise LedgerSpoiled(f"ledger {self._path} is damaged: {text}", damaged=True) from error
        raise LedgerError(f"cannot use ledger {self._path}: {text}") from error


def _first(error: BaseException) -> BaseException:
    """What came first: where SQLite has rolled back by itself (disk full), peewee's own rollback fails on top of it."""
    while isinstance(error.__context__, DatabaseError | sqlite3.DatabaseError):
        error = error.__context__
    return error


def _raiser(bug: BaseException) -> Callable[[], None]:
    def again() -> None:
        raise bug
    return again


def _log_pages(path: Path) -> int:
    """After how many pages SQLite's log goes back into the file: on a small disk it must not become the bulk of it."""
    folder = next(each for each in path.absolute().parents if each.is_dir())
    room = os.statvfs(folder)
    return LOG_PAGES if room.f_blocks * room.f_frsize >= SMALL_DISK else LOG_PAGES_SMALL


def _lock(path: Path) -> int:
    """An exclusive flock(2) on `<path>.lock`, given back by the kernel however the daemon ends."""
    fd = os.open(beside(path, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise LedgerRefused(f"cannot open ledger {path}: another crtrd has it open; stop that one "
                            "(systemctl stop crtrd.service), or set CRTR_HOME to a folder of this one's own") from None
    return fd


def _check(database: SqliteDatabase) -> None:
    """A cheap look at the file's structure; the full check is `crtrctl doctor`'s."""
    row = database.execute_sql("SELECT count(*) FROM sqlite_master WHERE name IN ('crons', 'occurrences', 'runs')")
    if row.fetchone()[0] != 3:  # noqa: PLR2004 - the three names above
        raise LedgerError("cannot use the ledger: its tables are missing")
