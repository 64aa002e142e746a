"""One line of an inbox: what is repaired, and that nothing else of it changes."""

import json
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crtrd.migrations.inbox_entry import identity, repair

HEX = "0f" * 16
UUID = str(uuid.UUID(HEX))


@pytest.mark.parametrize("text", [UUID, UUID.upper(), f"{{{UUID}}}", f"urn:uuid:{UUID}", f"URN:UUID:{UUID.upper()}",
                                  HEX.upper(), f" {UUID}\n"])
def test_every_spelling_of_a_uuid_is_known(text):
    assert identity(text) == HEX


@pytest.mark.parametrize("text", [HEX, "", "tick", UUID[:-1], UUID.replace("-", "", 1), f"{{{UUID}", f"{UUID}}}",
                                  "\N{ARABIC-INDIC DIGIT ZERO}" * 32, "g" * 32, HEX + "0"])
def test_other_text_is_none(text):
    assert identity(text) is None


@pytest.mark.parametrize("line", [
    f'{{"id": "{HEX}"}}\n', f'{{"id":"{HEX}","run_id":null,"text":"{UUID}","cron_id":"tick"}}\r\n', "\n", "  \n", "",
    f'{{"id": "{HEX}", "operation": "{UUID}", "payload": {{"id": "{UUID}", "x_id": null}}}}\n',
    f'{{"id": "{HEX}", "operation": {{"id": "{HEX}"}}, "n": 1e400, "big": {"9" * 5000}}}\n', '{"id": 5}\n',
])
def test_a_line_in_order_is_the_same_object(line):
    line = line.encode()
    assert repair(line, "joe", 0) is line


@pytest.mark.parametrize(("line", "better"), [
    (f'{{"id":"{UUID}"}}\n', f'{{"id":"{HEX}"}}\n'),
    (f'  {{ "z" : 1.50, "id" : "{UUID.upper()}" , "é\\u00e9":"\\/" }} \r\n',
     f'  {{ "z" : 1.50, "id" : "{HEX}" , "é\\u00e9":"\\/" }} \r\n'),
    (f'{{"id": "{HEX}", "operation_id": "{UUID}", "run_id": "{{{UUID}}}", "occurrence_id": "urn:uuid:{UUID}"}}',
     f'{{"id": "{HEX}", "operation_id": "{HEX}", "run_id": "{HEX}", "occurrence_id": "{HEX}"}}'),
    (f'{{"id": "{HEX}", "operation": {{"deep": [{{"id": "{UUID}"}}], "id": "{UUID}"}}, "text": "}}{{"}}',
     f'{{"id": "{HEX}", "operation": {{"deep": [{{"id": "{UUID}"}}], "id": "{HEX}"}}, "text": "}}{{"}}'),
    (f'{{"\\u0069d": "{UUID}"}}', f'{{"\\u0069d": "{HEX}"}}'),
])
def test_only_the_identities_change(line, better):
    assert repair(line.encode(), "joe", 0) == better.encode()


@pytest.mark.parametrize("line", ["{}", '{"text": "x"}', ' { "text": "x" }', '{"id": null, "a": 1}', '{"id": ""}',
                                  f'{{"id": "{HEX}", "operation_id": ""}}', '{"operation": {"id": null}, "id": "x"}'])
def test_missing_identities_are_derived(line):
    better = repair(line.encode(), "joe", 3)
    entry, old = json.loads(better), json.loads(line)
    for key in entry.keys() & {"id", "operation_id"} - {key for key, value in old.items() if value}:
        assert len(entry[key]) == 32
    assert old.keys() | {"id"} == entry.keys()
    assert repair(line.encode(), "joe", 3) == better
    assert repair(better, "joe", 3) is better
    assert repair(line.encode(), "joe", 4) != better
    assert repair(line.encode(), "ann", 3) != better


@pytest.mark.parametrize("line", [
    b"{", b'{"id": "x"', b"[]", b'"id"', b"5", b"null", b"\0\0\0", b'{"id": "x"}\0', b"\xff{}", b'{"a": "\0"}',
    b'{"a": 1} {"b": 2}', b"\xef\xbb\xbf{}", b'{"a":' * 100000,
])
def test_damage(line):
    assert repair(line, "joe", 0) is None
    assert repair(line + b"\n", "joe", 0) is None


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                    max_leaves=8)
IDS = st.uuids().map(str) | st.uuids().map(lambda u: u.hex) | st.none() | st.text()
KEYS = st.sampled_from(["id", "operation_id", "run_id", "operation", "at", "text"]) | st.text()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, IDS | JSON, max_size=6), st.booleans(), st.sampled_from([None, 2]))
def test_any_entry_is_repaired_once_and_keeps_the_rest(entry, ascii_only, indent):
    line = json.dumps(entry, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass")
    better = repair(line, "joe", 1)
    if better is None:
        assert b"\xed" in line  # a lone surrogate is no UTF-8
        return
    assert repair(better, "joe", 1) is better
    after = json.loads(better)
    assert list(after)[-len(entry):] == list(entry) or not entry
    for key, value in entry.items():
        if not (key == "id" or key.endswith("_id") or key == "operation"):
            assert json.dumps(after[key]) == json.dumps(value)
