"""`edit`: a definition in the user's editor, and what was changed of it to the daemon. Keys that were taken out go
back to their defaults."""

import argparse
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from crtrd.cli.arming import from_file
from crtrd.cli.looking import cron, own
from crtrd.cli.session import DONE, FAILED, Failure, Session, packed
from crtrd.config.cronfile import write_file
from crtrd.config.keys import BY_NAME, Kind
from crtrd.core.cron import Definition

EDITORS = ("SYSTEMD_EDITOR", "EDITOR", "VISUAL")
EMPTY: Mapping[Kind, object] = {Kind.TEXT: "", Kind.TEXTS: [], Kind.TABLE: {}}


def build(parser: argparse.ArgumentParser, verb: str) -> None:
    parser.add_argument("name", metavar="NAME", help=f"cron to {verb}, by name or id")


def edit(session: Session) -> int:
    name = session.options.name
    view = cron(session, name)
    if source := view.get("source"):
        raise Failure(f"cannot edit {view.get('name')}: it comes from {source}; edit that file", FAILED)
    text = write_file(str(view.get("name")), own(view))
    with tempfile.TemporaryDirectory(prefix="crtrctl-") as folder:
        path = Path(folder, f"{view.get('name')}.toml")
        path.write_text(text, encoding="utf-8")
        before = from_file(str(path))
        _run_editor(path)
        after = from_file(str(path))
    changes = _changes(before, after)
    if not changes:
        session.acted(f"Nothing changed of {view.get('name')}.", {"changed": []})
        return DONE
    session.client.call("Change", "sa{sv}", str(view["id"]), packed(changes))
    session.acted(f"Changed {view.get('name')}: {', '.join(sorted(changes))}.", {"changed": sorted(changes)})
    return DONE


def _run_editor(path: Path) -> None:
    editor = next((os.environ[name] for name in EDITORS if os.environ.get(name)), "editor")
    try:
        status = subprocess.run([*shlex.split(editor), str(path)], check=False).returncode
    except OSError as error:
        raise Failure(f"cannot start the editor {editor}: {error.strerror}; set $EDITOR", FAILED) from error
    if status != 0:
        raise Failure(f"cannot edit: {editor} ended with {status}; nothing is changed", FAILED)


def _changes(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, object]:
    changed = {key: value for key, value in after.items() if before.get(key) != value and key != "name"}
    for key in before.keys() - after.keys() - {"command", "shell"}:  # one takes the place of the other
        changed[key] = _default(key)
    return changed


def _default(key: str) -> object:
    kind = BY_NAME[key].kind
    if kind in EMPTY:
        return EMPTY[kind]
    value = next(field.default for field in fields(Definition) if field.name == key)
    if value is None:
        raise Failure(f"cannot take {key} out again: cancel the cron and arm it without", FAILED)
    return f"{value}us" if kind is Kind.SPAN else list(value) if isinstance(value, tuple) else value


VERBS = {"edit": edit}
