"""The dimensions of a layout: the split tensors, and the fabric level of the ranks.

The traffic of a dimension follows from the tensors that it splits. Tensor, context and expert
parallel ranks exchange activations within every layer, on the critical path; latency and bandwidth
both matter. Data parallel ranks exchange gradients once per step, which is much data but can be
overlapped. Pipeline stages send one activation at a time, point to point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from parcost import Group, Section, Study
from parcost.numeric import all_of
from parcost_plugins.physics.run_choices import reduces_each_micro_batch
from parcost_plugins.vocabulary import Cluster, Layout


class _ParallelDimension(NamedTuple):
    attribute: str
    title: str
    splits: str
    spares: str
    burden: str


_DIMENSIONS = (
    _ParallelDimension(
        "tp", "tensor", "matrices of a layer", "weights, activations", "all-reduces in every layer"
    ),
    _ParallelDimension(
        "cp", "context", "the sequence", "activations", "keys and values in every layer"
    ),
    _ParallelDimension(
        "ep", "expert", "the experts", "expert weights", "tokens to all ranks in every MoE layer"
    ),
    _ParallelDimension(
        "pp", "pipeline", "the layers", "weights, in stages", "one activation, to one peer"
    ),
    _ParallelDimension(
        "dp",
        "data",
        "the batch",
        "nothing, or state by ZeRO",
        "gradients once per step, can overlap",
    ),
)


def section(study: Study) -> Iterator[Section]:
    """Yield one row for each dimension with a degree above 1."""
    layout = study[Layout]
    used = [d for d in _DIMENSIONS if not all_of(getattr(layout, d.attribute) == 1)]
    if not used:
        return
    rows = [
        (
            f"{d.title} ({d.attribute})",
            getattr(layout, d.attribute),
            d.splits,
            _memory_savings(d, layout),
            _level_names(study.group(d.attribute), study),
            _communication_text(d, study),
        )
        for d in used
    ]
    yield Section(
        title="Parallelism in use",
        columns=("dimension", "degree", "splits", "saves", "level", "exchanges"),
        rows=rows,
    )


def _memory_savings(dimension: _ParallelDimension, layout: Layout) -> str:
    if dimension.attribute != "dp":
        return dimension.spares
    return (
        "nothing",
        "optimizer state",
        "optimizer state, gradients",
        "optimizer state, gradients, weights",
    )[layout.zero]


def _communication_text(dimension: _ParallelDimension, study: Study) -> str:
    """Return the communication of a dimension and its frequency, as text."""
    layout = study[Layout]
    if dimension.attribute == "tp" and layout.sequence_parallel:
        return "all-gathers and reduce-scatters in every layer"
    if dimension.attribute != "dp" or not layout.zero:
        return dimension.burden
    often = "micro-batch" if layout.zero > 1 and reduces_each_micro_batch(study) else "step"
    if layout.zero == 3:
        return f"parameters in every pass, gradients once per {often}, can overlap"
    return f"gradients once per {often}, parameters once per step, can overlap"


def _level_names(group: Group, study: Study) -> str:
    """Return the levels of the fabric that the group crosses."""
    crossed = [
        link.name
        for link, members in zip(group.links, group.shape, strict=True)
        if not all_of(members <= 1)
    ]
    return " and ".join(crossed) or _first_level(study[Cluster].fabric.levels)


def _first_level(levels: Sequence[Any]) -> str:
    name: str = levels[0].label
    return name
