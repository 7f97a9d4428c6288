"""Buffers of sharded state: the layers gathered by ZeRO 3, and gradients in reduction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from parcost import Formula, Memory, Moment, Study, formula, symbols_of
from parcost.numeric import any_of, maximum, minimum
from parcost_plugins.parallelism.data.shard_groups import is_tied, keeps_ends
from parcost_plugins.physics.adapters import trains_model
from parcost_plugins.physics.run_choices import (
    freed_by_loss,
    gradient_bucket,
    gradient_shards,
    keeps_last_layer,
    reshards,
    shards_weights,
    zero_stage,
)
from parcost_plugins.physics.stage_parameters import StageKind, stage_kinds, trained_kinds
from parcost_plugins.vocabulary import Layout, Sharding, Training
from parcost_plugins.vocabulary.causes import BUFFERS

_LAYERS: tuple[Moment, ...] = ("forward", "backward", "end_of_backward", "gather")


def buffers(study: Study) -> Iterator[Memory]:
    """Yield the buffers of every kind of stage."""
    staged = any_of(study[Training].framework.gradient_staging != 0)
    if shards_weights(study):
        copies = any_of(study[Training].framework.gather_copies != 0)
        for kind in stage_kinds(study):
            yield from _gather_buffers(kind, study)
            if copies:
                yield from _gather_stream(kind, study)
        for kind in trained_kinds(study):
            yield from _whole_gradients(kind, study)
    elif zero_stage(study) == 2 and not staged:
        for kind in trained_kinds(study):
            yield _bucket(kind, study)


def _bucket(kind: StageKind, study: Study) -> Memory:
    """Return the bucket that collects whole gradients for the reduce-scatter."""
    precision, bucket = study[Training].precision, gradient_bucket(study)
    return Memory(
        name=kind.label("gradient bucket"),
        cause=BUFFERS,
        bytes_=formula(
            "S > 1 ? min(bucket, psi r) : 0, over S ranks",
            S=gradient_shards(study, kind.shard),
            bucket=(bucket, "B"),
            psi=kind.elements,
            r=(precision.reduction, "B"),
            source="DeepSpeed's ZeRO 2 reduces gradients bucket by bucket",
        ),
        count=kind.count,
        once_per_device=True,
        moments=("backward", "loss", "end_of_backward"),
    )


def _gather_buffers(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the gathered parts of a stage; only one stage of a device is gathered at a time.

    These are the current layer, the prefetched layers, and parameters after the last layer, which
    stay gathered. Parameters before the first layer are in memory only with the first layer. So
    only the part that exceeds the prefetched layers and the other end counts.

    At the loss, the last layer is gathered only if it is kept from forward. Otherwise it is
    gathered when the gradient of the logits is computed, in memory that the loss has freed. The
    layer before it is gathered after the backward pass of the head.

    Embedding and head may be one unit; they are if tied on the same device. The unit is gathered
    from the first layer to the last. A stage that is not resharded after forward stays gathered
    until its backward pass.
    """
    sharding, again = study[Sharding], reshards(study)
    layer, wide = kind.wire["layer"], maximum(kind.wire["before"], kind.wire["after"])
    # Frozen ends are not quantized, and those beside FP8 parameters stay in 16 bits.
    alike = trains_model(study) and not any_of(layer != wide)
    ends = "max(a, b - (l - k) psi) e" if alike else "max(a c, b c - (l - k) psi e)"
    if not again or keeps_ends(study):
        ends = "(a + b) e" if alike else "(a + b) c"
    symbols: dict[str, Any] = {
        "l": minimum(kind.layers, 1 + sharding.prefetch) if again else kind.layers,
        "e": (layer, "B"),
        "c": (wide, "B"),
    }
    passes: tuple[Moment, ...] = (*_LAYERS, "loss")
    held: list[tuple[str, str, str, tuple[Moment, ...]]] = [
        ("gathered layers", "l psi e", "l layers of psi elements", _LAYERS if again else passes),
        (
            "gathered embedding and head",
            ends,
            "embedding b before the layers and head a behind them",
            passes,
        ),
    ]
    if again:
        text, said = "k psi e", "k layers of psi elements"
        if not keeps_last_layer(study):
            text, said = "max(k psi e - x, 0)", f"{said}, x left by the loss and the head"
            symbols["x"] = 0.0 if kind.expert else (_left_by_loss(study), "B")
        held.insert(1, ("gathered last layer", text, said, ("loss",)))
    for name, text, said, moments in held:
        yield _buffer(kind, study, name, f"{text} : 0, {said}", symbols, moments)


def _left_by_loss(study: Study) -> Formula:
    """Return the bytes that the loss frees minus the bytes of the head's gradient."""
    training, layout = study[Training], study[Layout]
    precision, model = training.precision, training.model
    by_matrix = training.framework.reduces_by_matrix
    return formula(
        "max(f s b V / (t c) - V h w / t, 0), f B for a logit",
        f=(freed_by_loss(study), "B"),
        s=training.sequence,
        b=training.micro_batch,
        V=model.padded_vocabulary(layout),
        t=layout.tp,
        c=layout.cp,
        h=model.hidden,
        w=(precision.reduction if by_matrix else precision.wide_gather, "B"),
        source="autograd: gradients of the loss, of the logits, of the head",
    )


def _gather_stream(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the memory that the all-gather stream reserves beyond its use.

    A framework that copies gathered parameters out of a buffer allocates the buffer on the
    all-gather stream. PyTorch's allocator does not give freed blocks of a stream to another stream.
    It has reserved memory for the largest unit, or for the prefetched layers. During the passes,
    the blocks of the next layers are in use.
    """
    ahead = minimum(kind.layers, 1 + study[Sharding].prefetch)
    layer, wide = kind.wire["layer"], maximum(kind.wire["before"], kind.wire["after"])
    unit = "a + b" if keeps_ends(study) else "max(a, b)"
    symbols = {"l": ahead, "e": (layer, "B"), "c": (wide, "B")}
    name, said = "reserved by the stream of gathers", "l layers of psi, embedding b and head a"
    beside = f"max(({unit}) c - (l - k) psi e, k psi e) : 0, {said}"
    yield _buffer(kind, study, f"{name}, beside layers", beside, symbols, cached=_LAYERS)
    whole = f"max(({unit}) c, l psi e) : 0, {said}"
    yield _buffer(kind, study, name, whole, symbols, cached=("loss", "optimizer"))


def _whole_gradients(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the unsharded gradients before their reduction.

    In backward these are the gradients of one layer at a time, with copies in the type of messages.
    The last copy is still in memory with the next gradients. If embedding and head are one unit,
    gradients of the head are reduced after the layers. At the loss only the head's gradient can be
    unsharded, and it is counted with the head. Gradients that stay unsharded until the last of
    several micro-batches are counted elsewhere. A framework that reduces each matrix, or copies
    gradients into buckets, has one unsharded gradient at a time.
    """
    tied = is_tied(study)
    made, first, last = "k psi e + max(a, k psi) r", "k psi (e + r)", "b (e + r)"
    if keeps_ends(study):
        made = first = f"{'(a + b)' if tied else 'a'} e + k psi (e + r)"
        last = "(a + b) (e + r)"
    remark, rest = "head a, and k layers of psi", "embedding b and head a"
    framework = study[Training].framework
    if framework.reduces_by_matrix or framework.contiguous_gradients:
        size = "e" if framework.contiguous_gradients else "r"
        remark = "m the largest matrix"
        made = first = f"max(b, a, k m) {size}"
        last, rest = "0", "as they are reduced"
    symbols = {
        "m": kind.matrix,
        "e": (kind.wire["layer"], "B"),
        "r": (study[Training].precision.reduction, "B"),
        "S": gradient_shards(study, kind.shard),
    }
    moments: dict[Moment, tuple[str, str]] = {
        "backward": ("unsharded gradients", f"{made} : 0, {remark}"),
        "end_of_backward": ("unsharded gradients at the end", f"{first} : 0, {remark}"),
        "optimizer": ("unsharded gradients of the ends", f"{last} : 0, {rest}"),
    }
    for moment, (name, text) in moments.items():
        yield _buffer(kind, study, name, text, symbols, (moment,))


def _buffer(
    kind: StageKind,
    study: Study,
    name: str,
    text: str,
    more: Mapping[str, Any],
    moments: tuple[Moment, ...] = (),
    cached: tuple[Moment, ...] = (),
) -> Memory:
    """Return a buffer that exists only with several ranks; *more* are symbols of its formula."""
    symbols = {
        "S": kind.shard,
        "psi": kind.layer,
        "b": kind.before,
        "a": kind.after,
        "k": minimum(kind.layers, 1),
        **more,
    }
    whole = f"S > 1 ? {text}"
    return Memory(
        name=kind.label(name),
        cause=BUFFERS,
        bytes_=formula(
            whole,
            {symbol: symbols[symbol] for symbol in symbols_of(whole)},
            source="PyTorch, distributed/fsdp/_fully_shard: gathers ahead by whole layers, and "
            "reduces what the root wraps at the end",
        ),
        count=kind.count,
        once_per_device=reshards(study),
        moments=moments,
        cached=cached,
    )
