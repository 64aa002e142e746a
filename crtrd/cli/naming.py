"""Which crons are meant, by name, id or pattern, and what they wait for: views in, names and words out."""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from crtrd.cli.session import NOT_FOUND, Failure, Session, View

_AFTER_END = re.compile(r"every\s+(.+?)\s+after\s+end")


def of_names(session: Session, wanted: Callable[[View], bool] = lambda _: True) -> list[str]:
    """The crons that are named; a pattern stands for all that match and are `wanted`, as with systemctl."""
    found: dict[str, None] = {}
    everything: list[View] | None = None
    for name in session.options.name:
        if not is_pattern(name):
            found[name] = None
            continue
        everything = session.everything("ListCrons", {}) if everything is None else everything
        hits = [str(view["name"]) for view in everything if fnmatchcase(str(view.get("name")), name) and wanted(view)]
        if not hits:
            raise Failure(f"cannot find a cron: nothing fits {name!r}", NOT_FOUND)
        found.update(dict.fromkeys(sorted(hits)))
    return list(found)


def is_pattern(name: str) -> bool:
    """No name has one of these characters."""
    return any(character in "*?[" for character in name)


def selected(views: list[View], names: list[str]) -> list[View]:
    """Those that are named or fit a pattern, in their order. A name that nothing has is refused."""
    known = {word for view in views for word in (view.get("name"), view.get("id"))}
    if missing := [name for name in names if not is_pattern(name) and name not in known]:
        raise Failure(f"cannot find cron {missing[0]!r}: no cron has that name or id", NOT_FOUND)
    return [view for view in views if any(_fits(view, name) for name in names)]


def _fits(view: View, name: str) -> bool:
    return name in {view.get("name"), view.get("id")} or fnmatchcase(str(view.get("name")), name)


def waits_for(schedule: object, *, skipped: bool = False) -> str:
    """What a cron without a next instant waits for. `skipped`: its next one is to be left out."""
    texts = [str(text).strip().lower() for text in schedule] if isinstance(schedule, list) else []
    if "@reboot" in texts:
        return "at the next boot"
    if found := next(filter(None, map(_AFTER_END.fullmatch, texts)), None):
        return f"{found[1]} after " + ("the one that is skipped" if skipped else "the end of what runs")
    return "no instant ahead" if texts else "when triggered"
