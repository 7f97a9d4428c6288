"""Layouts of several structures in one array: parts, and their counts by kind of virtual stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from attrs import frozen

from parcost.contract.terms import StageCounts
from parcost.search.scored_layouts import ScoredLayouts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Real
    from parcost.search.timing import SketchPlan


MOST_LAYOUTS = 10_240  # of the parts that are scored at once


@frozen(eq=False)
class ScoredPart:
    """Layouts of one structure under one schedule that are scored with others.

    *points* are the indices of its points, and *where* the indices of the layouts in its arrays.
    *choices* are their choices. *pairs* is true if the schedule runs pairs.
    """

    scored: ScoredLayouts
    points: NDArray[np.intp]
    where: tuple[NDArray[np.intp], ...]
    choices: Sequence[NDArray[np.intp]]
    pairs: bool

    def __len__(self) -> int:
        """Return the number of layouts."""
        return len(self.where[-1])

    def select(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the values of a mask over choices, for each layout."""
        pairs = zip(self.choices, mask.shape, strict=False)
        found: NDArray[np.bool_] = mask[(*(at if size > 1 else 0 for at, size in pairs), 0)]
        return found


@frozen(eq=False)
class BoundPart:
    """Layouts of one structure under one schedule and all choices, which are bounded with others.

    *plan* has the sketch of their order.
    """

    scored: ScoredLayouts
    plan: SketchPlan

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.scored.points)

    @property
    def micro_batches(self) -> NDArray[np.float64]:
        """The number of micro-batches at each point."""
        return np.broadcast_to(np.float64(self.scored.pipeline.micro_batches), len(self))

    def select(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the values of a mask over choices, with a dimension for each choice, then
        points.
        """
        return mask


Part: TypeAlias = "ScoredPart | BoundPart"


def split_points(which: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """Yield the points of some layouts, in pieces of about :data:`MOST_LAYOUTS` layouts."""
    each = which.sum(axis=tuple(range(which.ndim - 1)))
    points = np.flatnonzero(each)
    if len(points):
        number = np.cumsum(each[points]) // MOST_LAYOUTS
        yield from np.split(points, np.flatnonzero(np.diff(number)) + 1)


def count_key(term: Any) -> Any:
    """Return the counts of a term as a key."""
    return term.count if term.count.__class__ is StageCounts else tuple(term.count)


def stage_kinds(
    part: Part, counts: Mapping[Any, Sequence[tuple[Any, Any]]]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the kind of each virtual stage of a structure, and the first stage of each kind."""
    stages = part.scored.pipeline.stages * part.scored.pipeline.chunks
    columns = [row for found in counts.values() for row, _ in found if isinstance(row, tuple)]
    keys = list(zip(*columns, strict=True)) if columns else [()] * stages
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys], [keys.index(key) for key in numbers]


def count_occurrences(part: Part, counts: Sequence[tuple[Any, Any]], stage: int) -> Real:
    """Return the number of occurrences on a virtual stage, for each layout if it differs."""
    found: Real = 0.0
    for row, mask in counts:
        if times := float(row[stage] if isinstance(row, tuple) else row):
            held: Any = times if mask is None else times * part.select(mask)
            found = found + held
    return found


def concatenate_counts(values: Sequence[Any], parts: Sequence[Part]) -> Real:
    """Return a number by structure as an array over layouts; 0 for None (a kind that is absent)."""
    known = [value for value in values if value is not None]
    if all(value.__class__ is float and value == known[0] for value in known):
        common: float = known[0]
        return common
    lead = np.broadcast_shapes(*(np.shape(value)[:-1] for value in known))
    pairs = zip(values, parts, strict=True)
    each = [np.broadcast_to(0.0 if v is None else v, (*lead, len(p))) for v, p in pairs]
    return np.concatenate(each, axis=-1)
