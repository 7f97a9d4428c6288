"""A short way to say the figures of a labelled block: ``b.exposed`` of ``buckets b``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from parcost import Figure, Formula, Real, called

Say: TypeAlias = Callable[..., Figure]


def figures_of(block: object) -> Say:
    """Return what makes a figure: ``say("hidden", "hidden time", 3.0, "s", "tau - e", e=...)``."""
    label = called(block)

    def say(
        name: str, title: str, value: Real, unit: str, text: str, note: str = "", **inputs: Any
    ) -> Figure:
        return Figure(
            name=f"{label}.{name}",
            title=f"{label}: {title}",
            value=value,
            unit=unit,
            formula=Formula(text=f"{text}: {note}" if note else text, inputs=inputs),
        )

    return say
