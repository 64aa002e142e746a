"""Who may use which verb: one table, checked before any argument is looked at.

For now the instance's own administrator may do everything and everybody else nothing: root, or for a user's own
instance that user. A caller that cannot be identified is nobody.
"""

import os
from dataclasses import dataclass
from enum import StrEnum

from crtrd.errors import Code, RequestError


class Need(StrEnum):
    """What a verb does, in the words of its polkit action."""

    READ = "read"
    MANAGE = "manage"
    RUN = "run"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by the kernel's or the bus's word; never by the caller's own."""

    uid: int | None
    pid: int | None
    via: str
    """`bus` or `socket`."""


NEEDS: dict[str, Need] = {
    "arm": Need.MANAGE, "change": Need.MANAGE, "cancel": Need.MANAGE, "pause": Need.MANAGE, "resume": Need.MANAGE,
    "skip": Need.MANAGE, "poke": Need.RUN, "run": Need.RUN, "trigger": Need.RUN, "kill": Need.KILL,
    "backfill": Need.RUN, "rerun": Need.RUN, "next": Need.READ, "calendar": Need.READ, "explain": Need.READ,
    "get_cron": Need.READ, "get_run": Need.READ, "get_occurrence": Need.READ, "list_crons": Need.READ,
    "list_occurrences": Need.READ, "list_runs": Need.READ, "status": Need.READ, "properties": Need.READ,
    "list_outbox": Need.READ, "retry_delivery": Need.MANAGE, "discard_delivery": Need.MANAGE,
    "list_escalations": Need.READ, "deliver_escalation": Need.MANAGE, "read_inbox": Need.READ, "ack_inbox": Need.MANAGE,
    "drain": Need.MANAGE, "reload": Need.MANAGE,
}


def check(verb: str, caller: Caller) -> None:
    """Raises RequestError(ACCESS_DENIED) unless `caller` may use `verb`."""
    if caller.uid is not None and caller.uid in {0, os.geteuid()}:
        return
    who = "a caller that cannot be identified" if caller.uid is None else f"uid {caller.uid}"
    need = NEEDS.get(verb, Need.MANAGE)
    message = f"cannot {verb.replace('_', ' ')}: {who} may not ({need})"
    raise RequestError(Code.ACCESS_DENIED, message)
