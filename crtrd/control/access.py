"""Who may use which verb: one table of what each verb needs and of whose thing it is about.

Root, or the user whose own instance this is, may do everything; a user everything with what is theirs; all else is
asked of an authority (polkit), and refused where there is none. A caller that cannot be identified is nobody. How a
call's first argument becomes somebody's thing is `admission`'s matter.
"""

import os
from collections.abc import Callable
from enum import StrEnum

from crtrd import names
from crtrd.errors import Code, RequestError
from crtrd.values import dataclass

OPENED = frozenset({"status", "list_crons", "get_occurrence", "trigger", "metrics"})
TOKEN = "token"  # noqa: S105 - the word for a caller, no password


class Need(StrEnum):
    """What a verb does."""

    READ = "read"
    MANAGE = "manage"
    RUN = "run"
    KILL = "kill"


ACTIONS: dict[Need, str] = {
    Need.READ: names.BUS_NAME + ".read-output", Need.MANAGE: names.BUS_NAME + ".manage",
    Need.RUN: names.BUS_NAME + ".run", Need.KILL: names.BUS_NAME + ".kill",
}
"""polkit's names for them, declared in packaging/polkit."""


class Subject(StrEnum):
    """What a verb is about, by its first argument."""

    DAEMON = "daemon"
    """The daemon as a whole: nobody's own."""
    ANYBODY = "anybody"
    """Nothing that belongs to somebody: a calculation."""
    DEFINITION = "definition"
    """What is to be armed."""
    CRON = "cron"
    CHANGES = "changes"
    """A cron, and what to change of it."""
    RUN = "run"
    OCCURRENCE = "occurrence"
    DELIVERY = "delivery"
    ESCALATION = "escalation"
    LIST = "list"
    """Many things; callers see theirs."""
    INBOX = "inbox"


class Verdict(StrEnum):
    """What an authority says."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    CHALLENGE = "challenge"
    """Refused unless somebody may be asked for a password, and nobody may."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, by the kernel's or the bus's word; never by the caller's own."""

    uid: int | None
    pid: int | None
    via: str
    """`bus` or `socket`; TOKEN for one who has shown the token of the trigger socket."""
    name: str = ""
    """Unique name on the bus: by it polkit knows the caller without a race. Callers on the socket have none."""
    interactive: bool = False
    """This call allows that its user is asked for a password."""
    limited: bool = False
    """Set by `admission`: this call may touch and see only what is the caller's own."""


Ask = Callable[[Need, Caller, Callable[[Verdict], None]], None]
"""Asks an authority; the verdict comes once, at once or later."""

NEEDS: dict[str, Need] = {
    "arm": Need.MANAGE, "change": Need.MANAGE, "cancel": Need.MANAGE, "pause": Need.MANAGE, "resume": Need.MANAGE,
    "skip": Need.MANAGE, "unskip": Need.MANAGE, "poke": Need.RUN, "run": Need.RUN, "trigger": Need.RUN,
    "kill": Need.KILL, "backfill": Need.RUN, "rerun": Need.RUN, "next": Need.READ, "calendar": Need.READ,
    "explain": Need.READ,
    "get_cron": Need.READ, "find_cron": Need.READ, "get_run": Need.READ, "get_occurrence": Need.READ,
    "list_crons": Need.READ,
    "list_occurrences": Need.READ, "list_runs": Need.READ, "status": Need.READ, "properties": Need.READ,
    "metrics": Need.READ, "list_outbox": Need.READ, "retry_delivery": Need.MANAGE, "discard_delivery": Need.MANAGE,
    "list_escalations": Need.READ, "deliver_escalation": Need.MANAGE, "read_inbox": Need.READ, "ack_inbox": Need.MANAGE,
    "drain": Need.MANAGE, "reload": Need.MANAGE, "reexecute": Need.MANAGE, "set_log_level": Need.MANAGE,
    "open_output": Need.READ,
}
SUBJECTS: dict[str, Subject] = {
    "arm": Subject.DEFINITION, "change": Subject.CHANGES, "calendar": Subject.ANYBODY,
    **dict.fromkeys(("cancel", "pause", "resume", "skip", "unskip", "poke", "run", "trigger", "backfill", "next",
                     "explain", "get_cron", "find_cron"), Subject.CRON),
    **dict.fromkeys(("kill", "get_run", "open_output"), Subject.RUN),
    **dict.fromkeys(("rerun", "get_occurrence"), Subject.OCCURRENCE),
    **dict.fromkeys(("list_crons", "list_occurrences", "list_runs", "list_outbox", "list_escalations"), Subject.LIST),
    **dict.fromkeys(("read_inbox", "ack_inbox"), Subject.INBOX),
    **dict.fromkeys(("retry_delivery", "discard_delivery"), Subject.DELIVERY),
    "deliver_escalation": Subject.ESCALATION,
}
"""A verb that is not here is about the daemon: nobody's own."""
PHRASES: dict[str, str] = {
    "status": "read the status", "properties": "read the state", "metrics": "read the figures",
    "next": "look ahead", "calendar": "calculate a schedule", "reexecute": "re-execute the daemon",
    "reload": "reload the configuration", "drain": "drain the daemon",
}
"""What follows "cannot" where the verb's own name does not."""


def nobody_to_ask(_need: Need, _caller: Caller, then: Callable[[Verdict], None]) -> None:
    """The authority where there is none."""
    then(Verdict.REFUSED)


def is_administrator(caller: Caller) -> bool:
    return caller.uid is not None and caller.uid in {0, os.geteuid()}


def has_token(verb: str, caller: Caller) -> bool:
    """The token opens what the contract's routes serve; definitions, which may hold secrets, are not among that."""
    return caller.via == TOKEN and verb in OPENED


def need_of(verb: str) -> Need:
    return NEEDS.get(verb, Need.MANAGE)


def subject_of(verb: str) -> Subject:
    return SUBJECTS.get(verb, Subject.DAEMON)


def words_of(verb: str) -> str:
    """The verb in a sentence: "cannot …"."""
    return PHRASES.get(verb, verb.replace("_", " "))


def refusal(verb: str, caller: Caller, verdict: Verdict = Verdict.REFUSED) -> RequestError:
    """The same whether what was named exists or not: what others armed is invisible."""
    words = words_of(verb)
    if caller.uid is None:
        return RequestError(Code.ACCESS_DENIED, f"cannot {words}: a caller that cannot be identified may not")
    others = "" if subject_of(verb) is Subject.DAEMON else ", and nothing of that name is theirs"
    message = f"cannot {words}: uid {caller.uid} may not ({need_of(verb)}){others}"
    if verdict is Verdict.CHALLENGE:
        return RequestError(Code.INTERACTION_REQUIRED, message + "; it takes an authentication that was not allowed")
    return RequestError(Code.ACCESS_DENIED, message)
