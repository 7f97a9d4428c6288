"""The head and the loss, with the vocabulary split over the tensor-parallel ranks.

A tied head shares the embedding's matrix. If the first and the last pipeline stage are on different
devices, the last one holds a copy. The copy is trained like any other matrix. Every layer that
predicts a further token runs the head, and the loss, once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Study, hookimpl
from parcost.numeric import maximum
from parcost_plugins.model.elementwise import FP32, LOSS, elementwise
from parcost_plugins.model.passes import SPLIT, linear, single_run
from parcost_plugins.model.rank import UNTIL_LAYERS, rank_of
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Stream, on_last
from parcost_plugins.vocabulary.causes import ACTIVATIONS
from parcost_plugins.vocabulary.operators import ENDS, HEAD_COLUMNS
from parcost_plugins.vocabulary.partition import ends_share_device


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
    """Return the head's products, and the cross entropy."""
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
        trained=rank.trained,
    )
    yield from elementwise(
        "cross entropy",
        LOSS[rank.fusion.loss],
        rank.tokens * rank.vocabulary,
        rank.element,
        span,
        times=rank.training.loss_chunks,
    )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the head's input, and the logits on their way to the loss and back.

    One of three tensors is saved for backward: an fp32 softmax, which the gradient overwrites; the
    logits, beside which a fused kernel computes the gradient; or the gradient, in place of the
    logits. An unfused loss has two more fp32 tensors in backward: the gradients of loss and of
    log-softmax. On a share of the vocabulary it also has an exponential. In forward it has the
    logits, which take no more. A loss in chunks computes the gradient of each chunk at once, in
    place of the head's input. It saves nothing else. All of it is freed before the backward pass of
    the layers.
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
