"""Lines of an inbox: repaired once and for all or set aside as damaged; reading gives entries or says which line."""

import pytest
from hypothesis import given

from crtrd.delivery import inbox
from crtrd.migrations import inbox_entry
from tests.fuzz.driver import hostile, inputs, seeds


def check(folder, data):
    for number, line in enumerate(data.split(b"\n"), 1):
        mended = inbox_entry.repair(line, "root", number)
        if mended is not None:
            assert inbox_entry.repair(mended, "root", number) == mended
            assert not line.strip() or inbox_entry.read(mended)["id"]
    (folder / "root.jsonl").write_bytes(data)
    try:
        page = inbox.read(folder, "root", "", 10)
    except inbox.InboxError as error:
        assert "line" in str(error)  # noqa: PT017 - both are right
    else:
        assert all(isinstance(entry, dict) for entry in page.entries)


@pytest.mark.parametrize("data", seeds("inboxes"))
def test_the_corpus(tmp_path, data):
    check(tmp_path, data)


@given(data=inputs("inboxes"))
@hostile
def test_whatever_lies_there(tmp_path, data):
    check(tmp_path, data)
