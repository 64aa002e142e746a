"""The pager in front of long answers, chosen as systemctl chooses its own (systemctl(1), ENVIRONMENT)."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LESS = "FRSXMK"
"""Leave when it fits on the screen, keep colours, leave the screen as it is."""
MORE = "-e -f"
"""For a machine without less: leave at the end, and break no line, for more(1) counts colours as columns."""


@contextmanager
def paged() -> Iterator[None]:
    """What is printed inside goes through the pager where there is one and this is a terminal."""
    command = choose(dict(os.environ)) if sys.stdout.isatty() and sys.stdin.isatty() else []
    if not command:
        yield
        return
    import subprocess  # noqa: PLC0415 - most answers go into a pipe, or are short

    sys.stdout.flush()
    terminal = os.dup(1)
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env={"LESS": _options(), "MORE": MORE, **os.environ})
    if pager.stdin is not None:
        os.dup2(pager.stdin.fileno(), 1)
        pager.stdin.close()
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stdout.flush()
        os.dup2(terminal, 1)  # the last copy of the pipe's end is gone with this, and the pager sees the end
        os.close(terminal)
        with suppress(KeyboardInterrupt):
            pager.wait()


def choose(environ: dict[str, str]) -> list[str]:
    """$SYSTEMD_PAGER, $PAGER, less, more; an empty value or `cat` means none."""
    import shlex  # noqa: PLC0415 - see above
    import shutil  # noqa: PLC0415

    for name in ("SYSTEMD_PAGER", "PAGER"):
        if name in environ:
            words = shlex.split(environ[name])
            return [] if not words or words == ["cat"] else words if shutil.which(words[0]) else []
    found = shutil.which("less") or shutil.which("more")
    return [found] if found and environ.get("TERM") != "dumb" else []


def _options() -> str:
    return os.environ.get("SYSTEMD_LESS", LESS)
