"""Records: frozen attrs classes that are cheap to construct.

A frozen attrs class sets each field by a call of ``object.__setattr__``. Construction then takes
at least twice as long, and a spec constructs three thousand records. Type checkers treat records
as frozen, in parcost and in every plugin that is type-checked; at run time there is no guard.
Blocks of specs, which plugins receive and studies share, are frozen at run time too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import fields

__all__ = ["record", "replace_values"]

T = TypeVar("T")

if TYPE_CHECKING:
    from attrs import frozen as record
else:
    from attrs import define, setters

    def record(cls: type | None = None, *, eq: bool = True, **options: Any) -> Any:
        """Make a class a record, which takes the options of ``attrs.frozen``."""
        hashed = True if eq else None  # None leaves what tells objects apart alone
        options = {"on_setattr": setters.NO_OP, **options}  # `define` converts what is set, again
        return define(cls, eq=eq, unsafe_hash=hashed, **options)


def replace_values(record: T, values: Mapping[str, Any]) -> T:
    """Return a copy of a record with other *values*, which nothing validates or converts."""
    cls = type(record)
    new = cls.__new__(cls)
    for name in _names(cls):  # type: ignore[arg-type]
        object.__setattr__(new, name, values[name] if name in values else getattr(record, name))
    return new


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls))
