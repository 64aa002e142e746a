"""GetManagedObjects: every object of ours in one reply, made over many turns of the loop, a few crons in each.

D-Bus has no pages for it, so the reply grows as bytes, bit by bit, and is given up as soon as no bus would take it: for
so many crons there is ListCrons.
"""

from collections.abc import Callable, Mapping

from crtrd import names
from crtrd.control.access import Caller
from crtrd.control.verbs import Control
from crtrd.dbus import objects
from crtrd.dbus.answer import ERRORS, MESSAGE_MOST, Answer
from crtrd.dbus.interface import Interface
from crtrd.dbus.manager import MANAGER, page_of
from crtrd.dbus.objects import RUNS_KEPT
from crtrd.dbus.values import Variant, cron_path, run_path
from crtrd.dbus.wire import Growing
from crtrd.errors import Code, RequestError

CRONS_A_TURN = 100
"""Ten milliseconds or so."""
SIGNATURE = "a{oa{sa{sv}}}"
Properties = dict[str, Variant]
Ask = Callable[[str, tuple[object, ...], Callable[[object], None]], None]


class Managed:
    """One answer. `begin` once; `root`: the manager's own object is below the object that was asked."""

    def __init__(
        self, control: Control, soon: Callable[[Callable[[], None]], None], ask: Ask, answer: Answer, caller: Caller,
        *, root: bool,
    ) -> None:
        """`ask` answers what is refused, by itself."""
        self._control, self._soon, self._ask = control, soon, ask
        self._answer, self._caller, self._root = answer, caller, root
        self._found = Growing(SIGNATURE)

    def begin(self) -> None:
        self._crons("")

    def _crons(self, cursor: str) -> None:
        self._ask("list_crons", ({}, CRONS_A_TURN, cursor), self._take_crons)

    def _take_crons(self, value: object) -> None:
        views, onward = page_of(value)
        self._take(views, cron_path, objects.CRON, objects.cron_properties)
        if len(self._found.data) > MESSAGE_MOST:
            text = "cannot answer: the reply would be too large; ask ListCrons"
            self._answer.error(ERRORS[Code.LIMIT_EXCEEDED], text)
        elif onward:
            self._soon(lambda: self._crons(onward))
        else:
            self._soon(lambda: self._ask("list_runs", ({}, RUNS_KEPT, ""), self._take_runs))

    def _take_runs(self, value: object) -> None:
        self._take(page_of(value)[0], run_path, objects.RUN, objects.run_properties)
        if not self._root:
            self._answer.give(SIGNATURE, (self._found,))
            return
        self._control.call("status", (), self._caller, self._take_manager)

    def _take_manager(self, allowed: object) -> None:
        """Its properties count what others have: only for who may know."""
        known = not isinstance(allowed, RequestError)
        own = objects.manager_properties(self._control.properties()) if known else {}
        self._found.add({names.BUS_PATH: {MANAGER.name: own}})
        self._answer.give(SIGNATURE, (self._found,))

    def _take(
        self, views: list[Mapping[str, object]], path: Callable[[str], str], interface: Interface,
        properties: Callable[[Mapping[str, object]], Properties],
    ) -> None:
        self._found.add({path(str(view["id"])): {interface.name: properties(view)} for view in views})
