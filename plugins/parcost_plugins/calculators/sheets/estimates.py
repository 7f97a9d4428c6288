"""A back-of-envelope step: busy time, an all-reduce and a bubble, added without overlap.

Many publications estimate training this way. Attributes choose the conventions, such as the
gradient reduction or the base of the bubble share. It is no prediction, which needs a model, a
machine and a layout.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, Sheet, Study, block_name
from parcost_plugins.calculators.rulebook import RULES
from parcost_plugins.calculators.sheets.estimate_parts import parts_of
from parcost_plugins.calculators.sheets.estimate_ridge import ridges
from parcost_plugins.vocabulary import Estimate


def estimates(study: Study) -> Iterator[Figure | Check]:
    """Yield the figures of every ``estimate`` block, or errors for missing inputs."""
    for estimate in study.all(Estimate):
        lacking = list(_missing_inputs(estimate))
        yield from lacking
        if lacking:
            continue
        sheet = parts_of(estimate, study)
        yield from _work(estimate, sheet)
        yield from _traffic(estimate, sheet)
        yield from _seconds(sheet)
        yield from _shares(sheet)
        yield from _rates(estimate, sheet)
        yield from ridges(estimate, sheet)
        baseline = estimate.baseline
        if baseline is not None and not list(_missing_inputs(baseline)):
            yield from _comparison(sheet, parts_of(baseline, study))


def _work(e: Estimate, sheet: Sheet) -> Iterator[Figure]:
    """Yield the busy time of a device, from the inputs that are given."""
    if e.peak is not None:
        yield sheet("compute", "model FLOPs at the utilised peak", "s", "compute")
    if e.stream is not None:
        yield sheet(
            "streaming",
            "transfer time of the weights",
            "s",
            "streaming",
            note="offloaded weights; excludes compute",
        )
    yield sheet("busy", "busy time", "s", "busy")


def _traffic(e: Estimate, sheet: Sheet) -> Iterator[Figure]:
    """Yield the communication, from the bandwidths that are given."""
    if e.outer is not None and e.message is None:
        yield sheet("gradients", "all-reduce of the gradients", "s", "gradients")
    if e.inner is not None:
        yield sheet("tensor", "all-reduces of tensor parallelism", "s", "tensor")
    if e.message is not None:
        yield sheet("sent", "bytes sent in all messages", "GB", "k n")


def _seconds(sheet: Sheet) -> Iterator[Figure]:
    yield sheet("communication", "communication", "s", "communication")
    yield sheet("idle", "pipeline idle time", "s", "idle")
    yield sheet("step_time", "step time", "s", "T")
    yield sheet(
        "hideable",
        "communication that can overlap with busy time",
        "s",
        "min(communication, busy)",
    )


def _shares(sheet: Sheet) -> Iterator[Figure]:
    yield sheet("overhead", "communication / busy time", "%", "ratio(communication, busy)")
    yield sheet("communication_share", "communication / step time", "%", "ratio(communication, T)")
    yield sheet(
        "bubble",
        "bubble share",
        "%",
        "(p - 1) / (m + p - 1)",
        note="of the step without communication",
    )
    yield sheet("efficiency", "scaling efficiency", "%", "efficiency")


def _rates(e: Estimate, sheet: Sheet) -> Iterator[Figure]:
    sheet.symbols["D"] = e.devices
    yield sheet("samples_per_second", "samples per second", "", "ratio(batch, T)")
    yield sheet("equivalent_devices", "equivalent devices without overhead", "", "D efficiency")
    yield sheet("lost_devices", "devices lost to overhead", "", "D (1 - efficiency)")


def _comparison(now: Sheet, before: Sheet) -> Iterator[Figure]:
    yield now(
        "efficiency_gain",
        "gain in scaling efficiency, in points",
        "%",
        "efficiency - before, before is the efficiency of the baseline",
        before=before.symbols["efficiency"],
    )
    yield now(
        "speedup",
        "speed-up over the baseline",
        "",
        "ratio(before, T), before is the step time of the baseline",
        before=before.symbols["T"],
    )


def _missing_inputs(e: Estimate) -> Iterator[Check]:
    """Yield an error for each missing input."""
    yield from (
        RULES.check("estimate-compute", False, f"{block_name(e)}.compute")
        for _ in range(_is_empty(e))
    )
    yield from (
        RULES.check("estimate-inner", False, f"{block_name(e)}.reduction", reduction=e.reduction)
        for _ in range(e.reduction != "flat" and e.outer is not None and e.inner is None)
    )


def _is_empty(e: Estimate) -> bool:
    said = (e.compute, e.parameters, e.message, e.message_time, e.communication)
    return all(value is None for value in said)
