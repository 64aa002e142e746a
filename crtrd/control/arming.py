"""From what a caller passes to what is armed: the profile's defaults, the account that is meant, what can be applied.

Everything that only this host can tell is checked here, before anything is stored. Raises ConfigError with the key.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crtrd.config.inherited import difference, follow, given
from crtrd.config.profile import Profile
from crtrd.config.reader import read_changes, read_definition
from crtrd.core.cron import Cron, Definition
from crtrd.engine.executor import Executor
from crtrd.errors import ConfigError, LaunchError


def new_definition(
    table: Mapping[str, object], executor: Executor, owner: int, *, where: str, timezone: str
) -> tuple[Definition, str]:
    """The definition with its profile's defaults, and whom it means: `uid name`."""
    own = given(read_definition(table, where=where, timezone=timezone), set(table))
    definition = follow(own, _profile(own, executor, where))
    return definition, _checked(definition, executor, owner, where)


def changed_fields(
    table: Mapping[str, object], cron: Cron, executor: Executor, *, where: str
) -> tuple[dict[str, Any], str | None]:
    """The typed changes; and whom the cron means from now on, None where that was not touched."""
    old = cron.definition
    own = given(replace(old, **read_changes(table, old, where=where)), set(table))
    new = follow(own, _profile(own, executor, where)) if {"profile"} & table.keys() else own
    account = _checked(new, executor, cron.owner, where)
    return difference(new, old), account if {"user", "profile"} & table.keys() else None


def _profile(definition: Definition, executor: Executor, where: str) -> Profile | None:
    """The profile that it names, which must be there. Raises ConfigError."""
    try:
        profile = executor.contexts.profile(definition)
    except LaunchError as error:
        raise ConfigError(where, "profile", error.reason) from error
    if profile is None and definition.profile:
        raise ConfigError(where, "profile", f"there is no profile {definition.profile!r}")
    return profile


def _checked(definition: Definition, executor: Executor, owner: int, where: str) -> str:
    """Whom it means, once this host can do what it asks for."""
    if executor.scopes and (why := executor.scopes.lacking(definition.resources)):
        raise ConfigError(where, "resources", why)
    try:
        return executor.contexts.account(definition, owner)
    except LaunchError as error:
        raise ConfigError(where, "profile" if error.stage == "profile" else "user", error.reason) from error
