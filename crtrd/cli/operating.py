"""`drain`, `undrain`, `daemon-reload`, `daemon-reexec`, `log-level`, `version`: the daemon as a whole."""

import argparse
import time

from crtrd import __version__, names
from crtrd.cli.session import DONE, Failure, Session
from crtrd.cli.words import harmless

REEXEC_SECONDS, PAUSE = 30.0, 0.05


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    if verb == "log-level":
        parser.add_argument("level", nargs="?", metavar="LEVEL", help="debug, info, notice, warning, err, …")


def drain(session: Session) -> int:
    """Start nothing more; what is due waits."""
    session.client.call("Drain", "b", True)  # noqa: FBT003  # the bus has no keywords
    session.acted()
    return DONE


def undrain(session: Session) -> int:
    session.client.call("Drain", "b", False)  # noqa: FBT003
    session.acted()
    return DONE


def reload(session: Session) -> int:
    session.client.call("Reload")
    session.acted()
    return DONE


def reexecute(session: Session) -> int:
    """Done when the next life answers; a call that comes in between waits on the bus for it."""
    from crtrd.cli.client import Unreachable  # noqa: PLC0415 - the manual pages are made without a bus library

    before = _instance(session)
    session.client.call("Reexecute")
    for _ in range(int(REEXEC_SECONDS / PAUSE)):
        time.sleep(PAUSE)  # noqa: TID251 - nothing tells when it has come
        try:
            if _instance(session) != before:
                session.acted()
                return DONE
        except Unreachable:
            continue
    raise Failure(f"the daemon has not come back within {REEXEC_SECONDS:g} s")


def _instance(session: Session) -> object:
    return session.client.properties(names.BUS_PATH, names.MANAGER_INTERFACE)["InstanceId"]


def log_level(session: Session) -> int:
    """Show it, or leave out events that are less urgent until the daemon ends."""
    if session.options.level:
        session.client.set_property(names.LOG_PATH, names.LOG_INTERFACE, "LogLevel", session.options.level)
        session.acted()
        return DONE
    level = session.client.properties(names.LOG_PATH, names.LOG_INTERFACE).get("LogLevel")
    if session.out.json:
        session.out.dump({"log_level": level})
    else:
        session.out.line(harmless(str(level)))
    return DONE


def version(session: Session) -> int:
    """Of this command, and of the daemon that answers."""
    daemon = session.client.properties(names.BUS_PATH, names.MANAGER_INTERFACE).get("Version")
    if session.out.json:
        session.out.dump({"crtrctl": __version__, "crtrd": daemon})
    else:
        session.out.line(f"crtrctl {__version__}\ncrtrd {harmless(str(daemon))}")
    return DONE


VERBS = {"drain": drain, "undrain": undrain, "log-level": log_level, "version": version, "daemon-reload": reload,
         "daemon-reexec": reexecute}
