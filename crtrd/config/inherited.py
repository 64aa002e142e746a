"""Policies that a cron has from its profile's `[defaults]`: which they are, and how they follow the profile.

A key that was given by name is the cron's own, also where it was given its built-in value (`pinned`). Every other one
is the profile's, if that says it (`inherited`), or the built-in one. Pure.
"""

from dataclasses import fields as fields_of
from dataclasses import replace
from typing import Any

from crtrd.config.profile import NOT_DEFAULTS, Profile
from crtrd.config.reader import check_whole, read_fields
from crtrd.core.cron import Definition
from crtrd.errors import ConfigError

BUILT_IN = {field.name: field.default for field in fields_of(Definition)}


def given(definition: Definition, keys: set[str]) -> Definition:
    """The definition after `keys` were given by name: they are its own from now on."""
    policies = keys & BUILT_IN.keys() - NOT_DEFAULTS
    pinned = {key for key in {*definition.pinned, *policies} if getattr(definition, key) == BUILT_IN[key]}
    inherited = set(definition.inherited) - policies
    if not (pinned or inherited or definition.pinned or definition.inherited):
        return definition
    return replace(definition, pinned=tuple(sorted(pinned)), inherited=tuple(sorted(inherited)))


def follow(definition: Definition, profile: Profile | None) -> Definition:
    """The definition with its profile's defaults as they are now. Raises ConfigError that names the profile's key."""
    if profile is None:
        return definition
    where = f"{profile.path}: defaults"
    said = read_fields(dict(profile.defaults), where=where, timezone=definition.timezone)
    changes: dict[str, Any] = {key: BUILT_IN[key] for key in definition.inherited if key not in said}
    inherited = []
    for key, value in said.items():
        if key in definition.inherited or (getattr(definition, key) == BUILT_IN[key] and key not in definition.pinned):
            inherited.append(key)
            changes[key] = value
    found = replace(definition, inherited=tuple(sorted(inherited)), **changes)
    try:
        check_whole(found, where)
    except ConfigError:
        check_whole(definition, "")  # at fault itself: its own file is named, by whoever asked
        raise
    return found


def difference(new: Definition, old: Definition) -> dict[str, Any]:
    """The fields in which they differ."""
    return {name: getattr(new, name) for name in BUILT_IN if getattr(new, name) != getattr(old, name)}
