"""The grammar of crontab(5), as Debian's cron reads it: lines become entries or refusals, each with its number.

Only the text is looked at here. What a schedule means is `schedule`'s matter, how an entry becomes a cron
`imported`'s. Where cron itself drops a line in silence (no newline at the end of the file) or would run another
command than the one that is seen (a carriage return) the line is refused.
"""

import re
from collections.abc import Iterator

from crtrd.values import dataclass

NICKNAMES = frozenset({
    "@reboot", "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually",
})
FIELDS = 5
_ASSIGNMENT = re.compile(
    r"""(?:(["'])(?P<quoted>[^=]*?)\1|(?P<plain>[^\s"'=][^\s=]*))\s*=\s*(?P<value>.*)""", re.DOTALL)
_BLANKS = re.compile(r"[ \t]+")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Entry:
    """One job: its schedule text, the command as the shell gets it, and the environment set above it."""

    number: int
    schedule: str
    user: str
    """The user column of the system format; '' in a user's own crontab."""
    command: str
    stdin: str
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that cannot be taken, and why."""

    number: int
    reason: str


class _Refused(Exception):
    """The reason why the line at hand is refused."""


def read_crontab(text: str, *, system: bool) -> Iterator[Entry | Refusal]:
    """Every line that is no comment and not blank, in order; an assignment is only yielded when it is refused.

    `system`: the format of /etc/crontab and cron.d, with a user column. `text` may hold surrogates for bytes that are
    not UTF-8.
    """
    environment: dict[str, str] = {}
    spoiled = 0
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        bare = line.lstrip(" \t")
        if not bare or bare.startswith("#"):
            continue
        assignment = read_assignment(bare.removeprefix("\ufeff"))
        try:
            _check(bare, ended=number < len(lines))
            if assignment is not None:
                environment[assignment[0]] = assignment[1]
                continue
            if spoiled:
                raise _Refused(f"line {spoiled}, which sets its environment, was refused")
            yield _read_entry(number, bare, environment, system=system)
        except _Refused as refused:
            spoiled = spoiled or (number if assignment else 0)
            yield Refusal(number, str(refused))


def _check(line: str, *, ended: bool) -> None:
    if line.startswith("\ufeff"):
        raise _Refused("it begins with a byte order mark, which cron takes for its first word; save the file without")
    if "\r" in line:
        raise _Refused("it holds a carriage return, which cron hands on to the command; write the file with LF alone")
    if "\0" in line:
        raise _Refused("it holds a NUL character")
    if _SURROGATE.search(line):
        raise _Refused("it is not valid UTF-8")
    if not ended:
        raise _Refused("there is no newline at its end, and cron leaves out such a line")


def read_assignment(line: str) -> tuple[str, str] | None:
    """(name, value) of an environment line, None where the line is something else. Nothing is expanded."""
    found = _ASSIGNMENT.fullmatch(line)
    if found is None:
        return None
    name = found["plain"] if found["quoted"] is None else found["quoted"]
    value = found["value"]
    if value[:1] in {"'", '"'}:
        inner, quote, after = value[1:].partition(value[0])
        return (name, inner) if quote and not after.strip() else None
    return name, value.rstrip()


def _read_entry(number: int, line: str, environment: dict[str, str], *, system: bool) -> Entry:
    count = 1 if line.startswith("@") else FIELDS
    words = _BLANKS.split(line, maxsplit=count + system)
    if count == 1 and words[0] not in NICKNAMES:
        raise _Refused(f"{words[0][:20]!r} is no nickname; there are {', '.join(sorted(NICKNAMES))}")
    if len(words) <= count - 1 or (len(words) == count and not system):
        missing = "a command" if len(words) == count else f"{FIELDS} time fields and a command"
        raise _Refused(f"{missing} is expected")
    if len(words) <= count + system or not words[-1].strip():
        raise _Refused("a user and a command are expected after the time" if system else "a command is expected")
    command, stdin = split_command(words[-1])
    if not command.strip():
        raise _Refused("its command is empty")
    user = words[count] if system else ""
    return Entry(number, " ".join(words[:count]), user, command, stdin, tuple(environment.items()))


def split_command(text: str) -> tuple[str, str]:
    r"""The command and what it gets on standard input: the first bare `%` divides them.

    In the command `\%` is a `%` and `\\` a `\`: so does Debian's cron, though its manual tells only the first.
    """
    command: list[str] = []
    place = 0
    while place < len(text) and text[place] != "%":
        pair = text[place : place + 2]
        if pair[0] == "\\" and len(pair) > 1:
            command.append(pair[1] if pair[1] in "\\%" else pair)
            place += 2
        else:
            command.append(pair[0])
            place += 1
    return "".join(command), _input(text[place + 1 :])


def _input(text: str) -> str:
    r"""`%` is a newline, `\%` a `%`, every other backslash stays; the last line is ended."""
    found: list[str] = []
    escaped = False
    for character in text:
        if escaped and character != "%":
            found.append("\\")
        shown = "\n" if character == "%" and not escaped else character
        escaped = character == "\\"
        if not escaped:
            found.append(shown)
    ended = not found or found[-1] == "\n"
    return "".join(found) + ("\\" if escaped else "") + ("" if ended else "\n")
