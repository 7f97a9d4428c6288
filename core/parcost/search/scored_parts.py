"""Layouts of several structures in one array: parts, and their counts by kind of virtual stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from parcost.contract.terms import StageCounts
from parcost.search.scored_layouts import ScoredLayouts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parcost.numeric import Real


MOST_LAYOUTS = 10_240  # of the parts that are scored at once


@frozen(eq=False)
class ScoredPart:
    """Layouts of one structure under one schedule that are scored with others.

    *points* are the indices of its points, and *where* the indices of the layouts in its arrays.
    *choices* are their choices. *pairs*: the schedule runs pairs.
    """

    scored: ScoredLayouts
    points: NDArray[np.intp]
    where: tuple[NDArray[np.intp], ...]
    choices: Sequence[NDArray[np.intp]]
    pairs: bool

    def __len__(self) -> int:
        """Return the number of layouts."""
        return len(self.where[-1])


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
    part: ScoredPart, counts: Mapping[Any, Sequence[tuple[Any, Any]]]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the kind of each virtual stage of a structure, and the first stage of each kind."""
    stages = part.scored.pipeline.stages * part.scored.pipeline.chunks
    columns = [row for found in counts.values() for row, _ in found if isinstance(row, tuple)]
    keys = list(zip(*columns, strict=True)) if columns else [()] * stages
    numbers = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    return [numbers[key] for key in keys], [keys.index(key) for key in numbers]


def count_occurrences(part: ScoredPart, counts: Sequence[tuple[Any, Any]], stage: int) -> Real:
    """Return the number of occurrences on a virtual stage, for each layout if it differs."""
    found: Real = 0.0
    for row, mask in counts:
        if times := float(row[stage] if isinstance(row, tuple) else row):
            if mask is not None:
                pairs = zip(part.choices, mask.shape, strict=False)
                times = times * mask[(*(at if size > 1 else 0 for at, size in pairs), 0)]
            found = found + times
    return found


def concatenate_counts(values: Sequence[Any], parts: Sequence[ScoredPart]) -> Real:
    """Return a number by structure as an array over layouts; 0 for None (a kind that is absent)."""
    known = [value for value in values if value is not None]
    if all(value.__class__ is float and value == known[0] for value in known):
        common: float = known[0]
        return common
    pairs = zip(values, parts, strict=True)
    return np.concatenate([np.broadcast_to(0.0 if v is None else v, len(p)) for v, p in pairs])
