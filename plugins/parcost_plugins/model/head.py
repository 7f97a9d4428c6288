"""The head and the loss, with the vocabulary split over the tensor-parallel ranks.

A tied head shares the embedding's matrix. If the first and the last pipeline stage are on different
devices, the last one holds a copy. The copy is trained like any other matrix. Every MTP layer runs
the head and the loss once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Study, hookimpl
from parcost.numeric import any_of, maximum
from parcost_plugins.model.norms import input_casts
from parcost_plugins.model.rank import UNTIL_LAYERS, Rank, rank_of
from parcost_plugins.physics import on_last
from parcost_plugins.physics.elementwise import FP32, LOSS, METRIC, elementwise, traffic_stream
from parcost_plugins.physics.partition import ends_share_device
from parcost_plugins.physics.passes import SPLIT, linear, single_run
from parcost_plugins.physics.run_choices import (
    freed_by_loss,
    gradient_shards,
    shards_gradients,
    shards_weights,
)
from parcost_plugins.physics.stage_parameters import spread
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Stream
from parcost_plugins.vocabulary.causes import ACTIVATIONS, BUFFERS
from parcost_plugins.vocabulary.operators import ENDS, HEAD_COLUMNS


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the parameters of the head, or of the last stage's copy of a tied embedding."""
    rank = rank_of(study)
    model, tied, count = rank.model, rank.model.tied, on_last(study)
    if model.is_nominal:
        return
    if not tied or not study.query(ends_share_device):
        yield Parameters(
            name="head, shared with the embedding" if tied else "head",
            elements=rank.vocabulary * model.hidden,
            total=0.0 if tied else model.vocabulary * model.hidden,
            count=count,
            place="after",
            source=SPLIT,
        )
    if model.head_bias:
        yield Parameters(
            name="head bias",
            elements=rank.vocabulary,
            total=model.vocabulary,
            count=count,
            place="after",
            source=SPLIT,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter, tied or not, without vocabulary padding."""
    rank = rank_of(study)
    model = rank.model
    if model.is_nominal:
        return
    runs = 1 + model.prediction_layers
    yield ModelFlops(
        name="head",
        per_token=2 * runs * model.hidden * model.vocabulary,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the head's GEMMs, and the cross entropy, also as a metric of the trainer."""
    rank = rank_of(study)
    if rank.model.is_nominal:
        return
    span = single_run(on_last(study)).times(1 + rank.model.prediction_layers)
    yield from linear(
        "head",
        rank.tokens,
        rank.vocabulary,
        rank.model.hidden,
        span,
        role="head",
        host=HEAD_COLUMNS,
        trained=rank.trains_model,
    )
    yield from input_casts(rank, "head", 1, span)
    yield from elementwise(
        "cross entropy",
        LOSS[rank.fusion.loss],
        rank.tokens * rank.vocabulary,
        rank.element,
        span,
        times=rank.training.loss_chunks,
    )
    metrics = rank.training.framework.loss_metrics
    if any_of(metrics > 0):
        logits = metrics * rank.tokens * rank.vocabulary
        yield traffic_stream(
            "cross entropy as metrics",
            METRIC,
            logits,
            rank.element,
            "B",
            on_last(study),
            times=metrics,
        )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the head's input, the logits, and the tensors of the loss.

    One of three tensors is saved for backward: an fp32 softmax, which the gradient overwrites; the
    logits; or the gradient, which replaces the logits. An unfused loss has two more fp32 tensors in
    backward: the gradients of the loss and of log-softmax. With a sharded vocabulary it also has an
    exponential. In forward it holds the logits, which are not larger. The softmax may be a separate
    tensor from the fp32 copy of the logits. A chunked loss computes the gradient of the head's
    input immediately, in the memory of the input. It saves nothing else. All tensors are freed
    before the backward pass of the layers, except logits that the pipeline engine keeps.
    """
    rank = rank_of(study)
    if rank.model.is_nominal:
        return
    e, chunks = rank.element, rank.training.loss_chunks
    loss = rank.fusion.loss
    runs = single_run(on_last(study)).times(1 + rank.model.prediction_layers).count
    if chunks > 1 or rank.keeps_input("head"):
        residual = rank.formula(f"{rank.residual_text} e")
        yield rank.kept_memory("head input", residual, runs, moments=UNTIL_LAYERS, tag=ENDS)
    narrow, wide = "s b V e / t", "4 s b V / t"
    passing: list[tuple[str, str]] = []
    if chunks > 1:
        passing = [("logits", narrow)]
        if loss in ("eager", "softmax"):
            passing.append(("loss softmax", wide))
    elif loss in ("eager", "softmax"):
        # The logits' gradient, which the head's weight gradient needs, is narrower.
        freed, softmax = maximum(1.0 - e / FP32, 0.0), rank.formula(wide)
        yield rank.kept_memory(
            "loss softmax", softmax, runs, freed=freed, moments=UNTIL_LAYERS, tag=ENDS
        )
        passing = [("logits gradient", narrow)]
        if loss == "eager":
            rest = "t > 1 ? (12 - e) s b V / t : max(8 - e, 0) s b V"
            passing.append(("gradients of the loss in fp32", rest))
    else:
        held = rank.formula(narrow)
        yield rank.kept_memory(f"loss {loss}", held, runs, moments=UNTIL_LAYERS, tag=ENDS)
        if loss == "logits":
            passing = [("logits gradient", narrow)]
    for name, text in passing:
        yield Memory(
            name=name,
            cause=ACTIVATIONS,
            bytes_=rank.formula(f"{text} / m", {"m": float(chunks)})
            if chunks > 1
            else rank.formula(text),
            count=on_last(study),
            moments=("loss",),
        )
    if loss == "eager" and chunks == 1:
        yield _block_of_logits(rank, study)
    yield from _logits_in_fp32(rank, study)
    if rank.trains_model and shards_weights(study):
        yield _whole_gradient(rank, study)


def _block_of_logits(rank: Rank, study: Study) -> Memory:
    """Return the block of the freed logits, which the allocator keeps reserved."""
    return Memory(
        name="block of the freed logits",
        cause=BUFFERS,
        bytes_=rank.formula(
            "e < 4 ? s b V e / t : 0",
            source="PyTorch's caching allocator: the fp32 gradient of the log-softmax fits "
            "into no block that narrow logits leave",
        ),
        count=on_last(study),
        moments=(),
        cached=("loss",),
    )


def _logits_in_fp32(rank: Rank, study: Study) -> Iterator[Memory]:
    """Yield the fp32 logits that DeepSpeed's pipeline engine keeps, or those in addition to a
    softmax.

    The engine does not support ZeRO 2 and 3.
    """
    framework = rank.training.framework
    if any_of(framework.kept_logits != 0) and not shards_gradients(study):
        yield Memory(
            name="logits kept by the pipeline engine",
            cause=ACTIVATIONS,
            bytes_=rank.formula(
                "4 k s b V / t, of k micro-batches",
                {"k": framework.kept_logits},
                source="DeepSpeed, runtime/pipe/engine.py: the last stage overwrites its outputs",
            ),
            count=on_last(study),
        )
    elif rank.fusion.loss == "softmax" and not framework.softmax_in_place:
        yield Memory(
            name="logits beside the softmax",
            cause=ACTIVATIONS,
            bytes_=rank.formula("(4 + e) s b V / t", source="as they are, and in fp32"),
            count=on_last(study),
            moments=("forward",),
        )


def _whole_gradient(rank: Rank, study: Study) -> Memory:
    """Return the head's gradient before it is sharded, minus memory that the loss frees earlier."""
    precision = rank.training.precision
    by_matrix = rank.training.framework.reduces_by_matrix
    return Memory(
        name="whole gradient of the head",
        cause=BUFFERS,
        bytes_=rank.formula(
            "N > 1 ? max(V h w / t - f s b V / t, 0) : 0, over N ranks; f B for a logit were freed",
            {
                "N": gradient_shards(study, spread(study)[2]),
                "w": (precision.reduction if by_matrix else precision.wide_gather, "B"),
                "f": (freed_by_loss(study), "B"),
            },
            source="autograd: gradients of the loss, of the logits, of the head",
        ),
        count=on_last(study),
        moments=("loss",),
    )
