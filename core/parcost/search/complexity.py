"""The order of a ranking: among layouts of nearly equal speed, the simpler ones come first.

Two predictions may differ by less than their error. A layout with more free memory, fewer chunks or
less sharding is then an equally good choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isclose
from typing import TYPE_CHECKING

from attrs import evolve

from parcost.report.verdict import FITS, verdict
from parcost.search.goals import goal_of

if TYPE_CHECKING:
    from parcost.search.result import SearchedLayout, SearchResult


def sort_by_complexity(
    found: SearchResult, tolerance: float, *, keep: int, compared: int
) -> SearchResult:
    """Return *found* with *keep* layouts: simpler ones first if costs differ by *tolerance*.

    *tolerance* is a fraction. Only the first *compared* layouts are sorted, so that a longer list
    begins with a shorter one. Objectives that are not proportional to the step time stay in the
    order of cost.
    """
    fastest = sorted(found.best, key=lambda layout: layout.seconds)
    places = {id(layout): place for place, layout in enumerate(fastest, start=1)}
    ordered = [*found.best]
    cost = found.objective.cost
    if tolerance > 0.0 and isclose(float(cost(2.0)), 2.0 * float(cost(1.0))):
        groups = _groups(found.best[:compared], tolerance)
        simple = [layout for group in groups for layout in sorted(group, key=_key)]
        ordered[: len(simple)] = simple
    best = [evolve(layout, rank_by_time=places[id(layout)]) for layout in ordered[:keep]]
    lowest = min(found.best, key=lambda layout: layout.cost).value
    return evolve(found, best=best, tolerance=tolerance, lowest=lowest)


def _groups(
    layouts: Sequence[SearchedLayout], tolerance: float
) -> Iterator[Sequence[SearchedLayout]]:
    """Yield groups of layouts in order of cost, each within *tolerance* of its first."""
    group: list[SearchedLayout] = []
    for layout in layouts:
        if group and layout.cost > group[0].cost * (1.0 + tolerance):
            yield group
            group = []
        group.append(layout)
    yield group


def _key(layout: SearchedLayout) -> tuple[bool, Sequence[float]]:
    """Return the sort key of a layout: whether it fits with free memory, and its complexity."""
    assert layout.result is not None  # listed layouts are evaluated
    complexity = goal_of(layout.result.study).complexity
    numbers = complexity(layout.result.study) if complexity is not None else ()
    return verdict(layout.result) != FITS, tuple(numbers)
