"""From the entries of a crontab to crons that behave as cron would: the same command, environment, mail and instants.

Each entry becomes one definition with a name that depends on nothing but the entry itself and where it stood, so that
the same file gives the same names again.
"""

import hashlib
import re
from collections.abc import Callable, Iterator

from crtrd.config.crontab import Entry, Refusal, read_crontab
from crtrd.config.reader import read_definition
from crtrd.core.cron import Definition
from crtrd.core.timetable import compiled
from crtrd.errors import ConfigError, ScheduleError
from crtrd.values import dataclass

CRON_PATH = "/usr/bin:/bin"
"""What Debian's cron gives a command as PATH unless the crontab sets one."""
SHELL = "/bin/sh"
AS_CRON: dict[str, object] = {
    "catch_up": "none", "overlap": "allow", "survivors": "keep", "timeout": "100y", "on_failure": "continue",
}
"""cron makes up for nothing, lets runs overlap, leaves what they start in the background, never stops or pauses."""
_MINUTES = re.compile("[0-9]{1,9}")
_WORD = re.compile(r"[^\s;&|()<>'\"`$]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]+")
_WRAPPERS = frozenset({
    "cd", "test", "[", "[[", "if", "then", "env", "exec", "nice", "ionice", "chrt", "setsid", "nohup", "sudo", "time",
    "timeout", "flock", "command", "sleep", "true", ":", "export", "umask", "set", "-", "{", "!", "]", "]]",
})
_LONGEST_NAME, _HASH = 64, 6


@dataclass(frozen=True, slots=True)
class Imported:
    """One line as a cron. `table` is the definition as a person would write it, without the name."""

    number: int
    entry: Entry
    name: str
    table: dict[str, object]
    definition: Definition


def import_crontab(
    text: str, *, origin: str, user: str, system: bool, timezone: str, account: Callable[[str], bool]
) -> Iterator[Imported | Refusal]:
    """Each line as a cron or as a refusal. `origin` is the first part of the names: the user, or the file's name.

    `user` is whose crontab it is (with `system` each line names its own), `timezone` the host's; `account` tells
    whether there is an account of that name.
    """
    taken: dict[str, int] = {}
    for entry in read_crontab(text, system=system):
        if isinstance(entry, Refusal):
            yield entry
            continue
        runs_as = entry.user if system else user
        if not account(runs_as):
            yield Refusal(entry.number, f"there is no account {runs_as[:32]!r}")
            continue
        name = name_of(entry, origin)
        taken[name] = taken.get(name, 0) + 1
        if taken[name] > 1:
            name = f"{name}-{taken[name]}"
        try:
            table = table_of(entry, runs_as, timezone)
            definition = read_definition({"name": name, **table}, where="", timezone=timezone)
            compiled(definition, 0, name)
        except ConfigError as error:
            yield Refusal(entry.number, f"{error.key}: {error.reason}")
        except ScheduleError as error:
            yield Refusal(entry.number, f"{error.field}: {error.reason}")
        else:
            yield Imported(entry.number, entry, name, table, definition)


def name_of(entry: Entry, origin: str) -> str:
    """`ORIGIN-PROGRAM-HASH`: readable, and the same as long as schedule, user and command are."""
    told = "\0".join((entry.schedule, entry.user, entry.command, entry.stdin))
    digest = hashlib.sha256(told.encode()).hexdigest()[:_HASH]
    words = (_NOT_IN_NAMES.sub("-", part).strip("-_") for part in (origin, program_of(entry.command)))
    readable = "-".join(word for word in words if word)[: _LONGEST_NAME - _HASH - 4].rstrip("-_")
    return f"{readable or 'cron'}-{digest}"


def program_of(command: str) -> str:
    """The name of the program that a command line is about, for people: `backup` in `cd /srv && ./backup.sh -v`."""
    after_cd, fallback = False, ""
    for word in _WORD.findall(command):
        base = word.rpartition("/")[2]
        skipped, after_cd = after_cd, word == "cd"
        if skipped or "=" in word or word.startswith("-") or not re.search("[A-Za-z]", base):
            continue
        if base in _WRAPPERS:
            fallback = fallback or base
            continue
        return str(base.removesuffix(".sh").removesuffix(".py"))
    return fallback


def table_of(entry: Entry, user: str, timezone: str) -> dict[str, object]:
    """The keys of the cron. Raises ConfigError for an environment that cannot be carried over."""
    given = dict(entry.environment)
    shell = given.get("SHELL") or SHELL
    table: dict[str, object] = {"schedule": [entry.schedule], "timezone": given.pop("CRON_TZ", "") or timezone}
    if shell == SHELL:
        table["shell"] = entry.command
    else:
        table["command"] = [shell, "-c", entry.command]
    if entry.stdin:
        table["stdin"] = entry.stdin
    table["user"] = user
    if given.get("HOME"):
        table["cwd"] = given["HOME"]
    if delay := given.pop("RANDOM_DELAY", ""):
        if not _MINUTES.fullmatch(delay):
            raise ConfigError("", "RANDOM_DELAY", f"{delay[:20]!r} is not a number of minutes")
        table["jitter"] = f"{int(delay)}min"
    table |= _mail(given.get("MAILTO"), user)
    given.pop("LOGNAME", None)  # cron sets it back to the account's
    table["env"] = {"PATH": CRON_PATH, **given}
    return table | AS_CRON


def _mail(mailto: str | None, user: str) -> dict[str, object]:
    """Every output is mailed, to the owner unless MAILTO says otherwise; an empty MAILTO means no mail at all."""
    if mailto is None:
        return {"sinks": [f"mail:{user}"], "on_output": "always"}
    addresses = [address.strip() for address in mailto.split(",") if address.strip()]
    if not addresses:
        return {"sinks": [], "on_output": "silent"}
    return {"sinks": [f"mail:{address}" for address in addresses], "on_output": "always"}
