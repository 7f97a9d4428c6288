"""Records: frozen attrs classes that are cheap to construct.

The constructor of a frozen attrs class calls ``object.__setattr__`` for each field. This at least
doubles its time, and an evaluation constructs three thousand records. Type checkers treat records
as frozen; at run time they are not protected. Blocks of specs, which plugins receive and studies
share, are also frozen at run time.

Records share one ``__repr__``: attrs compiles one for each class, which takes a third of the time
to create the class.

A class is completed when it is first used, because a command uses only half of its imported
classes. Until then its constructor, fields and comparisons are placeholders. It has no slots,
because slots need a new class; with ``slots=True`` a class is completed immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from reprlib import recursive_repr
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from attrs import NOTHING, fields

__all__ = ["define", "frozen", "record", "replace_values"]

T = TypeVar("T")

if TYPE_CHECKING:
    from attrs import define, frozen
    from attrs import frozen as record
else:

    def record(
        cls: type | None = None, *, eq: bool = True, repr: bool = True, **options: Any
    ) -> Any:
        """Make a class a record, which takes the options of ``attrs.frozen``."""
        # None leaves what tells objects apart alone; `define` converts what is set, again
        hashed = True if eq else None
        options = {"on_setattr": attrs.setters.NO_OP, "unsafe_hash": hashed, "eq": eq, **options}

        def decorate(cls: type) -> type:
            if repr and "__repr__" not in vars(cls):
                cls.__repr__ = _text
            return define(cls, repr=False, **options)

        return decorate if cls is None else decorate(cls)

    def define(cls: type | None = None, **options: Any) -> Any:
        """Make a class as ``attrs.define`` does, when it is first used."""
        return _decorate(attrs.define, cls, options=options)

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """Make a class as ``attrs.frozen`` does, when it is first used."""
        return _decorate(attrs.frozen, cls, options=options)


def _decorate(make: Callable[..., type], cls: type | None, options: Mapping[str, Any]) -> Any:
    """Return *cls* as a class that is completed on first use; without *cls*, return a decorator."""
    if cls is None:
        return partial(_decorate, make, options=options)
    eq = options.get("eq", True)
    hashed = eq and (make is attrs.frozen or options.get("unsafe_hash"))
    names = [
        "__init__",
        "__attrs_attrs__",
        *(["__eq__"] if eq else []),
        *(["__hash__"] if hashed else []),
    ]
    guards = ["__setattr__", "__delattr__"] if make is attrs.frozen else []
    own = any(name in vars(cls) for name in (*names, *guards))
    if own or options.get("slots") or _covers_property(cls):
        return make(cls, **options)
    # attrs keeps methods that a class has already, unless they are asked for.
    asked = {"slots": False, "init": True, "eq": eq, **({"unsafe_hash": True} if hashed else {})}
    options = {**options, **asked}
    late = _LateClass(cls, partial(make, **options), guards)
    for name in (*names, *guards):
        setattr(cls, name, _Placeholder(late, name))
    return cls


def _covers_property(cls: type) -> bool:
    """Return whether a field has the name of a property of a base class; only a slot can replace
    it.
    """
    named = vars(cls).get("__annotations__", ())
    return any(isinstance(vars(base).get(n), property) for base in cls.__mro__[1:] for n in named)


class _LateClass:
    """A class that is not completed yet; only one thread completes it."""

    lock = RLock()  # one for all: to make a class makes its bases

    def __init__(self, cls: type, make: Callable[[type], type], guards: Sequence[str] = ()) -> None:
        self.cls = cls
        self.make: Callable[[type], type] | None = make
        self.guards = guards  # members that attrs makes only for classes without them

    def finish(self) -> None:
        """Complete the class in place: its members replace the placeholders."""
        with self.lock:
            make, self.make = self.make, None
            if make is not None:
                try:
                    for name in self.guards:
                        if name in vars(self.cls):
                            delattr(self.cls, name)
                    make(self.cls)
                except BaseException:
                    self.make = make  # the next use reports the same error
                    raise


class _Placeholder:
    """A member of a class; reading it completes the class."""

    def __init__(self, late: _LateClass, name: str) -> None:
        self.late, self.name = late, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Return the member of the completed class; a subclass may have another."""
        self.late.finish()
        found = vars(self.late.cls)[self.name]
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found


def replace_values(record: T, values: Mapping[str, Any]) -> T:
    """Return a copy of a record with other *values*, which nothing validates or converts."""
    cls = type(record)
    new = cls.__new__(cls)
    names = _names(cls)  # type: ignore[arg-type]
    held = getattr(record, "__dict__", ())
    if len(held) == len(names):  # no slots, and nothing else is cached there
        new.__dict__.update(held)
        new.__dict__.update(values)
        return new
    for name in names:
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
