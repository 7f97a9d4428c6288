"""The text of a record is that of an attrs class."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from parcost.records import record


def classes(make: Any) -> tuple[type, type]:
    """Return a class and its subclass, made by a decorator."""

    @make
    class Point:
        x: float
        hidden: int = field(default=1, repr=False)
        inner: Any = None

    @make(kw_only=True)
    class Place(Point):
        name: str = "here"

    return Point, Place


def test_a_record_is_printed_like_a_class_of_attrs() -> None:
    for own, theirs in zip(classes(record), classes(define), strict=True):
        assert repr(own(x=1.5)) == repr(theirs(x=1.5))
        assert repr(own(x=1.5, inner=own(x=2))) == repr(theirs(x=1.5, inner=theirs(x=2)))


def test_a_record_that_holds_itself_is_printed_once() -> None:
    (own, _), (theirs, _) = classes(record), classes(define)
    printed = []
    for cls in (own, theirs):
        items: list[Any] = []
        items.append(cls(x=1, inner=items))
        printed.append(repr(items[0]))
    assert printed[0] == printed[1]


def test_a_record_with_a_text_of_its_own_keeps_it() -> None:
    @record
    class Text:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

    @record(repr=False)
    class Plain:
        name: str

    assert repr(Text("a")) == "<a>"
    assert repr(Plain("a")).startswith("<")
