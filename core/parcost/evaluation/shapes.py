"""Arrays of plugins: they hold a number for each point of a sweep, or one for all.

One of another length would meet the others in some sum far from whoever made it, and an
error there names nobody. So it is left out where it comes in, as a fault of its plugin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from parcost.outcome import Fault
from parcost.terms import Check, Edge, Figure, Memory, Once, Work

if TYPE_CHECKING:
    from parcost.plugins import Plugin
    from parcost.study import Study

_MAY_VARY: Mapping[type, Sequence[str]] = {
    Work: ("seconds", "share", "slowdown", "flops", "bytes_"),
    Edge: ("seconds", "bytes_"),
    Once: ("seconds", "beside", "tail", "slowdown", "bytes_"),
    Memory: ("bytes_", "of_activations", "freed_at_b"),
    Check: ("holds",),
    Figure: ("value",),
}
_PLAIN = (float, int, bool)


def settle(study: Study, *hooks: str) -> None:
    """Leave out what plugins contribute to *hooks* in shapes that *study* has not."""
    for hook in hooks:
        fitting(study, hook, study.contributions(hook))


def fitting(
    study: Study, hook: str, stamped: Iterable[tuple[Plugin, Any]]
) -> Sequence[tuple[Plugin, Any]]:
    """Return the answers to *hook* that have the shape of *study*; the others are faults."""
    points = len(study.axes[0][1]) if study.axes else 1
    found = []
    counts: dict[int, Any] = {}  # that are sound: many terms share theirs
    for pair in stamped:
        plugin, answer = pair
        if complaint := _complaint(answer, points, counts):
            study.leave_out(Fault(plugin=plugin, hook=hook, message=complaint), answer)
        else:
            found.append(pair)
    return found


def _complaint(answer: Any, points: int, counts: dict[int, Any]) -> str:
    numbers, counted = _numbers(answer.__class__), hasattr(answer.__class__, "count")
    if numbers is None:
        return ""
    for value in numbers(answer):
        if value.__class__ is not float and not _fits(value, points):
            names = _MAY_VARY[answer.__class__]
            name = next(name for name in names if getattr(answer, name) is value)
            called = answer.id if isinstance(answer, Check) else answer.name
            return f"gave `{called}` {name} of shape {_shape(value)}, where {_wanted(points)}"
    for value in answer.boundaries if answer.__class__ is Edge else ():
        if not _fits(value, points):
            shape = _shape(value)
            return f"gave `{answer.name}` a boundary of shape {shape}, where {_wanted(points)}"
    if counted and answer.count.__class__ not in _PLAIN and id(answer.count) not in counts:
        if any(_shape(number) for number in answer.count):
            return f"gave `{answer.name}` a count that is no number for each virtual stage"
        counts[id(answer.count)] = answer.count
    return ""


@cache
def _numbers(class_: type) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what reads the numbers of an answer that may vary, None where it has none."""
    names = _MAY_VARY.get(class_, ())
    read = attrgetter(*names) if names else None
    return (lambda answer: (read(answer),)) if read and len(names) == 1 else read


def _fits(value: Any, points: int) -> bool:
    return value.__class__ in _PLAIN or _shape(value) in ((), (1,), (points,))


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _wanted(points: int) -> str:
    return "one number is asked for" if points == 1 else f"the sweep has {points} points"
