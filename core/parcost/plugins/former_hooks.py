"""Hooks of version 3 of the contract that are one hook today: plugins with them still work."""

from __future__ import annotations

from collections.abc import Mapping

import pluggy

hookspec = pluggy.HookspecMarker("parcost")

#: The hook of today, by the former name.
NEW_NAMES: Mapping[str, str] = {
    "intervals": "figures",
    "calculation_charts": "charts",
    "timeline_charts": "charts",
    "point_charts": "charts",
}

intervals = hookspec(lambda study, outcome: ())
calculation_charts = hookspec(lambda study: ())
timeline_charts = hookspec(lambda timeline: ())
point_charts = hookspec(lambda points: ())
