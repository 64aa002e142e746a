"""The hash after `change_ignore`: over everything, whatever pieces it comes in."""

import hashlib

import pytest

from crtrd.core.occurrence import Output
from crtrd.supervision.masking import LONGEST_LINE, MARK, Masking, masked


def digest(data, *expressions, piece=None):
    masking = Masking(expressions)
    step = piece or len(data) or 1
    for start in range(0, len(data), step):
        masking.feed(data[start : start + step])
    return masking.hexdigest()


def test_what_matches_counts_as_one_mark():
    assert digest(b"took 12 s\nok\n", r"\d+") == hashlib.sha256(b"took " + MARK + b" s\nok\n").hexdigest()
    assert digest(b"took 12 s\n", r"\d+") == digest(b"took 9999 s\n", r"\d+")
    assert digest(b"took 12 s\n", r"\d+") != digest(b"took 12 m\n", r"\d+")
    assert digest(b"a 1 b\n", r"\d", "b") == digest(b"a 2 b\n", r"\d", "b")


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
def test_the_pieces_do_not_matter(piece):
    data = b"one 1\ntwo 22\nthree 333" + b"x" * 500 + b" 4444\nlast 5"
    assert digest(data, r"\d+", piece=piece) == digest(data, r"\d+")


def test_a_last_line_without_an_end_counts_and_differs_from_one_with():
    assert digest(b"a 1", r"\d") == digest(b"a 2", r"\d") != digest(b"a 2\n", r"\d")


def test_beyond_the_head_too():
    head = b"A" * 100_000
    assert digest(head + b"B 1", r"\d") == digest(head + b"B 2", r"\d") != digest(head + b"C 2", r"\d")


def test_a_line_without_end_needs_no_memory():
    masking = Masking([r"\d"])
    for _ in range(100):
        masking.feed(b"x" * 10_000)
        assert len(masking._partial) <= LONGEST_LINE
    assert masking.hexdigest() == hashlib.sha256(b"x" * 1_000_000).hexdigest()


def test_any_byte_may_come_and_texts_match_as_utf_8():
    assert digest(bytes(range(256)) + "größe 5\n".encode(), "größe 5") == digest(
        bytes(range(256)) + "größe 5\n".encode(), "größe [0-9]")


def test_without_masks_or_output_nothing_changes():
    plain = Output(b"a", 1, "s")
    assert masked(plain, None) is plain
    assert masked(Output(), Masking(["x"])) == Output()
