"""What one invocation of crtrctl has at hand: the parsed options, the connection (made when first needed), the
terminal and the time. Also how it fails: `Failure` with the exit status of CONTRACT §5."""

import argparse
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from crtrd.cli import agent
from crtrd.cli.render import Terminal
from crtrd.cli.words import harmless

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from crtrd.cli.client import Client

DONE, FAILED, USAGE, NOT_ACTIVE, NOT_FOUND, NOT_AUTHORISED, UNREACHABLE = range(7)
PAGE = 200
FILE_MOST = 4 << 20

View = dict[str, object]


class Failure(Exception):
    """Said on standard error as `crtrctl: …`; ends the command with `status`."""

    def __init__(self, text: str, status: int = FAILED) -> None:
        super().__init__(text)
        self.status = status


class Session:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.out = Terminal(json_mode=options.json, legend=not options.no_legend, quiet=options.quiet)
        self.now = time.time_ns() // 1000  # noqa: TID251  # a command line has no clock room: one look, here
        self._client: Client | None = None
        self._agent: subprocess.Popen[bytes] | None = None

    @property
    def client(self) -> "Client":
        if self._client is None:
            from crtrd.cli.client import Client, choose_bus  # noqa: PLC0415  # jeepney, which not every verb needs

            interactive = not (self.options.no_ask_password or self.options.user)
            if interactive and self._agent is None:
                self._agent = agent.start()
            self._client = Client(*choose_bus(os.environ, user=self.options.user), interactive=interactive)
        return self._client

    def reconnect(self) -> None:
        """A fresh connection that hears the signals; where there is none to be had, the next call says so."""
        from crtrd.cli.client import Unreachable  # noqa: PLC0415 - as above

        if self._client is not None:
            self._client.__exit__()
        self._client = None
        with suppress(Unreachable):
            self.client.subscribe()

    def close(self) -> None:
        agent.stop(self._agent)
        if self._client is not None:
            self._client.__exit__()

    def acted(self, text: str = "", answer: object = None) -> None:
        """What was asked for is done: silent like systemctl, but where there is something to say."""
        if self.out.json:
            self.out.dump({} if answer is None else answer)
        elif text:
            self.out.note(text)

    def complain(self, text: str) -> None:
        """A fault that does not end the command, on standard error."""
        print(self.out.fold(harmless(text)) if sys.stderr.isatty() else harmless(text), file=sys.stderr)

    def everything(self, member: str, criteria: dict[str, object], most: int | None = None) -> list[View]:
        """All views of a list, page by page, at most `most`. A page may be empty and not the last."""
        found: list[View] = []
        cursor = ""
        while True:
            wanted = PAGE if most is None else min(PAGE, most - len(found))
            views, onward = self.client.call(member, "a{sv}us", packed(criteria), wanted, cursor)
            found += views if isinstance(views, list) else []
            cursor = str(onward)
            if not cursor or (most is not None and len(found) >= most):
                return found


def contents(path: "Path") -> bytes:
    """The whole of a file that somebody names, or of a pipe; never without end. Raises Failure."""
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_MOST + 1)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror}") from error
    if len(data) > FILE_MOST:
        raise Failure(f"cannot read {path}: it is larger than {FILE_MOST} bytes")
    return data


def packed(values: dict[str, object]) -> dict[str, tuple[str, object]]:
    """Plain values as a{sv}: texts, flags, whole numbers, lists and tables of texts."""
    return {name: _variant(value) for name, value in values.items() if value is not None}


def _variant(value: object) -> tuple[str, object]:
    match value:
        case bool():
            return "b", value
        case int():
            return "x", value
        case dict():
            return "a{ss}", {str(key): str(inner) for key, inner in value.items()}
        case list() if value and all(isinstance(inner, int) for inner in value):
            return "ax", value
        case list():
            return "as", [str(inner) for inner in value]
        case _:
            return "s", str(value)
