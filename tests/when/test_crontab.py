r"""The grammar of crontab(5). What `%` and `\` become was compared with Debian's cron 3.0pl1 running such lines."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crtrd.config.crontab import Entry, Refusal, read_assignment, read_crontab, split_command
from crtrd.config.imported import import_crontab


def read(text, *, system=False):
    return list(read_crontab(text, system=system))


def one(line, *, system=False):
    (found,) = read(line + "\n", system=system)
    return found


@pytest.mark.parametrize(
    ("text", "command", "stdin"),
    [
        (r"date +\%H\%M", "date +%H%M", ""),
        ("cat%l1%l2", "cat", "l1\nl2\n"),
        (r"echo a\\%b", "echo a\\", "b\n"),
        (r"sh -c 'echo $((7 \% 4))'", "sh -c 'echo $((7 % 4))'", ""),
        ("trailing \\", "trailing \\", ""),
        ("echo $HOME ~", "echo $HOME ~", ""),
        (r"printf x\\\%y a\\b c\d", r"printf x\%y a\b c\d", ""),
        ("cat%l1%l2\\%x\\\\y\\", "cat", "l1\nl2%x\\\\y\\\n"),
        ("cmd%", "cmd", ""),
        ("cmd%%", "cmd", "\n"),
        (r"cmd%a%\%", "cmd", "a\n%\n"),
    ],
)
def test_percent_and_backslash(text, command, stdin):
    """C43."""
    assert split_command(text) == (command, stdin)


def test_the_lines_of_c43_do_what_they_say():
    outputs = []
    for text in (r"date +\%H\%M", "cat%l1%l2", r"sh -c 'echo $((7 \% 4))'", "echo a\t\tb"):
        command, stdin = split_command(text)
        done = subprocess.run(["/bin/sh", "-c", command], input=stdin, capture_output=True, text=True, check=True)
        outputs.append(done.stdout)
    assert outputs[0].strip().isdigit()
    assert len(outputs[0].strip()) == 4
    assert outputs[1:] == ["l1\nl2\n", "3\n", "a b\n"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("A=b", ("A", "b")), ("A = b c  ", ("A", "b c")), ('A = "b c "  ', ("A", "b c ")), ("A='b\"c'", ("A", 'b"c')),
        ("'Q' = 'q \"r'", ("Q", 'q "r')), ('MAILTO=""', ("MAILTO", "")), ("PATH=$HOME/b:/b", ("PATH", "$HOME/b:/b")),
        ("A=b=c", ("A", "b=c")), ("A=x 'y'", ("A", "x 'y'")), ('A="open', None), ("A='x' y", None),
        ("* * * * * A=b cmd", None), ("@daily A=b cmd", None), ("5 4 * * * x=1", None), ("A b = c", None),
    ],
)
def test_assignments(line, expected):
    assert read_assignment(line) == expected


def test_user_format():
    text = (
        "# comment\n \t# another\n\n   \nSHELL=/bin/bash\n"
        "  */5\t*  * * 1-5\t  echo  a  b # no comment\n@daily\tx y\nSHELL=/bin/dash\n0 0 1 jan sun c\n"
    )
    assert read(text) == [
        Entry(6, "*/5 * * * 1-5", "", "echo  a  b # no comment", "", (("SHELL", "/bin/bash"),)),
        Entry(7, "@daily", "", "x y", "", (("SHELL", "/bin/bash"),)),
        Entry(9, "0 0 1 jan sun", "", "c", "", (("SHELL", "/bin/dash"),)),
    ]


def test_system_format():
    assert one("17 *\t* * *\troot\tcd / && run-parts  x", system=True) == Entry(
        1, "17 * * * *", "root", "cd / && run-parts  x", "", ())
    assert one("@reboot bob x", system=True) == Entry(1, "@reboot", "bob", "x", "", ())


@pytest.mark.parametrize(
    ("line", "system", "said"),
    [
        ("* * * *", False, "5 time fields"), ("* * * * *", False, "a command"), ("@daily", False, "a command"),
        ("@daily root", True, "user and a command"), ("* * * * * root", True, "user and a command"),
        ("@dialy x", False, "no nickname"), ("* * * * * %in", False, "empty"), ('A="open', False, "5 time fields"),
        ("* * * * * x\r", False, "carriage return"), ("* * * * * \0", False, "NUL"),
        ("* * * * * \udcff", False, "UTF-8"), ("A=b\r", False, "carriage return"),
    ],
)
def test_refused_lines_are_named(line, system, said):
    found = one(line, system=system)
    assert isinstance(found, Refusal)
    assert found.number == 1
    assert said in found.reason


@pytest.mark.parametrize("text", ["* * * * * a\n", "# comment\n* * * * * a\n", "\n* * * * * a\n", "A=b\n* * * * * a\n"])
def test_a_byte_order_mark_is_named(text):
    """cron refuses such a file, and nothing on the screen shows why."""
    found = read("\ufeff" + text)
    assert (found[0].number, "byte order mark" in found[0].reason) == (1, True)
    assert [type(each) for each in found[1:]] == [Refusal if text.startswith("A") else Entry] * (len(found) - 1)


def test_a_file_without_its_last_newline():
    """cron leaves such a line out: taking it would run what never ran."""
    found = read("* * * * * a\n* * * * * b")
    assert isinstance(found[0], Entry)
    assert (found[1].number, "no newline" in found[1].reason) == (2, True)
    assert read("* * * * * a\n# end") == found[:1]


def test_no_line_runs_in_another_environment_than_the_one_that_is_seen():
    found = read("* * * * * a\nPATH=/x\r\n* * * * * b\n")
    assert [type(each) for each in found] == [Entry, Refusal, Refusal]
    assert "line 2" in found[2].reason


@given(st.text(st.sampled_from("*/0 ,-%\\\"'=#@abAB\t\r\n~15"), max_size=60), st.booleans())
def test_every_line_is_an_entry_or_a_refusal(text, system):
    """Never an exception; and what is refused or taken has the number of its line."""
    lines = text.split("\n")
    for found in read(text, system=system):
        assert lines[found.number - 1].strip(" \t")


@given(st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]), max_size=40))
def test_input_ends_its_last_line(text):
    _, stdin = split_command("cat%" + text)
    assert not stdin or stdin.endswith(("\n", "\\"))


BOTH_TAKE = (
    'A=""', "B = x 'y'", "A = 'x y'   ", "* * * * fri-sun x", "0 0 * * 1-7/2 x", " \t* * * * * x", "@reboot  x",
    "0 0 * jan-mar,DEC Mon x", "1-5,7 * * * * x", "* * * * 7 x", "* * * * * A=b x", "*,5 * * * * x", "5,* * * * * x",
    "0 0 1-31/7 * * x", "0 0 * * SUN x", "0 0 * * 6-7 x", "0 0 * * sun-mon x", "0  0\t1 * * x", "* * * * * x%%",
    "*/5,*/7 * * * * x", "00 08 * * * x", "0 0 * 1-dec * x", "* * * * * x #y",
)
BOTH_REFUSE = (
    'C = "un', "5/10 * * * * x", "@dialy x", "a b=c", "1,, * * * * x", "0 24 * * * x", "*/0 * * * * x", "* * * * 8 x",
    "60 * * * * x", "-1 * * * * x", "A", "'A'='b' c", "@REBOOT x", "0 0 * * sunday x", "0 0 0 * * x", "0 0 * 13 * x",
    "@ x", "@daily@ x", "+1 * * * * x", "1- * * * * x", "/5 * * * * x", "1a * * * * x", 'A="b"c', '"A"b=c',
)
WE_REFUSE = (
    "10-5 * * * * x", "*/61 * * * * x", "* * * * * x\r", "0 0 31 2 * x", "* * * * *", "* * * * * ", "* * * * * %x",
    "@daily", "1.5 * * * * x", "*-5 * * * * x", "1-2-3 * * * * x", "* * * * *x", "*/5/2 * * * * x", "*5 * * * * x",
)
"""Debian takes these, and runs nothing, or something else than they seem to say."""


@pytest.mark.parametrize(("line", "taken"), [
    *((line, True) for line in BOTH_TAKE), *((line, False) for line in (*BOTH_REFUSE, *WE_REFUSE))])
def test_beside_crontab_n_of_debian(line, taken):
    """The first two lists were put to `crontab -n` of cron 3.0pl1-162, which says the same."""
    found = list(import_crontab(
        line + "\n", origin="a", user="a", system=False, timezone="UTC", account=lambda name: name == "a"))
    assert [isinstance(each, Refusal) for each in found] == ([False] * len(found) if taken else [True])
