"""The file, its thread and its lock: modes, durability settings, other processes, full disks, bugs."""

import os
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from dataclasses import replace

import pytest

from crtrd.core.effects import PutCron, PutOccurrence, PutRun
from crtrd.core.occurrence import Origin, Phase, Run
from crtrd.errors import LedgerError, LedgerSpoiled
from crtrd.ledger.queries import Filter
from crtrd.ledger.retention import BEGIN, DAY, Keep
from tests.ledger.test_rows import CRON, ROW

RUN = Run("a" * 32, ROW.id, CRON.id, "job", "", 1, Origin.SCHEDULE, 1, Phase.ENDED, False, 1, 1)  # noqa: FBT003


def child(script, *arguments):
    """A Python process of its own that says `ready`."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)], stdout=subprocess.PIPE,
        stdin=subprocess.PIPE, text=True)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_fresh_ledger_is_nobody_elses(opened, tmp_path):
    old = os.umask(0)
    try:
        store = opened()
        store.do(lambda session: session.remember("a", "b"))
    finally:
        os.umask(old)
    folder = tmp_path / "state"
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == dict.fromkeys(
        ("ledger.sqlite3", "ledger.sqlite3-wal", "ledger.sqlite3-shm", "ledger.sqlite3.lock"), 0o600)


def test_what_is_answered_is_durable(opened):
    store = opened()
    seen = store.do(lambda session: [
        session._one(f"PRAGMA {name}")[0] for name in ("synchronous", "journal_mode", "foreign_keys")])
    assert seen == [2, "wal", 1]
    assert store.store._database.execute_sql("PRAGMA synchronous").fetchone() == (2,)


def test_work_is_done_in_order_in_one_thread_that_is_not_ours(opened):
    store, order = opened(), []
    for number in range(20):
        store.store.submit(lambda _, n=number: (n, threading.get_ident()), order.append)
    for _ in range(20):
        store.posts.take()
    assert [number for number, _ in order] == list(range(20))
    assert len({ident for _, ident in order} | {threading.get_ident()}) == 2


def test_close_finishes_what_was_submitted(opened):
    store = opened()
    store.store.submit(lambda session: session.put(PutCron(CRON)), lambda _: None)
    store.store.close()
    assert opened().do(lambda session: session.find_cron("job")) == CRON


def test_a_bug_reaches_the_loop_and_writes_nothing(opened):
    store = opened()

    def work(session):
        session.put(PutCron(CRON))
        raise ZeroDivisionError

    store.store.submit(work, lambda _: pytest.fail("it is no answer"))
    with pytest.raises(ZeroDivisionError):
        store.posts.take()
    assert store.do(lambda session: session.find_cron("job")) is None


def test_a_value_that_sqlite_cannot_hold_is_a_bug_and_no_trouble_of_the_ledger(opened):
    store = opened()
    store.store.submit(lambda session: session.put(PutCron(replace(CRON, note=object()))), lambda _: None)
    with pytest.raises(Exception, match="type") as raised:
        store.posts.take()
    assert not isinstance(raised.value, LedgerError)
    assert store.do(lambda _: 7) == 7


def test_a_second_daemon_is_refused_until_the_first_is_gone(opened):
    first = opened()
    with pytest.raises(LedgerError, match="another crtrd has it open"):
        opened(owner="second")
    first.store.close()
    opened(owner="third")


def test_a_dead_daemon_holds_no_lock(opened, tmp_path):
    opened().store.close()
    path = tmp_path / "state" / "ledger.sqlite3"
    process = child("""
        import sys, time
        from pathlib import Path
        from crtrd.ledger.store import Store
        store = Store(Path(sys.argv[1]), owner="o", boot_id="b", post=lambda _: None, lease_end=lambda: 0)
        store.open()
        print("ready", flush=True)
        sys.stdin.read()
    """, path)
    with process:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(LedgerError):
            opened()
        process.send_signal(signal.SIGKILL)
        process.wait()
    opened()


LOCKER = """
    import sqlite3, sys, time
    base = sqlite3.connect(sys.argv[1], isolation_level=None)
    base.execute("BEGIN IMMEDIATE")
    print("ready", flush=True)
    time.sleep(float(sys.argv[2]))
    base.execute("ROLLBACK")
"""


def test_c50_another_process_holds_the_file_for_four_seconds(opened, tmp_path):
    store = opened()
    with child(LOCKER, tmp_path / "state" / "ledger.sqlite3", 4) as other:
        assert other.stdout.readline() == "ready\n"
        began = time.monotonic()
        store.do(lambda session: session.put(PutCron(CRON)))
        assert 2 < time.monotonic() - began < 15
        assert store.store.queries.cron("job") == CRON


def test_c50_a_lock_that_lasts_is_an_error_and_nothing_is_written(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("crtrd.ledger.store.BUSY_SECONDS", 0.2)
    store = opened()
    with child(LOCKER, tmp_path / "state" / "ledger.sqlite3", 60) as other:
        assert other.stdout.readline() == "ready\n"
        assert store.store.queries.crons(Filter(), 5, 0) == ([], 0), "reading goes on"
        with pytest.raises(LedgerError, match="locked"):
            store.do(lambda session: session.put(PutCron(CRON)))
        other.kill()
    store.do(lambda session: session.put(PutCron(CRON)))


FULL = """
    import resource, signal, sys
    from dataclasses import replace
    from pathlib import Path
    from crtrd.core.effects import PutCron, PutOccurrence
    from crtrd.errors import LedgerError, LedgerSpoiled
    from tests.ledger.conftest import Opened
    from tests.ledger.test_rows import CRON, ROW
    each = Opened(Path(sys.argv[1]))
    each.store.open()
    each.do(lambda session: session.put(PutCron(CRON)))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    size = max(Path(sys.argv[1] + end).stat().st_size for end in ("", "-wal"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 8192, hard))
    def much(session):
        for number in range(400):
            session.put(PutOccurrence(replace(ROW, id=f"{number:032x}", instant=number, detail="x" * 500)))
    try:
        each.do(much)
    except LedgerError as error:
        print("told", error, flush=True)
    assert each.do(lambda session: session.open_occurrences(CRON.id)) == [], "nothing half stored"
    assert each.store.queries.cron("job") == CRON
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    each.do(much)
    assert len(each.do(lambda session: session.open_occurrences(CRON.id))) == 400
    assert each.store.queries.integrity() == []
    each.store.close()
    print("sound", flush=True)
"""


def test_c51_a_full_disk_is_told_and_nothing_is_half_stored(tmp_path):
    """The file size limit of a process stands for the disk: SQLite meets the same failing write(2)."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    with child(FULL, tmp_path / "ledger.sqlite3") as process:
        told, _ = process.communicate(timeout=60)
    assert "told cannot use ledger" in told
    assert told.endswith("sound\n")


NO_SPACE = """
    import sys
    from dataclasses import replace
    from pathlib import Path
    from crtrd.core.effects import PutCron, PutOccurrence
    from crtrd.errors import LedgerError, LedgerSpoiled
    from tests.ledger.conftest import Opened
    from tests.ledger.test_rows import CRON, ROW
    folder = Path(sys.argv[1])
    each = Opened(folder / "ledger.sqlite3")
    each.store.open()
    each.do(lambda session: session.put(PutCron(CRON)))
    filler = (folder / "filler").open("wb", buffering=0)
    try:
        while filler.write(b"x" * 4096):
            pass
    except OSError:
        filler.close()
    def much(session):
        for number in range(500):  # more than the room that SQLite's log has already
            session.put(PutOccurrence(replace(ROW, id=f"{number:032x}", instant=number, detail="x" * 500)))
    try:
        each.do(much)
    except LedgerError as error:
        print("told", error, flush=True)
    assert each.do(lambda session: session.open_occurrences(CRON.id)) == [], "nothing half stored"
    (folder / "filler").unlink()
    each.do(much)
    assert len(each.do(lambda session: session.open_occurrences(CRON.id))) == 500
    assert each.store.queries.integrity() == []
    each.store.close()
    print("sound", flush=True)
"""


def test_c51_a_disk_without_space_is_told_and_used_again_when_there_is_some(tmp_path):
    mount = 'mount -t tmpfs -o size=1m tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, "sh", str(tmp_path), sys.executable, textwrap.dedent(NO_SPACE)],
        capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("a small disk takes a mount namespace of our own")
    assert done.returncode == 0, done.stderr
    assert "full" in done.stdout
    assert done.stdout.endswith("sound\n")


def overwritten(path):
    path.write_bytes(b"this is no database " * 500)


def emptied(path):
    path.write_bytes(b"")


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def torn(path):
    """A page in the middle, and a log that says that the last life did not end in order."""
    with path.open("r+b") as file:
        file.seek(8192)
        file.write(b"\xff" * 4096)
    path.with_name(path.name + "-wal").write_bytes(b"\0" * 32)


def headless(path):
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 500)


@pytest.mark.parametrize("harm", [overwritten, emptied, cut, torn, headless])
def test_a_damaged_ledger_is_set_aside_told_and_kept(opened, tmp_path, harm):
    first = opened()
    first.do(lambda session: session.put(PutCron(CRON)))
    first.store.close()
    path = first.store.path
    assert not first.store.damage
    harm(path)
    before = path.read_bytes()
    second = opened()
    assert second.store.queries.cron("job") is None
    (kept,) = [each for each in path.parent.glob("*.damaged-*") if not each.name.endswith(("-wal", "-shm"))]
    assert kept.read_bytes() == before
    assert str(kept) in second.store.damage
    second.store.close()
    assert not opened().store.damage


def named(name):
    return replace(CRON, id=name.ljust(32, "0"), definition=replace(CRON.definition, name=name))


def saying(store):
    """What the store says of its end when it next writes."""
    said = []
    store.store.lost = said.append
    store.store.submit(lambda session: session.remember("a", "b"), said.append)
    store.posts.take()
    assert isinstance(said[0], LedgerSpoiled)
    return str(said[0])


@pytest.mark.parametrize("ends", [("",), ("-wal",), ("", "-wal", "-shm")])
def test_a_ledger_that_is_removed_while_open_is_put_back(opened, ends):
    first = opened()
    first.do(lambda session: session.put(PutCron(CRON)))
    path = first.store.path
    for end in ends:
        path.with_name(path.name + end).unlink()
    assert "put back" in saying(first)
    first.store.submit(lambda session: session.put(PutCron(named("late"))), lambda _: None)
    first.store.close()
    second = opened()
    assert second.store.queries.cron("job")
    assert second.store.queries.cron("late") is None, "written after the end"
    assert second.do(lambda session: session._one("PRAGMA integrity_check")[0]) == "ok"
    assert mode(path) == 0o600
    assert {each.name for each in path.parent.iterdir()} == {
        "ledger.sqlite3", "ledger.sqlite3-wal", "ledger.sqlite3-shm", "ledger.sqlite3.lock"}


@pytest.mark.parametrize("with_log", [True, False])
def test_a_ledger_whose_place_is_taken_is_kept_beside_the_new_one(opened, tmp_path, with_log):
    other = opened(tmp_path / "other" / "ledger.sqlite3")
    other.do(lambda session: session.put(PutCron(named("other"))))
    first = opened()
    first.do(lambda session: session.put(PutCron(CRON)))
    path = first.store.path
    if not with_log:
        other.store.close()
    for each in other.store.path.parent.glob("ledger.sqlite3*"):
        if not each.name.endswith((".lock", "-shm")):
            shutil.copy(each, path.parent / "new")
            (path.parent / "new").rename(path.parent / each.name)
    assert "replaced while in use" in saying(first)
    first.store.close()
    second = opened()
    assert second.store.queries.cron("other")
    assert second.store.queries.cron("job") is None
    (kept,) = path.parent.glob("*.replaced-*")
    with closing(sqlite3.connect(kept)) as looking:
        assert looking.execute("SELECT name FROM crons").fetchall() == [("job",)]


def test_a_ledger_that_cannot_be_put_back_is_told_so(opened, monkeypatch):
    first = opened()
    first.store.path.unlink()
    first.store.path.with_name("ledger.sqlite3.new").mkdir()
    assert "could not be saved" in saying(first)


def test_damage_that_sqlite_finds_while_it_is_open_is_looked_for_by_the_next_life(opened):
    first = opened()
    for number in range(200):
        first.do(lambda session, number=number: session.put(PutCron(named(f"job{number}"))))
    first.store.close()
    first = opened()
    path = first.store.path
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    assert "is damaged" in saying(first)
    first.store.close()
    second = opened()
    assert "is damaged" in second.store.damage
    assert second.store.queries.cron("job1") is None
    second.store.close()
    assert not opened().store.damage


def test_a_log_that_cannot_be_emptied_is_told_once(opened, monkeypatch):
    monkeypatch.setattr("crtrd.ledger.store.LOG_LARGE", 100_000)
    first, told = opened(), []
    first.store.log_large = told.append
    with closing(sqlite3.connect(first.store.path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM runs").fetchone()
        values = []
        for number in range(30):
            first.store.submit(lambda session, number=number: session.remember(f"k{number}", "x" * 9000), values.append)
        while len(values) < 30:
            first.posts.take()
    assert len(told) == 1
    assert told[0] >= 100_000


def test_a_folder_in_the_place_of_the_ledger(opened, tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(LedgerError, match="cannot open ledger"):
        opened(tmp_path / "taken")


# paging -----------------------------------------------------------------------------------------------------------


def row(number, **changes):
    return PutOccurrence(replace(ROW, id=f"{number:032x}", instant=number, **changes))


def test_pages_are_stable_while_rows_are_added(opened):
    store = opened()
    store.do(lambda session: [session.put(row(number)) for number in range(25)])
    queries, seen, after = store.store.queries, [], 0
    while True:
        page, after = queries.occurrences(Filter(), 10, after)
        seen += [each.instant for each in page]
        if not after:
            break
        more = 100 + len(seen)
        store.do(lambda session, more=more: session.put(row(more)))
        store.do(lambda session: session.put(row(3, detail="changed")))
    assert seen == list(range(24, -1, -1))


@pytest.mark.parametrize("count", [0, 9, 10, 11, 20])
def test_the_last_page_says_so(opened, count):
    store = opened()
    store.do(lambda session: [session.put(row(number)) for number in range(count)])
    sizes, after = [], 0
    while True:
        page, after = store.store.queries.occurrences(Filter(), 10, after)
        sizes.append(len(page))
        if not after:
            break
    assert sum(sizes) == count
    assert all(size == 10 for size in sizes[:-1])
    assert sizes[-1] > 0 or count == 0


def test_crons_page_upwards_and_keep_their_place_when_changed(opened):
    store = opened()
    crons = [replace(CRON, id=f"{n:032x}", definition=replace(CRON.definition, name=f"job-{n}")) for n in range(7)]
    store.do(lambda session: [session.put(PutCron(cron)) for cron in crons])
    first, after = store.store.queries.crons(Filter(), 3, 0)
    store.do(lambda session: session.put(PutCron(replace(crons[1], note="changed"))))
    second, after = store.store.queries.crons(Filter(), 3, after)
    third, after = store.store.queries.crons(Filter(), 3, after)
    assert [cron.name for cron in (*first, *second, *third)] == [cron.name for cron in crons]
    assert after == 0


def test_filters(opened):
    store = opened()
    store.do(lambda session: [
        session.put(row(1)), session.put(row(2, status="held", reason="held")),
        session.put(row(3, cron_id="other")), session.put(PutRun(RUN))])
    queries = store.store.queries

    def instants(**wanted):
        return [each.instant for each in queries.occurrences(Filter(**wanted), 9, 0)[0]]

    assert instants(status="held") == [2]
    assert instants(cron_id="other") == [3]
    assert instants(since=2) == [3, 2]
    assert instants(until=1) == [1]
    assert queries.held_count() == 1
    assert {name: each.held for name, each in queries.standing([CRON.id, "other"]).items()} == {CRON.id: 1, "other": 0}
    assert queries.run("aaaa") == queries.run(RUN.id) == RUN
    assert queries.run("aaa") is None
    store.do(lambda session: session.put(PutRun(replace(RUN, id="aaaab" + "0" * 27))))
    assert queries.run("aaaa") is None, "two begin so"


# retention --------------------------------------------------------------------------------------------------------


def forget(store, keep, now):
    """All steps of retention; returns how many rows went."""
    gone, place = 0, BEGIN
    while place is not None:
        step = store.do(lambda session, place=place: session.prune(keep, now, place))
        gone, place = gone + step.gone, step.onward
    return gone


def test_retention_forgets_what_is_old_and_settled_and_nothing_open(opened):
    store = opened()
    now = 1000 * DAY
    rows = {
        "old success": row(1, status="success", settled_at=now - 31 * DAY),
        "young success": row(2, status="success", settled_at=now - 29 * DAY),
        "old failure": row(3, status="failed", settled_at=now - 366 * DAY),
        "young failure": row(4, status="failed", settled_at=now - 31 * DAY),
        "open": row(5, created_at=0),
    }
    keep = Keep(30 * DAY, 365 * DAY, 2)
    runs = [replace(RUN, id=f"{n:032x}", occurrence_id=rows["open"].occurrence.id) for n in range(4)]
    others = [replace(RUN, id=f"{n:032x}", occurrence_id=rows["young success"].occurrence.id) for n in range(10, 14)]

    def fill(session):
        for each in rows.values():
            session.put(each)
        for run in (*others, *runs):
            session.put(PutRun(run))

    store.do(fill)
    forget(store, keep, now)
    left = {each.instant for each in store.store.queries.occurrences(Filter(), 9, 0)[0]}
    assert left == {2, 4, 5}
    kept = {run.id for run in store.store.queries.runs(Filter(), 99, 0)[0]}
    assert kept == {run.id for run in runs}


def test_retention_keeps_a_day_whatever_is_asked(opened):
    """Rows of a step back of the clock: an instant without its row would be served again."""
    store = opened()
    store.do(lambda session: [session.put(row(1, status="success", settled_at=10 * DAY - 1))])
    assert forget(store, Keep(0, 0, 1), 11 * DAY - 2) == 0
    assert forget(store, Keep(0, 0, 1), 11 * DAY) == 1
