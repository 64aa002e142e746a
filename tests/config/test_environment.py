"""Environment files: what systemd.exec(5) makes of each line, or a refusal that names it; never another variable."""

import pytest

from crtrd.config.profile import parse_environment


@pytest.mark.parametrize(("text", "value"), [
    ("A=b", "b"), ("A=", ""), ("  A = b  ", "b"), ("A=b\r", "b"), ("A=b # c", "b # c"), ("A=it's", "it's"),
    ("A='b c '", "b c "), ('A="b c "  ', "b c "), ("A='b\\n'", "b\\n"), ('A="\\" \\\\ \\` \\$ \\n"', '" \\ ` $ \\n'),
    ("A=a\\ b\\\\c\\'d", "a b\\c'd"), ("A=C:\\temp", "C:temp"), ("A=$HOME", "$HOME"),
    ('A=""', ""), ("A=''", ""), ("A=b=c", "b=c"),
    ("A=b\u2028B=c", "b\u2028B=c"), ("A=b\x85B=c", "b\x85B=c"), ("A=b\x0cB=c", "b\x0cB=c"), ("A=b\x1eB=c", "b\x1eB=c"),
    ("A=\u00a0b\u00a0", "\u00a0b\u00a0"), ("# x\n; y\n\n\tA=b", "b"),
])
def test_values(text, value):
    assert parse_environment(text + "\n") == [("A", value)]
    assert parse_environment(text) == [("A", value)]


@pytest.mark.parametrize(("text", "said"), [
    ("A", "no NAME=VALUE"), ("export A=b", "variable name"), ("A='b", "not closed"), ('A="b', "not closed"),
    ('A="', "not closed"), ('A="b\\"', "not closed"), ('A="b"c', "follows its quote"),
    ("A='b' 'c'", "follows its quote"), ('A="a" "b"', "follows its quote"), ("A='it'\\''s'", "follows its quote"),
    ("A=b\\", "backslash"), ('A="b" # c', "follows its quote"), ("=b", "variable name"), ("A B=c", "variable name"),
    ("CRTR_RUN_ID=x", "crtrd's own"), ("A=b\0c", "must be a text"), ("\u00c4=b", "variable name"),
])
def test_refusals_name_the_line(text, said):
    with pytest.raises(ValueError, match=f"^line 2: .*{said}"):
        parse_environment("B=c\n" + text + "\nC=d\n")
