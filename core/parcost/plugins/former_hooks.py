"""Hooks of version 3 of the contract that are one hook today: plugins with them still work."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from parcost.contract.charts import Chart, PassTimeline, PointTable
    from parcost.contract.figures import Interval
    from parcost.contract.outcome import Outcome
    from parcost.contract.study import Study

hookspec = pluggy.HookspecMarker("parcost")

#: The hook of today, by the former name.
NEW_NAMES: Mapping[str, str] = {
    "intervals": "figures",
    "calculation_charts": "charts",
    "timeline_charts": "charts",
    "point_charts": "charts",
}


@hookspec
def intervals(study: Study, outcome: Outcome) -> Iterable[Interval]:  # type: ignore[empty-body]
    """The prediction intervals of figures."""


@hookspec
def calculation_charts(study: Study) -> Iterable[Chart]:  # type: ignore[empty-body]
    """Pictures of calculations."""


@hookspec
def timeline_charts(timeline: PassTimeline) -> Iterable[Chart]:  # type: ignore[empty-body]
    """Pictures of a pipeline over time."""


@hookspec
def point_charts(points: PointTable) -> Iterable[Chart]:  # type: ignore[empty-body]
    """Pictures of a sweep or a search."""
