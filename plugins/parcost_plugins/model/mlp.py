"""The MLP of a dense layer: two matrices with an activation between them; three if gated."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Study, hookimpl, occurs, sum_counts
from parcost_plugins.model.norms import input_casts
from parcost_plugins.model.rank import KEPT, SAVED, Rank, rank_of
from parcost_plugins.physics.elementwise import (
    ADDED,
    APART,
    GATED,
    PLAIN,
    SQUARED_RELU,
    SUMMED,
    Passes,
    elementwise,
    traffic_stream,
)
from parcost_plugins.physics.passes import SPLIT, linear
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Stream
from parcost_plugins.vocabulary.operators import ATTENTION_COLUMNS, MLP_COLUMNS, MLP_ROWS


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the matrices and their biases."""
    rank = rank_of(study)
    h, f, ups, count = (
        rank.model.hidden,
        rank.model.ffn,
        _count_of_up_matrices(rank),
        rank.dense.count,
    )
    if rank.model.is_nominal or not occurs(count):
        return
    yield Parameters(
        name=_up_name(rank),
        elements=ups * h * rank.ffn,
        total=ups * h * f,
        count=count,
        linear=True,
        matrices=float(ups) if rank.fusion.separate_projections else 1.0,
        source=SPLIT,
    )
    yield Parameters(
        name="MLP down projection",
        elements=h * rank.ffn,
        total=h * f,
        count=count,
        linear=True,
        source=SPLIT,
    )
    if rank.model.activation_parameters:
        learned = float(rank.model.activation_parameters)
        yield Parameters(
            name="MLP activation",
            elements=learned,
            total=learned,
            count=count,
            replicated=True,
            source="replicated on every rank",
        )
    if rank.model.has_mlp_biases:
        yield Parameters(
            name=f"{_up_name(rank)} biases",
            elements=ups * rank.ffn,
            total=ups * f,
            count=count,
            matrices=0.0,
            source=SPLIT,
        )
        yield Parameters(
            name="MLP down projection bias",
            elements=h,
            total=h,
            count=count,
            replicated=True,
            source=SPLIT,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter of the matrices."""
    rank = rank_of(study)
    dense = sum_counts(rank.dense.count)
    if rank.model.is_nominal or not dense:
        return
    matrices = (_count_of_up_matrices(rank) + 1) * rank.model.hidden * rank.model.ffn
    yield ModelFlops(
        name="MLP",
        per_token=2 * dense * matrices,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )


def _activation(rank: Rank) -> Passes:
    if rank.model.gated:
        return GATED[rank.fusion.activation]
    return SQUARED_RELU[rank.fusion.squared_relu] if rank.model.squared_relu else PLAIN


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the GEMMs and the activation between them."""
    rank = rank_of(study)
    h, ups, span, tokens = rank.model.hidden, _count_of_up_matrices(rank), rank.dense, rank.tokens
    if rank.model.is_nominal or not occurs(span.count):
        return
    span = span.rerun_all(rank.recompute.mlp)
    # With a parallel residual, one collective serves attention and MLP,
    # so there is no second pair.
    alone = not rank.model.parallel_residual
    columns, rows = (MLP_COLUMNS, MLP_ROWS) if alone else (ATTENTION_COLUMNS, "")
    made = [part for part in _parts(rank) if not rank.keeps(part)]
    yield from linear(
        _up_name(rank),
        tokens,
        ups * rank.ffn,
        h,
        span.rerun_none(not made),
        host=columns,
        again=len(made) * rank.ffn,
        trained=rank.trains_model,
    )
    products = ups if rank.fusion.separate_projections else 1
    yield from input_casts(rank, _up_name(rank), products, span.rerun_none(not made))
    yield from elementwise(
        "MLP activation",
        _activation(rank),
        tokens * rank.ffn,
        rank.element,
        span.rerun_all(rank.recompute.activation),
    )
    last = span.rerun_none(not rank.reruns_down)
    yield from linear(
        "MLP down projection", tokens, h, rank.ffn, last, host=rows, trained=rank.trains_model
    )
    if rank.fusion.separate_projections and rank.model.gated:
        yield traffic_stream(
            "sum of the gradients of gate and up",
            ADDED,
            tokens * h,
            rank.residual_element,
            "B",
            span.count,
        )
    if rank.model.has_mlp_biases and rank.trains_model:
        outputs = tokens * ups * rank.ffn + rank.residual_elements
        yield traffic_stream(
            "MLP bias gradients", SUMMED, outputs, rank.element, "B", span.count, times=2
        )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return tensors saved for backward: the inputs of both GEMMs and of the activation."""
    rank = rank_of(study)
    span = rank.dense
    if rank.model.is_nominal or not occurs(span.count):
        return
    if rank.keeps_input("gate", "up"):
        again = rank.recompute.norms or rank.recomputes_outputs
        yield from rank.saved_input("MLP input", span.rerun_all(again), "gate", "up")
    norms = span.rerun_all(rank.recompute.norms or rank.recomputes_outputs)
    yield from rank.frozen_norm_output("MLP norm output", norms, "gate", "up")
    span = span.rerun_all(rank.recompute.mlp)
    kept = [part for part in _parts(rank) if rank.keeps(part)]
    made = [part for part in _parts(rank) if not rank.keeps(part)]
    for parts, where_ in ((kept, span.rerun_none()), (made, span)):
        if parts:
            yield from rank.saved_tensor(
                f"MLP {' and '.join(parts)}",
                "2 s b f e / t" if len(parts) == 2 else "s b f e / t",
                where_,
                source=KEPT if rank.model.gated else SAVED,
            )
    if rank.keeps("down"):
        yield from rank.saved_tensor(
            "MLP output",
            f"{rank.residual_text} e",
            span.rerun_none(),
            source=KEPT,
        )
    if rank.model.gated and rank.fusion.activation in APART:
        yield from rank.saved_tensor(
            "activated gate",
            "s b f e / t",
            span.rerun_all(rank.recompute.activation or rank.recomputes_outputs),
            source=KEPT,
        )
    if rank.keeps_input("down"):
        yield from rank.saved_tensor(
            "MLP activation",
            "s b f q / t",
            span.rerun_all(rank.recompute.activation or rank.recomputes_outputs),
        )


def _parts(rank: Rank) -> tuple[str, ...]:
    """Return the inputs of the activation."""
    return ("gate", "up") if rank.model.gated else ("up",)


def _count_of_up_matrices(rank: Rank) -> int:
    """Return the number of up projections of the MLP: 2 if gated, else 1."""
    return 2 if rank.model.gated else 1


def _up_name(rank: Rank) -> str:
    return "MLP gate and up projection" if rank.model.gated else "MLP up projection"
