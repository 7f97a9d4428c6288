"""Short ways to say a figure: of the step, or of a block, by whose label it is then named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from parcost import Figure, Formula, Real, called

#: ``say("idle", "idle time", 3.0, "s", "makespan - busy", makespan=(12.0, "s"), ...)``
Say: TypeAlias = Callable[..., Figure]


def figures_of(block: object) -> Say:
    """Return what makes the figures of *block*: ``idle`` of ``pipeline p`` is ``p.idle``."""
    label = called(block)
    return lambda name, title, *given, **more: figure(
        f"{label}.{name}", f"{label}: {title}", *given, **more
    )


def figure(
    name: str,
    title: str,
    value: Real,
    unit: str,
    text: str,
    note: Any = "",
    **inputs: Any,
) -> Figure:
    """Return a figure that comes about as *text* says, from *inputs*: values with units."""
    formula = Formula(text=text, inputs=inputs)
    return Figure(name=name, title=title, value=value, unit=unit, formula=formula, note=note)
