"""Buffers of sharded state: the layers gathered by ZeRO 3, and gradients in reduction."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Memory, Moment, Study, formula, symbols_of
from parcost.numeric import any_of, minimum
from parcost_plugins.vocabulary import Sharding, Training
from parcost_plugins.vocabulary.causes import BUFFERS
from parcost_plugins.vocabulary.partition import ends_share_device
from parcost_plugins.vocabulary.run_choices import (
    gradient_bucket,
    reduces_each_micro_batch,
    reshards,
    shards_gradients,
    shards_weights,
)
from parcost_plugins.vocabulary.stage_parameters import StageKind, stage_kinds

_BACKWARD: tuple[Moment, ...] = ("backward", "loss")


def buffers(study: Study) -> Iterator[Memory]:
    """Yield the buffers of every kind of stage."""
    staged = any_of(study[Training].framework.gradient_staging != 0)
    for kind in stage_kinds(study):
        if shards_weights(study):
            yield from _gather_buffers(kind, study)
        elif shards_gradients(study) and not staged:
            yield _bucket(kind, study)


def _bucket(kind: StageKind, study: Study) -> Memory:
    """Return the bucket that collects whole gradients for the reduce-scatter."""
    precision, bucket = study[Training].precision, gradient_bucket(study)
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
        moments=_BACKWARD,
    )


def _gather_buffers(kind: StageKind, study: Study) -> Iterator[Memory]:
    """Yield the gathered parts of a stage; a device has one stage gathered at a time.

    These are the current layer, the layers gathered ahead, and parameters after the last layer,
    which stay gathered. Parameters before the first layer are gathered beside that one layer only:
    they replace the others, and only their excess over the others and over the other end counts. In
    backward the gradients of one of these are whole, in the worst case of the largest.

    A stage that is not resharded after forward is whole until its backward pass. Tied embeddings on
    the same device are whole throughout.
    """
    precision, sharding = study[Training].precision, study[Sharding]
    passes: tuple[Moment, ...] = ("forward", *_BACKWARD, "gather")
    one, gather = minimum(kind.layers, 1), precision.gather
    before, layer, after = kind.before, kind.layer, kind.after
    layers = minimum(kind.layers, 1 + sharding.prefetch) if reshards(study) else kind.layers
    ends = "max(a, b - (l - k) psi)"
    if not reshards(study) or (study[Training].model.tied and study.number(ends_share_device)):
        ends = "(a + b)"
    made, remark = "max(b, k psi, a) (e + r)", "embedding b, k layers of psi, head a; r on the wire"
    if study[Training].framework.reduces_by_matrix:
        made, remark = "max(b, a, k m) r", "m the largest matrix"
    if not reduces_each_micro_batch(study):
        made, remark = "0", "as they are whole until the last micro-batch"
    symbols = {
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
        ("gathered layers", "l psi e", "l layers of psi elements at a time", passes),
        (
            "gathered ends",
            f"{ends} e",
            "embedding b before the layers and head a behind them",
            passes,
        ),
        ("unsharded gradients", made, remark, _BACKWARD),
    ):
        whole = f"S > 1 ? {text} : 0, {said}"
        yield Memory(
            name=kind.label(name),
            cause=BUFFERS,
            bytes_=formula(
                whole,
                {symbol: symbols[symbol] for symbol in symbols_of(whole)},
                source="PyTorch FSDP gathers ahead by whole layers",
            ),
            count=kind.count,
            once_per_device=reshards(study),
            moments=moments,
        )
