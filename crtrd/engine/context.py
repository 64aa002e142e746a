"""The armed context of a run: who it runs as, in what environment, with what limits. Read anew for each run.

    a key of the cron  over  its profile  over  what the account has

Raises LaunchError where the identity cannot be had: a command never runs as somebody else. A profile that is gone is
no such case: the command then runs as its owner, and that is said.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from errno import EPERM

from crtrd.config.inherited import difference, follow
from crtrd.config.loader import host, host_zone, load_environment, load_profile
from crtrd.config.profile import Profile
from crtrd.config.resources import LIMITS, read_limit, read_number, scope_properties
from crtrd.core.cron import Cron, Definition
from crtrd.core.occurrence import Run
from crtrd.engine.accounts import Account, find_account, same_account
from crtrd.errors import ConfigError, LaunchError
from crtrd.names import Places
from crtrd.schedule.spans import format_instant
from crtrd.supervision.plan import Plan
from crtrd.values import dataclass

ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_UMASK = 0o022
LANGUAGE = "C.UTF-8"  # the same however the daemon was started
DEFAULT_SHELL = "/bin/sh"
Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Context:
    """What it takes to start one run."""

    plan: Plan
    resources: Pairs
    scope: tuple[tuple[str, int], ...]
    """Properties of the transient scope that the run needs; () where it needs none."""
    changes: dict[str, object]
    """What has changed in its profile's defaults since the cron was looked at last."""
    fallen_back: bool
    """Its profile is gone, so it runs as its owner."""


class Contexts:
    """`places` say where profiles lie."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._accounts: dict[tuple[str, int], Account] | None = None
        self._zone: str | None = None

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is asked for inside begins, or is armed, at one time: one look at an account will do."""
        before, self._accounts, self._zone = self._accounts, {}, None
        try:
            yield
        finally:
            self._accounts = before

    def this_turn(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """What is asked for from now until `soon` calls back is asked for at one time too."""
        if self._accounts is None:
            self._accounts, self._zone = {}, None
            soon(self._turn_over)

    def _turn_over(self) -> None:
        self._accounts = None

    def zone(self) -> str:
        """The host's time zone."""
        if self._accounts is None:
            return host_zone()
        self._zone = self._zone or host_zone()
        return self._zone

    def of(self, run: Run, cron: Cron, *, head: int) -> Context:
        """Raises LaunchError."""
        profile = self.profile(cron.definition)
        try:
            definition = follow(cron.definition, profile)
        except ConfigError as error:
            raise LaunchError("profile", 0, str(error)) from error
        changes_to = {} if definition is cron.definition else difference(definition, cron.definition)
        cron = replace(cron, definition=definition) if changes_to else cron
        account = self._account(definition, cron.owner, profile)
        same_account(cron, account, profile)
        changes = account.uid != os.geteuid()
        if changes and os.geteuid() != 0:
            raise LaunchError("user", EPERM, f"only root may start a command as {account.name}")
        plan = _plan(run, cron, profile, account, self._environment(run, cron, profile, account), head)
        scope = scope_properties(definition.resources, host()) if definition.resources else ()
        missing = bool(definition.profile) and profile is None
        return Context(plan, definition.resources, scope, changes_to, fallen_back=missing)

    def profile(self, definition: Definition) -> Profile | None:
        """The profile that the definition names, as it is now. Raises LaunchError where it cannot be used."""
        if not definition.profile:
            return None
        try:
            return load_profile(self.places, definition.profile)
        except ConfigError as error:
            raise LaunchError("profile", 0, str(error)) from error

    def account(self, definition: Definition, owner: int) -> str:
        """Whom the definition means now: `uid name`, to be remembered. Raises LaunchError."""
        account = self._account(definition, owner, self.profile(definition))
        if account.uid != os.geteuid() and os.geteuid() != 0:
            raise LaunchError("user", EPERM, f"only root may start a command as {account.name}")
        return account.text

    def _account(self, definition: Definition, owner: int, profile: Profile | None) -> Account:
        if profile is not None or self._accounts is None:
            return find_account(definition, owner, profile)
        key = definition.user, owner
        if key not in self._accounts:
            self._accounts[key] = find_account(definition, owner, None)
        return self._accounts[key]

    def _environment(self, run: Run, cron: Cron, profile: Profile | None, account: Account) -> Pairs:
        return tuple({
            "HOME": account.home, "SHELL": _shell_variable(cron.definition, profile, account),
            "PATH": (profile.search_path if profile else "") or (ROOT_PATH if account.uid == 0 else USER_PATH),
            "LANG": LANGUAGE,
            **dict(_profile_environment(profile)), **dict(cron.definition.env),
            "USER": account.name, "LOGNAME": account.name,
            **_own_variables(run, cron, profile),
            **({"CRTR_HOME": str(self.places.home)} if self.places.home else {}),
        }.items())


def _own_variables(run: Run, cron: Cron, profile: Profile | None) -> dict[str, str]:
    return {
        "CRTR_CRON_ID": cron.id, "CRTR_CRON_NAME": cron.name, "CRTR_OCCURRENCE_ID": run.occurrence_id,
        "CRTR_RUN_ID": run.id, "CRTR_SCHEDULED_AT": format_instant(run.scheduled_at), "CRTR_TRIGGER": run.trigger,
        "CRTR_ATTEMPT": str(run.attempt), "CRTR_TARGET": run.target, "CRTR_FENCE": str(run.fence),
        "CRTR_PROFILE": profile.name if profile else "",
    }


def _profile_environment(profile: Profile | None) -> list[tuple[str, str]]:
    if profile is None:
        return []
    try:
        return [*profile.env, *load_environment(profile.env_files)]
    except ConfigError as error:
        raise LaunchError("profile", 0, f"{profile.path}: env_files: {error}") from error


def _shell_variable(definition: Definition, profile: Profile | None, account: Account) -> str:
    if profile and profile.shell:
        return profile.shell
    return DEFAULT_SHELL if definition.shell is not None else account.shell or DEFAULT_SHELL


def _plan(run: Run, cron: Cron, profile: Profile | None, account: Account, env: Pairs, head: int) -> Plan:
    definition, resources = cron.definition, dict(cron.definition.resources)
    shell = (profile.shell if profile else "") or DEFAULT_SHELL
    changes = os.geteuid() == 0 or bool(profile and (profile.group or profile.supplementary_groups))
    score = resources.get("OOMScoreAdjust")
    return Plan(
        run_id=run.id, argv=definition.command or (shell, "-c", definition.shell or ""), env=env,
        cwd=_folder(definition, profile, account), stdin=definition.stdin.encode(), umask=_umask(definition, profile),
        uid=account.uid if changes else None, gid=account.gid if changes else None,
        groups=account.groups if changes else None, nice=_nice(resources, profile),
        limits=_limits(resources, profile),
        oom_score_adj=read_number("OOMScoreAdjust", score) if score is not None else None,
        survivors=definition.survivors, grace=definition.grace, head=head, text_name=cron.name,
        masks=definition.change_ignore,
    )


def _folder(definition: Definition, profile: Profile | None, account: Account) -> str:
    named = definition.cwd or (profile.cwd if profile else "")
    return named or (account.home if os.path.isdir(account.home) else "/")


def _umask(definition: Definition, profile: Profile | None) -> int:
    if definition.umask is not None:
        return definition.umask
    return profile.umask if profile and profile.umask is not None else DEFAULT_UMASK


def _nice(resources: dict[str, str], profile: Profile | None) -> int | None:
    if "Nice" in resources:
        return read_number("Nice", resources["Nice"])
    return profile.nice if profile else None


def _limits(resources: dict[str, str], profile: Profile | None) -> tuple[tuple[int, int, int], ...]:
    texts = dict(profile.limits) if profile else {}
    texts |= {name: value for name, value in resources.items() if name in LIMITS}
    return tuple((LIMITS[name], *read_limit(name, value)) for name, value in texts.items())
