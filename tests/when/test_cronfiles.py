"""Cron files: layers, masks, drop-ins, faults by file and line; and convergence on a real ledger."""

import os
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd import names
from crtrd.config import cronfile, cronfiles
from crtrd.config.cronfiles import load_crons, loading, mark_of, verify_file
from crtrd.core import events, files
from crtrd.core.effects import Announce, Answer, PutCron
from crtrd.errors import Code, ConfigError
from tests.core.world import H, M, at, handle

DAILY = '[cron]\nschedule = ["0 2 * * *"]\ncommand = ["true"]\n'


class Folders:
    """The three layers of one instance in a temporary folder."""

    def __init__(self, root):
        self.places = names.Places(root / "etc", (root / "run", root / "usr"), root, root, user=False, home=root)
        self.ids = 0

    def write(self, name, text=DAILY, layer="etc"):
        path = self.places.state / layer / "crons.d" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def load(self, zone="UTC"):
        return load_crons(self.places, zone)

    def names(self):
        return [cron.definition.name for cron in self.load().crons]

    def read_into(self, world, zone="UTC"):
        """One reload: (what was done, the faults)."""
        found = self.load(zone)
        self.ids += 1
        files = tuple(
            events.CronFile(each.source, each.definition, each.zoned, f"{self.ids:016x}{number:016x}")
            for number, each in enumerate(found.crons))
        acts = world.do(events.CronFilesRead(world.now, 1, 0, files, found.kept, found.whole, found.mark))
        (done,) = [act.value for act in acts if isinstance(act, Answer)]
        return {what: count for what, count in done.items() if count}, found.faults


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


# reading ---------------------------------------------------------------------------------------------------------


def test_stronger_layers_win(folders):
    for layer, hour in (("usr", 1), ("run", 2), ("etc", 3)):
        folders.write("a.toml", DAILY.replace("0 2", f"0 {hour}"), layer)
    folders.write("b.toml", layer="usr")
    found = folders.load()
    assert [cron.definition.schedule for cron in found.crons] == [("0 3 * * *",), ("0 2 * * *",)]
    assert found.crons[1].source.endswith("/usr/crons.d/b.toml")
    assert found.faults == ()


@pytest.mark.parametrize("how", ["empty", "null"])
def test_masks(folders, how):
    folders.write("a.toml", layer="usr")
    mask = folders.write("a.toml", "")
    if how == "null":
        mask.unlink()
        mask.symlink_to("/dev/null")
    found = folders.load()
    assert (found.crons, found.faults, found.kept) == ((), (), frozenset())


def test_dropins_edit_across_layers(folders):
    folders.write("a.toml", DAILY + '[cron.env]\nA = "1"\nB = "1"\n', "usr")
    folders.write("a.toml.d/10-x.toml", '[cron]\nretries = 1\nenv = { B = "2" }\n', "usr")
    folders.write("a.toml.d/20-y.toml", '[cron]\nretries = 2\nshell = "x | y"\n', "etc")
    folders.write("a.toml.d/30-z.toml", "[cron]\nretries = 3\n", "run")
    folders.write("a.toml.d/30-z.toml", "", "etc")
    (cron,) = folders.load().crons
    assert cron.definition.retries == 2
    assert cron.definition.env == (("A", "1"), ("B", "2"))
    assert (cron.definition.command, cron.definition.shell) == ((), "x | y")


def test_dropins_alone_define_nothing(folders):
    folders.write("a.toml.d/10-x.toml", "[cron]\nretries = 1\n")
    assert folders.names() == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[cron]\ncommand = ["true"\nretries = 1\n', "/etc/crons.d/bad.toml:3: "),
        ('[cron]\ncommand = ["true"', "bad.toml:2: "),
        ('[cron]\ncommand = ["true"]\n\nretries = "x"\n', "bad.toml:4: retries: it must be a whole number"),
        ('[cron]\ncommand = ["true"]\nfrobs = 1\n', "bad.toml:3: frobs: there is no such key"),
        ('[cron]\nschedule = ["61 * * * *"]\ncommand = ["true"]\n', "bad.toml:2: schedule: '61 * * * *': minute: 61"),
        ('[cron]\nschedule = ["0 0 30 2 *"]\ncommand = ["true"]\n', "bad.toml:2: schedule: "),
        ('[cron]\ncommand = ["true"]\ntimezone = "../etc/passwd"\n', "bad.toml:3: timezone: "),
        ('[cron]\ncommand = ["true"]\nexclude = ["no-such"]\n', "bad.toml:3: exclude: there is no calendar 'no-such'"),
        ('[cron]\ncommand = ["true"]\n[cron.env]\n"A=B" = "x"\n', "bad.toml:3: env: "),
        ('[cron]\ncommand = ["true"]\n"env" = { "" = "x" }\n', "bad.toml:3: env: "),
        ('[cron]\ncommand = ["true"]\nenv = { "BASH_FUNC_x%%" = "x" }\n', "bad.toml:3: env: 'BASH_FUNC_x%%' is not"),
        ('[cron]\ncommand = ["true"]\nenv = { A = "a\\u0000b" }\n', "bad.toml:3: env: it contains a NUL"),
        (f'[cron]\ncommand = ["true"]\nenv = {{ A = "{"x" * 204_800}" }}\n', "bad.toml:3: env: it has 204800 bytes"),
        ('[cron]\ncommand = ["true"]\nenv = { CRTR_X = "x" }\n', "bad.toml:3: env: CRTR_X"),
        (f'[cron]\ncommand = ["true"]\nenv{".a" * 150_000} = 1\n', "bad.toml:3: A key has more than 100 parts"),
        (f'[cron]\ncommand = ["true"]\n[cron{" . a" * 150_000}]\n', "bad.toml:3: A key has more than 100 parts"),
        (f'[cron]\ncommand = ["true"]\nenv = {{ a{".a" * 150_000} = 1 }}\n', "bad.toml:3: A key has more than 100"),
        ('[cron]\nname = "x"\ncommand = ["true"]\n', "bad.toml:2: name: "),
        ('[cron]\ncommand = ["true"]\n[other]\nx = 1\n', "bad.toml:3: other: "),
        ("retries = 1\n", "bad.toml:1: retries: "), ("# nothing\n", "no table [cron]"), ("\xff\n", "bad.toml"),
    ],
)
def test_a_bad_file_is_named_by_line_and_key(folders, text, said):
    """C10, C42: and the file beside it is taken."""
    folders.write("good.toml")
    path = folders.write("bad.toml")
    path.write_bytes(text.encode("latin-1"))
    found = folders.load()
    assert [cron.definition.name for cron in found.crons] == ["good"]
    assert found.kept == {"bad"}
    (fault,) = found.faults
    assert said in str(fault)


def test_texts_with_many_dots_are_no_keys(folders):
    text = ", ".join(["a." * 500, "[" + "b . " * 500, "'c'." * 500])
    folders.write("a.toml", DAILY + f'stdin = "{text}"\nexclude = []\n[cron.env]\n"A" = "{text}"\n')
    (cron,) = folders.load().crons
    assert cron.definition.stdin == text
    assert dict(cron.definition.env)["A"] == text


def test_a_fault_in_a_dropin_is_named_there(folders):
    folders.write("a.toml")
    folders.write("a.toml.d/x.toml", '[cron]\n\ngrace = "soon"\n')
    (fault,) = folders.load().faults
    assert "a.toml.d/x.toml:3: grace: " in str(fault)


def test_odd_files_do_not_stop_the_others(folders):
    folders.write("good.toml")
    etc = folders.places.config / "crons.d"
    os.mkfifo(etc / "pipe.toml")
    (etc / "folder.toml").mkdir()
    (etc / "dangling.toml").symlink_to("/nonexistent")
    (etc / "bad name.toml").write_text(DAILY)
    (etc / ".hidden.toml").write_text("x")
    (etc / "notes.txt").write_text("x")
    found = folders.load()
    assert [cron.definition.name for cron in found.crons] == ["good"]
    assert len(found.faults) == 4


@pytest.mark.parametrize("name", [
    "job.toml~", "job.toml.dpkg-old", "job.toml.dpkg-new", "job.toml.dpkg-dist", "job.toml.ucf-old", "job.toml.bak",
    ".#job.toml", "#job.toml#", ".job.toml.swp", "job.toml.swp", ".toml", "..toml", "JOB.TOML", "job.toml.d"])
def test_what_editors_and_packages_leave_is_no_cron(folders, name):
    """Debian's cron ran such leftovers of /etc/cron.d, until it looked at names."""
    folders.write("job.toml")
    (folders.places.config / "crons.d" / name).write_text(DAILY.replace("0 2", "0 3"))
    found = folders.load()
    assert [cron.definition.schedule for cron in found.crons] == [("0 2 * * *",)]
    assert found.faults == ()


@pytest.mark.parametrize("change", [
    lambda data: b"\xef\xbb\xbf" + data, lambda data: data.replace(b"\n", b"\r\n"), lambda data: data.rstrip(b"\n")])
def test_what_editors_of_other_systems_write_means_the_same(folders, change):
    folders.write("job.toml")
    path = folders.places.config / "crons.d" / "job.toml"
    before = folders.load()
    path.write_bytes(change(path.read_bytes()))
    found = folders.load()
    assert (found.faults, found.crons) == ((), before.crons)
    assert len(found.crons) == 1


def test_mark_tells_what_needs_reading(folders):
    path = folders.write("a.toml")
    mark = mark_of(folders.places, "UTC")
    assert mark_of(folders.places, "UTC") == mark == folders.load().mark
    assert mark_of(folders.places, "Europe/Berlin") != mark
    path.write_text(DAILY + "retries = 1\n")
    assert mark_of(folders.places, "UTC") != mark
    mark = mark_of(folders.places, "UTC")
    folders.write("a.toml.d/x.toml")
    assert mark_of(folders.places, "UTC") != mark


def test_verify_reads_as_the_daemon_would(folders):
    assert verify_file(folders.write("a.toml"), "UTC").name == "a"
    with pytest.raises(ConfigError, match="empty"):
        verify_file(folders.write("b.toml", ""), "UTC")


KEY = st.sampled_from(["schedule", "command", "retries", "name", "x", "a_b"])
TEXT = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["", "\\", "#", "]", '", "', "=", "\x7f", " = "])
VALUE = st.one_of(
    TEXT.map('"{}"'.format), st.lists(TEXT.map('"{}"'.format)).map(", ".join).map("[{}]".format),
    st.integers(0, 10**11).map(str), st.sampled_from(["true", "false", "00", "1.5", "[]", "[1]", "{}", "'x'", ""]))
LINE = st.builds("{} = {}\n".format, KEY, VALUE) | st.sampled_from(
    ["\n", "# x\n", "[cron]\n", "x=1\n", "[cron.env]\n"])


@given(st.lists(LINE, max_size=4).map("".join), st.sampled_from(["[cron]\n", "[cron] \n", ""]))
def test_plain_files_are_read_as_any_other(lines, first):
    """What has a way of its own says what tomllib says, and is refused by nobody else."""
    plain = cronfile._read_plain(first + lines)
    if plain is not None:
        assert tomllib.loads(first + lines)["cron"] == plain


def test_most_files_are_plain():
    assert cronfile._read_plain(DAILY + 'retries = 3\nsinks = []\n') == {
        "schedule": ["0 2 * * *"], "command": ["true"], "retries": 3, "sinks": []}


# converging ------------------------------------------------------------------------------------------------------


def test_new_changed_and_removed(folders, world):
    first, second = folders.write("a.toml"), folders.write("b.toml")
    assert folders.read_into(world) == ({"armed": 2}, ())
    assert world.cron("a").source == str(first)
    assert world.cron("a").next_at == at("2026-12-02T02:00Z")
    first.write_text(DAILY.replace("0 2", "30 3"))
    second.unlink()
    identity = world.cron("a").id
    assert folders.read_into(world) == ({"changed": 1, "canceled": 1}, ())
    assert world.cron("a").next_at == at("2026-12-02T03:30Z")
    assert world.cron("a").id == identity
    assert world.cron("b") is None


def test_unchanged_files_cause_no_write_and_no_event(folders, world):
    folders.write("a.toml")
    folders.read_into(world)
    before, said = world.dump(), len(world.said)
    world.now += H
    assert folders.read_into(world) == ({}, ())
    assert world.dump() == before
    assert len(world.said) == said


def test_state_stays_over_a_change(folders, world):
    path = folders.write("a.toml", DAILY + 'on_failure = "continue"\n')
    folders.read_into(world)
    world.now = at("2026-12-02T02:00Z")
    world.wake()
    world.end(world.live("a")[0], 1)
    world.pause("a", "look at it")
    path.write_text(DAILY + 'retries = 2\non_failure = "continue"\n')
    assert folders.read_into(world)[0] == {"changed": 1}
    cron = world.cron("a")
    assert (cron.state, cron.paused_by, cron.note, cron.failures) == ("paused", "user", "look at it", 1)
    assert [row.status for row in world.rows("a")] == ["failed"]
    assert cron.definition.retries == 2


def test_a_bad_file_leaves_its_last_good_definition_running(folders, world):
    path = folders.write("a.toml")
    folders.read_into(world)
    for text in ("[cron]\ncommand = 5\n", "nonsense"):
        path.write_text(text)
        done, faults = folders.read_into(world)
        assert done == {}
        assert "a.toml" in str(faults[0])
        assert world.cron("a").next_at == at("2026-12-02T02:00Z")
    world.now = at("2026-12-02T02:00Z")
    world.wake()
    assert world.live("a")
    path.unlink()
    assert folders.read_into(world)[0] == {"canceled": 1}
    assert world.session.cron(world.rows("a")[0].cron_id) is None
    assert world.rows("a")[0].status == "running"


def test_a_folder_that_cannot_be_read_removes_nothing(folders, world):
    folders.write("a.toml")
    folders.read_into(world)
    crons = folders.places.config / "crons.d"
    crons.rename(crons.with_name("elsewhere"))
    crons.write_text("not a folder")
    done, faults = folders.read_into(world)
    assert done == {}
    assert "crons.d" in str(faults[0])
    assert world.cron("a") is not None
    crons.unlink()
    assert folders.read_into(world)[0] == {"canceled": 1}


def test_a_name_that_was_armed_otherwise_is_left_alone(folders, world):
    world.arm("a", schedule=("0 2 * * *",), command=("other",))
    folders.write("a.toml")
    assert folders.read_into(world)[0] == {"refused": 1}
    assert "armed otherwise" in world.said[-1].message
    assert world.cron("a").definition.command == ("other",)
    world.cancel("a")
    assert folders.read_into(world)[0] == {"armed": 1}


def test_an_exported_cron_is_adopted_by_its_file(folders, world):
    armed = world.arm("a", schedule=("0 2 * * *",))
    path = folders.write("a.toml", DAILY + 'timezone = "UTC"\n')
    assert folders.read_into(world) == ({}, ())
    assert (world.cron("a").id, world.cron("a").source) == (armed.id, str(path))


def test_what_a_file_defines_is_changed_there_only(folders, world):
    folders.write("a.toml")
    folders.read_into(world)
    assert world.refused(world.change, "a", retries=1) is Code.INVALID_STATE
    assert world.refused(world.cancel, "a") is Code.INVALID_STATE
    world.pause("a")
    world.resume("a")


def test_the_host_zone_may_change_the_stored_one_stays(folders, world):
    folders.write("a.toml")
    folders.read_into(world, "Europe/Berlin")
    assert world.cron("a").next_at == at("2026-12-02T01:00Z")
    assert folders.read_into(world, "Asia/Tokyo") == ({}, ())
    assert world.cron("a").definition.timezone == "Europe/Berlin"
    folders.write("a.toml", DAILY + 'timezone = "Asia/Tokyo"\n')
    assert folders.read_into(world, "Europe/Berlin")[0] == {"changed": 1}
    assert world.cron("a").next_at == at("2026-12-01T17:00Z")


def test_editing_a_file_never_fires_and_misses_nothing(folders, world):
    """C18 through a file."""
    path = folders.write("a.toml", DAILY.replace("0 2", "35 5"))
    world.now = at("2026-12-01T00:00Z")
    folders.read_into(world)
    world.now = at("2026-12-01T05:35Z")
    world.wake()
    world.end_all(name="a")
    world.now = at("2026-12-01T10:37Z")
    path.write_text(DAILY.replace("0 2", "35 6"))
    folders.read_into(world)
    assert world.cron("a").next_at == at("2026-12-02T06:35Z")
    path.write_text(DAILY.replace("0 2 * * *", "* * * * *"))
    folders.read_into(world)
    assert world.cron("a").next_at == at("2026-12-01T10:38Z")
    assert [row.status for row in world.rows("a")] == ["success"]


def test_what_was_due_before_the_reload_belongs_to_the_old_definition(folders, world):
    path = folders.write("a.toml", DAILY.replace("0 2", "0 11"))
    folders.read_into(world)
    world.now += H + M
    path.unlink()
    folders.read_into(world)
    assert [row.reason for row in world.rows("a")] == ["canceled"]


def test_a_one_shot_that_ran_stays_finished(folders, world):
    path = folders.write("a.toml", '[cron]\nschedule = ["at 2026-12-01T11:00Z"]\ncommand = ["true"]\n')
    folders.read_into(world)
    world.wake(H)
    world.end_all(name="a")
    assert world.cron("a").state == "finished"
    assert folders.read_into(world) == ({}, ())
    path.write_text(path.read_text() + "retries = 1\n")
    assert folders.read_into(world)[0] == {"changed": 1}
    assert (world.cron("a").state, len(world.rows("a"))) == ("finished", 1)
    path.write_text('[cron]\nschedule = ["at 2026-12-01T10:30Z"]\ncommand = ["true"]\n')
    folders.write("late.toml", path.read_text())
    assert folders.read_into(world)[0]["refused"] >= 1


def a_portion(world, portion, number=0):
    """Hand in one portion of a load: what was done."""
    files = tuple(events.CronFile(each.source, each.definition, each.zoned, f"{number:016x}{place:016x}")
                  for place, each in enumerate(portion.crons))
    acts = world.do(events.CronFilesRead(
        world.now, 1, 0, files, portion.kept, portion.whole, portion.mark, portion.after, portion.upto))
    (done,) = [act.value for act in acts if isinstance(act, Answer)]
    return {what: count for what, count in done.items() if count}


def test_many_files_come_in_portions_that_stand_for_all_names_between(folders, world, monkeypatch):
    monkeypatch.setattr(cronfiles, "PORTION", 3)
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        folders.write(f"{name}.toml")
    found = [each for each in loading(folders.places, "UTC") if each is not None]
    assert [(each.after, each.upto, len(each.crons)) for each in found] == [("", "c", 3), ("c", "f", 3), ("f", "", 1)]
    assert [bool(each.mark) for each in found] == [False, False, True]
    for number, portion in enumerate(found):
        assert world.session.recall(files.MARK) is None  # until all of it was taken in
        assert a_portion(world, portion, number) == {"armed": len(portion.crons)}
    assert world.session.recall(files.MARK) == mark_of(folders.places, "UTC")
    for name in ("b", "f", "g"):
        (folders.places.config / f"crons.d/{name}.toml").unlink()
    folders.write("b-2.toml", "nonsense")
    first, last = [each for each in loading(folders.places, "UTC") if each is not None]
    assert (first.kept, first.upto, last.after) == ({"b-2"}, "c", "c")
    assert a_portion(world, first) == {"canceled": 1}
    assert [name for name in "abcdefg" if world.cron(name)] == ["a", "c", "d", "e", "f", "g"]
    assert a_portion(world, last) == {"canceled": 2}
    assert [name for name in "abcdefg" if world.cron(name)] == ["a", "c", "d", "e"]


def test_a_load_that_was_cut_off_is_finished_by_the_next(folders, world, monkeypatch):
    monkeypatch.setattr(cronfiles, "PORTION", 2)
    for name in ("a", "b", "c"):
        folders.write(f"{name}.toml")
    a_portion(world, next(each for each in loading(folders.places, "UTC") if each is not None))
    identity = world.cron("a").id
    world.restart()
    assert folders.read_into(world) == ({"armed": 1}, ())
    assert world.cron("a").id == identity


def test_no_files_are_one_empty_portion(folders):
    (only,) = [each for each in loading(folders.places, "UTC") if each is not None]
    assert (only.crons, only.after, only.upto) == ((), "", "")


def test_a_load_of_many_files_can_stop_every_few(folders):
    for number in range(60):
        folders.write(f"c{number}.toml")
    steps = list(loading(folders.places, "UTC"))
    assert sum(each is None for each in steps) >= 60 // cronfiles.LOADS


@pytest.mark.parametrize("count", [20, 400])
def test_questions_are_asked_for_a_portion_not_for_each_cron(folders, world, count):
    for number in range(count):
        folders.write(f"c{number}.toml", DAILY.replace("0 2", f"{number % 60} {number % 24}"))
    asked = []
    world.database.connection().set_trace_callback(asked.append)
    assert folders.read_into(world) == ({"armed": count}, ())
    world.database.connection().set_trace_callback(None)
    assert sum(sql.startswith("INSERT INTO \"crons\"") for sql in asked) == count
    assert len(asked) - count < 25


def test_what_is_the_same_is_not_written(folders, world):
    for number in range(50):
        folders.write(f"c{number}.toml")
    folders.read_into(world)
    found = folders.load()
    again = tuple(events.CronFile(each.source, each.definition, each.zoned, "f" * 32) for each in found.crons)
    event = events.CronFilesRead(world.now, None, 0, again, found.kept, found.whole, found.mark)
    effects = list(handle(event, world.session, world.limits))
    assert [effect for effect in effects if isinstance(effect, PutCron | Announce)] == []


def test_damage_in_the_ledger_is_mended_by_the_file(folders, world):
    """C10: what an older version or a hand has put there is parked, and the file's definition brings it back."""
    folders.write("a.toml")
    folders.read_into(world)
    text = '{"name":"a","schedule":[],"zzz":1}'
    world.database.execute_sql("UPDATE crons SET definition = ?, next_at = NULL", (text,))
    world.restart()
    assert world.cron("a").state == "paused"
    assert folders.read_into(world)[0] == {"changed": 1}
    assert (world.cron("a").state, world.cron("a").next_at) == ("active", at("2026-12-02T02:00Z"))
