"""Intervals of step time and memory, from the measured errors of similar runs.

An interval is the prediction times a low and a high factor. Both are ratios measured / predicted of
the runs most similar to the study. A device without measured runs has the efficiencies of its
family. The spread of the family is added in quadrature to the logarithm of both factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Check, Interval, Outcome, Real, Study, block_name, formula, hookimpl
from parcost.numeric import is_array
from parcost_plugins.analysis.rulebook import RULES
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.vocabulary import Accuracy, Cluster, MemoryBudget, ObservedErrors, Training

_FIGURES = ("step_time", "memory")


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Return the rule that the low end of an interval is at most its high end."""
    training = study.get(Training)
    if training is None:
        return
    for name in _FIGURES:
        found = training.accuracy.find(name, *_kind(study, training))
        if found is not None:
            yield RULES.check(
                "no-range",
                found.low <= found.high,
                f"{block_name(found)}.low",
                name=block_name(found),
                low=found.low,
                high=found.high,
            )


@hookimpl
def figures(study: Study, outcome: Outcome) -> Iterator[Interval]:
    """Yield the intervals of step time and memory; none if a sweep changes their coverage."""
    training = study.get(Training)
    if training is None:
        return
    accuracy = training.accuracy
    for name, value, unit in (
        ("step_time", outcome.step_seconds, "s"),
        ("memory", outcome.memory_bytes, "B"),
    ):
        if name == "memory" and training.framework.version:
            if not is_array(study[MemoryBudget].coverage):
                yield _known_memory(study, value)
            continue
        if is_array(accuracy.coverage):
            continue
        found = accuracy.find(name, *_kind(study, training))
        if found is not None:
            spread = _spread(study, accuracy) if name == "step_time" else None
            note = "" if trains_model(study) else "; none of them had adapters"
            yield _interval(name, value, unit, accuracy, found, spread, note)


def _known_memory(study: Study, value: Real) -> Interval:
    """Return the memory interval of a framework whose allocations are known."""
    budget = study[MemoryBudget]
    framework = block_name(study[Training].framework)
    source = f"measured memory of open runs; the allocations of `{framework}` are modeled"
    symbols = {"M": (value, "B"), "d": budget.error}
    return Interval(
        name="memory",
        low=formula("M (1 - d)", symbols, source=source),
        high=formula("M (1 + d)", symbols, source=source),
        coverage=float(budget.coverage),
    )


def _kind(study: Study, training: Training) -> tuple[str, str, str]:
    """Return the kind of model, the family of the device and the framework of *study*."""
    family = study[Cluster].device.family
    return (
        "experts" if training.model.experts > 1 else "dense",
        "" if family is None else block_name(family),
        block_name(training.framework),
    )


def _spread(study: Study, accuracy: Accuracy) -> tuple[Real, str] | None:
    """Return the log-spread of a device without measured runs, and the reason; else None."""
    device = study[Cluster].device
    name, family = block_name(device), device.family
    if accuracy.has_device(name):
        return None
    if family is None:
        return (
            accuracy.others.spread,
            f"u, spread of other devices: `{name}` has no measured runs and no family",
        )
    return family.spread, f"u, spread of the device family: `{name}` has no measured runs"


def _interval(
    name: str,
    value: Real,
    unit: str,
    accuracy: Accuracy,
    found: ObservedErrors,
    spread: tuple[Real, str] | None,
    note: str,
) -> Interval:
    symbol, source = "T" if name == "step_time" else "M", f"{_source(found)}{note}"
    symbols: dict[str, Any] = {symbol: (value, unit)}
    low, high = f"{symbol} low", f"{symbol} high"
    if spread is not None:
        symbols["u"] = spread[0]
        low = f"{symbol} exp(-sqrt(ln(low)^2 + ln(1 + u)^2))"
        high = f"{symbol} exp(sqrt(ln(high)^2 + ln(1 + u)^2))"
        source += f"; {spread[1]}"
    return Interval(
        name=name,
        low=formula(low, symbols, low=found.low, source=source),
        high=formula(high, symbols, high=found.high, source=source),
        coverage=accuracy.coverage,
        basis=_basis(found, spread, note) if name == "step_time" else "",
    )


def _basis(found: ObservedErrors, spread: tuple[Real, str] | None, note: str) -> str:
    """Return the sources of an interval of the step time, as text."""
    if is_array(found.low, found.high):
        return ""
    kind = {"any": "", "dense": "dense ", "experts": "MoE "}[found.model]
    models = "model" if found.models == 1 else "models"
    of = ", ".join(filter(None, (found.family, found.framework)))
    wider = "" if spread is None else "; interval widened: no runs on this device"
    return (
        f"{found.low:.2f}-{found.high:.2f} x the prediction, from {found.runs:,.0f} runs of "
        f"{found.models:,.0f} {kind}{models}{f' ({of})' if of else ''}{wider}{note}"
    )


def _source(found: ObservedErrors) -> str:
    """Return a description of the runs in *found*."""
    kind = {"any": "", "dense": "dense", "experts": "MoE"}[found.model]
    said = ", ".join(filter(None, (kind, found.family, found.framework)))
    models = "model" if found.models == 1 else "models"
    runs = f"measured / predicted of {found.runs:,} runs of {found.models:,} {models}"
    return f"{runs}: {said}" if said else runs
