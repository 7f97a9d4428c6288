"""Shapes of the arrays of plugins: a number for each point of a sweep, or one for all.

An array of another length would fail in a sum with others, where its plugin is unknown. So it is
left out on input, as a fault of its plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from parcost.contract.plugin import Fault
from parcost.contract.validation import declarations, key_of

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.numeric import Real

_PLAIN: frozenset[type] = frozenset((float, int, bool, type(None)))


def settle(study: Study, *hooks: str) -> None:
    """Leave out what plugins contribute to *hooks* in shapes that *study* has not."""
    for hook in hooks:
        valid_answers(study, hook, study.contributions(hook))


def valid_answers(
    study: Study, hook: str, stamped: Iterable[tuple[Plugin, Any]]
) -> Sequence[tuple[Plugin, Any]]:
    """Return the answers to *hook* that have the shape of *study*; the others are faults."""
    points = points_of(study)
    found = []
    for pair in stamped:
        plugin, answer = pair
        if complaint := shape_problem(answer, points):
            study.leave_out(Fault(plugin=plugin, hook=hook, message=complaint), answer)
        else:
            found.append(pair)
    return found


def rooms_of(study: Study, faults: list[Fault], hook: str = "capacities") -> Sequence[Real]:
    """Return the sizes that plugins give for *hook* in the shape of *study*.

    Those of other shapes join *faults*.
    """
    points = points_of(study)
    found = []
    for plugin, room in study.contributions(hook):
        if fits_points(room, points):
            found.append(room)
        else:
            message = f"gave a room {_shape_error(room, points)}"
            fault = Fault(plugin=plugin, hook=hook, message=message)
            study.plugins.note(fault)
            if str(fault) not in map(str, faults):
                faults.append(fault)
    return found


def points_of(study: Study) -> int:
    """Return how many points an array of *study* holds, 0 where there is no sweep."""
    return len(study.axes[0][1]) if study.axes else 0


def shape_problem(answer: Any, points: int) -> str:
    """Return the error in the shapes in *answer* for *points* points, or an empty text."""
    declared = declarations(answer.__class__)
    numbers = declared.numbers(answer)
    if not _PLAIN.issuperset(map(type, numbers)):
        for name, value in zip(declared.varying, numbers, strict=True):
            if value.__class__ not in _PLAIN and not fits_points(value, points):
                return f"gave `{key_of(answer)}` {name} {_shape_error(value, points)}"
    series = declared.series
    for value in getattr(answer, series) if series else ():
        if value.__class__ not in _PLAIN and not fits_points(value, points):
            called = "a boundary" if series == "boundaries" else f"a number of {series}"
            return f"gave `{key_of(answer)}` {called} {_shape_error(value, points)}"
    return ""


def fits_points(value: Any, points: int) -> bool:
    """Return whether *value* is one number, or one for each of so many points."""
    shape = () if value.__class__ in _PLAIN else _shape(value)
    return shape == () or (points > 0 and shape in ((1,), (points,)))


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _shape_error(value: Any, points: int) -> str:
    expected = "one number is expected" if points <= 1 else f"the sweep has {points} points"
    return f"of shape {_shape(value)}, where {expected}"
