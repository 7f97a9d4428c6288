"""Layouts of several structures in one array: parts, and their counts by kind of virtual stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from attrs import frozen

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


Part: TypeAlias = "ScoredPart | BoundPart"


def split_points(which: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    """Yield the points of some layouts, in pieces of about :data:`MOST_LAYOUTS` layouts."""
    each = which.sum(axis=tuple(range(which.ndim - 1)))
    points = np.flatnonzero(each)
    if len(points):
        number = np.cumsum(each[points]) // MOST_LAYOUTS
        yield from np.split(points, np.flatnonzero(np.diff(number)) + 1)


def stage_kinds(part: Part, rows: Sequence[Sequence[float]]) -> tuple[Sequence[int], Sequence[int]]:
    """Return the kind of each virtual stage of a structure, and the first stage of each kind."""
    stages = part.scored.pipeline.stages * part.scored.pipeline.chunks
    keys = list(zip(*rows, strict=True)) if rows else [()] * stages
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys], [keys.index(key) for key in numbers]


def concatenate_counts(values: Sequence[float | None], parts: Sequence[Part]) -> Real:
    """Return a number by structure as an array over layouts; 0 for None (a kind that is absent)."""
    known = [value for value in values if value is not None]
    if all(value == known[0] for value in known):
        return known[0]
    sizes = [len(part) for part in parts]
    return np.repeat([0.0 if value is None else value for value in values], sizes)
