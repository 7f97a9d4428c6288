"""Records: classes of attrs that nobody changes, and that cost little to make.

A frozen class of attrs sets each field by a call of ``object.__setattr__``, so making one
takes twice as long or more, and a spec makes three thousand of them. Type checkers hold
records to be frozen, and with them all of parcost and every plugin that is checked; at run
time there is no guard. What a plugin is handed and other studies share, the blocks of specs,
is frozen in earnest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import fields

__all__ = ["answers", "answers_to", "changed", "record"]

T = TypeVar("T")
C = TypeVar("C", bound=type)

if TYPE_CHECKING:
    from attrs import frozen as record
else:
    from attrs import define, setters

    def record(cls: type | None = None, *, eq: bool = True, **options: Any) -> Any:
        """Make a class a record, which takes the options of ``attrs.frozen``."""
        hashed = True if eq else None  # None leaves what tells objects apart alone
        options = {"on_setattr": setters.NO_OP, **options}  # `define` converts what is set, again
        return define(cls, eq=eq, unsafe_hash=hashed, **options)


def changed(record: T, values: Mapping[str, Any]) -> T:
    """Return a record with other *values*, which are taken to be good: nothing is made of them."""
    cls = type(record)
    new = cls.__new__(cls)
    for name in _names(cls):  # type: ignore[arg-type]
        object.__setattr__(new, name, values[name] if name in values else getattr(record, name))
    return new


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))


def answers(hook: str) -> Callable[[C], C]:
    """Declare a record an answer to *hook*: ``parameters``, ``operators`` or ``flops``.

    What these hooks answer with is a matter between plugins. The core refuses anything else
    under them, and whatever does not fit the annotations of the record.
    """

    def mark(cls: C) -> C:
        cls.__answers__ = hook  # type: ignore[attr-defined]
        return cls

    return mark


def answers_to(cls: type) -> str:
    """Return the hook that records of a class answer, "" if none."""
    return str(getattr(cls, "__answers__", ""))
