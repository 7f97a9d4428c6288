"""Searches with their page and pictures, for formats that draw and for the live page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from parcost.contract.entries import Entry
from parcost.search.best_first import search
from parcost.search.charts import search_charts
from parcost.search.fastest_layouts import FastestLayouts
from parcost_apps.batch.entries import charts_of
from parcost_apps.search.report import search_page

if TYPE_CHECKING:
    from parcost.search.best_first import SearchRequest
    from parcost.search.result import SearchResult
    from parcost.search.space import Space
    from parcost_apps.search.report import RankedLayout
    from parcost_apps.search.sensitivity import Neighbour

_MOST_MAPPED = 20_000_000  # layouts, legal or not, of which a map is drawn


def search_for_map(
    whole: Space, request: SearchRequest, on_progress: Callable[[str], None]
) -> SearchResult:
    """Return the search result, with the fastest layouts for a map if the space is small enough."""
    fastest = FastestLayouts()
    points = fastest if whole.size <= _MOST_MAPPED else None
    request = evolve(request, front=True)
    found = search(whole, request, on_progress=on_progress, points=points)
    return evolve(found, fastest=fastest.layouts())


def search_entry(
    whole: Space,
    found: SearchResult,
    best: Sequence[RankedLayout],
    near: Sequence[Neighbour],
) -> Entry:
    """Return the entry of a search: its page and its pictures."""
    scenario = found.scenario
    text = charts_of([*search_page(whole, found, best, near)], search_charts(found))
    name = f"{scenario.name}: {found.objective.title}"
    return Entry(path=scenario.path, name=name, part="charts", text=text)
