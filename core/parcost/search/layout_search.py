"""A search from a study and the options of its user: the axes, the space, the request.

    (scenario,) = parcost.load("study.par")
    found = parcost.search_layouts(scenario, over={"layout.tp": [1, 2, 4, 8]}, top=5)
    found.best[0].values, found.to_pandas()

Omitted options are taken from the spec, or have their default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from parcost.engine.scenario import Scenario
from parcost.language.errors import SpecError
from parcost.search.best_first import SearchRequest, search
from parcost.search.charts import search_charts
from parcost.search.fastest_layouts import FastestLayouts
from parcost.search.goals import goal_of, unknown_axes, unknown_objective
from parcost.search.result import SearchResult
from parcost.search.sample import sample
from parcost.search.space import LARGEST, Space, space


@frozen(kw_only=True)
class LayoutSearch:
    """A search to run: a *space* of layouts, and the *request*."""

    space: Space
    request: SearchRequest


def layout_search(
    scenario: Scenario,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    axes: Sequence[str] = (),
    objective: str | None = None,
    top: int | None = None,
    budget_seconds: float | None = None,
    tolerance: float | None = None,
    most: float = LARGEST,
) -> LayoutSearch:
    """Return the search of *scenario*; its arguments are the same as in :func:`search_layouts`.

    *most* is the largest number of layouts in a space.

    Raises:
        SpecError: There is no such axis or objective, or the space is empty or too large.
    """
    goal = goal_of(scenario.first)
    stated = {name: list(values) for name, values in scenario.axes}
    stated |= {name: list(values) for name, values in (over or {}).items()}
    wrong = [] if axes else list(unknown_axes(scenario, stated))
    wrong += [] if objective else unknown_objective(scenario)
    if wrong:
        raise SpecError(wrong)
    standard = SearchRequest()
    budget = goal.budget_seconds if budget_seconds is None else budget_seconds
    request = SearchRequest(
        objective=objective or goal.objective or standard.objective,
        keep=top or goal.keep or standard.keep,
        budget_seconds=standard.budget_seconds if budget is None else budget,
        tolerance=(goal.tolerance or 0.0) if tolerance is None else tolerance,
    )
    whole = space(scenario, stated, list(axes) or list(goal.axes), most=most)
    return LayoutSearch(space=whole, request=request)


def search_layouts(
    scenario: Scenario,
    *,
    over: Mapping[str, Sequence[Any]] | None = None,
    axes: Sequence[str] = (),
    objective: str | None = None,
    top: int | None = None,
    budget_seconds: float | None = None,
    tolerance: float | None = None,
    samples: int | None = None,
    seed: int = 0,
    every: bool = False,
    front: bool = False,
    on_progress: Callable[[str], None] = lambda _: None,
) -> SearchResult:
    """Return the best layouts of a study for its model and machine, like ``parcost search``.

    *over* has the values of axes, such as ``{"layout.tp": [1, 2, 4]}``. *axes* restricts the search
    to these axes. *objective* is ``step_time`` by default, *top* the number of layouts, 10 by
    default. *budget_seconds* is the time limit, 60 by default. Layouts whose step time differs by
    less than *tolerance*, 0.03 by default, are listed with the simpler ones first. With *samples*,
    that many random legal layouts are evaluated, drawn with *seed*. With *every*, each legal layout
    is scored, which takes longer; the map of :meth:`SearchResult.plot` then has all of them. With
    *front*, the Pareto front is computed together with the ranking instead of by a second search.
    *on_progress* is called with a line of text from time to time.

    Raises:
        SpecError: There is no such axis or objective, or no layout is legal, fits and is within
            the limits.
    """
    most = LARGEST if samples is None else float("inf")
    wanted = layout_search(
        scenario,
        over=over,
        axes=axes,
        objective=objective,
        top=top,
        budget_seconds=budget_seconds,
        tolerance=tolerance,
        most=most,
    )
    if samples is None:
        fastest = FastestLayouts() if every else None
        request = evolve(wanted.request, front=front or every)
        found = search(wanted.space, request, on_progress=on_progress, points=fastest)
        found = evolve(found, fastest=fastest.layouts() if fastest is not None else ())
    else:
        found = sample(wanted.space, wanted.request, samples, seed=seed, on_progress=on_progress)
    return evolve(found, make_charts=partial(search_charts, found))
