"""Inputs by provenance: the weakest values that affect the result.

A value is reduced by 10 %; its effect is the change of the step, or of the memory. The values with
an effect and the weakest provenance are listed. A number of a device or a fabric without provenance
is the weakest. Other values without a source are choices of the job. A level without an efficiency
is listed, too: its messages are estimated at line rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from parcost import ONE, Curve, Section, Study, block_name, block_type
from parcost_plugins.analysis.advice.changes import Change, Effect
from parcost_plugins.vocabulary import (
    Cluster,
    Device,
    KernelChoice,
    Level,
    MemoryBudget,
    Overlap,
    Training,
)

_NO_PROVENANCE = "no provenance"
_WEAKEST_FIRST = (_NO_PROVENANCE, "assumed", "fitted", "vendor", "published", "measured")
_LEAST = 0.001  # of the step or the memory; what moves them less does not matter
_MOST = 8  # lines
_COUNTS = ("global_batch", "micro_batches")  # whole, and choices of the job whoever makes them
_LINE_RATE = "no efficiency is given for {names}: 100 % is used for long messages"


class SourcedValue(NamedTuple):
    """A number of the spec, and its kind of provenance."""

    name: str
    unit: str
    kind: str
    less: Change
    left_out: bool = False


def section(values: Sequence[SourcedValue], found: Sequence[Effect]) -> Section:
    """Return the section of values with the weakest provenance, the largest effect first."""
    matter = [
        (value, effect)
        for value, effect in zip(values, found, strict=True)
        if _weight(effect) >= _LEAST
    ]
    weakest = next((k for k in _WEAKEST_FIRST if any(v.kind == k for v, _ in matter)), "")
    rows = [
        (
            value.name,
            (getattr(value.less.block, value.less.attribute), value.unit),
            value.kind,
            (effect.time, "%"),
            (effect.memory, "%"),
        )
        for value, effect in sorted(matter, key=lambda found: -_weight(found[1]))
        if value.kind == weakest
    ]
    lines = [f"`{value.name}`" for value, _ in matter if value.left_out]
    return Section(
        title="Inputs by provenance",
        columns=("input", "value", "provenance", "step", "memory"),
        rows=rows[:_MOST],
        notes=[
            "step, memory: change if the value decreases by 10 %",
            _count_text([value for value, _ in matter]),
            *([_LINE_RATE.format(names=" and ".join(lines))] if lines else []),
        ],
    )


def _weight(effect: Effect) -> float:
    return max(abs(effect.time), abs(effect.memory))


def _count_text(values: list[SourcedValue]) -> str:
    """Return the number of values with an effect, by provenance."""
    number = Counter(value.kind for value in values)
    listed = ", ".join(f"{number[kind]} {kind}" for kind in _WEAKEST_FIRST if number[kind])
    return f"inputs with an effect, by provenance: {listed or 'none'}"


def values_with_provenance(study: Study) -> list[SourcedValue]:
    """Return the numbers with provenance in all blocks that the study uses."""
    return list(_values_with_provenance(study))


def _values_with_provenance(study: Study) -> Iterator[SourcedValue]:
    seen: set[int] = set()
    for schema in (Cluster, Training, KernelChoice, Overlap, MemoryBudget):
        for block in _blocks(study[schema], seen):
            for attribute, field in block_type(type(block)).fields.items():
                origin, value = study.origin(block, attribute), getattr(block, attribute)
                counted = field.kind == "quantity" and not field.whole and attribute not in _COUNTS
                if origin is None or not counted:
                    continue
                measured = isinstance(block, (Device, Level)) and origin.how != "default"
                inherent = measured or _is_line_rate(block, attribute)
                kind = origin.kind or (_NO_PROVENANCE if inherent else "")
                if kind in _WEAKEST_FIRST and isinstance(value, float) and value:
                    yield SourcedValue(
                        name=f"{block_name(block)}.{attribute}",
                        unit="" if field.dimension == ONE else str(field.dimension),
                        kind=kind,
                        less=Change(block, attribute, 0.9 * value),
                        left_out=kind == _NO_PROVENANCE and origin.how == "default",
                    )


def _is_line_rate(block: Any, attribute: str) -> bool:
    """Return whether *attribute* is the efficiency of a level without measured times."""
    return (
        isinstance(block, Level)
        and attribute == "efficiency"
        and not isinstance(block.bandwidth, Curve)
    )


def _blocks(block: Any, seen: set[int]) -> Iterator[Any]:
    """Yield *block* and all blocks nested in it, each once."""
    if id(block) in seen:
        return
    seen.add(id(block))
    yield block
    for attribute in block_type(type(block)).fields:
        value = getattr(block, attribute)
        for inner in value if isinstance(value, tuple) else (value,):
            if hasattr(type(inner), "__block__"):
                yield from _blocks(inner, seen)
