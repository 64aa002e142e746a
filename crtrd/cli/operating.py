"""`drain`, `undrain`, `daemon-reload`, `daemon-reexec`: the daemon as a whole."""

import argparse
import time

from crtrd import names
from crtrd.cli.session import DONE, Failure, Session

REEXEC_SECONDS, PAUSE = 30.0, 0.05


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    """Nothing to add."""


def drain(session: Session) -> int:
    """Start nothing more; what is due waits."""
    session.client.call("Drain", "b", True)  # noqa: FBT003  # the bus has no keywords
    return DONE


def undrain(session: Session) -> int:
    session.client.call("Drain", "b", False)  # noqa: FBT003
    return DONE


def reload(session: Session) -> int:
    session.client.call("Reload")
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
                return DONE
        except Unreachable:
            continue
    raise Failure(f"the daemon has not come back within {REEXEC_SECONDS:g} s")


def _instance(session: Session) -> object:
    return session.client.properties(names.BUS_PATH, names.MANAGER_INTERFACE)["InstanceId"]


VERBS = {"drain": drain, "undrain": undrain, "daemon-reload": reload, "daemon-reexec": reexecute}
