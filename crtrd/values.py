"""`dataclass` as the standard library has it, made in a third of the time: crtrd makes some 150 of them at every start.

The library spells out six methods of its own for each frozen class and compiles them. Here only `__init__` is made so;
comparing, hashing and showing are three functions that all classes share. That nothing assigns to a field of a frozen
one is held by mypy alone, which sees the library's own decorator. `replace`, `fields` and `match` work as ever.
"""

from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass, field
else:
    import dataclasses
    from dataclasses import field

    def dataclass(*, frozen=False, slots=False, eq=True):  # noqa: ANN001, ANN201 - mypy sees the other one
        """A class decorator; `frozen` ones can be hashed, where all that they hold can."""

        def make(cls):  # noqa: ANN001, ANN202
            made = dataclasses.dataclass(slots=slots, repr=False, eq=False)(cls)
            made.__repr__ = _show
            if eq:
                names = made.__match_args__
                made.__content__ = staticmethod(attrgetter(*names) if names else _nothing)
                made.__eq__, made.__hash__ = _is_equal, _hash if frozen else None
            return made

        return make


def _nothing(_: Any) -> tuple[()]:  # noqa: ANN401 - any value
    return ()


def _show(self: Any) -> str:  # noqa: ANN401 - any value
    shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({shown})"


def _is_equal(self: Any, other: Any) -> bool:  # noqa: ANN401 - any value
    if type(other) is not type(self):
        return NotImplemented  # type: ignore[no-any-return]  # as the data model has it
    return bool(self.__content__(self) == self.__content__(other))


def _hash(self: Any) -> int:  # noqa: ANN401 - any value
    return hash(self.__content__(self))


__all__ = ["dataclass", "field"]
