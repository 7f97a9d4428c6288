"""Figures of a labelled calculator: ``<label>.<what>``."""

from __future__ import annotations

from typing import Any

from parcost import Figure, Formula, Real, called


def figure(
    block: object,
    name: str,
    title: str,
    value: Real,
    unit: str,
    formula: Formula,
    note: str = "",
) -> Figure:
    """Return the figure called *name* of *block*."""
    label = called(block)
    return Figure(
        name=f"{label}.{name}",
        title=f"{label}: {title}",
        value=value,
        unit=unit,
        formula=formula,
        note=note,
    )


def plain(text: str, source: str = "", **inputs: Any) -> Formula:
    """Return a formula of plain numbers."""
    return Formula(
        text=text, inputs={name: (value, "") for name, value in inputs.items()}, source=source
    )
