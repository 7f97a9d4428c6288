"""Shapes of the arrays of plugins: one number for each point of a sweep, or one for all points.

An array of another length is rejected early, as a fault of its plugin. Otherwise it would fail
later in a sum, where its plugin is unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from parcost.contract.plugin import Fault
from parcost.contract.validation import declarations, key_of

if TYPE_CHECKING:
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.numeric import Real

_PLAIN: frozenset[type] = frozenset((float, int, bool, type(None)))


def validate_shapes(study: Study, *hooks: str) -> None:
    """Remove contributions to *hooks* whose array shape does not match *study*, and record
    faults.
    """
    for hook in hooks:
        valid_answers(study, hook, study.contributions(hook))


def valid_answers(
    study: Study, hook: str, stamped: Iterable[tuple[Plugin, Any]]
) -> Sequence[tuple[Plugin, Any]]:
    """Return the answers to *hook* whose shape matches *study*; the others are recorded as
    faults.
    """
    shape = shape_of(study)
    found = []
    for pair in stamped:
        plugin, answer = pair
        if complaint := shape_problem(answer, shape):
            study.leave_out(Fault(plugin=plugin, hook=hook, message=complaint), answer)
        else:
            found.append(pair)
    return found


def memory_limits_of(study: Study, faults: list[Fault], hook: str = "capacities") -> Sequence[Real]:
    """Return the memory limits in bytes that plugins return for *hook*, if their shape matches
    *study*.

    Others are recorded in *faults*.
    """
    shape = shape_of(study)
    found = []
    for plugin, room in study.contributions(hook):
        if fits_shape(room, shape):
            found.append(room)
        else:
            message = f"gave a memory limit {_shape_error(room, shape)}"
            fault = Fault(plugin=plugin, hook=hook, message=message)
            study.plugins.record(fault)
            if str(fault) not in map(str, faults):
                faults.append(fault)
    return found


def shape_of(study: Study) -> tuple[int, ...]:
    """Return the shape of all points of *study*: ``()`` where there is no sweep."""
    if not study.axes:
        return ()
    import numpy as np

    return np.broadcast_shapes(*{np.shape(values) for _, values in study.axes})


def shape_problem(answer: Any, points: tuple[int, ...]) -> str:
    """Return the error in the array shapes of *answer*, or ""; *points* is the sweep's shape."""
    declared = declarations(answer.__class__)
    numbers = declared.numbers(answer)
    if not _PLAIN.issuperset(map(type, numbers)):
        for name, value in zip(declared.varying, numbers, strict=True):
            if value.__class__ not in _PLAIN and not fits_shape(value, points):
                return f"gave `{key_of(answer)}` {name} {_shape_error(value, points)}"
    series = declared.series
    for value in getattr(answer, series) if series else ():
        if value.__class__ not in _PLAIN and not fits_shape(value, points):
            called = "a boundary" if series == "boundaries" else f"a number of {series}"
            return f"gave `{key_of(answer)}` {called} {_shape_error(value, points)}"
    return ""


def fits_shape(value: Any, points: tuple[int, ...]) -> bool:
    """Return whether *value* is one number, or an array that broadcasts to *points*."""
    return value.__class__ in _PLAIN or broadcasts(_shape(value), points)


@lru_cache(maxsize=4096)
def broadcasts(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    """Return whether an array of *shape* broadcasts to shape *over* without enlarging it.

    >>> broadcasts((1, 3), (2, 3)), broadcasts((3,), (2, 3)), broadcasts((2,), (2, 3))
    (True, True, False)
    """
    if len(shape) > len(over):
        return False
    behind = over[len(over) - len(shape) :]
    return all(a in (1, b) for a, b in zip(shape, behind, strict=True))


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _shape_error(value: Any, points: tuple[int, ...]) -> str:
    count = prod(points)
    expected = "one number is expected" if count <= 1 else f"the sweep has {count} points"
    return f"of shape {_shape(value)}, where {expected}"
