"""Records: frozen attrs classes that are cheap to construct.

A frozen attrs class sets each field by a call of ``object.__setattr__``. Construction then takes
at least twice as long, and a spec constructs three thousand records. Type checkers treat records
as frozen, in parcost and in every plugin that is type-checked; at run time there is no guard.
Blocks of specs, which plugins receive and studies share, are frozen at run time too.

Records share one ``__repr__``: attrs compiles one for each class, a third of the time to make it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import NOTHING, fields

__all__ = ["record", "replace_values"]

T = TypeVar("T")

if TYPE_CHECKING:
    from attrs import frozen as record
else:
    from attrs import define, setters

    def record(
        cls: type | None = None, *, eq: bool = True, repr: bool = True, **options: Any
    ) -> Any:
        """Make a class a record, which takes the options of ``attrs.frozen``."""
        hashed = True if eq else None  # None leaves what tells objects apart alone
        options = {"on_setattr": setters.NO_OP, **options}  # `define` converts what is set, again
        make = define(eq=eq, unsafe_hash=hashed, repr=False, **options)

        def made(cls: type) -> type:
            if repr and "__repr__" not in vars(cls):
                cls.__repr__ = _text
            return make(cls)

        return made if cls is None else made(cls)


def replace_values(record: T, values: Mapping[str, Any]) -> T:
    """Return a copy of a record with other *values*, which nothing validates or converts."""
    cls = type(record)
    new = cls.__new__(cls)
    for name in _names(cls):  # type: ignore[arg-type]
        object.__setattr__(new, name, values[name] if name in values else getattr(record, name))
    return new


@recursive_repr("...")
def _text(record: object) -> str:
    """Return the repr of a record in the style of attrs."""
    cls = type(record)
    shown = [field.name for field in fields(cls) if field.repr]  # type: ignore[arg-type]
    values = ", ".join(f"{name}={getattr(record, name, NOTHING)!r}" for name in shown)
    return f"{cls.__qualname__.rsplit('>.', 1)[-1]}({values})"


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))
