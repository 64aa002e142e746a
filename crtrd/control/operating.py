"""The verbs about how the daemon talks: its log level, and the output of a run as a descriptor."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from crtrd.control import arguments
from crtrd.control.access import Caller
from crtrd.errors import Code, RequestError

if TYPE_CHECKING:
    from crtrd.control.verbs import Control

Given = tuple[object, ...]
Reply = Callable[[object], None]
LEVELS = ("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug")
"""syslog's, by number; the words are those of `systemctl log-level`."""


def set_log_level(control: "Control", given: Given, _: Caller, reply: Reply) -> None:
    """Leave out events less urgent than this, until the daemon ends. The output of commands is never left out."""
    wanted = arguments.text(given[0], "log level")
    if wanted not in LEVELS:
        raise RequestError(Code.INVALID_ARGUMENT, f"cannot set the log level: it is one of {', '.join(LEVELS)}")
    control.hooks.set_log_level(LEVELS.index(wanted))
    reply(None)


def open_output(control: "Control", given: Given, _: Caller, reply: Reply) -> None:
    """A descriptor that becomes the caller's. Of a live run: what it said so far, and what it says until it ends.

    Of a settled one: the heads that the ledger has, standard output first.
    """
    run = control.queries.run(arguments.text(given[0], "run"))
    if run is None:
        raise RequestError(Code.NO_SUCH_RUN, "cannot open the output: no run has that id")
    live = control.hooks.follow(run.id)
    try:
        reply(live if live is not None else _kept(run.stdout.head + run.stderr.head))
    except OSError as error:
        raise RequestError(Code.LIMIT_EXCEEDED, f"cannot open the output: {error.strerror}") from error


def _kept(data: bytes) -> int:
    fd = os.memfd_create("crtrd-output", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


VERBS: Mapping[str, Callable[["Control", Given, Caller, Reply], None]] = {
    "set_log_level": set_log_level, "open_output": open_output,
}
