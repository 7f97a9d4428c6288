"""Figures of a calculator block: named by its label, each with how it comes about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from parcost import Figure, Formula, Real, called

#: ``say("idle", "idle time", 3.0, "s", "makespan - busy", makespan=(12.0, "s"), ...)``
Say: TypeAlias = Callable[..., Figure]


def figures_of(block: object) -> Say:
    """Return what makes the figures of *block*: ``idle`` of ``pipeline p`` is ``p.idle``."""
    label = called(block)

    def say(
        name: str,
        title: str,
        value: Real,
        unit: str,
        text: str,
        *,
        note: str = "",
        **inputs: tuple[Any, str],
    ) -> Figure:
        return Figure(
            name=f"{label}.{name}",
            title=f"{label}: {title}",
            value=value,
            unit=unit,
            formula=Formula(text=text, inputs=inputs),
            note=note,
        )

    return say
