"""What a search asks plugins for: capacities, axes, objectives and goals, looked at as they come.

Objectives and limits are functions, which are called long after their plugin was asked. From
here on they name it where they raise, or return what is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve

from parcost.contract.calls import CallError, call
from parcost.contract.searches import Goal, Limit
from parcost.contract.term_validation import is_within
from parcost.language.diagnostics import quote
from parcost.language.errors import ParcostError, PluginError
from parcost.numeric import INFINITY, all_of, array_kind, where

#: Makes the error of a plugin out of what it did.
Blame: TypeAlias = Callable[..., PluginError]

HOOKS = ("capacities", "axes", "objectives", "search_goals")

_Call: TypeAlias = Callable[..., Any]
_NUMBERS, _TRUTH = "fiu", "b"
#: What the attributes of a goal let through.
_OF_GOALS: Mapping[str, Callable[[Any], bool]] = {
    "objective": lambda value: value is None or isinstance(value, str),
    "axes": lambda value: (
        isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
    ),
    "keep": lambda value: value is None or is_within(value, 1),
    "budget_seconds": lambda value: value is None or is_within(value, 0),
    "subject": lambda value: isinstance(value, str),
}


def validate_answer(hook: str, answer: Any, blame: Blame) -> tuple[Any, str]:
    """Return an answer to one of :data:`HOOKS`, and the error in it or an empty text."""
    if hook == "capacities":
        return answer, "" if is_within(
            answer
        ) else f"gave the capacity {quote(answer)}, which no size is"
    if hook == "axes":
        return answer, _bad_axis(answer)
    if hook == "objectives":
        return _objective(answer, blame)
    return _goal(answer, blame)


def _bad_axis(axis: Any) -> str:
    if not isinstance(axis.attribute, str):
        return f"gave an axis of {quote(axis.attribute)}, which is no attribute"
    if isinstance(axis.values, str) or not hasattr(axis.values, "__len__"):
        return f"gave the axis `{axis.attribute}` values = {quote(axis.values)}, which are no list"
    for value in axis.values:
        if not isinstance(value, str) and not (_single(value) and is_within(value)):
            return f"gave the axis `{axis.attribute}` {quote(value)}, no number and no word"
    return ""


def _objective(objective: Any, blame: Blame) -> tuple[Any, str]:
    name = objective.name
    if not isinstance(name, str):
        return objective, f"gave an objective the name {quote(name)}, which is no text"
    cost = _guarded_call(objective.cost, f"the cost of `{name}`", _NUMBERS, blame)
    value = _guarded_call(objective.value, f"the value of `{name}`", _NUMBERS, blame)

    def checked(seconds: Any) -> Any:
        found = cost(seconds)
        known: Any = where(seconds < INFINITY, found == found, True)  # noqa: PLR0124  nan is not
        if not all_of(known):
            raise blame(f"the cost of `{name}` is {quote(found)} for a step of {quote(seconds)} s")
        return found

    return evolve(objective, cost=checked, value=value), ""


def _goal(goal: Goal, blame: Blame) -> tuple[Goal, str]:
    limits: Any = goal.limits
    if not isinstance(limits, (list, tuple)):
        return goal, f"gave a goal limits = {quote(limits)}, which are no list"
    for name, test in _OF_GOALS.items():
        value = getattr(goal, name)
        if not test(value):
            return goal, f"gave a goal {name} = {quote(value)}, which is none"
    found = []
    for limit in limits:
        if not isinstance(limit, Limit) or not isinstance(limit.says, str):
            return goal, f"gave a goal the limit {quote(limit)}, which is none or has no text"
        what = f"the limit `{limit.says}`"
        found.append(evolve(limit, holds=_guarded_call(limit.holds, what, _TRUTH, blame)))
    return evolve(goal, limits=found), ""


def _guarded_call(function: _Call, what: str, wanted: str, blame: Blame) -> _Call:
    """Return *function*, named by *what* it is where it fails or returns something else.

    *wanted* is one for all, or for each number that it is called with.
    """
    words = "numbers" if wanted == _NUMBERS else "true and false"

    def do(*numbers: Any) -> Any:
        try:
            found = call(function, *numbers, passing=ParcostError)
        except CallError as error:
            raise blame(f"{what} {error}", error.cause) from error
        if found.__class__ is (float if wanted == _NUMBERS else bool):
            return found
        if not (_kind(found) in wanted and _fits(found, numbers)):
            raise blame(f"{what} is {quote(found)} where {words} are expected")
        return found

    return do


def _kind(found: Any) -> str:
    """Return the letter by which NumPy knows a kind of numbers, a word that is none for others.

    >>> _kind(1), _kind(True), _kind("1")
    ('i', 'b', 'none')
    """
    if isinstance(found, (bool, int, float)):
        return "b" if isinstance(found, bool) else "i"
    return array_kind(found) or "none"


def _single(value: Any) -> bool:
    return getattr(value, "ndim", 0) == 0


def _fits(found: Any, numbers: Sequence[Any]) -> bool:
    """Return whether the shape of *found* goes with those that it was made of."""
    if _single(found):
        return True
    import numpy as np

    try:
        np.broadcast_shapes(found.shape, *(np.shape(number) for number in numbers))
    except ValueError:
        return False
    return True
