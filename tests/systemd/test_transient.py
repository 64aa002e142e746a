"""Transient units as data."""

from datetime import UTC, datetime

import pytest

from crtrd.systemd.transient import INFINITY, LATEST, calendar_text, property_list, scope, unit_path, wake_timer


@pytest.mark.parametrize(("instant", "text"), [
    (0, "1970-01-01 00:00:00.000000 UTC"),
    (1_796_044_918_389_882, "2026-11-30 13:21:58.389882 UTC"),
    (LATEST, "2199-12-31 23:59:59.999999 UTC"),
])
def test_calendar_text_is_exact(instant, text):
    assert calendar_text(instant) == text
    moment = datetime.strptime(text, "%Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC)
    assert int(moment.timestamp()) * 1_000_000 + moment.microsecond == instant


def test_wake_timer():
    assert {name: (signature, value) for name, signature, value in wake_timer(1)} == {
        "Description": (b"s", "Wake-up of crtrd for its next instant"),
        "TimersCalendar": (b"a(ss)", [("OnCalendar", "1970-01-01 00:00:00.000001 UTC")]),
        "AccuracyUSec": (b"t", 1),
        "RemainAfterElapse": (b"b", False),
        "WakeSystem": (b"b", False),
        "CollectMode": (b"s", "inactive-or-failed"),
    }


def test_scope():
    assert ("PIDs", b"au", [42]) in scope(42, {"MemoryMax": INFINITY})
    assert ("MemoryMax", b"t", INFINITY) in scope(42, {"MemoryMax": INFINITY})


@pytest.mark.parametrize("values", [{"MemoryMax": "1G"}, {"MemoryMax": -1}, {"MemoryMax": INFINITY + 1}, {"Slice": 3},
                                    {"MemoryMax": True}, {"ExecStart": "x"}, {"PIDs": 3}, {"Delegate": "yes"}])
def test_a_property_of_another_type_or_name_is_refused(values):
    with pytest.raises(ValueError, match="cannot set unit property"):
        property_list(values)


@pytest.mark.parametrize(("name", "path"), [
    ("crtrd-wake.timer", b"crtrd_2dwake_2etimer"), ("9a.scope", b"_39a_2escope"), ("ä@x.scope", b"_c3_a4_40x_2escope"),
])
def test_unit_path(name, path):
    assert unit_path(name) == b"/org/freedesktop/systemd1/unit/" + path
