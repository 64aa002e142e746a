"""crtrd.toml and its drop-ins: every setting, whole or refused; the host's zone."""

import pytest

from crtrd.config.loader import SIZE_LIMIT, host_zone, load_settings, read_toml
from crtrd.config.settings import READERS, ClockMode, Retention, Settings
from crtrd.errors import ConfigError
from crtrd.names import places

S, D = 1_000_000, 86_400_000_000


@pytest.fixture
def home(tmp_path):
    found = places({"CRTR_HOME": str(tmp_path)}, user=False)
    (found.config / "crtrd.toml.d").mkdir(parents=True)
    return found


def load(home, text, **drop_ins):
    (home.config / "crtrd.toml").write_text(text)
    for name, more in drop_ins.items():
        (home.config / "crtrd.toml.d" / f"{name}.toml").write_text(more)
    return load_settings(home)


def test_without_a_file_the_contracts_defaults(home):
    assert load_settings(home) == Settings()
    assert Settings().idle_grace == 30 * S
    assert Settings().retention == Retention(30 * D, 365 * D, 1000)


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ('clock = "internal"', "clock", ClockMode.INTERNAL), ('idle_grace = "2s"', "idle_grace", 2 * S),
        ("idle_grace = 0", "idle_grace", 0), ("idle_grace = 0.5", "idle_grace", S // 2),
        ('max_lifetime = "3h"', "max_lifetime", 10_800 * S), ("max_runs_at_once = 1", "max_runs_at_once", 1),
        ("pools = { disk = 2, net = 1 }", "pools", (("disk", 2), ("net", 1))), ('lease_ttl = "5s"', "lease_ttl", 5 * S),
        ("output_head = 0", "output_head", 0), ('journal_limit = "2M"', "journal_limit", 2 << 20),
        ("journal_limit = 77", "journal_limit", 77), ('journal_limit = "1k"', "journal_limit", 1024),
        ('retention = { success = "1d" }', "retention", Retention(success=D)),
        ('mail_from = "a@b"', "mail_from", "a@b"), ("mail_from = ''", "mail_from", ""),
        ('mail_from = "Jörg <a@b>"', "mail_from", "Jörg <a@b>"), ("mail_from = 'crtrd'", "mail_from", "crtrd"),
        ('metrics_textfile = "/x"', "metrics_textfile", "/x"),
        ('ledger = "sqlite"', "ledger", "sqlite"),
    ],
)
def test_settings(home, text, field, value):
    assert getattr(load(home, text), field) == value


WRONG = {
    "clock": ['"sundial"', "7", "true", "[]", "{}"],
    "idle_grace": ['"soon"', "true", "[]", "-1", "inf", "nan", '"2000y"', "1e300", '""'],
    "max_lifetime": ['"0s"', "0.5", "inf"],
    "max_runs_at_once": ["0", "-1", "true", '"7"', "1.0", "100001", "9223372036854775807"],
    "pools": ["7", "[]", "{ a = 0 }", '{ a = "1" }', "{ a = true }"],
    "lease_ttl": ['"0.5s"', "0"],
    "output_head": ["-1", "1048577", '"1K"'],
    "journal_limit": ['"1X"', '"M"', "-1", "true", '""', "1.5", '"1 M"', f'"{"9" * 30}G"', f'"{"9" * 5000}"'],
    "retention": ["7", '"1d"', '{ success = "soon" }', "{ novel = 1 }", "{ runs_per_cron = 0 }", "{ failure = inf }"],
    "mail_from": ["7", '"a\\u0000b"', '"a@b\\nBcc: c@d"', '"a@"', '"@b"', '"a b"', '"<>"', '"X <a@b"', '"a@b>"',
                  '"a@é.b"', '"X <a@b> y"'],
    "metrics_textfile": ["[]"],
    "ledger": ['"postgres"', "7"],
    "novel": ["7"],
}


def test_every_setting_has_wrong_values_here():
    assert set(WRONG) == {*READERS, "novel"}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in WRONG.items() for value in values])
def test_a_file_is_refused_whole_and_names_file_and_key(home, key, value):
    with pytest.raises(ConfigError) as raised:
        load(home, f'idle_grace = "1s"\n{key} = {value}\n' if key != "idle_grace" else f"{key} = {value}")
    assert raised.value.key.partition(".")[0] == key
    assert raised.value.path == str(home.config / "crtrd.toml")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("data", [b"[", b"a = 1\na = 2", b"\xff\xfe", b"a = " + b"[" * 5000, b"#" * (SIZE_LIMIT + 1)])
def test_files_that_are_no_toml(home, data):
    (home.config / "crtrd.toml").write_bytes(data)
    with pytest.raises(ConfigError) as raised:
        load_settings(home)
    assert raised.value.path == str(home.config / "crtrd.toml")


def test_what_cannot_be_read_is_no_missing_file(home):
    (home.config / "crtrd.toml").mkdir()
    with pytest.raises(ConfigError, match="directory"):
        load_settings(home)
    assert read_toml(home.config / "absent.toml") is None


def test_drop_ins_come_after_in_the_order_of_their_names(home):
    found = load(
        home, "max_runs_at_once = 1\noutput_head = 1",
        **{"10-a": "max_runs_at_once = 2\nlease_ttl = 9", "9-b": "max_runs_at_once = 3\nlease_ttl = 8"})
    assert (found.max_runs_at_once, found.output_head, found.lease_ttl) == (3, 1, 8 * S)


def test_a_bad_drop_in_names_itself(home):
    with pytest.raises(ConfigError) as raised:
        load(home, "", **{"50-x": "novel = 1"})
    assert raised.value.path.endswith("crtrd.toml.d/50-x.toml")


# the host's zone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("link", "text", "zone"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "Asia/Tokyo\n", "Europe/Berlin"),
        ("/usr/lib/zoneinfo/UTC", None, "UTC"), ("../usr/share/zoneinfo/x", "Asia/Tokyo\n", "Asia/Tokyo"),
        (None, "Asia/Tokyo\n", "Asia/Tokyo"), (None, "", "UTC"), (None, None, "UTC"),
        ("/somewhere/else", None, "UTC"),
    ],
)
def test_host_zone(tmp_path, link, text, zone):
    localtime, timezone = tmp_path / "localtime", tmp_path / "timezone"
    if link:
        localtime.symlink_to(link)
    if text is not None:
        timezone.write_text(text)
    assert host_zone(localtime, timezone) == zone


def test_a_localtime_that_is_a_file_says_nothing(tmp_path):
    (tmp_path / "localtime").write_bytes(b"TZif")
    assert host_zone(tmp_path / "localtime", tmp_path / "absent") == "UTC"


def test_a_timezone_file_that_is_not_text(tmp_path):
    (tmp_path / "timezone").write_bytes(b"\xff\xfe")
    assert host_zone(tmp_path / "absent", tmp_path / "timezone") == "UTC"


@pytest.mark.parametrize(
    ("line", "key"),
    [('retention = { success = "soon" }', "retention.success"), ("pools = { backup = 0 }", "pools.backup"),
     ("retention = { novel = 1 }", "retention.novel")],
)
def test_a_key_within_a_table_is_named_in_full(home, line, key):
    with pytest.raises(ConfigError) as raised:
        load(home, line)
    assert raised.value.key == key
