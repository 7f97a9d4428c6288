"""Counts: the occurrences of a term, an operator or a parameter group on each virtual stage.

A count is one number for all virtual stages, or a tuple with one number for each. A search
evaluates structures with 2 and with 4 stages at once: there it is a :class:`CountsByStructure`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from parcost.contract.queries import READS, STRUCTURES

if TYPE_CHECKING:
    from parcost.numeric import Real

    _Base: TypeAlias = Sequence[float]
else:
    _Base = object  # the test of a class with an abstract base takes ten times as long

_PLAIN: frozenset[type] = frozenset((float, int, bool))
_KEPT = 4096  # counts


class CountsByStructure(_Base):
    """The occurrences on each virtual stage of each structure that a search evaluates at once.

    *each* has the counts of each structure. Items and the length are those of the first structure.
    They are recorded as a read of the stages: then a plugin is called once for each structure.
    :func:`sum_counts`, :func:`occurs` and :func:`map_counts` hold for all structures.
    """

    def __init__(self, each: Sequence[tuple[float, ...]], rank: int) -> None:
        """Make the counts of several structures, whose arrays have *rank* dimensions."""
        self.each, self.rank = tuple(each), rank

    def __len__(self) -> int:
        """Return the number of virtual stages of the first structure."""
        return len(self._first)

    def __getitem__(self, stage: Any) -> Any:
        """Return the occurrences on a virtual stage of the first structure."""
        return self._first[stage]

    def __iter__(self) -> Iterator[float]:
        """Return an iterator over the virtual stages of the first structure."""
        return iter(self._first)

    @property
    def _first(self) -> tuple[float, ...]:
        if (reads := READS.get()) is not None:
            reads.record(STRUCTURES, 0)
        return self.each[0]

    def __eq__(self, other: object) -> bool:
        """Return whether the counts of all structures are equal."""
        return self is other or (isinstance(other, CountsByStructure) and self.each == other.each)

    def __hash__(self) -> int:
        """Return the hash of the counts of all structures."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.each)

    @cached_property
    def stages(self) -> Sequence[int]:
        """The number of virtual stages of each structure."""
        return tuple(map(len, self.each))

    @cached_property
    def is_valid(self) -> bool:
        """Whether all counts of all structures are numbers of occurrences."""
        return all(map(is_count, {*self.each}))

    @cached_property
    def total(self) -> Real:
        """The occurrences on all virtual stages: an array over structures where they differ."""
        found: Real = join_numbers([float(sum(counts)) for counts in self.each], self.rank)
        return found


Counts: TypeAlias = "Sequence[float] | float"


def sum_counts(counts: Sequence[float]) -> Real:
    """Return the occurrences on all virtual stages.

    >>> sum_counts((1, 2, 0))
    3
    """
    return counts.total if isinstance(counts, CountsByStructure) else sum(counts)


def occurs(counts: Sequence[float]) -> bool:
    """Return whether there is an occurrence on any virtual stage, of any structure.

    >>> occurs((0, 2)), occurs((0, 0))
    (True, False)
    """
    if isinstance(counts, CountsByStructure):
        return any(map(any, counts.each))
    return any(counts)


def map_counts(function: Callable[..., float], *counts: Counts) -> Sequence[Any]:
    """Return ``function(n, ...)`` on each virtual stage; a number counts for every stage.

    >>> map_counts(min, (1, 2), (3, 0)), map_counts(min, (1, 2), 1)
    ((1, 0), (1, 1))
    """
    several = [one for one in counts if one.__class__ is CountsByStructure]
    columns = [repeat(one) if isinstance(one, (int, float)) else one for one in counts]
    if not several:
        return tuple(map(function, *columns))
    by_structure = [
        one.each if one.__class__ is CountsByStructure else repeat(one) for one in counts
    ]
    each = [tuple(map_counts(function, *row)) for row in zip(*by_structure, strict=False)]
    return CountsByStructure(each, several[0].rank)


def stage_numbers(counts: Counts) -> Sequence[int]:
    """Return the number of virtual stages of each structure that is counted; none for one number
    for all stages.
    """
    if isinstance(counts, CountsByStructure):
        return counts.stages
    return () if isinstance(counts, (float, int)) else (len(counts),)


def counts_at(value: Any, place: int) -> Any:
    """Return *value* with counts of several structures replaced by those of one structure."""
    if value.__class__ is CountsByStructure:
        return value.each[place]
    if value.__class__ is tuple and not _PLAIN.issuperset(map(type, value)):
        return tuple([counts_at(item, place) for item in value])
    return value


def join_numbers(numbers: Sequence[Any], rank: int) -> Any:
    """Return numbers of structures as an array with *rank* dimensions; one number if all are
    equal.
    """
    if all(number == numbers[0] for number in numbers):
        return numbers[0]
    import numpy as np

    found = np.asarray(numbers)
    found = found if found.dtype == bool else found.astype(np.float64)
    return found.reshape(-1, *(1,) * (rank - 1))  # structures come first


def plain_count(count: Counts) -> Counts:
    """Return a count as plain numbers; a value that is not a count is returned for validation."""
    if count.__class__ is float or count.__class__ is CountsByStructure:
        return count
    if count.__class__ is tuple and _PLAIN.issuperset(map(type, count)):
        return count
    plain: Any = count
    try:
        plain = plain.tolist() if hasattr(plain, "tolist") else plain
        if isinstance(plain, Sequence) and not isinstance(plain, str):
            plain = tuple([n if n.__class__ in _PLAIN else n.item() for n in plain])
    except (TypeError, ValueError, AttributeError):
        plain = list(plain) if plain.__class__ is tuple else plain
    found: Counts = plain
    return found


def is_count(count: Any) -> bool:
    """Return whether *count* is a number of occurrences, or one for each virtual stage."""
    if count.__class__ is tuple:
        return count != () and are_counts(count)
    if isinstance(count, (float, int)):
        return count.__class__ in _PLAIN and 0 <= count < inf
    return count.__class__ is CountsByStructure and count.is_valid


@lru_cache(_KEPT)
def are_counts(count: tuple[float, ...]) -> bool:
    """Return whether all numbers are finite and not negative."""
    return min(count) >= 0 and sum(count) < inf
