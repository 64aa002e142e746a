"""The decorator behaves as the library's where crtrd looks at it."""

import dataclasses

import pytest

from crtrd.values import dataclass, field


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(slots=True)
class Open:
    items: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Other:
    left: int
    right: tuple[str, ...] = ()


def test_equal_is_what_holds_equal_and_is_of_the_same_class():
    assert Pair(1) == Pair(1, ())
    assert Pair(1) != Pair(2)
    assert Pair(1) != Other(1)
    assert Empty() == Empty()
    assert Open([1]) == Open([1])
    assert Itself("a") != Itself("a")


def test_frozen_ones_can_be_keys():
    assert {Pair(1, ("a",)): 7, Empty(): 8}[Pair(1, ("a",))] == 7
    assert hash(Pair(3)) == hash(Pair(3))
    with pytest.raises(TypeError):
        hash(Open())
    with pytest.raises(TypeError):
        hash(Pair(1, ["a"]))


def test_shown_replaced_matched_and_listed_as_the_librarys():
    pair = Pair(1, ("a",))
    assert repr(pair) == repr(Other(1, ("a",))).replace("Other", "Pair")
    assert (repr(Empty()), repr(Itself("a"))) == ("Empty()", "Itself(name='a')")
    assert dataclasses.replace(pair, left=2) == Pair(2, ("a",))
    assert [each.name for each in dataclasses.fields(pair)] == ["left", "right"]
    assert dataclasses.asdict(pair) == {"left": 1, "right": ("a",)}
    match pair:
        case Pair(left, ("a",)):
            assert left == 1
        case _:
            pytest.fail("no match")
    assert not hasattr(pair, "__dict__")
    assert Open().items is not Open().items


def test_no_name_of_a_class_is_taken_away():
    @dataclass(slots=True)
    class Box:
        _size: int

        def _content(self) -> int:
            return self._size

    assert Box(3)._content() == 3
    assert Box(3) == Box(3)


def test_made_with_what_the_library_would_take():
    assert (Pair(1, ("a",)), Pair(right=(), left=2)) == (Pair(left=1, right=("a",)), Pair(2))
    for wrong in ((), (1, (), 2)):
        with pytest.raises(TypeError):
            Pair(*wrong)
    with pytest.raises(TypeError):
        Pair(1, middle=2)

    class Further(Itself):
        pass

    assert (Further("a").name, Itself("b").name) == ("a", "b")
