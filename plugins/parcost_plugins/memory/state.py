"""What training keeps for every parameter: weights, gradients and optimizer state.

Each ZeRO stage shards one more of them over the data-parallel ranks. What is sharded
has to be put together to be used, and that takes buffers: the layers that ZeRO 3 has
gathered, the gradients that are on their way to their owners.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Formula, Memory, Moment, Study, hookimpl
from parcost.numeric import maximum, minimum, where
from parcost_plugins.vocabulary import Layout, Overlap, Training
from parcost_plugins.vocabulary.held import Alike, alike


@hookimpl
def memory(study: Study) -> list[Memory]:
    """Return the state that is kept, and the buffers that sharding it takes."""
    zero = study[Layout].zero
    found: list[Memory] = []
    for kind in alike(study):
        found += _state(kind, study)
        if zero == 2:
            found.append(_bucket(kind, study))
        if zero == 3:
            found += _gathered(kind, study)
    return found


def _state(kind: Alike, study: Study) -> Iterator[Memory]:
    layout, precision = study[Layout], study[Training].precision
    for name, bytes_, sharded_from in (
        ("weights", precision.weights, 3),
        ("gradients", precision.gradients, 2),
        ("optimizer state", precision.optimizer, 1),
    ):
        shards = layout.dp if layout.zero >= sharded_from else 1.0
        yield Memory(
            name=kind.named(name),
            bytes_=bytes_ * kind.elements / shards,
            count=kind.count,
            formula=Formula(
                text="psi e / N",
                inputs={"psi": (kind.elements, ""), "e": (bytes_, "B"), "N": (shards, "")},
                source="Rajbhandari et al. 2019, ZeRO, section 5",
            ),
        )


def _bucket(kind: Alike, study: Study) -> Memory:
    """Return the bucket in which whole gradients wait for their reduce-scatter."""
    precision, bucket = study[Training].precision, study[Overlap].bucket
    whole = kind.elements * precision.reduction
    return Memory(
        name=kind.named("gradient bucket"),
        bytes_=where(study[Layout].dp > 1, minimum(bucket, whole), 0.0),
        count=kind.count,
        once_per_device=True,
        formula=Formula(
            text="min(bucket, psi r)",
            inputs={
                "bucket": (bucket, "B"),
                "psi": (kind.elements, ""),
                "r": (precision.reduction, "B"),
            },
            source="DeepSpeed's ZeRO 2 reduces gradients bucket by bucket",
        ),
        moments=("backward",),
    )


def _gathered(kind: Alike, study: Study) -> Iterator[Memory]:
    """Yield what is whole of a stage for a while: of one stage at a time on a device.

    That is the layer that computes and the next one, which is gathered meanwhile, and
    what stands behind the last layer, which stays gathered. What stands before the first
    is gathered beside that one layer only: it takes the place of the second, and counts
    by what it exceeds that and the end that is not there then. On the way back, the
    gradients of one of all these are whole, of the largest at the worst.
    """
    precision, dp = study[Training].precision, study[Layout].dp
    passes: tuple[Moment, ...] = ("forward", "backward", "gather")
    layers, one, gather = min(kind.layers, 2), min(kind.layers, 1), precision.gather
    before, layer, after = kind.before, kind.layer, kind.after
    ends = maximum(after, before - (layers - one) * layer)
    largest = maximum(maximum(before, after), one * layer)
    sizes = {"psi": (layer, ""), "b": (before, ""), "a": (after, "")}
    for name, elements, text, inputs, bytes_, moments in (
        ("gathered layers", layers * layer, "l psi e", {"l": (layers, "")}, gather, passes),
        (
            "gathered ends",
            ends,
            "max(a, b - k psi) e, b before the layers and a behind them",
            {"k": (layers - one, "")},
            gather,
            passes,
        ),
        (
            "unsharded gradients",
            largest,
            "max(b, psi, a) e",
            {},
            precision.reduction,
            passes[1:2],
        ),
    ):
        yield Memory(
            name=kind.named(name),
            bytes_=where(dp > 1, elements * bytes_, 0.0),
            count=kind.count,
            once_per_device=True,
            formula=Formula(
                text=text,
                inputs={**inputs, **sizes, "e": (bytes_, "B")},
                source="PyTorch FSDP gathers one layer ahead",
            ),
            moments=moments,
        )
