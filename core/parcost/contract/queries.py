"""Queries: functions of a study, evaluated once for each combination of the values that they read.

A search evaluates a query under thousands of values of some attributes. Most answers depend on only
a few of them. An attribute on an axis records its reads in :data:`READS`. The memo stores answers
in a tree: the first axis that was read, its value, the next axis, and so on. A study finds an
answer by its own values along that path:

    query(heads) -- read `layout.tp` --+-- 1 --> 64
                                       +-- 2 --> read `layout.cp` --+-- 1 --> 32
                                                                    +-- 2 --> 16

A query that calls others includes their reads. If the inner answer is a plain word or number, the
outer query depends only on that value. For example, ten schedules have only two different answers
to "does it split the backward pass".

A study without axes records no reads, and its memo has one level.
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
    """The values that a query read, by source and in order, and all *axes* that they depend on."""

    __slots__ = ("axes", "values")

    def __init__(self) -> None:
        self.values: dict[Source, Any] = {}
        self.axes: set[str] = set()

    def record(self, axis: str, value: Any) -> None:
        """Record that the value on an axis was read.

        Raises:
            ValueError: Another value was read before: the answer contains a study or block of
            another point.
        """
        if axis not in self.values:
            self.values[axis] = value
            self.axes.add(axis)
        elif self.values[axis] != value:
            raise ValueError(
                f"`{axis}` was read at two points of a sweep: a query must return one value for "
                "all points"
            )

    def include(self, other: Reads) -> None:
        """Record everything that another query has read."""
        for source, value in other.values.items():
            self.values.setdefault(source, value)
        self.axes |= other.axes

    def depend(self, source: Source, value: Any, axes: set[str]) -> None:
        """Record that the plain result of another query was used."""
        self.values.setdefault(source, value)
        self.axes |= axes


#: What the running query has read; None outside of queries.
READS: ContextVar[Reads | None] = ContextVar("READS", default=None)


class Answer:
    """Leaf of the memo: a cached answer."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Branch:
    """Node of the memo: the next source that a query reads, and a child for each value."""

    __slots__ = ("children", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.children: dict[Any, Any] = {}  # a Branch or an Answer


class Memo:
    """Cache of answers, by the values on which they depend; it is cleared when it has *most*
    keys.
    """

    def __init__(self, most: int | None = None) -> None:
        self._roots: dict[Any, Any] = {}  # a Branch or an Answer
        self._most = most
        self.get = self._roots.get
        self.clear = self._roots.clear

    def keep(self, key: Any, values: Mapping[Source, Any], value: Any) -> Answer:
        """Cache an answer under the values that it has read, in order."""
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
    """A hash key for an object without a hash; it equals only keys of the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


def key_of(value: Any) -> Any:
    """Return a hashable value that is equal for equal inputs: for an array its type, shape and
    bytes.
    """
    if is_array(value) and hasattr(value, "tobytes"):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def hash_key(value: Any) -> Any:
    """Return the hash key of an argument of a query.

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
    """Declare that a function depends only on its arguments; as a query it is called without a
    study.

    Its answer must be plain data. All specs of a batch share the cached answer.
    """
    PURE.add(function)
    return function


#: Functions whose answers depend on the stages, by whether they return counts by virtual stage.
OF_STAGES: dict[Callable[..., Any], bool] = {}


def stage_number(function: Callable[..., T]) -> Callable[..., T]:
    """Declare that a function returns a number, or a tuple of numbers, that depends on the stages.

    A search evaluates several numbers of stages at once. As a query, the function is called for
    each of them. Numbers that differ become an array over all points.
    """
    OF_STAGES[function] = False
    return function


def stage_counts(function: Callable[..., T]) -> Callable[..., T]:
    """Declare that a function returns the occurrences of something on each virtual stage.

    As a query in a search, it is called for each number of stages. Its answers are joined to a
    :class:`parcost.CountsByStructure`.
    """
    OF_STAGES[function] = True
    return function
