"""The parallel layout of the model over the devices."""

from __future__ import annotations

from parcost import ONE, Real, block, fraction, integer, integers, quantity, string, switch, word
from parcost_plugins.vocabulary.aliases import ALIASES
from parcost_plugins.vocabulary.framework import ASSIGNMENTS, MESSAGES, TRANSFERS


@block(
    "layout",
    example="layout { tp = 2, pp = 2, zero = 1, sequence_parallel = on }",
    label="none",
    aliases=ALIASES["layout"],
)
class Layout:
    """The parallel layout. The product of the degrees is the number of devices of the cluster."""

    tp: Real = integer(default=1, doc="tensor parallel degree (t)")
    cp: Real = integer(
        default=1, doc="context parallel degree (c): ranks over which the sequence is split"
    )
    pp: int = integer(default=1, structural=True, maximum=1e5, doc="pipeline parallel degree (p)")
    dp: Real = quantity(
        ONE,
        positive=True,
        default="cluster.devices / (tp * cp * pp)",
        doc="data parallel degree (d)",
    )
    ep: Real = integer(
        default=1,
        doc=(
            "expert parallel degree: ranks, out of tp x cp x dp, over which the experts are "
            "distributed"
        ),
    )
    etp: Real = integer(default=1, doc="tensor parallel degree within an expert")
    sequence_parallel: bool = switch(
        default=False, doc="norms and dropout are sharded over the tensor-parallel group"
    )
    zero: int = integer(
        default=0,
        minimum=0,
        maximum=3,
        structural=True,
        doc="ZeRO stage: 1 shards the optimizer state, 2 also gradients, 3 also parameters",
    )
    order: str = string(
        default="tp-cp-dp-pp",
        doc="order of the degrees: the first varies fastest over neighbouring devices",
    )
    vocabulary_multiple: Real = integer(
        default=1,
        doc="factor of the padding of the vocabulary, which is padded to a multiple of this x tp",
    )


@block(
    "schedule",
    example="schedule { kind = interleaved, chunks = 2 }",
    label="none",
    used_with={
        ("group",): "`schedule.kind = interleaved`",
        ("transfers",): "`layout.pp` above 1",
        ("messages",): "`layout.pp` above 1, and `layout.tp` above 1 without "
        "`layout.sequence_parallel`",
        (
            "assignment",
            "count_embedding",
            "count_head",
        ): "`layout.pp` above 1 and assigned layers: `schedule.stages` places them",
    },
    aliases=ALIASES["schedule"],
)
class ScheduleChoice:
    """The pipeline schedule and the assignment of layers to stages."""

    kind: str = word(registry="schedules", default="one_f_one_b", doc="pipeline schedule")
    chunks: int = integer(
        default=1, structural=True, maximum=1e5, doc="model chunks per device (v)"
    )
    group: int = integer(
        default="layout.pp",
        structural=True,
        doc=(
            "interleaved: number of micro-batches that run through a chunk before the next chunk "
            "(microbatch group size)"
        ),
    )
    transfers: str | None = word(
        *TRANSFERS,
        default=None,
        doc=(
            "send/recv between stages: overlapped with compute, or blocking; by default as in the "
            "framework"
        ),
    )
    messages: str | None = word(
        *MESSAGES,
        default=None,
        doc=(
            "tensor that a tensor-parallel rank sends to the next stage without sequence "
            "parallelism: the residual stream (`whole`), or its share, which the group gathers "
            "on arrival (`scattered`); with `partitioned` the output is gathered for backward "
            "too, as a share of it is kept; `partitioned_forward` does this, and sends whole "
            "gradients back. By default as in the framework"
        ),
    )
    overlap: Real = fraction(
        doc=(
            "hidden share of the communication that a combined forward and backward pass could "
            "hide (dualpipe)"
        ),
    )
    stages: tuple[int, ...] = integers(
        default=(), doc="number of layers of each virtual stage; by default as `assignment`"
    )
    assignment: str | None = word(
        *ASSIGNMENTS,
        default=None,
        doc=(
            "assignment of layers to stages: the same number on each (`even`, must divide); fewer "
            "on the first and last stage if it does not divide (`short_ends`), one more on the "
            "first ones (`front`), or the first stages full and the remainder on the last "
            "(`fill`); or as `front` with embedding and head counted as one layer each (`ends`). "
            "By default as in the framework"
        ),
    )
    count_embedding: bool = switch(
        default=False, doc="count the embedding as one layer when layers are assigned"
    )
    count_head: bool = switch(
        default=False, doc="count the head as one layer when layers are assigned"
    )
