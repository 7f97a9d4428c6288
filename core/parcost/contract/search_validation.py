"""What a search asks plugins for: rooms, axes, objectives and goals, looked at as they come.

Objectives and limits are functions, which are called long after their plugin was asked. From
here on they name it where they raise, or return what is no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from attrs import evolve

from parcost.contract.term_validation import within
from parcost.contract.terms import Goal, Limit
from parcost.language.diagnostics import quote
from parcost.language.errors import ParcostError, PluginError, reraise_interrupt
from parcost.numeric import INFINITY, all_of, array_kind, where

#: Makes the error of a plugin out of what it did, and what it raised.
Blame: TypeAlias = Callable[[str, BaseException | None], PluginError]

HOOKS = ("rooms", "axes", "objectives", "goals")

_Call: TypeAlias = Callable[..., Any]
_NUMBERS, _TRUTH = "fiu", "b"


def answered(hook: str, answer: Any, blame: Blame) -> tuple[Any, str]:
    """Return an answer to one of :data:`HOOKS`, and what is wrong with it, if anything."""
    if hook == "rooms":
        return answer, "" if within(answer) else f"gave the room {quote(answer)}, which no size is"
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
        if not isinstance(value, str) and not (_single(value) and within(value)):
            return f"gave the axis `{axis.attribute}` {quote(value)}, no number and no word"
    return ""


def _objective(objective: Any, blame: Blame) -> tuple[Any, str]:
    name = objective.name
    if not isinstance(name, str):
        return objective, f"gave an objective the name {quote(name)}, which is no text"
    cost = _named(objective.cost, f"the cost of `{name}`", _NUMBERS, blame)
    value = _named(objective.value, f"the value of `{name}`", _NUMBERS, blame)

    def checked(seconds: Any) -> Any:
        found = cost(seconds)
        known: Any = where(seconds < INFINITY, found == found, True)  # noqa: PLR0124  nan is not
        if not all_of(known):
            raise blame(
                f"the cost of `{name}` is {quote(found)} for a step of {quote(seconds)} s", None
            )
        return found

    return evolve(objective, cost=checked, value=value), ""


def _goal(goal: Goal, blame: Blame) -> tuple[Goal, str]:
    limits: Any = goal.limits
    if not isinstance(limits, (list, tuple)):
        return goal, f"gave a goal limits = {quote(limits)}, which are no list"
    found = []
    for limit in limits:
        if not isinstance(limit, Limit) or not isinstance(limit.says, str):
            return goal, f"gave a goal the limit {quote(limit)}, which is none or says nothing"
        what = f"the limit `{limit.says}`"
        found.append(evolve(limit, holds=_named(limit.holds, what, _TRUTH, blame)))
    return evolve(goal, limits=found), ""


def _named(call: _Call, what: str, wanted: str, blame: Blame) -> _Call:
    """Return *call*, named by *what* it is where it fails or returns something else than *wanted*.

    That is one for all, or for each number that it is called with.
    """
    words = "numbers" if wanted == _NUMBERS else "true and false"

    def do(*numbers: Any) -> Any:
        try:
            found = call(*numbers)
        except ParcostError:
            raise
        except BaseException as error:
            reraise_interrupt(error)
            raise blame(f"{what} raised", error) from error
        if found.__class__ is (float if wanted == _NUMBERS else bool):
            return found
        if not (_kind(found) in wanted and _fits(found, numbers)):
            raise blame(f"{what} is {quote(found)} where {words} are asked for", None)
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
    """Say whether the shape of *found* goes with those that it was made of."""
    if _single(found):
        return True
    import numpy as np

    try:
        np.broadcast_shapes(found.shape, *(np.shape(number) for number in numbers))
    except ValueError:
        return False
    return True
