"""Anchors in a report: step time and memory, corrected by measured runs of the job.

Uncorrected predictions are printed next to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from parcost import (
    Figure,
    Formula,
    Interval,
    Outcome,
    Real,
    Section,
    Study,
    formula,
    hookimpl,
    percent,
)
from parcost.numeric import exp, maximum, minimum
from parcost_plugins.physics.anchor_causes import STEP_PARTS, CauseFactors, step_parts
from parcost_plugins.physics.anchoring import (
    Anchoring,
    Comparison,
    find_anchoring,
    job_spread,
)
from parcost_plugins.physics.memory_counters import allocated_memory, reserved_memory
from parcost_plugins.vocabulary import Training

STEP, RESERVED, ALLOCATED = "anchored_step_time", "anchored_reserved", "anchored_allocated"
_SOURCE = "shrinkage by the spread of the open runs between and within jobs"


def anchored_figures(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the step time and the memory, corrected by the anchors."""
    found = study.query(find_anchoring)
    if found is None:
        return
    yield Figure(
        name=STEP,
        column=1,
        title="anchored step time",
        value=_anchored_seconds(found, outcome),
        unit="s",
        note=_weight_note(found),
        brief=_weight_note(found),
    )
    for name, offset, shown in (
        (RESERVED, found.reserved, reserved_memory(study, outcome)),
        (ALLOCATED, found.allocated, allocated_memory(outcome)),
    ):
        if offset is not None:
            yield Figure(
                name=name,
                title=name.replace("_", " "),
                value=formula(
                    "M + d",
                    {"M": (shown, "B"), "d": (offset, "B")},
                    source="d, measured - predicted memory of the anchors, mean over layouts",
                ),
                unit="GiB",
                brief=f"{offset / 2**30:+.3g} GiB on the predicted memory",
            )


def _anchored_seconds(found: Anchoring, outcome: Outcome) -> Formula:
    """Return the step time with one correction factor, or with a factor per cause."""
    step = found.step
    if found.causes is None:
        return formula(
            "T exp(w r)",
            {"T": (outcome.step_formula, "s"), "r": step.mean, "w": step.weight},
            source=f"r, mean ln(measured / predicted), {step.layouts} measured; w, {_SOURCE}",
        )
    symbols: dict[str, Any] = {}
    for name, seconds in step_parts(outcome).items():
        symbols[f"f_{name}"] = found.causes.factors[name]
        symbols[name] = (seconds, "s")
    return formula(
        " + ".join(f"f_{name} {name}" for name in STEP_PARTS),
        symbols,
        source=f"factors by cause of {step.layouts} measured layouts, by ridge regression",
    )


def _ends_of_anchors(found: Anchoring, causes: CauseFactors) -> tuple[float, float]:
    """Return the smallest and the largest ratio measured / predicted of the anchors.

    The predictions are corrected by the factors.
    """
    ratios = [
        one.seconds / float(causes.seconds(one.parts))
        for one in found.compared
        if one.seconds is not None and not one.reason
    ]
    return min(ratios), max(ratios)


@hookimpl
def figures(study: Study, outcome: Outcome) -> Iterator[Interval]:
    """Yield the interval of the step time, given the measured runs."""
    found = study.query(find_anchoring)
    if found is None or not found.step.layouts:
        return
    jobs = job_spread(study[Training])
    margin = 0.0 if jobs is None else float(jobs.margin)
    symbols = {"T": (outcome.step_formula, "s")}
    source = f"{_SOURCE}; it contains every anchor"
    low: Real
    high: Real
    if found.causes is None:
        low, high = found.step.ends(margin)
    else:
        parts = step_parts(outcome)
        reach = margin * found.causes.deviation(parts)
        factor = found.causes.seconds(parts) / outcome.step_seconds
        least, most = _ends_of_anchors(found, found.causes)
        low = minimum(factor * exp(-1.0 * reach), factor * least)
        high = maximum(factor * exp(reach), factor * most)
    yield Interval(
        name=STEP,
        low=formula("T low", symbols, low=low, source=source),
        high=formula("T high", symbols, high=high, source=source),
        coverage=study[Training].accuracy.coverage,
    )


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:  # noqa: ARG001
    """Yield the table of anchors: measured and predicted values, and whether each is used."""
    found = study.query(find_anchoring)
    if found is None:
        return
    memory = [
        name
        for name in ("reserved", "allocated")
        if any(getattr(one, name) is not None for one in found.compared)
    ]
    several = found.step.layouts > 1
    yield Section(
        title="Anchors",
        columns=(
            *("anchor", "measured", "predicted", "error"),
            *(("by the others",) if several else ()),
            *memory,
            "counts",
        ),
        rows=[_row(one, found, memory) for one in found.compared],
        notes=[*_notes(found)],
    )


def _row(one: Comparison, found: Anchoring, memory: Sequence[str]) -> tuple[object, ...]:
    several = found.step.layouts > 1
    seconds: list[object] = [""] * (3 + several)
    if one.seconds is not None and one.predicted:
        seconds[:3] = (
            (one.seconds, "s"),
            (one.predicted, "s"),
            percent(one.predicted / one.seconds - 1, signed=True),
        )
    if several and not one.reason and one.layout in found.left_out:
        seconds[3] = percent(found.left_out[one.layout], signed=True)
    offsets = [_offset_text(getattr(one, name)) for name in memory]
    return (one.name, *seconds, *offsets, f"no: {one.reason}" if one.reason else "yes")


def _offset_text(pair: tuple[float, float] | None) -> str:
    """Return measured minus predicted bytes as text, in GiB."""
    return "" if pair is None else f"{(pair[0] - pair[1]) / 2**30:+.3g} GiB"


def _weight_note(found: Anchoring) -> str:
    """Return how many anchors are used, and their weight."""
    given, step = len(found.compared), found.step
    if not step.layouts:
        reason = next((one.reason for one in found.compared if one.reason), "no step time measured")
        return f"not used: {reason}"
    runs = f"{found.count} run{'s' * (found.count > 1)}"
    repeats = f" of {step.layouts} layouts" if found.count > step.layouts else ""
    more = f", {given - found.count} left out" if given > found.count else ""
    how = " by cause" if found.causes is not None else ""
    return f"anchored on {runs}{repeats}{more}{how}, w = {step.weight:.2f}"


def _notes(found: Anchoring) -> Iterator[str]:
    step = found.step
    if found.causes is not None:
        factors = ", ".join(f"{name} x {f:.3f}" for name, f in found.causes.factors.items())
        yield f"corrected by cause, which predicts each layout better from the others: {factors}"
    elif step.layouts:
        yield (
            f"w = {step.weight:.2f}: measured / predicted of other layouts is exp(w r) = "
            f"{exp(step.shift):.3f}, r = {step.mean:+.3f} of {step.layouts} measured; standard "
            f"deviation {percent(step.deviation)}"
        )
    if any(one.reason for one in found.compared):
        yield "anchors that are not used have weight 0"
