"""The one table of a cron's keys (CONTRACT §4): command-line flags, file keys, bus keys and documents come from it.

Only names, shapes and words for people live here, so that the command line can import it cheaply; the reading of
values is `config.reader`'s.
"""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    TEXT = "text"
    TEXTS = "list of texts"
    TABLE = "table of texts"
    NUMBER = "whole number"
    NUMBERS = "list of whole numbers"
    SPAN = "time span"
    INSTANT = "point in time"
    OCTAL = "octal mode"
    CHOICE = "choice"


class Key(NamedTuple):
    name: str
    kind: Kind
    doc: str
    singular: str = ""
    """Command-line spelling of one element of a list or table, without dashes in front; '' = the name itself."""
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    @property
    def flag(self) -> str:
        return "--" + (self.singular or self.name).replace("_", "-")


KEYS: tuple[Key, ...] = (
    Key("schedule", Kind.TEXTS, "when: five-field cron, @daily, every 15m, at TIME, calendar SPEC"),
    Key("timezone", Kind.TEXT, "IANA zone that local times mean (the host's)"),
    Key("dst_gap", Kind.CHOICE, "local times that a clock change skips", choices=("auto", "skip", "after")),
    Key("dst_overlap", Kind.CHOICE, "local times that a clock change repeats",
        choices=("auto", "first", "second", "both")),
    Key("jitter", Kind.SPAN, "stable offset of up to this long (0)", low=0),
    Key("starts_at", Kind.INSTANT, "no instant before this"),
    Key("expires_at", Kind.INSTANT, "no instant after this"),
    Key("max_runs", Kind.NUMBER, "finished after so many scheduled occurrences have run", low=1),
    Key("exclude", Kind.TEXTS, "date, date range A..B or calendar name to leave out"),
    Key("command", Kind.TEXTS, "program and arguments, executed without a shell"),
    Key("shell", Kind.TEXT, "command line for the profile's shell (/bin/sh)"),
    Key("stdin", Kind.TEXT, "text given to the command (/dev/null)"),
    Key("targets", Kind.TEXTS, "one cell for each, CRTR_TARGET set", singular="target"),
    Key("target_parallel", Kind.NUMBER, "cells of one occurrence at once (1)", low=1),
    Key("profile", Kind.TEXT, "who it runs as and in what environment"),
    Key("user", Kind.TEXT, "account the command runs as (the owner's)"),
    Key("cwd", Kind.TEXT, "working directory (the user's home)"),
    Key("env", Kind.TABLE, "environment, NAME=VALUE"),
    Key("umask", Kind.OCTAL, "file mode creation mask (0022)", low=0, high=0o777),
    Key("overlap", Kind.CHOICE, "when the last occurrence still runs", choices=("skip", "queue", "replace", "allow")),
    Key("queue_limit", Kind.NUMBER, "how many may wait with overlap=queue (1)", low=1),
    Key("parallel", Kind.NUMBER, "how many may run with overlap=allow (unlimited)", low=1),
    Key("pool", Kind.TEXT, "pool in crtrd.toml shared with other crons"),
    Key("timeout", Kind.SPAN, "SIGTERM after this long (1h)", low=1),
    Key("grace", Kind.SPAN, "SIGKILL so long after SIGTERM (10s)", low=0),
    Key("retries", Kind.NUMBER, "further attempts after a failure (0)", low=0, high=1000),
    Key("retry_delay", Kind.SPAN, "wait before the first retry, doubled each time (10s)", low=0),
    Key("retry_max_delay", Kind.SPAN, "longest wait between retries (1h)", low=0),
    Key("success_exit_codes", Kind.NUMBERS, "exit statuses that mean success (0)", singular="success_exit_code",
        low=0, high=255),
    Key("held_exit_code", Kind.NUMBER, "exit status that means: not now (75)", low=1, high=255),
    Key("catch_up", Kind.CHOICE, "instants missed while crtrd was away", choices=("last", "none", "all")),
    Key("start_within", Kind.SPAN, "a later start counts as missed (unlimited)", low=1),
    Key("on_crash", Kind.CHOICE, "a run that crtrd or the host lost", choices=("record", "rerun", "ask")),
    Key("on_output", Kind.CHOICE, "when output is delivered", choices=("on-failure", "silent", "on-change", "always")),
    Key("change_ignore", Kind.TEXTS, "regular expression masked before comparing"),
    Key("sinks", Kind.TEXTS, "where output goes (inbox)", singular="sink"),
    Key("alert_after", Kind.SPAN, "alarm when not settled so long after its instant", low=1),
    Key("on_failure", Kind.CHOICE, "after a final failure", choices=("pause", "continue")),
    Key("pause_after", Kind.NUMBER, "final failures in a row before the pause (1)", low=1),
    Key("survivors", Kind.CHOICE, "processes that outlive the command", choices=("kill", "keep")),
    Key("resources", Kind.TABLE, "limits by systemd name, MemoryMax=1G", singular="resource"),
)
BY_NAME: dict[str, Key] = {key.name: key for key in KEYS}
