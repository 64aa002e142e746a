"""`dataclass` as the standard library has it, made in a third of the time: crtrd makes some 150 of them at every start.

The library spells out six methods of its own for each frozen class and compiles them. Here only `__init__` is made so,
and only when the first one of its class is: a cold start meets less than half of them. Comparing, hashing and showing
are three functions that all classes share. That nothing assigns to a field of a frozen one is held by mypy alone, which
sees the library's own decorator. `replace`, `fields` and `match` work as ever.
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
            cls.__doc__ = cls.__doc__ or cls.__name__  # the library's own would be its signature: 0.1 ms with inspect
            made = dataclasses.dataclass(slots=slots, repr=False, eq=False, init=False)(cls)
            made.__init__, made.__repr__ = _first, _show
            if eq:
                names = made.__match_args__
                made.__content__ = staticmethod(attrgetter(*names) if names else _nothing)
                made.__eq__, made.__hash__ = _is_equal, _hash if frozen else None
            return made

        return make

    def _first(self, *values, **named):  # noqa: ANN001, ANN002, ANN003, ANN202
        """In place of `__init__` until it is called."""
        cls = next(each for each in type(self).__mro__ if each.__dict__.get("__init__") is _first)
        cls.__init__ = _spell(cls)
        cls.__init__(self, *values, **named)

    def _spell(cls):  # noqa: ANN001, ANN202
        """`__init__` with the parameters and defaults of the fields, as the library would write it."""
        known, words, lines = {"_unset": _unset}, ["self"], []
        for each in dataclasses.fields(cls):
            name, default = each.name, ""
            known[f"_of_{name}"] = each.default if each.default_factory is dataclasses.MISSING else each.default_factory
            value = name
            if each.default_factory is not dataclasses.MISSING:
                default, value = "=_unset", f"_of_{name}() if {name} is _unset else {name}"
            elif each.default is not dataclasses.MISSING:
                default = f"=_of_{name}"
            words.append(name + default)
            lines.append(f"    self.{name} = {value}\n")
        exec(f"def __init__({', '.join(words)}):\n{''.join(lines) or '    pass'}", known)  # noqa: S102 - our own names
        known["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
        return known["__init__"]


_unset = object()


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
