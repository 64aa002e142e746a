"""From what a caller passes to what is armed: the profile's defaults, the account that is meant, what can be applied.

Everything that only this host can tell is checked here, before anything is stored. Raises ConfigError with the key.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from crtrd.config.inherited import difference, follow, given
from crtrd.config.profile import Profile
from crtrd.config.reader import printable, read_changes, read_definition
from crtrd.core.cron import Cron, Definition, Overlap
from crtrd.engine.executor import Executor
from crtrd.errors import ConfigError, LaunchError

Pools = tuple[tuple[str, int], ...]


def new_definition(
    table: Mapping[str, object], executor: Executor, owner: int, *, where: str, timezone: str, pools: Pools
) -> tuple[Definition, str]:
    """The definition with its profile's defaults, and whom it means: `uid name`."""
    own = given(read_definition(table, where=where, timezone=timezone), set(table))
    definition = follow(own, _profile(own, executor, where))
    _check_use(definition, set(table), pools, where)
    return definition, _checked(definition, executor, owner, where)


def changed_fields(
    table: Mapping[str, object], cron: Cron, executor: Executor, *, where: str, pools: Pools
) -> tuple[dict[str, Any], str | None]:
    """The typed changes; and whom the cron means from now on, None where that was not touched."""
    old = cron.definition
    own = given(replace(old, **read_changes(table, old, where=where)), set(table))
    new = follow(own, _profile(own, executor, where)) if {"profile"} & table.keys() else own
    _check_use(new, set(table), pools, where)
    account = _checked(new, executor, cron.owner, where)
    return difference(new, old), account if {"user", "profile"} & table.keys() else None


def _check_use(definition: Definition, keys: set[str], pools: Pools, where: str) -> None:
    """What was given by name must mean something: a pool that there is, a number that the overlap policy looks at."""
    names = [name for name, _ in pools]
    if "pool" in keys and definition.pool and definition.pool not in names:
        there = f"there are {', '.join(names)}" if names else "crtrd.toml has none"
        raise ConfigError(where, "pool", f"there is no pool {printable(definition.pool)!r}; {there}")
    for key, policy in (("queue_limit", Overlap.QUEUE), ("parallel", Overlap.ALLOW)):
        usual = getattr(definition, key) in {None, 1}
        if key in keys and definition.overlap is not policy and not usual:
            raise ConfigError(where, key, f"it means nothing with overlap {definition.overlap}, only with {policy}")


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
