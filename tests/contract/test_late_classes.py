"""Classes of records are made when they are first used; nothing tells them from others."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from abc import ABC, abstractmethod

import attrs
import pytest

from parcost.contract.schema import block, block_type, new_block, quantity
from parcost.language.units import ONE
from parcost.records import define, frozen, record


@record
class Point:
    x: float
    y: float = 2.0


@record
class Label(Point):
    name: str = "origin"


@frozen(kw_only=True)
class WithSetter:
    items: list[int] = attrs.field(factory=list, converter=list)


@define
class Counter:
    count: int = 0

    def __attrs_post_init__(self) -> None:
        self.count += 1


def test_a_record_is_made_of_its_bases_too() -> None:
    assert Label(1.0, name="a") == Label(1.0, 2.0, "a") != Label(1.0, 2.0, "b")
    assert hash(Point(1.0)) == hash(Point(1.0, 2.0))
    assert repr(Label(1.0)) == "Label(x=1.0, y=2.0, name='origin')"
    assert attrs.evolve(Point(1.0), y=5.0) == Point(1.0, 5.0)


def test_fields_and_signatures_are_known_before_an_object_is() -> None:
    @record
    class Fresh:
        a: int
        b: str = "b"

    @record
    class Other:
        c: int = 3

    class Derived(Fresh):
        """Without a decorator of its own."""

    assert [field.name for field in attrs.fields(Derived)] == ["a", "b"]
    assert str(inspect.signature(Other)) == "(c: 'int' = 3) -> None"
    assert Derived(1).b == "b"


def test_a_field_takes_the_place_of_a_property() -> None:
    class Link(ABC):
        @property
        @abstractmethod
        def rate(self) -> float: ...

        @property
        def level(self) -> int:
            return 0

    @record
    class Wire(Link):
        rate: float
        level: int = 1

    assert (Wire(2.0).rate, Wire(2.0).level, Wire(2.0, 3).level) == (2.0, 1, 3)


def test_converters_factories_and_hooks_run() -> None:
    assert WithSetter(items=(1, 2)).items == [1, 2]
    assert WithSetter().items is not WithSetter().items
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        WithSetter().items = []  # type: ignore[misc]
    assert Counter(4).count == 5


def test_a_process_that_makes_no_object_compares_those_that_it_reads() -> None:
    @record
    class Unused:
        a: int

    one, other = object.__new__(Unused), object.__new__(Unused)  # as pickle does
    vars(one)["a"] = vars(other)["a"] = 1
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(Point(3.0))) == copy.copy(Point(3.0)) == Point(3.0)


def test_threads_make_a_class_once() -> None:
    for _ in range(20):

        @record
        class Shared:
            a: int
            b: int = 2

        found: list[object] = []
        start = threading.Barrier(4)

        def make(found: list[object] = found, start: threading.Barrier = start) -> None:
            start.wait()
            found.append(Shared(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [Shared(1)] * 4


def test_a_class_that_cannot_be_made_reports_the_cause_at_each_use() -> None:
    @record
    class Wrong:
        a: int = 1
        b: str  # type: ignore[misc]

    for _ in range(2):
        with pytest.raises(ValueError, match="No mandatory attributes allowed after"):
            Wrong()


def test_a_block_is_frozen_before_its_class_is_made() -> None:
    @block("shelf")
    class Shelf:
        width: float = quantity(ONE, doc="of the shelf", default=2.0)

    @block("rack")
    class Rack(Shelf):
        height: float = quantity(ONE, doc="of the rack")

    made = new_block(Shelf, {"width": 3.0, "label": "left"})
    assert not inspect.isfunction(vars(Shelf)["__init__"])  # the class is not made yet
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.width = 4.0  # type: ignore[misc]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        del made.width
    assert (made.width, made.label) == (3.0, "left")  # type: ignore[attr-defined]
    assert attrs.evolve(made, width=5.0).width == 5.0
    assert Shelf().width == 2.0
    assert list(block_type(Rack).fields) == ["width", "height"]
    assert block_type(Rack).defaults == {"width": 2.0}
    assert Rack(height=1.0) != Rack(height=1.0)
