"""What training keeps for every parameter: weights, gradients and optimizer state.

Each ZeRO stage shards one more of them over the ranks that hold the same parameters. What
is sharded has to be put together to be used, and that takes buffers: the layers that
ZeRO 3 has gathered, the gradients that are on their way to their owners.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from parcost import Memory, Moment, Study, attribute, formula, hookimpl, letters_of
from parcost.numeric import any_of, minimum
from parcost_plugins.vocabulary import (
    Compression,
    Layout,
    LocalUpdates,
    Offload,
    Overlap,
    Precision,
    Sharding,
    Training,
)
from parcost_plugins.vocabulary.causes import BUFFERS, GRADIENTS, OPTIMIZER_STATE, WEIGHTS
from parcost_plugins.vocabulary.partition import ends_share_device
from parcost_plugins.vocabulary.run_choices import (
    gradients_since,
    reduces_each_micro_batch,
    reshards,
)
from parcost_plugins.vocabulary.stage_parameters import StageKind, stage_kinds

MICRO_GRADIENTS = "gradients of a micro-batch"
_FEEDBACK = ("one_bit", "top_k", "power_sgd")  # methods that keep what they did not send


@hookimpl
def memory(study: Study) -> Iterator[Memory]:
    """Yield the state that is kept, and the buffers that sharding it takes."""
    zero, sharding = study[Layout].zero, study[Sharding]
    staging = study[Training].framework.gradient_staging
    for kind in stage_kinds(study):
        yield from _state(kind, study)
        if zero == 2 and reduces_each_micro_batch(study) and not any_of(staging != 0):
            yield _bucket(kind, study)
        if zero == 3:
            yield from _gather_buffers(kind, study)
        if zero < 3 and any_of(staging != 0):
            yield _staging_buffer(kind, study)
        if sharding.bucket_copy and zero == 0:
            yield _copies(kind, study)
        if study[Compression].method in _FEEDBACK:
            yield _residual_memory(kind, study)
        if study[LocalUpdates].method == "outer" and not study[LocalUpdates].offload:
            yield _outer_optimizer(kind, study)


def _state(kind: StageKind, study: Study) -> Iterator[Memory]:
    zero, precision, offload = study[Layout].zero, study[Training].precision, study[Offload]
    since_gradients = gradients_since(study)
    for cause, tag, name, since, away in (
        (WEIGHTS, "weights", "weights", 3, offload.parameters),
        (GRADIENTS, "gradients", "gradients", since_gradients, 0.0),
        (MICRO_GRADIENTS, "gradients", "gradient_copies", since_gradients, 0.0),
        (OPTIMIZER_STATE, "optimizer", "optimizer", 1, offload.optimizer),
    ):
        bytes_ = getattr(precision, name)
        shards = kind.shards(zero, since)
        if isinstance(bytes_, float) and not bytes_:
            continue
        text, letters = "psi e / N", {"psi": kind.elements, "e": (bytes_, "B"), "N": shards}
        if not isinstance(away, float) or away:
            text, letters = "psi e / N (1 - o), o on the host", {**letters, "o": away}
        yield Memory(
            name=kind.label(str(cause)),
            cause=cause,
            bytes_=formula(
                text,
                letters,
                source="Rajbhandari et al. 2019, ZeRO, section 5",
                origins=partial(_size_of_element, precision, name),
            ),
            count=kind.count,
            tag=tag,
        )


def _size_of_element(precision: Precision, name: str) -> dict[str, Any]:
    return {"e": (attribute(precision, name), "B")}


def _bucket(kind: StageKind, study: Study) -> Memory:
    """Return the bucket in which whole gradients wait for their reduce-scatter."""
    precision, bucket = study[Training].precision, study[Overlap].bucket
    return Memory(
        name=kind.label("gradient bucket"),
        cause=BUFFERS,
        bytes_=formula(
            "S > 1 ? min(bucket, psi r) : 0, over S ranks",
            S=kind.shard,
            bucket=(bucket, "B"),
            psi=kind.elements,
            r=(precision.reduction, "B"),
            source="DeepSpeed's ZeRO 2 reduces gradients bucket by bucket",
        ),
        count=kind.count,
        once_per_device=True,
        moments=("backward",),
    )


def _staging_buffer(kind: StageKind, study: Study) -> Memory:
    """Return the buffer that gradients are copied into ahead of their reduction.

    Its size is no multiple of anything that was freed before, so an allocator takes it anew.
    """
    staging, size = study[Training].framework.gradient_staging, study[Training].precision.gradients
    return Memory(
        name=kind.label("gradient staging"),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? min(k, psi) e : 0, k elements at a time",
            N=kind.replicas,
            k=staging,
            psi=kind.elements,
            e=(size, "B"),
            source="DeepSpeed, runtime/engine.py: gradients are flattened, so many at a time",
        ),
        count=kind.count,
        once_per_device=True,
        moments=("backward", "optimizer"),
    )


def _gather_buffers(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield what is whole of a stage for a while: of one stage at a time on a device.

    That is the layer that computes and those that are gathered ahead, and what stands
    behind the last layer, which stays gathered. What stands before the first is gathered
    beside that one layer only: it takes the place of the others, and counts by what it
    exceeds them and the end that is not there then. On the way back, the gradients of one
    of all these are whole, of the largest at the worst.

    A stage that is not dropped after forward is whole until its backward pass. An
    embedding that the head shares on the same device is whole throughout.
    """
    precision, sharding = study[Training].precision, study[Sharding]
    passes: tuple[Moment, ...] = ("forward", "backward", "gather")
    one, gather = minimum(kind.layers, 1), precision.gather
    before, layer, after = kind.before, kind.layer, kind.after
    layers = minimum(kind.layers, 1 + sharding.prefetch) if reshards(study) else kind.layers
    ends = "max(a, b - (l - k) psi)"
    if not reshards(study) or (study[Training].model.tied and study.number(ends_share_device)):
        ends = "(a + b)"
    made, remark = "max(b, k psi, a) (e + r)", "as backward makes them, and copied for the wire"
    if study[Training].framework.reduces_by_matrix:
        made, remark = "max(b, a, k m) r", "m the largest matrix"
    if not reduces_each_micro_batch(study):
        made, remark = "0", "as they are whole until the last micro-batch"
    letters = {
        "S": kind.shard,
        "psi": layer,
        "b": before,
        "a": after,
        "l": layers,
        "k": one,
        "m": kind.matrix,
        "e": (gather, "B"),
        "r": (precision.reduction, "B"),
    }
    for name, text, said, moments in (
        ("gathered layers", "l psi e", "l layers at a time", passes),
        ("gathered ends", f"{ends} e", "b before the layers and a behind them", passes),
        ("unsharded gradients", made, remark, passes[1:2]),
    ):
        whole = f"S > 1 ? {text} : 0, {said}"
        yield Memory(
            name=kind.label(name),
            cause=BUFFERS,
            bytes_=formula(
                whole,
                {letter: letters[letter] for letter in letters_of(whole)},
                source="PyTorch FSDP gathers ahead by whole layers",
            ),
            count=kind.count,
            once_per_device=reshards(study),
            moments=moments,
        )


def _copies(kind: StageKind, study: Study) -> Memory:
    """Return buckets that gradients are copied into before they are reduced."""
    size = study[Training].precision.reduction
    return Memory(
        name=kind.label("gradient buckets"),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? psi e : 0",
            N=kind.replicas,
            psi=kind.elements,
            e=(size, "B"),
            source="PyTorch DDP without gradient_as_bucket_view",
        ),
        count=kind.count,
    )


def _residual_memory(kind: StageKind, study: Study) -> Memory:
    size = study[Compression].residual
    return Memory(
        name=kind.label("compression residual"),
        cause=BUFFERS,
        bytes_=formula(
            "N > 1 ? psi e : 0",
            N=kind.replicas,
            psi=kind.elements,
            e=(size, "B"),
            source="error feedback adds what was not sent to the next gradient",
        ),
        count=kind.count,
    )


def _outer_optimizer(kind: StageKind, study: Study) -> Memory:
    """Return the outer optimizer's momentum, and the parameters of the last meeting."""
    local = study[LocalUpdates]
    shards = kind.shards(study[Layout].zero, since=1)
    return Memory(
        name=kind.label("outer optimizer state"),
        cause=OPTIMIZER_STATE,
        bytes_=formula(
            "w > 1 ? psi e / N : 0, of w workers",
            w=local.workers,
            psi=kind.elements,
            e=(local.outer_state, "B"),
            N=shards,
            source="Douillard et al. 2023 (DiLoCo)",
        ),
        count=kind.count,
        tag="optimizer",
    )
