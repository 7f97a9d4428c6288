"""What a search has found."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from parcost.search.score import Scored
    from parcost.terms import Objective


@frozen(eq=False)
class Place:
    """Where a layout stands among those that were scored together, and what its score is."""

    scored: Scored
    index: tuple[int, ...]
    seconds: float
    exact: bool
    bytes_: float


@frozen(kw_only=True, eq=False)
class Layout:
    """One layout: its values by attribute, what it costs and what it holds.

    *value* is its cost as people know it, such as an MFU. *bounded* says that it was not
    replayed: its seconds are exact all the same, and its bytes are no more than it needs.
    """

    values: Mapping[str, Any]
    cost: float
    value: float
    seconds: float
    bytes_: float
    bounded: bool = False

    @property
    def rank(self) -> tuple[Any, ...]:
        """What layouts are sorted by: of equal cost the one with less memory, then by values."""
        return self.cost, self.bytes_, spellings(self.values)


@frozen(kw_only=True, eq=False)
class Found:
    """What a search came to.

    *gap* is how much lower than the best any layout that was not replayed might be, as a
    share; 0 where the ranking is proven, and None where not every layout was looked at.
    *refused* counts layouts by the rule that does not let them through, *large* those that
    do not fit, and *limits* those that a limit leaves out. *looked* at were so many
    *structures*. *sampled* layouts were drawn at random, where any were.
    """

    objective: Objective
    best: Sequence[Layout]
    front: Sequence[Layout]
    size: int
    legal: int
    large: int
    refused: Mapping[str, int]
    limits: Mapping[str, int]
    replayed: int
    gap: float | None
    looked: int
    structures: int
    interrupted: bool
    seconds: float
    sampled: int = 0


@frozen(eq=False)
class Best:
    """The best layouts so far, one for each set of degrees."""

    keep: int
    _by_degrees: dict[Any, Layout] = field(factory=dict)

    def offer(self, degrees: Any, layout: Layout) -> None:
        """Take *layout* if none with its degrees is better."""
        known = self._by_degrees.get(degrees)
        if known is None or layout.rank < known.rank:
            self._by_degrees[degrees] = layout

    @property
    def worst(self) -> float:
        """The cost above which nothing needs to be looked at."""
        costs = heapq.nsmallest(self.keep, (x.cost for x in self._by_degrees.values()))
        return costs[-1] if len(costs) == self.keep else float("inf")

    def ranked(self) -> list[tuple[Any, Layout]]:
        """Return the degrees and layouts of the best, the very best first."""
        return sorted(self._by_degrees.items(), key=lambda kept: kept[1].rank)[: self.keep]


def spellings(values: Mapping[str, Any]) -> list[str]:
    """Return what tells layouts apart that cost the same, wherever they were found."""
    return [f"{getattr(value, 'label', value)}" for value in values.values()]


def pareto(layouts: Sequence[Layout]) -> list[Layout]:
    """Return the layouts that no other beats in both time and memory, fastest first."""
    found: list[Layout] = []
    least = float("inf")
    for layout in sorted(layouts, key=lambda x: (x.seconds, x.bytes_)):
        if layout.bytes_ < least:
            found.append(layout)
            least = layout.bytes_
    return found
