"""Calls in, answers out, without a socket: finds the object and the member, asks control, translates its answer.

Control checks access before it looks at arguments; the standard interfaces, which have no verb of their own, borrow
the refusal of a reading verb, so that there is no member a stranger learns anything from.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from jeepney import HeaderFields
from jeepney.low_level import Message

from crtrd import names
from crtrd.control.access import Caller
from crtrd.control.verbs import Control
from crtrd.dbus import interface as declared
from crtrd.dbus import objects
from crtrd.dbus.answer import FREEDESKTOP_ERROR, TRANSLATION_FAULTS, Answer, Send
from crtrd.dbus.interface import Interface, Member
from crtrd.dbus.managed import Managed
from crtrd.dbus.manager import BY_NAME, MANAGER, PAGE_MOST, Method, page_of, view_of
from crtrd.dbus.objects import INTERFACES, OWN, RUNS_KEPT, Kind, Node
from crtrd.dbus.values import Variant
from crtrd.errors import RequestError

PENDING_MOST = 1000
"""Calls that may wait for their answer at once; further ones are refused."""
REPLY_MOST = 900_000
"""Bytes that a page of a list may take: 1 MiB less what the message itself needs."""

Properties = dict[str, Variant]
Then = Callable[[object], None]


class Dispatcher:
    """Answers method calls. `soon` calls back in the next turn of the loop, for answers that take more than one."""

    def __init__(
        self, control: Control, on_trouble: Callable[[str], None],
        soon: Callable[[Callable[[], None]], None] = lambda go_on: go_on(),
    ) -> None:
        self.pending = 0
        self._soon = soon
        self._control = control
        self._on_trouble = on_trouble
        self._standard: dict[tuple[str, str], Callable[[Answer, Node, Caller], None]] = {
            (declared.PEER, "Ping"): lambda answer, node, caller: answer.give("", ()),
            (declared.PEER, "GetMachineId"): lambda answer, node, caller: _machine_id(answer),
            (declared.INTROSPECTABLE, "Introspect"): self._introspect,
            (declared.PROPERTIES, "Get"): self._get,
            (declared.PROPERTIES, "GetAll"): self._get_all,
            (declared.PROPERTIES, "Set"): self._set,
            (declared.OBJECT_MANAGER, "GetManagedObjects"): self._managed_objects,
        }

    def accept(self, call: Message, send: Send) -> Answer:
        """The answer that `call` is owed, to go out by `send`; until it is given the call counts as pending."""
        self.pending += 1
        answer = Answer(call, send, self._on_trouble)
        answer.done = self._finished
        return answer

    def handle(self, answer: Answer, caller: Caller) -> None:
        """Answer an accepted call, now or later."""
        fields = answer.call.header.fields
        path, member = fields.get(HeaderFields.path, ""), fields.get(HeaderFields.member, "")
        wanted = fields.get(HeaderFields.interface)
        node = objects.locate(path)
        if self.pending > PENDING_MOST:
            return answer.error(FREEDESKTOP_ERROR + "LimitsExceeded", "cannot take the call: too many are waiting")
        if node is None:
            return answer.error(FREEDESKTOP_ERROR + "UnknownObject", f"cannot find object {path}")
        found = _find(node, wanted, member)
        if isinstance(found, str):
            return answer.error(FREEDESKTOP_ERROR + found, f"cannot call {member}: {path} has no such member")
        interface, entry = found
        if fields.get(HeaderFields.signature, "") != entry.signature:
            return self._refuse_signature(answer, caller, entry)
        if interface is MANAGER:
            return self._call(answer, BY_NAME[member], caller)
        return self._standard[interface.name, member](answer, node, caller)

    def _finished(self) -> None:
        self.pending -= 1

    def _ask(self, answer: Answer, caller: Caller, verb: str, arguments: tuple[object, ...], then: Then) -> None:
        """Call control; a refusal is answered here, a value goes on to `then`."""

        def reply(value: object) -> None:
            if isinstance(value, RequestError):
                return answer.refuse(value)
            try:
                return then(value)
            except TRANSLATION_FAULTS as fault:
                return answer.fail(fault)

        try:
            self._control.call(verb, arguments, caller, reply)
        except RequestError as refusal:
            answer.refuse(refusal)

    def _call(self, answer: Answer, method: Method, caller: Caller) -> None:
        try:
            arguments = method.arrive(answer.call.body)
        except TRANSLATION_FAULTS as fault:
            return answer.fail(fault)
        if method.paged:
            return self._page(answer, method, arguments, caller)
        signature = method.member.reply_signature

        def leave(value: object) -> None:
            try:
                answer.give(signature, method.leave(value))
            finally:
                if signature == "h" and isinstance(value, int):
                    os.close(value)  # the message has a duplicate

        return self._ask(answer, caller, method.verb, arguments, leave)

    def _page(self, answer: Answer, method: Method, arguments: tuple[object, ...], caller: Caller) -> None:
        """A page of a list; one that would be too large is asked for again with as many as fit."""

        def leave(value: object) -> None:
            views, _ = page_of(value)
            fitting = _fitting(views)
            if fitting < len(views):
                return self._page(answer, method, (arguments[0], fitting, arguments[2]), caller)
            return answer.give(method.member.reply_signature, method.leave(value))

        self._ask(answer, caller, method.verb, arguments, leave)

    def _allowed(self, answer: Answer, caller: Caller, then: Callable[[], None]) -> None:
        """Go on with `then` if the caller may read the daemon's state."""
        self._ask(answer, caller, "properties", (), lambda _: then())

    def _refuse_signature(self, answer: Answer, caller: Caller, entry: Member) -> None:
        text = f"cannot call {entry.name}: its arguments are ({entry.signature})"
        self._allowed(answer, caller, lambda: answer.error(FREEDESKTOP_ERROR + "InvalidArgs", text))

    # The standard interfaces

    def _introspect(self, answer: Answer, node: Node, caller: Caller) -> None:
        def give(children: list[str]) -> None:
            answer.give("s", (declared.to_xml(INTERFACES[node.kind], children),))

        def below(value: object) -> None:
            # A stranger sees the interfaces, which are public, and no object below.
            give([] if isinstance(value, RequestError) else [str(view["id"]) for view in page_of(value)[0]])

        match node.kind:
            case Kind.CRONS:
                self._control.call("list_crons", ({}, PAGE_MOST, ""), caller, below)
            case Kind.RUNS:
                self._control.call("list_runs", ({}, RUNS_KEPT, ""), caller, below)
            case _:
                give(list(node.children))

    def _get(self, answer: Answer, node: Node, caller: Caller) -> None:
        interface, name = answer.call.body

        def give(values: Properties) -> None:
            if name not in values:
                return answer.error(FREEDESKTOP_ERROR + "UnknownProperty", f"cannot read {name}: no such property")
            return answer.give("v", (values[name],))

        self._properties(answer, node, interface, caller, give, name)

    def _get_all(self, answer: Answer, node: Node, caller: Caller) -> None:
        self._properties(answer, node, answer.call.body[0], caller, lambda values: answer.give("a{sv}", (values,)))

    def _set(self, answer: Answer, node: Node, caller: Caller) -> None:
        interface, name, (signature, value) = answer.call.body
        if node.kind is Kind.LOG and (interface, name, signature) == (names.LOG_INTERFACE, "LogLevel", "s"):
            return self._ask(answer, caller, "set_log_level", (value,), lambda _: answer.give("", ()))

        def refuse(values: Properties) -> None:
            error = "PropertyReadOnly" if name in values else "UnknownProperty"
            answer.error(FREEDESKTOP_ERROR + error, f"cannot set {name}: properties change through methods only")

        return self._properties(answer, node, interface, caller, refuse)

    def _properties(
        self, answer: Answer, node: Node, interface: str, caller: Caller, then: Callable[[Properties], None],
        wanted: str = "",
    ) -> None:
        """`then` gets all of them; of the manager's, where one is wanted, only that one need be true."""
        own = OWN.get(node.kind)
        known = {entry.name for entry in INTERFACES[node.kind]}
        if interface and interface not in known:
            return answer.error(FREEDESKTOP_ERROR + "UnknownInterface", f"cannot find interface {interface} here")
        if own is None or (interface and interface != own.name):
            return then({})
        if own is MANAGER:
            return self._allowed(answer, caller, lambda: then(
                objects.manager_properties(self._control.properties(wanted))))
        if own is objects.LOG_CONTROL:
            return self._allowed(answer, caller, lambda: then(objects.log_properties(self._control.log_level())))
        if own is objects.CRON:
            verb, read = "get_cron", objects.cron_properties
        else:
            verb, read = "get_run", objects.run_properties
        return self._ask(answer, caller, verb, (node.id,), lambda view: then(read(view_of(view))))

    def _managed_objects(self, answer: Answer, node: Node, caller: Caller) -> None:
        ask = partial(self._ask, answer, caller)
        Managed(self._control, self._soon, ask, answer, caller, root=node.kind is Kind.ROOT).begin()


def _members(kind: Kind) -> dict[tuple[str | None, str], tuple[Interface, Member]]:
    """Every member of a kind of object, by interface and name, and by name alone: ours comes last and wins."""
    found: dict[tuple[str | None, str], tuple[Interface, Member]] = {}
    for interface in INTERFACES[kind]:
        for method in interface.methods:
            found[interface.name, method.name] = found[None, method.name] = interface, method
    return found


MEMBERS = {kind: _members(kind) for kind in Kind}


def _find(node: Node, wanted: str | None, member: str) -> tuple[Interface, Member] | str:
    """The member that a call means, or the freedesktop error it deserves. The interface may be left out."""
    found = MEMBERS[node.kind].get((wanted, member))
    if found is not None:
        return found
    known = wanted is None or any(entry.name == wanted for entry in INTERFACES[node.kind])
    return "UnknownMethod" if known else "UnknownInterface"


def _fitting(views: list[Mapping[str, object]]) -> int:
    """How many of the views, from the first, a reply may carry; at least one."""
    total = 0
    for index, view in enumerate(views):
        total += sum(_weight(name) + _weight(value) + 16 for name, value in view.items())
        if total > REPLY_MOST:
            return max(index, 1)
    return len(views)


def _weight(value: object) -> int:
    """About as many bytes as `value` takes on the bus, rather too many: a character is at most three or four."""
    weight = 8
    match value:
        case str():
            weight += len(value) if value.isascii() else 4 * len(value)
        case bytes():
            weight += len(value)
        case Mapping():
            weight += sum(_weight(key) + _weight(inner) + 8 for key, inner in value.items())
        case list() | tuple():
            weight += sum(_weight(inner) for inner in value)
        case _:
            pass
    return weight


def _machine_id(answer: Answer) -> None:
    try:
        answer.give("s", (Path("/etc/machine-id").read_text(encoding="ascii").strip(),))
    except (OSError, ValueError):
        answer.error(FREEDESKTOP_ERROR + "FileNotFound", "cannot read the machine id")
