"""Multi-token prediction (MTP): layers after the last one, each for a token further ahead.

The inputs of such a layer are the residual stream and the embedding of the next known token. A
projection joins them. The layer uses the head of the model, and is on the stage of the head. The
transformer layer itself is counted with the layers of the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Real, Study, hookimpl
from parcost_plugins.model.rank import KEPT, Rank, rank_of
from parcost_plugins.physics import on_last
from parcost_plugins.physics.elementwise import LOOKUP, NORMS, SCATTER, elementwise, traffic_stream
from parcost_plugins.physics.partition import Counts, ends_share_device
from parcost_plugins.physics.passes import SPLIT, linear, single_run
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Stream
from parcost_plugins.vocabulary.operators import ENDS

PREDICTION = "DeepSeek-AI 2024 (DeepSeek-V3), section 2.2"
NORMS_EACH = 3  # of the residual stream, of the embedding, and before the head


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the projections and norms, and the copy of the embedding on another stage."""
    rank = rank_of(study)
    model, count = rank.model, _count(study, rank)
    if not model.prediction_layers or model.is_nominal:
        return
    h = model.hidden
    of_one = h * model.norm_vectors
    parts: list[tuple[str, Real, Real]] = [
        ("prediction projection", 2 * h * h / rank.layout.tp, 2 * h * h),
        ("prediction norms", NORMS_EACH * of_one, NORMS_EACH * of_one),
    ]
    for name, elements, total in parts:
        yield Parameters(
            name=name,
            elements=elements,
            total=total,
            count=count,
            replicated=name == "prediction norms",
            place="after",
            source=PREDICTION,
        )
    if not model.tied and not study.query(ends_share_device):
        yield Parameters(
            name="embedding, for prediction",
            elements=rank.vocabulary * h,
            total=0.0,
            count=on_last(study),
            place="after",
            source=SPLIT,
        )


@hookimpl
def flops(study: Study) -> Iterator[ModelFlops]:
    """Return 2 FLOPs per parameter of the projections."""
    model = rank_of(study).model
    if not model.prediction_layers or model.is_nominal:
        return
    yield ModelFlops(
        name="prediction projections",
        per_token=2 * model.prediction_layers * 2 * model.hidden * model.hidden,
        kind="matmul",
        source="2 FLOPs per matrix parameter",
    )


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the lookup, norms and projection of every MTP layer."""
    rank = rank_of(study)
    if not rank.model.prediction_layers or rank.model.is_nominal:
        return
    span, h = single_run(_count(study, rank)), rank.model.hidden
    whole = (rank.tokens * h, rank.element)
    yield traffic_stream("embedding, for prediction", LOOKUP, *whole, "F", span.count)
    yield traffic_stream("embedding, for prediction", SCATTER, *whole, "W", span.count)
    norm = NORMS[rank.fusion.norm]
    behind = span.times(NORMS_EACH)
    yield from elementwise("prediction norms", norm, rank.residual_elements, rank.element, behind)
    yield from linear(
        "prediction projection",
        rank.tokens,
        h / rank.layout.tp,
        2 * h,
        span,
        source=PREDICTION,
        trained=rank.trains_model,
    )


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the inputs of the norms and of the projection: five times the residual stream."""
    rank = rank_of(study)
    if not rank.model.prediction_layers or rank.model.is_nominal:
        return
    yield rank.kept_memory(
        "prediction inputs",
        rank.formula(f"{NORMS_EACH + 2} {rank.residual_text} e", source=KEPT),
        _count(study, rank),
        tag=ENDS,
    )


def _count(study: Study, rank: Rank) -> Counts:
    return single_run(on_last(study)).times(rank.model.prediction_layers).count
