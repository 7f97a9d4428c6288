"""Tensor parallelism: communication among the ranks that share each layer.

A layer has two pairs of GEMMs; in each, the first is split by columns and the second by rows. After
a pair the ranks add up their outputs; in backward they do so before it.

- Without sequence parallelism this is an all-reduce of the residual stream.
- With sequence parallelism it is a reduce-scatter after a pair and an all-gather before it, in both
  passes. Inputs that are saved as shards are gathered again for the weight gradient, while the
  input gradient is computed.

Before latent attention the compressed tensors are gathered, and their gradients added up: each rank
projects its own tokens down, and all tokens up.

``overlap.tensor`` chooses the overlap. ``weight_gradients``: a reduction in backward overlaps with
the weight-gradient GEMM of the same layer. There is no overlap if the schedule defers weight
gradients, because the previous stage waits for the reduction. ``pipelined``: each GEMM runs in
chunks, which overlap with its communication. ``split_batch``: all communication overlaps with the
other half of the micro-batch.

The ``host`` names of GEMMs identify the pairs of a stage. A layer without a pair, such as experts,
has no communication here. Inputs of frozen weights are not gathered again. ``adapters`` has the
messages of adapters.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import mul

from parcost import (
    Check,
    Figure,
    Once,
    Outcome,
    Rulebook,
    Section,
    Study,
    Work,
    block,
    hookimpl,
    map_counts,
    occurs,
    switch,
)
from parcost_plugins.parallelism.tensor import adapters, figures, norms, rules
from parcost_plugins.parallelism.tensor.chunks import chunk_losses, split_losses
from parcost_plugins.parallelism.tensor.group import TensorGroup, tensor_group
from parcost_plugins.parallelism.tensor.layer_collectives import (
    SAVED_INPUT,
    LayerRow,
    messages,
    pairs,
    rows_of,
)
from parcost_plugins.parallelism.tensor.rulebook import RULES
from parcost_plugins.parallelism.tensor.weight_gradients import defers_weight_gradients
from parcost_plugins.physics import on_first, on_last
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.run_choices import tensor_overlap
from parcost_plugins.vocabulary import Layout, Training
from parcost_plugins.vocabulary.operators import HEAD_COLUMNS

LOSS_SUMS = 3  # the greatest logit, the target's, and the sum of the exponentials


@block("tensor_parallel", label="none")
class TensorParallel:
    """The tensor-parallel collectives to estimate, and the details to show."""

    ends: bool = switch(
        default=True,
        doc="include the embedding, the head, the loss and the norms, besides the layers",
    )
    saved_inputs: bool = switch(
        default=True,
        doc="estimate the gather of inputs saved as shards, which one GEMM can hide; "
        "otherwise it is assumed to be hidden",
    )
    shapes: bool = switch(
        default=False, doc="the report lists the matrices that one rank multiplies by"
    )


@hookimpl
def blocks() -> list[type]:
    """Return the block of tensor-parallel options."""
    return [TensorParallel]


@hookimpl
def terms(study: Study) -> Iterator[Work | Once]:
    """Estimate the collectives of the layers and, unless excluded, of embedding, head and norms."""
    layout = study[Layout]
    if isinstance(layout.tp, float) and layout.tp == 1.0:
        return
    chosen, mode = study[TensorParallel], tensor_overlap(study)
    on_wire = tensor_group(study)
    yield from _layers(study, on_wire, mode, saved_inputs=chosen.saved_inputs)
    yield from adapters.collectives(study, on_wire, mode)
    if mode == "pipelined":
        yield from chunk_losses(study)
    elif mode == "split_batch":
        yield from split_losses(study)
    if chosen.ends:
        yield from _ends(study, on_wire, mode)
        yield from norms.gradients(study, on_wire)


def _layers(study: Study, on_wire: TensorGroup, mode: str, *, saved_inputs: bool) -> Iterator[Work]:
    sums_hide = mode in ("on", "weight_gradients", "pipelined")
    sums_hide = sums_hide and not study.query(defers_weight_gradients)
    once = pairs(study, "F")
    again = {"columns": pairs(study, "R", "columns"), "rows": pairs(study, "R")}
    model = study[Training].model
    for row in rows_of(study[Layout]):
        if row is SAVED_INPUT and not (saved_inputs and trains_model(study)):
            continue
        for pass_ in row.passes:
            for message in messages(row, again[row.side] if pass_ == "R" else once, model):
                if not occurs(message.times):
                    continue
                if mode == "split_batch":
                    half = on_wire.estimate(row.operation, message, parts=2.0)
                    at = "B" if pass_ == "W" else pass_
                    yield on_wire.work(message.label(row), at, half, message.times, window="")
                    continue
                cost = on_wire.estimate(row.operation, message)
                if row.part == "sum" and not sums_hide:
                    yield on_wire.work(message.label(row), "B", cost, message.times)
                elif mode == "pipelined" and row.pipelined:
                    for pair, count in message.pairs.items():
                        yield from on_wire.chunk_work(row, message, pass_, pair, count)
                elif row.host:
                    for pair, count in message.pairs.items():
                        name, host = f"{message.label(row)}, {pair}", row.host_of_pair(pair)
                        yield on_wire.work(name, pass_, cost, count, host)
                else:
                    yield on_wire.work(message.label(row), pass_, cost, message.times)


def _ends(study: Study, on_wire: TensorGroup, mode: str) -> Iterator[Work]:
    sums_hide = mode in ("on", "weight_gradients", "pipelined")
    sums_hide = sums_hide and not study.query(defers_weight_gradients)
    counts = {"first": on_first(study), "last": on_last(study)}
    for end in _ENDS_SHARDED if study[Layout].sequence_parallel else _ENDS:
        if end in _OF_WEIGHTS and not trains_model(study):
            continue
        hides = end.part != "sum" or sums_hide
        yield on_wire.work(
            end.name,
            end.passes[0] if hides else "B",
            on_wire.estimate(end.operation),
            counts[end.place],
            HEAD_COLUMNS if hides and end.host else None,
        )
    loss = on_wire.loss()
    yield on_wire.work("loss all-reduce", "F", loss, map_counts(mul, counts["last"], LOSS_SUMS))


_ENDS = (
    LayerRow("embedding all-reduce", "all_reduce", "forward", place="first"),
    LayerRow("head input gradient all-reduce", "all_reduce", "sum", host="head", place="last"),
)
_EMBEDDING_GRADIENT = LayerRow(
    "embedding gradient all-gather", "all_gather", "weights", place="first"
)
_HEAD_INPUT = LayerRow(
    "head saved input all-gather", "all_gather", "backward", host="head", place="last"
)
_OF_WEIGHTS = (_EMBEDDING_GRADIENT, _HEAD_INPUT)  # which frozen weights have no use for
_ENDS_SHARDED = (
    LayerRow("embedding reduce-scatter", "reduce_scatter", "forward", place="first"),
    _EMBEDDING_GRADIENT,
    LayerRow("head all-gather", "all_gather", "forward", place="last"),
    _HEAD_INPUT,
    LayerRow(
        "head input gradient reduce-scatter", "reduce_scatter", "sum", host="head", place="last"
    ),
)


@hookimpl
def checks(study: Study) -> Iterator[Check]:
    """Require that the degree divides heads, MLP and sequence, and that the overlap is possible."""
    yield from rules.divisibility(study)
    yield from rules.overlap(study)


@hookimpl(specname="figures")
def details(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return counts, sizes, volumes and times of tensor parallelism."""
    if not brief:
        yield from figures.traffic(study, outcome)
        yield from figures.shapes(study)


@hookimpl
def sections(study: Study) -> list[Section]:
    """Return the table of matrices on one rank, if requested."""
    return [figures.table(study)] if study[TensorParallel].shapes else []


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
