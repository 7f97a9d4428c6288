"""Accumulation of the gradients of one micro-batch into the sum.

With fused accumulation, a weight-gradient GEMM adds to the accumulated gradient without extra cost.
Otherwise the GEMM writes a separate gradient. A kernel per tensor reads it, and reads and writes
the accumulated gradient. The gradient of an embedding is as large as its table. It is not computed
by a GEMM, so a kernel always adds it. PyTorch keeps the first gradient, so one micro-batch of m
needs no addition. If the host accumulates gradients, it does so in its own memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Real, Study
from parcost.numeric import any_of, maximum, where
from parcost_plugins.physics.adapters import is_trained
from parcost_plugins.physics.run_choices import (
    accumulates_whole,
    accumulating_share,
    fuses_accumulation,
    host_sums,
    shards_gradients,
)
from parcost_plugins.physics.stage_parameters import spread
from parcost_plugins.vocabulary import Offload, Stream, Training

BESIDE: Pass = "W"  # the gradient that is added is the one that has just been computed


def accumulation(study: Study) -> Iterator[Stream]:
    """Yield the accumulation of each tensor, for the part that a rank keeps.

    From ZeRO 2 on, this part is its shard after the reduce-scatter.
    """
    fused, share = fuses_accumulation(study), accumulating_share(study)
    shares = shards_gradients(study)
    traffic = share * _traffic(study)
    if host_sums(study) == "add":
        traffic = traffic * (1.0 - study[Offload].optimizer)
    for held in study.parameters:
        if not is_trained(study, held) or (fused and held.place != "before"):
            continue
        _, _, shard = spread(study, expert=held.expert)
        yield Stream(
            name=f"gradient accumulation, {held.name}",
            bytes_=traffic * held.elements / (shard if shares else 1.0),
            pass_=BESIDE,
            count=held.count,
            kernels=share,
            source="reads the gradient, reads and writes the sum; mean of the micro-batches",
        )


def _traffic(study: Study) -> Real:
    """Return the bytes that adding one gradient moves.

    A reduced shard has the type of the accumulated gradient. An unsharded gradient has the type of
    its weight. DeepSpeed's BF16_Optimizer casts it to the type of the accumulated gradient before
    the addition.
    """
    precision = study[Training].precision
    new: Real = maximum(precision.activation, precision.wide_weights)
    if shards_gradients(study):
        return 3.0 * precision.gradients
    total, whole = precision.gradients, accumulates_whole(study)
    if any_of(whole):
        total = where(whole, precision.whole_gradients, total)
    copied = where(precision.gradient_copies != 0, 2.0 * total, 0.0)
    return 2.0 * total + new + copied
