"""The result of a search."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from math import nan
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from parcost.language.numbers import quantity, spec_text
from parcost.report.plots import Plot, plot
from parcost.report.rows import data_frame, html_table

if TYPE_CHECKING:
    from parcost.contract.charts import Chart
    from parcost.contract.searches import Objective
    from parcost.engine.scenario import Scenario
    from parcost.report.result import Result


@frozen(kw_only=True, eq=False)
class SearchedLayout:
    """One layout: its values by attribute, its cost, step time and memory.

    *value* is its objective in the printed unit, such as an MFU. *result* is its evaluation as a
    single study, if there is one. *rank_by_time* is its position by step time in the ranking, from
    1.
    """

    values: Mapping[str, Any]
    cost: float
    value: float
    seconds: float
    bytes_: float
    result: Result | None = field(default=None, repr=False)
    rank_by_time: int = 1

    @property
    def rank(self) -> Rank:
        """The sort key of the layout."""
        return rank(self.cost, self.bytes_, self.values)


@frozen(kw_only=True, eq=False)
class FastestLayout:
    """A layout that fits: its values, step time and memory; *exact*, or a lower bound."""

    values: Mapping[str, Any]
    seconds: float
    bytes_: float
    exact: bool


@frozen(kw_only=True, eq=False, repr=False)
class SearchResult:
    """The result of a search: *best* is the ranking, and :attr:`front` the Pareto front.

    *gap* is the optimality gap: the largest possible improvement by a layout without a replay, as a
    fraction. It is None if some layouts were not visited. The ranking is *proven* if no other
    layout can be on the list, and every plugin answered. *faults* are the plugins that failed.
    *rejected* counts layouts by the rule that rejects them. *large* counts those that do not fit,
    *limits* those beyond a limit. *looked* of *structures* structures were visited. *sampled* is
    the number of layouts drawn at random, if any; *cut_short* means fewer than requested. The
    *axes* of *scenario* were searched. *fastest* has a layout for each combination of degrees, if
    every layout was scored. *make_charts* returns the pictures of the layouts, and *make_front* the
    Pareto front. Layouts in *best* whose cost differs by less than *tolerance* are sorted with the
    simpler ones first. *lowest* is the objective of the layout of the lowest cost, which may not be
    listed.
    """

    objective: Objective
    best: Sequence[SearchedLayout]
    size: int
    legal: int
    large: int
    rejected: Mapping[str, int]
    limits: Mapping[str, int]
    replayed: int
    gap: float | None = None
    proven: bool = False
    faults: Sequence[str] = ()
    looked: int = 0
    structures: int = 0
    interrupted: bool
    seconds: float
    sampled: int = 0
    cut_short: bool = False
    scenario: Scenario
    axes: Sequence[str]
    fastest: Sequence[FastestLayout] = ()
    tolerance: float = 0.0
    lowest: float = nan
    make_charts: Callable[[], Sequence[Chart]] = tuple
    make_front: Callable[[], Sequence[SearchedLayout]] = tuple

    @property
    def front(self) -> Sequence[SearchedLayout]:
        """The Pareto front of step time and memory, the fastest first.

        If the search did not compute it, the first read runs a second search.
        """
        return self.make_front()

    def plot(self, name: str = "") -> Plot:
        """Return the picture called *name*, such as ``front``; without a name all of them.

        Raises:
            KeyError: There is no picture of that name.
        """
        at = self.scenario
        return plot(at.path, at.name, self.make_charts(), name, at.plugins)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return one mapping per layout of the ranking: values, objective, step time and memory.

        Names and base units are as in ``parcost search --out FILE.csv``.
        """
        return [
            {
                "rank": rank,
                "rank_by_time": layout.rank_by_time,
                **{name: plain_value(value) for name, value in layout.values.items()},
                **({} if self._is_of_time else {self.objective.name: layout.value}),
                "step_time_seconds": layout.seconds,
                "memory_bytes": layout.bytes_,
            }
            for rank, layout in enumerate(self.best, 1)
        ]

    def to_pandas(self) -> Any:
        """Return :meth:`rows` as a ``pandas.DataFrame``.

        Raises:
            ImportError: pandas is not installed.
        """
        return data_frame(self.rows())

    @property
    def _is_of_time(self) -> bool:
        """Whether the objective is the step time, which has a column already."""
        return all(layout.value == layout.seconds for layout in self.best)

    def __repr__(self) -> str:
        """Return the size of the space and the best layout, in one line."""
        best = self.best[0]
        values = ", ".join(f"{n} = {plain_value(best.values[n])}" for n in varying_axes(self)[:6])
        proof = "proven" if self.proven else "not proven"
        shown = quantity(best.value, self.objective.unit)
        return f"<SearchResult of {self.legal:,} legal layouts, {proof}: {shown} with {values}>"

    def _repr_html_(self) -> str:
        """Return the ranking as a small table for notebooks."""
        names = varying_axes(self)
        objective = [] if self._is_of_time else [self.objective]
        heads = [*names, *(one.title for one in objective), "step time", "memory"]
        cells = [
            [
                *(str(plain_value(layout.values[name])) for name in names),
                *(quantity(layout.value, one.unit) for one in objective),
                quantity(layout.seconds, "s"),
                quantity(layout.bytes_, "B"),
            ]
            for layout in self.best
        ]
        proof = "the ranking is proven" if self.proven else "the ranking is not proven"
        return html_table(f"{self.legal:,} legal layouts of {self.size:,}; {proof}", cells, heads)


def varying_axes(found: SearchResult) -> list[str]:
    """Return the axes on which the best layouts differ, or all if they do not differ."""
    names = list(found.best[0].values)
    return [n for n in names if len({str(x.values[n]) for x in found.best}) > 1] or names


@frozen(eq=False)
class Best:
    """The best layouts so far, one for each combination of degrees."""

    keep: int
    _by_degrees: dict[Any, SearchedLayout] = field(factory=dict)

    def offer(self, degrees: Any, layout: SearchedLayout) -> None:
        """Add *layout* if it is better than the known layout with the same degrees."""
        known = self._by_degrees.get(degrees)
        if known is None or layout.rank < known.rank:
            self._by_degrees[degrees] = layout

    @property
    def worst(self) -> float:
        """The cost above which a layout cannot be in the ranking, in the unit of the objective."""
        costs = heapq.nsmallest(self.keep, (x.cost for x in self._by_degrees.values()))
        return costs[-1] + ALIKE * abs(costs[-1]) if len(costs) == self.keep else float("inf")

    def ranking(self) -> list[tuple[Any, SearchedLayout]]:
        """Return the best layouts with their degrees, the best first."""
        return sorted(self._by_degrees.items(), key=lambda kept: kept[1].rank)[: self.keep]


def plain_value(value: Any) -> Any:
    """Return a value as plain data: a text of the language, or a number (an int if it is whole).

    >>> plain_value(8.0), plain_value(0.5), plain_value(True)
    (8, 0.5, 'on')
    """
    value = spec_text(value)
    whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return int(value) if whole else value


#: Cost, memory and values.
Rank: TypeAlias = tuple[float, float, list[str]]
_EXACT = 2**53  # beyond, a number and its neighbour are the same
ALIKE = 1e-9  # costs that differ by less, as a share, may be equal when they are rounded


def rank(cost: float, bytes_: float, values: Mapping[str, Any]) -> Rank:
    """Return the sort key of a layout: cost, then memory, then values.

    Numbers are rounded, so that the order does not depend on rounding in different searches.
    """
    return float(f"{cost:.11e}"), float(f"{bytes_:.11e}"), [f"{v}" for v in values.values()]


def pareto(layouts: Sequence[SearchedLayout]) -> list[SearchedLayout]:
    """Return the Pareto-optimal layouts in time and memory, fastest first."""
    found: list[SearchedLayout] = []
    least = float("inf")
    for layout in sorted(layouts, key=lambda x: (x.seconds, x.bytes_)):
        if layout.bytes_ < least:
            found.append(layout)
            least = layout.bytes_
    return found
