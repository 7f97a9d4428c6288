"""Buffers that gradients pass on their way to the optimizer, as in DeepSpeed.

A stage has psi parameters sharded over N ranks, the bucket k elements, and a gradient e bytes:

    ZeRO 1, 2   k e         bucket, twice where reductions overlap
                psi e / N   copy of the rank's shard: under ZeRO 2 from the second micro-batch on
    ZeRO 3      k e         bucket, held between steps
                k e         gradients of the bucket, joined shard by shard
    norm        8 T         the largest tensor T of a shard, in float64
    update      psi e / N   the shard, joined
                psi 4 / N   the same in fp32

Only the freed blocks of the loss are large enough for tensors of these sizes. Tensors of the update
may reuse the bucket, an accumulated shard, or the copy for the norm. ZeRO 3 allocates its blocks
before the first step, and activations use them in between. The allocator keeps the blocks of the
norm and of the update, unless memory runs out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from parcost import Formula, Memory, Moment, Real, Study, formula
from parcost.numeric import any_of, maximum, minimum, where
from parcost_plugins.memory.loss_blocks import SOURCE, loss_blocks, split_at_loss
from parcost_plugins.physics.run_choices import (
    hides_gradients,
    shards_states,
    shards_weights,
    staged_elements,
    zero_stage,
)
from parcost_plugins.physics.stage_parameters import StageKind
from parcost_plugins.vocabulary import Offload, Training
from parcost_plugins.vocabulary.causes import BUFFERS

_STAGE_1_AND_2 = "DeepSpeed 0.17.0, runtime/zero/stage_1_and_2.py: "
_STAGE_3 = "DeepSpeed 0.17.0, runtime/zero/stage3.py: "
_BACKWARD: tuple[Moment, ...] = ("backward", "loss", "end_of_backward", "optimizer")
_UPDATE: tuple[Moment, ...] = ("optimizer",)
#: Blocks of the last update, which the passes of the next step find kept.
_AFTER_UPDATE: tuple[Moment, ...] = ("backward", "loss", "end_of_backward")


def gradient_buffers(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the buffers of a *kind* of stages."""
    training = study[Training]
    framework = training.framework
    if any_of(training.precision.gradient_copies != 0):
        yield _copy_to_add(kind, study)
        yield _message_copy(kind, study)
        return
    if framework.contiguous_gradients and shards_states(study):
        yield from _contiguous_buffers(kind, study)
    elif any_of(framework.gradient_staging != 0) and not shards_weights(study):
        yield _staging_buffer(kind, study)
    if any_of(framework.norm_copy != 0) and shards_states(study):
        norm, others = _norm_copy(kind, study), int(framework.contiguous_gradients)
        yield from split_at_loss(norm, loss_blocks(kind, study).fits(norm.bytes_, others))
    if any_of(framework.update_gradients != 0) and shards_states(study):
        if not shards_weights(study):
            yield from _update_copy(kind, study)
        elif any_of(framework.update_group != 0):
            yield _update_of_group(kind, study)


def _contiguous_buffers(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the bucket, which is allocated at full size on any number of ranks, and reduced
    gradients.
    """
    k, e = staged_elements(study), (study[Training].precision.wide_gather, "B")
    if shards_weights(study):
        yield from _buckets_of_zero3(kind, k, e)
        return
    yield _buffer(
        kind,
        "gradient staging",
        formula(
            "k e (1 + d), k elements at a time, d if reductions overlap",
            k=k,
            e=e,
            d=1.0 if hides_gradients(study) else 0.0,
            source=f"{_STAGE_1_AND_2}backward_prologue allocates reduce_bucket_size elements",
        ),
    )
    several: Real = 1.0
    held: tuple[Moment, ...] = ("end_of_backward", "optimizer")
    if zero_stage(study) == 2:
        several = where(study[Training].micro_batches > 1, 1.0, 0.0)
    if zero_stage(study) == 2 or hides_gradients(study):
        held = ("backward", *held)  # and else all are reduced behind the backward pass
    shard = Memory(
        name=kind.label("copy of a shard of gradients"),
        cause=BUFFERS,
        bytes_=formula(
            "psi e / N c (1 - o), c copies, o on the host",
            psi=kind.elements,
            e=e,
            N=kind.shards(True),
            c=several,
            o=study[Offload].optimizer,
            source=f"{_STAGE_1_AND_2}copy_grads_in_partition",
        ),
        count=kind.count,
        moments=held,
        cached=tuple(moment for moment in _BACKWARD if moment not in held),
    )
    yield from split_at_loss(shard, loss_blocks(kind, study).fits(shard.bytes_))


def _buckets_of_zero3(kind: StageKind, k: Real, e: tuple[Real, str]) -> Iterator[Memory]:
    """Yield the bucket of *k* elements of *e* bytes, and its concatenated parts for the
    reduction.
    """
    yield _buffer(
        kind,
        "gradient staging",
        formula(
            "k e, k elements at a time",
            k=k,
            e=e,
            source=f"{_STAGE_3}__ipg_bucket_flat_buffer, allocated once",
        ),
        ("forward", "gather", *_BACKWARD),
    )
    yield _buffer(
        kind,
        "joined gradients",
        formula(
            "min(k, psi) e, k elements at a time",
            k=k,
            psi=kind.elements,
            e=e,
            source="DeepSpeed 0.17.0, runtime/comm/coalesced_collectives.py: "
            "reduce_scatter_coalesced joins the parts of each rank",
        ),
    )


def _buffer(
    kind: StageKind,
    name: str,
    bytes_: Formula,
    moments: tuple[Moment, ...] = _BACKWARD,
    cached: tuple[Moment, ...] = (),
) -> Memory:
    return Memory(
        name=kind.label(name),
        cause=BUFFERS,
        bytes_=bytes_,
        count=kind.count,
        once_per_device=True,
        moments=moments,
        cached=cached,
    )


def _staging_buffer(kind: StageKind, study: Study) -> Memory:
    """Return the staging buffer of gradients for their reduction.

    Its size matches no freed block, so an allocator reserves new memory for it.
    """
    return _buffer(
        kind,
        "gradient staging",
        formula(
            "N > 1 ? min(k, psi) e : 0, k elements at a time",
            N=kind.replicas,
            k=study[Training].framework.gradient_staging,
            psi=kind.elements,
            e=(study[Training].precision.gradients, "B"),
            source="DeepSpeed, runtime/engine.py: gradients are flattened, so many at a time",
        ),
    )


def _copy_to_add(kind: StageKind, study: Study) -> Memory:
    """Return the copy of one gradient in the type of the buffer that it is added to.

    Gradients of a micro-batch are cast one by one, each to a separate tensor. The buffer is one
    tensor, which is reduced in place. No free block has the size of the copy, so the allocator
    reserves new memory for it.
    """
    precision = study[Training].precision
    return _buffer(
        kind,
        "copy of a gradient to add",
        formula(
            "max(a, b, k m) e, embedding b, head a, or the largest matrix m of k layers",
            **_largest_tensor(kind),
            e=(precision.gradients, "B"),
            source="DeepSpeed, runtime/bf16_optimizer.py: update_hp_grads casts each gradient, and "
            "get_grads_for_reduction returns the flat buffer",
        ),
    )


def _message_copy(kind: StageKind, study: Study) -> Memory:
    """Return the copy of the accumulation buffer in the type of the message, after backward."""
    precision = study[Training].precision
    return _buffer(
        kind,
        "gradients in the type of the message",
        formula(
            "N > 1 ? psi c : 0",
            N=kind.replicas,
            psi=kind.elements,
            c=(where(precision.reduction != precision.gradients, precision.reduction, 0.0), "B"),
            source="DeepSpeed, runtime/engine.py: allreduce_bucket casts a flat buffer",
        ),
        ("optimizer",),
    )


def _norm_copy(kind: StageKind, study: Study) -> Memory:
    """Return the copy of a gradient for the norm: the copy of the largest tensor in a shard."""
    whole = "/ N" if shards_weights(study) else ", psi / N"
    tensor = f"max(a, b, k m) {whole}" if shards_weights(study) else f"min(max(a, b, k m){whole})"
    return _buffer(
        kind,
        "copy of a gradient for its norm",
        formula(
            f"{tensor} w, embedding b, head a, or the largest matrix m of k layers",
            {
                **_largest_tensor(kind),
                "N": kind.shards(True),
                "w": (study[Training].framework.norm_copy, "B"),
                **({} if shards_weights(study) else {"psi": kind.elements}),
            },
            source=f"{_STAGE_1_AND_2}get_grad_norm_direct takes norms of gradients in float64",
        ),
        _UPDATE,
        _AFTER_UPDATE,
    )


def _update_copy(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the copies of a shard's gradients that the optimizer reads: concatenated, then in fp32.

    The first copy may reuse a freed bucket or an accumulated shard. Both copies may reuse the freed
    copy for the norm, or freed blocks of the loss.
    """
    training, stage = study[Training], zero_stage(study)
    shard = kind.elements / kind.shards(True)
    joined, wide = _widths(study)
    bucket = staged_elements(study)
    if training.framework.contiguous_gradients and stage == 2:
        bucket = where(training.micro_batches > 1, shard, bucket)
    largest = maximum(maximum(kind.after, kind.before), minimum(kind.layers, 1) * kind.matrix)
    room = training.framework.norm_copy * minimum(largest, shard)
    in_bucket = shard <= bucket
    in_room = joined * shard <= room
    left = room - where(in_bucket, 0.0, where(in_room, joined * shard, 0.0))
    blocks = loss_blocks(kind, study)
    both = blocks.fits((joined + wide) * shard, 1)
    places = {
        "": (in_bucket | in_room, wide * shard <= left),
        "at the loss": (
            in_bucket | in_room | blocks.fits(joined * shard, 1),
            (wide * shard <= left) | both | blocks.fits(wide * shard, 2),
        ),
    }
    for when, (first, second) in places.items():
        name = kind.label("gradients of the update")
        yield Memory(
            name=f"{name}, {when}" if when else name,
            cause=BUFFERS,
            bytes_=formula(
                "psi / N (f e + n g) (1 - o), f and n are 0 in a free block, o on the host",
                psi=kind.elements,
                N=kind.shards(True),
                f=where(first, 0.0, 1.0),
                e=(joined, "B"),
                n=where(second, 0.0, 1.0),
                g=(wide, "B"),
                o=study[Offload].optimizer,
                source=f"{SOURCE}; {_STAGE_1_AND_2}`step` flattens a partition",
            ),
            count=kind.count,
            moments=() if when else _UPDATE,
            cached=("loss",) if when else ("backward", "end_of_backward"),
        )


def _update_of_group(kind: StageKind, study: Study) -> Memory:
    """Return the copies of gradients for the part of a shard that ZeRO 3 updates at a time."""
    joined, wide = _widths(study)
    return _buffer(
        kind,
        "gradients of the update",
        formula(
            "min(psi / N, k) (e + g) (1 - o), k elements at a time, o on the host",
            psi=kind.elements,
            N=kind.shards(True),
            k=study[Training].framework.update_group,
            e=(joined, "B"),
            g=(wide, "B"),
            o=study[Offload].optimizer,
            source=f"{_STAGE_3}_prepare_fp32_grad_for_sub_group; initialize_optimizer_states has a "
            "gradient of that size before",
        ),
        _UPDATE,
    )


def _widths(study: Study) -> tuple[Real, Real]:
    """Return the bytes per gradient in the concatenated copy and in its fp32 copy; 0 without a
    copy.

    Gradients that accumulate in a wider type than the weights are already in one buffer.
    """
    training, precision = study[Training], study[Training].precision
    size, wide = precision.gradients, training.framework.update_gradients
    return where(size <= precision.wide_gather, size, 0.0), where(size < wide, wide, 0.0)


def _largest_tensor(kind: StageKind) -> dict[str, Any]:
    """Return the symbols of the largest tensor."""
    return {"a": kind.after, "b": kind.before, "k": minimum(kind.layers, 1), "m": kind.matrix}
