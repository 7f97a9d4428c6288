"""Queries: functions of a study, evaluated once for the values that they read.

A search evaluates a query under thousands of values of some attributes. Most answers depend on
few of them. An attribute of a block that is on an axis writes its reads into
:data:`READS`. The memo keeps an answer in a tree: which axis was read first, which next, under
which values. A study looks an answer up by its own values along that path:

    query(heads) -- read `layout.tp` --+-- 1 --> 64
                                       +-- 2 --> read `layout.cp` --+-- 1 --> 32
                                                                    +-- 2 --> 16

A query that calls others has read what they read. If the inner answer is a plain word or number,
the outer query depends on that value only. For example, ten schedules have two answers to "does it
split the backward pass".

A study without axes has nothing to record, and its memo is one level deep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

from parcost.numeric import is_array

T = TypeVar("T")

#: An axis by name, or a query with its arguments whose plain answer was used.
Source: TypeAlias = "str | tuple[Any, ...]"

#: The axis of what differs between structures that are evaluated at once.
STRUCTURES = "structures"

#: Classes of answers that outer queries depend on by value.
PLAIN = frozenset({bool, int, str, type(None)})


class Reads:
    """What a query reads: *values* by source, in order, and all *axes* behind them."""

    __slots__ = ("axes", "values")

    def __init__(self) -> None:
        self.values: dict[Source, Any] = {}
        self.axes: set[str] = set()

    def note(self, axis: str, value: Any) -> None:
        """Note that the value on an axis was read.

        Raises:
            ValueError: Another value was: an answer holds a study, or a block, of another point.
        """
        if axis not in self.values:
            self.values[axis] = value
            self.axes.add(axis)
        elif self.values[axis] != value:
            raise ValueError(f"`{axis}` was read at two points: an answer of a query must be plain")

    def include(self, other: Reads) -> None:
        """Note everything that another query has read."""
        for source, value in other.values.items():
            self.values.setdefault(source, value)
        self.axes |= other.axes

    def depend(self, source: Source, value: Any, axes: set[str]) -> None:
        """Note that the plain answer of another query was used."""
        self.values.setdefault(source, value)
        self.axes |= axes


#: What the running query has read; None outside of queries.
READS: ContextVar[Reads | None] = ContextVar("READS", default=None)


class Answer:
    """An answer that is known."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Branch:
    """What a query reads next, and what follows by the value that it finds."""

    __slots__ = ("children", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.children: dict[Any, Any] = {}  # a Branch or an Answer


class Memo:
    """Answers by what they depend on, the first *most* of them."""

    def __init__(self, most: int | None = None) -> None:
        self._roots: dict[Any, Any] = {}  # a Branch or an Answer
        self._most = most
        self.get = self._roots.get
        self.clear = self._roots.clear

    def keep(self, key: Any, values: Mapping[Source, Any], value: Any) -> Answer:
        """Keep an answer under what it has read, in order."""
        if self._most is not None and len(self._roots) >= self._most:
            self._roots.clear()
        children, at = self._roots, key
        for source, found in values.items():
            node = children.get(at)
            if not isinstance(node, Branch) or node.source != source:
                node = children[at] = Branch(source)
            children, at = node.children, found
        children[at] = answer = Answer(value)
        return answer


class IdentityKey:
    """An object that is known by identity, as it has no hash."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


def key_of(value: Any) -> Any:
    """Return what tells *value* from others: of an array its type, shape and bytes."""
    if is_array(value) and hasattr(value, "tobytes"):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def hash_key(value: Any) -> Any:
    """Return what an argument of a query is known by.

    >>> hash_key(1.0), hash_key([]) == hash_key([])
    (1.0, False)
    """
    found = key_of(value)
    try:
        hash(found)
    except TypeError:
        return IdentityKey(value)
    return found


#: Functions that take no study.
PURE: set[Callable[..., Any]] = set()


def pure_function(function: Callable[..., T]) -> Callable[..., T]:
    """Declare a function of its arguments alone, which as a query is not given the study.

    Its answer is plain and outlives the study: specs of a batch price the same products.
    """
    PURE.add(function)
    return function
