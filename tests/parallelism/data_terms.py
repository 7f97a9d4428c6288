"""The terms of data parallelism by name, and parameters of round numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from parcost import Once, Study
from parcost.engine.reduce import evaluate
from parcost_plugins.vocabulary import Parameters

from ..evaluation import details_of

Bind = Callable[..., Study]
FOUR = {"cluster.devices": 4, "training.global_batch": 4}
OVERLAP = {"overlap.gradients": "on", "overlap.parameters": "on"}


def parameters_record(
    elements: float, count: Sequence[float] = (1.0,), place: Any = "layer", expert: bool = False
) -> Parameters:
    name = f"{place} {count} {expert} {elements}"
    return Parameters(
        name=name, elements=elements, total=elements, count=count, place=place, expert=expert
    )


def ours(study: Study) -> list[Any]:
    found = [term for plugin, term in study.contributions("terms") if ".data" in plugin.name]
    assert study.faults == []
    return found


def once_terms(study: Study) -> dict[str, Any]:
    """Return seconds, gigabytes, the share of the pass beside, and the tail of each term."""
    return {
        term.name: (term.seconds, term.bytes_ / 1e9, term.beside, term.tail)
        for term in ours(study)
        if isinstance(term, Once)
    }


LOW_RANK = {"compression.method": "power_sgd", "compression.rank": 4}


def details(study: Study) -> dict[str, Any]:
    outcome = evaluate(study)
    found = {f.name: f.value for _, f in details_of(study, outcome)}
    assert study.faults == []
    return {**found, "step": outcome.step_seconds}
