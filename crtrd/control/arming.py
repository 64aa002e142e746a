"""From what a caller passes to what is armed: the profile's defaults, the account that is meant, what can be applied.

Everything that only this host can tell is checked here, before anything is stored. Raises ConfigError with the key.
"""

from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

from crtrd.config.reader import NAME, read_changes, read_definition, read_fields
from crtrd.core.cron import Cron, Definition
from crtrd.engine.executor import Executor
from crtrd.errors import ConfigError, LaunchError

BUILT_IN = {field.name: field.default for field in fields_of(Definition)}


def new_definition(
    table: Mapping[str, object], executor: Executor, owner: int, *, where: str, timezone: str
) -> tuple[Definition, str]:
    """The definition with its profile's defaults, and whom it means: `uid name`."""
    defaults = _defaults(table.get("profile"), executor, where, timezone)
    definition = read_definition({**defaults, **table}, where=where, timezone=timezone)
    return definition, _checked(definition, executor, owner, where)


def changed_fields(
    table: Mapping[str, object], cron: Cron, executor: Executor, *, where: str
) -> tuple[dict[str, Any], str | None]:
    """The typed changes; and whom the cron means from now on, None where that was not touched.

    Another profile brings its defaults for every policy that stands at its built-in value.
    """
    old = cron.definition
    given = dict(table)
    for key, value in _defaults(table.get("profile"), executor, where, old.timezone).items():
        if getattr(old, key, None) == BUILT_IN[key]:
            given.setdefault(key, value)
    changes = read_changes(given, old, where=where)
    values = {field.name: getattr(old, field.name) for field in fields_of(Definition)} | changes
    account = _checked(Definition(**values), executor, cron.owner, where)
    return changes, account if {"user", "profile"} & changes.keys() else None


def _defaults(name: object, executor: Executor, where: str, timezone: str) -> dict[str, object]:
    """The profile's defaults, each looked at under the profile's own name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return {}  # what is no name is refused with the definition
    try:
        profile = executor.contexts.profile(Definition("", profile=name))
    except LaunchError as error:
        raise ConfigError(where, "profile", error.reason) from error
    if profile is None:
        raise ConfigError(where, "profile", f"there is no profile {name!r}")
    defaults = dict(profile.defaults)
    read_fields(defaults, where=f"{profile.path}: defaults", timezone=timezone)
    return defaults


def _checked(definition: Definition, executor: Executor, owner: int, where: str) -> str:
    """Whom it means, once this host can do what it asks for."""
    if executor.scopes and (why := executor.scopes.lacking(definition.resources)):
        raise ConfigError(where, "resources", why)
    try:
        return executor.contexts.account(definition, owner)
    except LaunchError as error:
        raise ConfigError(where, "profile" if error.stage == "profile" else "user", error.reason) from error
