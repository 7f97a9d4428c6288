"""Anchors in a report: the step and the memory as measured runs of the job correct them.

What the catalogue predicts stays as it is, and stands beside what is anchored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp

from parcost import Figure, Formula, Interval, Outcome, Section, Study, formula, hookimpl
from parcost_plugins.analysis.anchors.evaluation import Anchoring, Comparison, anchoring, job_spread
from parcost_plugins.vocabulary import Training
from parcost_plugins.vocabulary.causes import FRAGMENTATION, OUTSIDE

STEP, RESERVED, ALLOCATED = "anchored_step_time", "anchored_reserved", "anchored_allocated"
_SOURCE = "shrinkage by the spread of the open runs between and within jobs"


def anchored(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the step time and the memory as the anchors correct them."""
    found = study.query(anchoring)
    if found is None:
        return
    step = found.step
    yield Figure(
        name=STEP,
        title="anchored step time",
        value=formula(
            "T exp(w r)",
            {"T": (outcome.step_formula, "s"), "r": step.mean, "w": step.weight},
            source=f"r, mean ln(measured / predicted), {step.layouts} measured; w, {_SOURCE}",
        ),
        unit="s",
        note=_note(found),
        brief=_note(found),
    )
    for name, offset, left in (
        (RESERVED, found.reserved, (OUTSIDE,)),
        (ALLOCATED, found.allocated, (OUTSIDE, FRAGMENTATION)),
    ):
        if offset is not None:
            yield Figure(
                name=name,
                title=f"anchored {name.removeprefix('anchored_')} memory",
                value=formula(
                    "M + d",
                    {"M": (_without(outcome, left), "B"), "d": (offset, "B")},
                    source="d, measured - predicted memory of the anchors, mean over layouts",
                ),
                unit="GiB",
                brief=f"{offset / 2**30:+.3g} GiB on the prediction",
            )


@hookimpl
def intervals(study: Study, outcome: Outcome) -> Iterator[Interval]:
    """Yield where the step time lies by what was measured of the job."""
    found = study.query(anchoring)
    if found is None or not found.step.layouts:
        return
    jobs = job_spread(study[Training])
    low, high = found.step.ends(0.0 if jobs is None else float(jobs.margin))
    letters = {"T": (outcome.step_formula, "s")}
    source = f"{_SOURCE}; it holds every anchor"
    yield Interval(
        name=STEP,
        low=formula("T low", letters, low=low, source=source),
        high=formula("T high", letters, high=high, source=source),
        coverage=study[Training].accuracy.coverage,
    )


@hookimpl
def sections(study: Study, outcome: Outcome) -> Iterator[Section]:  # noqa: ARG001
    """List the anchors: what was measured, what is predicted, and whether each counts."""
    found = study.query(anchoring)
    if found is None:
        return
    memory = [
        name
        for name in ("reserved", "allocated")
        if any(getattr(one, name) is not None for one in found.compared)
    ]
    yield Section(
        title="Anchors",
        columns=("anchor", "measured", "predicted", "ratio", *memory, "counts"),
        rows=[_row(one, memory) for one in found.compared],
        notes=[*_notes(found)],
    )


def _row(one: Comparison, memory: Sequence[str]) -> tuple[object, ...]:
    seconds: tuple[object, ...] = ("", "", "")
    if one.seconds is not None and one.predicted:
        ratio = round(one.seconds / one.predicted, 3)
        seconds = ((one.seconds, "s"), (one.predicted, "s"), ratio)
    offsets = [_offset_text(getattr(one, name)) for name in memory]
    return (one.name, *seconds, *offsets, f"no: {one.reason}" if one.reason else "yes")


def _offset_text(pair: tuple[float, float] | None) -> str:
    """Return measured minus predicted bytes."""
    return "" if pair is None else f"{(pair[0] - pair[1]) / 2**30:+.3g} GiB"


def _note(found: Anchoring) -> str:
    """Return how many anchors count, and how far they are believed."""
    given, step = len(found.compared), found.step
    if not step.layouts:
        reason = next((one.reason for one in found.compared if one.reason), "no step time measured")
        return f"w = 0: {reason}"
    runs = f"{found.used} run{'s' * (found.used > 1)}"
    repeats = f" of {step.layouts} layouts" if found.used > step.layouts else ""
    more = f", {given - found.used} left out" if given > found.used else ""
    return f"anchored on {runs}{repeats}{more}, w = {step.weight:.2f}"


def _notes(found: Anchoring) -> Iterator[str]:
    step = found.step
    if step.layouts:
        yield (
            f"w = {step.weight:.2f}: measured / predicted of other layouts is exp(w r) = "
            f"{exp(step.shift):.3f}, r = {step.mean:+.3f} of {step.layouts} measured; standard "
            f"deviation {step.deviation:.1%}"
        )
    if any(one.reason for one in found.compared):
        yield "an anchor that does not count weighs nothing"


def _without(outcome: Outcome, tags: tuple[str, ...]) -> Formula:
    """Return the memory of the fullest device without the terms of these tags."""
    lost = {line.name: line.bytes_ for line in outcome.memory_lines if line.term.tag in tags}
    return formula(
        "M - sum(o)" if lost else "M",
        {"M": (outcome.memory_bytes, "B"), **({"o": (lost, "B")} if lost else {})},
        source="what the allocator holds",
    )
