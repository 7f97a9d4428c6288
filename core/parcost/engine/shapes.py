"""Shapes of the arrays of plugins: a number for each point of a sweep, or one for all.

An array of another length would fail in a sum with others, where its plugin is unknown. So it is
left out on input, as a fault of its plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attrs import fields, has

from parcost.contract.checks import Check
from parcost.contract.figures import Figure, Interval
from parcost.contract.plugin import Fault
from parcost.contract.terms import Edge, Memory, Once, Work

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.numeric import Real

_MAY_VARY: Mapping[type, Sequence[str]] = {
    Work: ("seconds", "share", "slowdown", "flops", "bytes_"),
    Edge: ("seconds", "bytes_"),
    Once: ("seconds", "beside", "tail", "slowdown", "bytes_"),
    Memory: ("bytes_", "of_activations", "freed_at_b"),
    Check: ("holds",),
    Figure: ("value",),
    Interval: ("low", "high"),
}
#: Attributes that hold several numbers, each of which may vary.
SERIES = ("boundaries", "also_busy")
_PLAIN = (float, int, bool)


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


def rooms_of(study: Study, faults: list[Fault]) -> Sequence[Real]:
    """Return the rooms that plugins give in the shape of *study*; the others join *faults*."""
    points = points_of(study)
    found = []
    for plugin, room in study.contributions("capacities"):
        if fits_points(room, points):
            found.append(room)
        else:
            message = f"gave a room of shape {_shape(room)}, where {_expected_shape(points)}"
            fault = Fault(plugin=plugin, hook="capacities", message=message)
            study.plugins.note(fault)
            if str(fault) not in map(str, faults):
                faults.append(fault)
    return found


def points_of(study: Study) -> int:
    """Return how many points an array of *study* holds, 0 where there is no sweep."""
    return len(study.axes[0][1]) if study.axes else 0


def shape_problem(answer: Any, points: int) -> str:
    """Return the error in the shapes in *answer* for *points* points, or an empty text."""
    reads = _reads(answer.__class__)
    if reads is None:
        return ""
    names, numbers = reads
    for value in numbers(answer):
        if value.__class__ is not float and not fits_points(value, points):
            name = next(name for name in names if getattr(answer, name) is value)
            called = answer.id if isinstance(answer, Check) else answer.name
            return (
                f"gave `{called}` {name} of shape {_shape(value)}, where {_expected_shape(points)}"
            )
    series = series_of(answer.__class__)
    for value in getattr(answer, series) if series else ():
        if not fits_points(value, points):
            shape = _shape(value)
            called = "a boundary" if series == "boundaries" else f"a number of {series}"
            return (
                f"gave `{answer.name}` {called} of shape {shape}, where {_expected_shape(points)}"
            )
    return ""


@cache
def series_of(class_: type) -> str:
    """Return which attribute of a kind of term holds several numbers, "" if none does."""
    if not has(class_):
        return ""
    names = {field.name for field in fields(class_)}
    return next((name for name in SERIES if name in names), "")


@cache
def _reads(class_: type) -> tuple[Sequence[str], Callable[[Any], tuple[Any, ...]]] | None:
    """Return the numbers of an answer that may vary and what reads them, None if it has none."""
    names = next((_MAY_VARY[base] for base in class_.__mro__ if base in _MAY_VARY), ())
    read = attrgetter(*names) if names else None
    if read is None:
        return None
    return names, (lambda answer: (read(answer),)) if len(names) == 1 else read


def fits_points(value: Any, points: int) -> bool:
    """Return whether *value* is one number, or one for each of so many points."""
    shape = () if value.__class__ in _PLAIN else _shape(value)
    return shape == () or (points > 0 and shape in ((1,), (points,)))


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _expected_shape(points: int) -> str:
    return "one number is expected" if points <= 1 else f"the sweep has {points} points"
