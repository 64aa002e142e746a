"""`doctor`: looks at an installation from outside and names each fault with its remedy. Changes nothing.

A check is a function that yields findings; one that finds nothing wrong yields one that says so. Files of others are
looked at where they may be; what only root can see is left out for others, and that is said.
"""

import argparse
import os
from collections.abc import Callable, Iterator

from crtrd import names
from crtrd.cli import health, installation
from crtrd.cli.health import Finding, Grade
from crtrd.cli.session import DONE, FAILED, Session
from crtrd.cli.words import counted, harmless
from crtrd.values import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    look: Callable[[names.Places], Iterator[Finding]]
    installed: bool = False
    """Only for what a package has installed: there are no units of a development instance."""


CHECKS = (
    Check("units", installation.units, installed=True),
    Check("cgroup delegation", installation.delegation, installed=True),
    Check("bus policy", installation.bus_files, installed=True),
    Check("socket", health.trigger_socket),
    Check("permissions", health.permissions),
    Check("configuration", health.configuration),
    Check("cron files", health.cron_files),
    Check("store", health.store),
    Check("clock", health.clock),
    Check("zone data", health.zones),
    Check("sendmail", health.sendmail),
)
COLOURS = {Grade.GOOD: "32", Grade.NOTE: "33", Grade.FAULT: "31"}


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    """Nothing to add."""


def doctor(session: Session) -> int:
    places = names.places(os.environ, user=session.options.user)
    found = [(check.name, finding) for check in CHECKS if not (check.installed and places.home)
             for finding in check.look(places)]
    found.insert(0, ("daemon", _daemon(session)))
    if session.out.json:
        session.out.dump([{"check": name, "grade": str(finding.grade), "text": finding.text,
                           "remedy": finding.remedy or None} for name, finding in found])
    else:
        _print(session, found)
    return FAILED if any(finding.grade is Grade.FAULT for _, finding in found) else DONE


def _print(session: Session, found: list[tuple[str, Finding]]) -> None:
    out = session.out
    for name, finding in found:
        if finding.grade is Grade.GOOD and out.quiet:
            continue
        out.line(f"{out.paint('●', COLOURS[finding.grade])} {name}: {harmless(finding.text)}")
        if finding.remedy:
            out.line(f"    remedy: {harmless(finding.remedy)}")
    faults = sum(finding.grade is Grade.FAULT for _, finding in found)
    out.note("No faults." if not faults else f"{counted(faults, 'fault')}.")


def _daemon(session: Session) -> Finding:
    """Whether it answers; a call starts it."""
    from crtrd.cli.client import Refused, Unreachable  # noqa: PLC0415 - as everywhere

    try:
        values = session.client.properties(names.BUS_PATH, names.MANAGER_INTERFACE)
    except Unreachable as error:
        unit = "systemctl --user" if session.options.user else "systemctl"
        return Finding(Grade.FAULT, str(error), f"{unit} start crtrd.socket; {unit} status crtrd.service says more")
    except Refused as error:
        if error.name == "AccessDenied" or "Authorization" in error.name:
            return Finding(Grade.NOTE, "it answers, and tells only root how it is", "run crtrctl doctor as root")
        return Finding(Grade.FAULT, str(error), "journalctl -u crtrd.service says more")
    return Finding(Grade.GOOD, f"version {values.get('Version')} answers, {values.get('State')}")


VERBS = {"doctor": doctor}
