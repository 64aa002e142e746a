"""The armed context of a run: who it runs as, in what environment, with what limits. Read anew for each run.

Raises LaunchError where the identity cannot be had: a command never runs as somebody else.
"""

import os
import pwd
import resource
from errno import ENOENT, EPERM

from crtrd.core.cron import Cron
from crtrd.core.occurrence import Run
from crtrd.errors import LaunchError
from crtrd.schedule.spans import format_instant
from crtrd.supervision.supervisor import Plan

ROOT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_UMASK = 0o022
LANGUAGE = "C.UTF-8"  # the same however the daemon was started
DEFAULT_SHELL = "/bin/sh"


def plan_for(run: Run, cron: Cron, *, home: str | None, head: int) -> Plan:
    """All that supervision needs to start this run. `home` is CRTR_HOME where it is set."""
    definition = cron.definition
    account = _account(cron)
    uid = account.pw_uid
    changes = uid != os.geteuid()
    if changes and os.geteuid() != 0:
        raise LaunchError("user", EPERM, f"only root may start a command as {account.pw_name}")
    argv = definition.command or (DEFAULT_SHELL, "-c", definition.shell or "")
    limits = dict(definition.resources)
    files = limits.get("LimitNOFILE")
    return Plan(
        run_id=run.id, argv=argv, env=_environment(run, cron, account, home),
        cwd=definition.cwd or (account.pw_dir if os.path.isdir(account.pw_dir) else "/"),
        stdin=definition.stdin.encode(), umask=DEFAULT_UMASK if definition.umask is None else definition.umask,
        uid=uid if changes else None, gid=account.pw_gid if changes else None,
        groups=tuple(os.getgrouplist(account.pw_name, account.pw_gid)) if changes else None,
        nice=int(limits["Nice"]) if "Nice" in limits else None,
        limits=((resource.RLIMIT_NOFILE, int(files), int(files)),) if files else (),
        oom_score_adj=int(limits["OOMScoreAdjust"]) if "OOMScoreAdjust" in limits else None,
        survivors=definition.survivors, grace=definition.grace, head=head, text_name=cron.name,
    )


def _account(cron: Cron) -> pwd.struct_passwd:
    wanted = cron.definition.user
    try:
        if not wanted:
            return pwd.getpwuid(cron.owner)
        return pwd.getpwnam(wanted)
    except KeyError:
        name = wanted or f"uid {cron.owner}"
        raise LaunchError("user", ENOENT, f"there is no account {name}") from None


def _environment(run: Run, cron: Cron, account: pwd.struct_passwd, home: str | None) -> tuple[tuple[str, str], ...]:
    shell = DEFAULT_SHELL if cron.definition.shell is not None else account.pw_shell or DEFAULT_SHELL
    values = {
        "HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "SHELL": shell,
        "PATH": ROOT_PATH if account.pw_uid == 0 else USER_PATH, "LANG": LANGUAGE,
        **dict(cron.definition.env),
        "CRTR_CRON_ID": cron.id, "CRTR_CRON_NAME": cron.name, "CRTR_OCCURRENCE_ID": run.occurrence_id,
        "CRTR_RUN_ID": run.id, "CRTR_SCHEDULED_AT": format_instant(run.scheduled_at), "CRTR_TRIGGER": run.trigger,
        "CRTR_ATTEMPT": str(run.attempt), "CRTR_TARGET": run.target, "CRTR_PROFILE": cron.definition.profile,
        "CRTR_FENCE": str(run.fence),
    }
    if home:
        values["CRTR_HOME"] = home
    return tuple(values.items())
