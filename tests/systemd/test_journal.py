"""A real socket stands where journald's is; what arrives is parsed by a reader of its own."""

import contextlib
import fcntl
import io
import os
import select
import socket
import struct
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtrd.core.effects import Announce
from crtrd.systemd import journal as room
from crtrd.systemd.entry import serialize, to_bytes
from crtrd.systemd.events import MESSAGE_IDS
from crtrd.systemd.journal import Journal

ANNOUNCE = Announce("cron.armed", "tick: armed", {"CRTRD_CRON": "tick", "CRTRD_REASON": "", "CRTRD_CALLER_UID": 0}, 5)


def parse(data):
    """journald's reading of one entry: list of (name, value)."""
    fields = []
    while data:
        line, _, rest = data.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
            data = rest
        else:
            name, (length,) = line, struct.unpack_from("<Q", rest)
            value, data = rest[8:8 + length], rest[8 + length:]
            assert data[:1] == b"\n"
            data = data[1:]
        fields.append((name.decode("ascii"), value))
    return fields


class Journald:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        self.socket.settimeout(5)

    def entry(self):
        return dict(parse(self.receive()))

    def receive(self):
        data, fds, _, _ = socket.recv_fds(self.socket, 1 << 22, 2)
        if not fds:
            return data
        assert data == b""
        seals = fcntl.fcntl(fds[0], fcntl.F_GET_SEALS)
        assert seals == fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
        size = os.fstat(fds[0]).st_size
        with open(fds[0], "rb") as file:
            file.seek(0)
            data = file.read()
        assert len(data) == size
        return data

    def entries(self):
        while select.select([self.socket], [], [], 0)[0]:
            yield self.entry()


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "socket")


@pytest.fixture
def journald(path):
    made = Journald(path)
    yield made
    made.socket.close()


@pytest.fixture
def journal(path):
    made = Journal(None, path)
    yield made
    made.close()


def test_event(journald, journal):
    journal.event(ANNOUNCE)
    assert journald.entry() == {
        "MESSAGE": b"tick: armed", "MESSAGE_ID": MESSAGE_IDS["cron.armed"].encode(), "PRIORITY": b"5",
        "SYSLOG_IDENTIFIER": b"crtrd", "CRTRD_EVENT": b"cron.armed", "CRTRD_CRON": b"tick", "CRTRD_CALLER_UID": b"0",
    }


def test_events_above_the_level_are_left_out_and_output_is_not(journald, journal):
    journal.set_level(4)
    journal.event(ANNOUNCE)
    journal.event(Announce("auth.denied", "no", {}, 4))
    journal.output("tick", "stdout", [b"line"], {})
    assert [entry["MESSAGE"] for entry in journald.entries()] == [b"no", b"line"]


def test_output_is_one_entry_a_line_and_binary_safe(journald, journal):
    lines = [b"tick", b"", b"\x1b[31mred\x1b[0m", b"\xff\xfe\x00nul", b"a=b", b"two\nlines", "größe".encode()]
    journal.output("backup", "stderr", lines, {"CRTRD_RUN_ID": "0" * 32})
    entries = list(journald.entries())
    assert [entry["MESSAGE"] for entry in entries] == lines
    for entry in entries:
        assert entry["SYSLOG_IDENTIFIER"] == b"backup"
        assert entry["CRTRD_STREAM"] == b"stderr"
        assert entry["CRTRD_RUN_ID"] == b"0" * 32
        assert entry["PRIORITY"] == b"6"


@pytest.mark.parametrize("size", [100_000, 400_000, 3_000_000, 20_000_000])
def test_large_entries_arrive_whole(journald, journal, size):
    line = os.urandom(size)
    journal.output("big", "stdout", [line, b"after"], {})
    assert journald.entry()["MESSAGE"] == line
    assert journald.entry()["MESSAGE"] == b"after"


def test_a_journal_that_was_started_anew_is_found_again(path, journal):
    first = Journald(path)
    journal.event(ANNOUNCE)
    first.entry()
    first.socket.close()
    os.unlink(path)
    journal.event(ANNOUNCE)
    journal.event(ANNOUNCE)
    assert journal.lost == 2
    second = Journald(path)
    journal.event(ANNOUNCE)
    lost, event = second.entries()
    assert lost["CRTRD_EVENT"] == b"journal.lost"
    assert lost["CRTRD_LOST"] == b"2"
    assert lost["MESSAGE"] == b"lost 2 journal entries that the journal did not take in time"
    assert event["MESSAGE"] == b"tick: armed"
    assert journal.lost == 0
    second.socket.close()


def test_what_a_run_has_lost_is_told_with_the_run(path, journal, monkeypatch):
    """So that `crtrctl logs` of it shows that something is missing."""
    monkeypatch.setattr(room, "MOST_TOLD", 3)
    first = Journald(path)
    journal.event(ANNOUNCE)
    first.socket.close()
    os.unlink(path)
    for number in range(room.MOST_TOLD + 2):
        journal.output("tick", "stdout", [b"a", b"b"], {"CRTRD_RUN_ID": f"{number:032x}"})
    second = Journald(path)
    journal.event(ANNOUNCE)
    entries = list(second.entries())
    second.socket.close()
    told = {entry.get("CRTRD_RUN_ID"): entry["CRTRD_LOST"] for entry in entries[:-1]}
    assert told.pop(None) == b"4", entries
    assert told == {f"{number:032x}".encode(): b"2" for number in range(room.MOST_TOLD)}
    assert journal.lost == 0


def test_events_for_debugging_are_left_out_at_first(journald, journal):
    journal.event(Announce("auth.denied", "no", {}, 7))
    journal.event(ANNOUNCE)
    assert [entry["MESSAGE"] for entry in journald.entries()] == [b"tick: armed"]


def test_a_restart_between_two_entries_loses_none(path, journal):
    first = Journald(path)
    journal.event(ANNOUNCE)
    first.socket.close()
    os.unlink(path)
    second = Journald(path)
    journal.event(ANNOUNCE)
    assert second.entry()["MESSAGE"] == b"tick: armed"
    assert journal.lost == 0
    second.socket.close()


def test_a_full_journal_holds_up_for_a_moment_and_the_loss_is_told(journald, journal):
    before = time.monotonic()
    for _ in range(10):
        journal.output("tick", "stdout", [b"x" * 1000] * 500, {})
    assert time.monotonic() - before < 2
    assert journal.lost > 0
    arrived = len(list(journald.entries()))
    assert arrived + journal.lost == 5000
    told = journal.lost
    journal.event(ANNOUNCE)
    lost, event = journald.entries()
    assert lost["CRTRD_LOST"] == str(told).encode()
    assert event["CRTRD_EVENT"] == b"cron.armed"


def test_a_journal_that_takes_its_time_is_waited_for(journald, journal, monkeypatch):
    monkeypatch.setattr(room, "PATIENCE", 60_000_000)
    monkeypatch.setattr(room, "STANDSTILL", 20_000_000)
    reader = threading.Thread(target=lambda: [journald.receive() for _ in range(3000)])
    reader.start()
    journal.output("tick", "stdout", [b"x" * 1000] * 3000, {})
    reader.join()
    assert journal.lost == 0


def test_without_a_journal_events_are_readable_lines(path):
    text = io.StringIO()
    journal = Journal(text, path)
    journal.event(ANNOUNCE)
    journal.output("tick", "stdout", [b"ok\x1b[2J \xff"], {})
    assert text.getvalue() == "cron.armed: tick: armed\ntick stdout: ok\\x1b[2J \\xff\n"
    assert journal.lost == 0


def test_a_fallback_that_cannot_be_written_is_counted(path):
    reader, writer = os.pipe()
    os.close(reader)
    text = os.fdopen(writer, "w")
    journal = Journal(text, path)
    journal.event(ANNOUNCE)
    assert journal.lost == 1
    with contextlib.suppress(BrokenPipeError):
        text.close()


def test_an_unknown_kind_is_told_all_the_same(journald, journal):
    journal.event(Announce("cron.invented", "x"))
    entry = journald.entry()
    assert entry["CRTRD_EVENT"] == b"cron.invented"
    assert "MESSAGE_ID" not in entry


@pytest.mark.parametrize("name", ["", "lower", "_HIDDEN", "1ST", "WITH SPACE", "A=B", "A\nB", "Ü", "X" * 65])
def test_field_names_that_journald_drops_are_refused(name):
    with pytest.raises(ValueError, match="cannot write journal field"):
        serialize([(name, b"")])


UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first draw of text is slow
NAMES = st.text("ABCXYZ019_", max_size=63).map("N".__add__)


@UNHURRIED
@given(st.lists(st.tuples(NAMES, st.binary()), max_size=8))
def test_whatever_is_written_is_read_back(fields):
    assert parse(serialize(fields)) == fields


@UNHURRIED
@given(st.text())
def test_text_is_utf8_or_escaped(text):
    assert isinstance(to_bytes(text), bytes)


def test_undecodable_file_names_keep_their_bytes():
    assert to_bytes(b"caf\xe9".decode("utf-8", "surrogateescape")) == b"caf\xe9"
    assert to_bytes("\ud800") == b"\\ud800"


def test_errors_are_seen_where_the_daemon_was_started_by_hand(journald, path):
    text = io.StringIO()
    journal = Journal(text, path)
    failed = Announce("daemon.failed", "cannot open ledger: it is taken", {}, 2)
    journal.event(failed)
    assert text.getvalue() == "", "stderr is the journal again"
    journal.aloud = True
    journal.event(ANNOUNCE)
    journal.event(failed)
    assert text.getvalue() == "crtrd: daemon.failed: cannot open ledger: it is taken\n"
    assert [entry["CRTRD_EVENT"] for entry in journald.entries()].count(b"daemon.failed") == 2
    journal.close()


def test_a_stream_is_the_journal_by_its_device_and_inode(tmp_path):
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        assert room.is_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        assert not room.is_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:1"})
        assert not room.is_journal(stream, {})
    assert not room.is_journal(None, {"JOURNAL_STREAM": "1:1"})
    assert not room.is_journal(io.StringIO(), {"JOURNAL_STREAM": "1:1"})
