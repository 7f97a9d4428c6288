"""The search goal in a spec, and errors if it names unknown axes or objectives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from parcost.contract.searches import Goal
from parcost.language.diagnostics import Diagnostic, Label
from parcost.language.errors import SpecError
from parcost.search.failures import objective_of
from parcost.search.space import attribute_of_axis, plugin_axes

if TYPE_CHECKING:
    from parcost.contract.study import Study
    from parcost.engine.scenario import Scenario


def goal_of(study: Study) -> Goal:
    """Return the search goal of the spec."""
    found = [goal for _, goal in study.contributions("search_goals")]
    return found[0] if found else Goal()


def unknown_axes(scenario: Scenario, given: Iterable[str] = ()) -> Iterator[Diagnostic]:
    """Yield an error for each axis of the goal that no plugin offers.

    Axes that the spec sweeps, or that are *given*, do not need a plugin.
    """
    study = scenario.first
    goal = goal_of(study)
    if not goal.axes:
        return
    own = {*given, *(name for name, _ in scenario.axes)}
    axes = plugin_axes(study)
    for name in goal.axes:
        if name not in own:
            yield from _goal_problems(
                partial(attribute_of_axis, study, name, axes), study, goal, "axes"
            )


def unknown_objective(scenario: Scenario) -> Iterator[Diagnostic]:
    """Yield an error if the objective of the spec does not exist for its study."""
    study = scenario.first
    goal = goal_of(study)
    if goal.objective is not None:
        found = partial(objective_of, study, goal.objective)
        yield from _goal_problems(found, study, goal, "objective")


def _goal_problems(
    read: Callable[[], object], study: Study, goal: Goal, attribute: str
) -> Iterator[Diagnostic]:
    """Yield the errors that *read* raises, with the place of the goal's attribute."""
    try:
        read()
    except SpecError as error:
        span = study.where(f"{goal.subject}.{attribute}") if goal.subject else None
        for diagnostic in error.diagnostics:
            yield evolve(diagnostic, labels=(Label(span),)) if span else diagnostic
