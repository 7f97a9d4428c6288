"""Arrays of plugins: they hold a number for each point of a sweep, or one for all.

One of another length would meet the others in some sum far from whoever made it, and an
error there names nobody. So it is left out where it comes in, as a fault of its plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    for plugin, answer in stamped:
        if complaint := _complaint(answer, points):
            study.leave_out(Fault(plugin=plugin, hook=hook, message=complaint), answer)
        else:
            found.append((plugin, answer))
    return found


def _complaint(answer: Any, points: int) -> str:
    called = answer.id if isinstance(answer, Check) else getattr(answer, "name", "")
    for name in _MAY_VARY.get(answer.__class__, ()):
        value = getattr(answer, name)
        if value.__class__ not in _PLAIN and _shape(value) not in ((), (1,), (points,)):
            return f"gave `{called}` {name} of shape {_shape(value)}, where {_wanted(points)}"
    for value in getattr(answer, "boundaries", ()):
        if value.__class__ not in _PLAIN and _shape(value) not in ((), (1,), (points,)):
            return f"gave `{called}` a boundary of shape {_shape(value)}, where {_wanted(points)}"
    count: Any = getattr(answer, "count", 1.0)
    if count.__class__ not in _PLAIN and any(_shape(number) for number in count):
        return f"gave `{called}` a count that is no number for each virtual stage"
    return ""


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)):
        return (len(value),)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _wanted(points: int) -> str:
    return "one number is asked for" if points == 1 else f"the sweep has {points} points"
