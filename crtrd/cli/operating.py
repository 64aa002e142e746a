"""`drain`, `undrain`, `daemon-reload`: the daemon as a whole."""

import argparse

from crtrd.cli.session import DONE, Session


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


VERBS = {"drain": drain, "undrain": undrain, "daemon-reload": reload}
