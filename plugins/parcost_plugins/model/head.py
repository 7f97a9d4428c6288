"""The head and the loss, with the vocabulary split over the tensor-parallel ranks.

A tied head shares the embedding's matrix. Where the two stand on different pipeline
stages, the last one holds a copy, which is trained like any other matrix.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Memory, Moment, Study, hookimpl
from parcost_plugins.model.rank import FP32, SAVED, SPLIT, linear, rank_of, stream
from parcost_plugins.vocabulary import Gemm, ModelFlops, Parameters, Stream, on_last
from parcost_plugins.vocabulary.operators import HEAD_COLUMNS


@hookimpl
def parameters(study: Study) -> Iterator[Parameters]:
    """Return the head, or the copy of the embedding that the last stage holds."""
    rank = rank_of(study)
    h, tied = rank.model.hidden, rank.model.tied
    if tied and rank.layout.pp == 1:
        return
    yield Parameters(
        name="head, shared with the embedding" if tied else "head",
        elements=rank.vocabulary * h,
        total=0.0 if tied else rank.model.vocabulary * h,
        count=on_last(study),
        place="after",
        source=SPLIT,
    )


@hookimpl
def flops(study: Study) -> list[ModelFlops]:
    """Return 2 FLOPs per parameter, tied or not; padding is no part of the model."""
    rank = rank_of(study)
    return [
        ModelFlops(
            name="head",
            per_token=2 * rank.model.hidden * rank.model.vocabulary,
            kind="matmul",
            source="2 FLOPs per matrix parameter",
        )
    ]


@hookimpl
def operators(study: Study) -> Iterator[Gemm | Stream]:
    """Return the head's products, and the cross entropy in fp32."""
    rank = rank_of(study)
    count, logits = on_last(study), rank.tokens * rank.vocabulary
    yield from linear(
        "head",
        rank.tokens,
        rank.vocabulary,
        rank.model.hidden,
        count,
        host=HEAD_COLUMNS,
    )
    # Forward reads the logits, and writes and reads them in fp32; backward turns those into
    # the gradient of the logits.
    e = rank.element
    yield from stream("cross entropy", (e + 2 * FP32) * logits, (FP32 + e) * logits, count)


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Return the head's input, and the logits on their way to the loss and back.

    The fp32 softmax waits for backward, where the gradient takes its place. The logits
    themselves are gone by then, and their gradient has their size.
    """
    rank = rank_of(study)
    logits = rank.tokens * rank.vocabulary
    count = on_last(study)
    yield rank.kept(
        "head input",
        rank.element * rank.residual,
        Formula(
            text=f"{rank.residual_text} e",
            inputs=rank.inputs("s b h t e"),
            source=SAVED,
        ),
        count,
    )
    yield rank.kept(
        "loss softmax",
        FP32 * logits,
        Formula(text="4 s b V / t", inputs=rank.inputs("s b V t"), source=SAVED),
        count,
    )
    formula = Formula(text="s b V e / t", inputs=rank.inputs("s b V t e"), source=SAVED)
    passing: list[tuple[str, Moment]] = [("logits", "forward"), ("logits gradient", "backward")]
    for name, moment in passing:
        yield Memory(
            name=name,
            bytes_=rank.element * logits,
            formula=formula,
            count=count,
            moments=(moment,),
        )
