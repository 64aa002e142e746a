"""The members of org.crtrd.Crtrd1.Manager: one table from which introspection and dispatch both come.

Each method names the verb of `control` that it stands for, how its arguments become the verb's and how the verb's
answer becomes the reply's body. Nothing is decided here.
"""

from collections.abc import Callable, Mapping
from typing import TypeVar

from crtrd import names
from crtrd.dbus.interface import Interface, Member, Property, member
from crtrd.dbus.values import clean, cron_path, fit, pack, plain, run_path
from crtrd.values import dataclass

PAGE_DEFAULT = 200
PAGE_MOST = 1000

Body = tuple[object, ...]
Arrive = Callable[[Body], Body]
Leave = Callable[[object], Body]
Kind = TypeVar("Kind")


def _as(kind: type[Kind], value: object) -> Kind:
    """`value`, which control promised to be of this kind."""
    if not isinstance(value, kind):
        message = f"control answered {value!r} instead of {kind.__name__}"
        raise TypeError(message)
    return value


def view_of(answer: object) -> Mapping[str, object]:
    """The answer of a verb that looks at one thing."""
    if not isinstance(answer, Mapping):
        message = f"control answered {answer!r} instead of a view"
        raise TypeError(message)
    return answer


def page_of(answer: object) -> tuple[list[Mapping[str, object]], str]:
    """The answer of a verb that lists: views, and where the next page begins."""
    views, onward = _as(tuple, answer)
    return [view_of(view) for view in _as(list, views)], _as(str, onward)


def _unchanged(body: Body) -> Body:
    return body


def _nothing(_: object) -> Body:
    return ()


def _number(answer: object) -> Body:
    return (fit("u", answer),)


def _text(answer: object) -> Body:
    return (fit("s", answer),)


def _view(answer: object) -> Body:
    return (pack(view_of(answer)),)


def _descriptor(answer: object) -> Body:
    return (_as(int, answer),)


def _instants(answer: object) -> Body:
    return (fit("at", answer),)


def _armed(answer: object) -> Body:
    cron_id = str(view_of(answer)["id"])
    return clean(cron_id), cron_path(cron_id)


def _path_of_cron(answer: object) -> Body:
    return (cron_path(str(view_of(answer)["id"])),)


def _started(answer: object) -> Body:
    view = view_of(answer)
    return fit("s", view["occurrence"]), [run_path(str(run)) for run in _as(list, view["runs"])]


def _occurrence(answer: object) -> Body:
    return (fit("s", view_of(answer)["occurrence"]),)


def _disposed(answer: object) -> Body:
    view = view_of(answer)
    return tuple(clean(str(view[key] or "")) for key in ("disposition", "occurrence_id", "status"))


def _page(answer: object) -> Body:
    views, onward = page_of(answer)
    return [pack(view) for view in views], clean(onward)


def _first_options(body: Body) -> Body:
    return (plain("a{sv}", body[0]), *body[1:])


def _options(body: Body) -> Body:
    return (*body[:-1], plain("a{sv}", body[-1]))


def _run_options(body: Body) -> Body:
    options = dict(_as(dict, plain("a{sv}", body[1])))
    options.setdefault("target", "")
    return body[0], options


def _cancel_options(body: Body) -> Body:
    options = dict(_as(dict, plain("a{sv}", body[1])))
    options.setdefault("kill", False)
    return body[0], options


def _paging(body: Body) -> Body:
    limit = _as(int, body[1])
    return plain("a{sv}", body[0]), min(limit, PAGE_MOST) if limit else PAGE_DEFAULT, body[2]


@dataclass(frozen=True, slots=True)
class Method:
    member: Member
    verb: str
    arrive: Arrive
    leave: Leave
    paged: bool = False
    """True: arguments end in (limit, cursor), and a reply that grows too large is asked for again with fewer."""


def _method(
    name: str, takes: str, gives: str, verb: str, leave: Leave = _nothing, *, arrive: Arrive = _unchanged
) -> Method:
    return Method(member(name, takes, gives), verb, arrive, leave)


def _list(name: str, verb: str, what: str) -> Method:
    takes, gives = "a{sv} filter, u limit, s cursor", f"aa{{sv}} {what}, s next"
    return Method(member(name, takes, gives), verb, _paging, _page, paged=True)


METHODS: tuple[Method, ...] = (
    _method("Arm", "a{sv} definition", "s id, o path", "arm", _armed, arrive=_first_options),
    _method("Change", "s cron, a{sv} changes", "", "change", arrive=_options),
    _method("Cancel", "s cron, a{sv} options", "", "cancel", arrive=_cancel_options),
    _method("Pause", "s cron, s note", "", "pause"),
    _method("Resume", "s cron", "", "resume"),
    _method("Skip", "s cron, t usec", "", "skip"),
    _method("Unskip", "s cron, t usec", "", "unskip"),
    _method("Poke", "s cron", "u poked", "poke", _number),
    _method("Run", "s cron, a{sv} options", "s occurrence, ao runs", "run", _started, arrive=_run_options),
    _method("Trigger", "s cron, a{sv} options", "s disposition, s occurrence, s status", "trigger", _disposed,
            arrive=_options),
    _method("Rerun", "s occurrence", "s occurrence", "rerun", _occurrence),
    _method("Backfill", "s cron, t from_usec, t to_usec, a{sv} options", "u count", "backfill", _number,
            arrive=_options),
    _method("Kill", "s run, i signal", "", "kill"),
    _method("Next", "s cron, u count", "at instants", "next", _instants),
    _method("Calendar", "a{sv} definition, t from_usec, u count", "at instants", "calendar", _instants,
            arrive=_first_options),
    _method("Explain", "s cron, t usec", "a{sv} explanation", "explain", _view),
    _method("GetCron", "s cron", "o path", "find_cron", _path_of_cron),
    _method("OpenOutput", "s run", "h output", "open_output", _descriptor),
    _method("GetOccurrence", "s occurrence", "a{sv} occurrence", "get_occurrence", _view),
    _method("GetRun", "s run", "a{sv} run", "get_run", _view),
    _list("ListCrons", "list_crons", "crons"),
    _list("ListOccurrences", "list_occurrences", "occurrences"),
    _list("ListRuns", "list_runs", "runs"),
    _list("ListOutbox", "list_outbox", "deliveries"),
    _method("RetryDelivery", "s delivery", "", "retry_delivery"),
    _method("DiscardDelivery", "s delivery", "", "discard_delivery"),
    _method("ReadInbox", "s owner, s cursor, u limit", "aa{sv} entries, s next", "read_inbox", _page),
    _method("AckInbox", "s owner, s cursor", "", "ack_inbox"),
    _list("ListEscalations", "list_escalations", "escalations"),
    _method("DeliverEscalation", "s escalation", "", "deliver_escalation"),
    _method("Drain", "b enable", "", "drain"),
    _method("Reload", "", "", "reload"),
    _method("Reexecute", "", "", "reexecute"),
)
BY_NAME: dict[str, Method] = {method.member.name: method for method in METHODS}

SIGNALS: tuple[Member, ...] = (
    member("CronChanged", "s id, o path, s what"),
    member("RunStarted", "s cron, s run, o path"),
    member("RunSettled", "s cron, s run, s result"),
    member("OccurrenceSettled", "s cron, s occurrence, s status, s reason"),
    member("Escalated", "s cron, s escalation"),
    member("BootMigrationApplied", "s id, a{sv} details"),
    # Every journal event as it happens, for `crtrctl monitor`: kind, sentence and fields of CONTRACT §8.
    member("Event", "s kind, s message, a{sv} fields"),
)

PROPERTIES: tuple[Property, ...] = (
    Property("Version", "s", "const"),
    Property("InstanceId", "s", "const"),
    Property("State", "s"),
    Property("CronCount", "u"),
    Property("ActiveCount", "u"),
    Property("HeldCount", "u"),
    Property("OutboxPending", "u"),
    Property("NextWakeUSec", "t"),
    Property("StartedUSec", "t", "const"),
)

MANAGER = Interface(
    names.MANAGER_INTERFACE, tuple(method.member for method in METHODS), SIGNALS, PROPERTIES
)

