"""Costs defined by the user in the spec: ``term`` blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from parcost import (
    Check,
    Formula,
    Memory,
    Once,
    Real,
    Rulebook,
    Study,
    Work,
    block_name,
    formula,
    hookimpl,
)
from parcost_plugins.custom_terms.rulebook import RULES
from parcost_plugins.physics import layers, virtual_stages
from parcost_plugins.physics.partition import chunks, stages
from parcost_plugins.vocabulary import CustomTerm

_WHENS: Mapping[str, Literal["fill", "drain", "end"]] = {
    "fill": "fill",
    "drain": "drain",
    "end": "end",
}


@hookimpl
def terms(study: Study) -> list[Work | Once]:
    """Return the time of every ``term`` block with seconds."""
    return [_time(term, study) for term in study.all(CustomTerm) if _is_given(term.seconds)]


@hookimpl
def memory(study: Study) -> list[Memory]:
    """Return the memory of every ``term`` block with bytes."""
    return [
        Memory(
            name=block_name(term),
            bytes_=_value("memory", term.memory, "B", term),
            count=_stages(term, study),
            once_per_device=term.stage is None,
        )
        for term in study.all(CustomTerm)
        if _is_given(term.memory)
    ]


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the stage of a term exists."""
    for term in study.all(CustomTerm):
        if term.stage is not None:
            last = stages(study) * chunks(study) - 1
            yield RULES.check(
                "term-stage",
                term.stage <= last,
                f"{block_name(term)}.stage",
                stage=term.stage,
                last=last,
            )


def _time(term: CustomTerm, study: Study) -> Work | Once:
    seconds = _value("seconds", term.seconds, "s", term)
    stages = _stages(term, study)
    if term.per == "step":
        return Once(
            name=block_name(term),
            seconds=seconds,
            when=_WHENS[term.when],
            count=stages,
            resource=term.resource,
        )
    often = layers(study) if term.per == "layer" else (1,) * len(stages)
    return Work(
        name=block_name(term),
        seconds=seconds,
        pass_="F" if term.during == "forward" else "B",
        count=[on * n for on, n in zip(stages, often, strict=True)],
        resource=term.resource,
    )


def _stages(term: CustomTerm, study: Study) -> Sequence[float]:
    """Return the number of times that the term runs on each virtual stage: 1 or 0."""
    return [float(term.stage in (None, stage)) for stage in range(virtual_stages(study))]


def _value(name: str, value: Real, unit: str, term: CustomTerm) -> Formula:
    return formula(name, {name: (value, unit)}, source=term.source or "the spec")


def _is_given(value: Real) -> bool:
    """Return whether a term has time or memory; true for a swept value."""
    return not (isinstance(value, (float, int)) and value == 0)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
