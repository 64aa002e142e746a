"""Accounts of the host: whom a cron means, and whether that is still the one it was armed for. Never a guess."""

import grp
import os
import pwd
from errno import ENOENT

from crtrd.config.profile import Profile
from crtrd.core.cron import Cron, Definition
from crtrd.errors import LaunchError
from crtrd.supervision.faults import launch_error
from crtrd.values import dataclass

LOOK_UP_FDS = 1


@dataclass(frozen=True, slots=True)
class Account:
    """uid, gid, groups, home and shell of one user, all from one look."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """Supplementary groups, the primary one among them."""
    home: str
    shell: str

    @property
    def text(self) -> str:
        """As it is remembered with the cron."""
        return f"{self.uid} {self.name}"


def find_account(definition: Definition, owner: int, profile: Profile | None) -> Account:
    """The cron's `user`, else its profile's with the profile's groups, else its owner. Raises LaunchError."""
    _can_look()
    if definition.user:
        return _account(_by_name(definition.user))
    if profile is None:
        return _account(_by_uid(owner))
    entry = _by_name(profile.user) if profile.user else _by_uid(owner)
    gid = _group(profile.group) if profile.group else entry.pw_gid
    return _account(entry, gid, tuple(map(_group, profile.supplementary_groups)))


def same_account(cron: Cron, account: Account, profile: Profile | None) -> None:
    """Raise LaunchError where name or uid has come to mean another than when the cron was armed.

    A profile may be edited to name another user; then both differ, or the name alone does.
    """
    uid, _, name = cron.account.partition(" ")
    if not name or account.text == cron.account:
        return
    by_profile = bool(cron.definition.profile) and not cron.definition.user
    if name == account.name:
        raise LaunchError("user", 0, f"account {name} had uid {uid} when the cron was armed and has {account.uid} now; "
                                     f"crtrctl change {cron.name} --user {name} accepts that")
    if uid == str(account.uid) and not (by_profile and profile and profile.user):
        raise LaunchError("user", 0, f"uid {uid} was account {name} when the cron was armed and is {account.name} now; "
                                     f"crtrctl change {cron.name} --user {account.name} accepts that")


def _can_look() -> None:
    """Without a free descriptor the C library finds no account and only the base group, and does not say why."""
    try:
        for fd in [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) for _ in range(LOOK_UP_FDS)]:
            os.close(fd)
    except OSError as error:
        raise launch_error("user", error.errno or 0) from error


def _account(entry: pwd.struct_passwd, gid: int | None = None, more: tuple[int, ...] = ()) -> Account:
    gid = entry.pw_gid if gid is None else gid
    groups = dict.fromkeys([*os.getgrouplist(entry.pw_name, gid), *more])
    return Account(entry.pw_name, entry.pw_uid, gid, tuple(groups), entry.pw_dir, entry.pw_shell)


def _by_name(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        raise LaunchError("user", ENOENT, f"there is no account {name}") from None


def _by_uid(uid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except (KeyError, OverflowError):
        raise LaunchError("user", ENOENT, f"there is no account uid {uid}") from None


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):
        raise LaunchError("user", ENOENT, f"there is no group {name}") from None
