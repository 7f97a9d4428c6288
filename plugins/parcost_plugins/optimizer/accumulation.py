"""Accumulation of the gradients of one micro-batch into the sum.

A weight-gradient product with fused accumulation writes into the sum without extra cost. Otherwise
the product writes the type of activations. A kernel per tensor reads that, and reads and writes the
sum. The gradient of a lookup is as large as its table. It is not a product, so a kernel always adds
it.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Pass, Study
from parcost_plugins.vocabulary import KernelChoice, Stream, Training
from parcost_plugins.vocabulary.adapters import is_trained
from parcost_plugins.vocabulary.run_choices import shards_gradients
from parcost_plugins.vocabulary.stage_parameters import spread

BESIDE: Pass = "W"  # the gradient that is added is the one that has just been computed


def accumulation(study: Study) -> Iterator[Stream]:
    """Yield the accumulation of each tensor, for the part that a rank keeps.

    From ZeRO 2 on this is its shard after the reduce-scatter.
    """
    fused = study[KernelChoice].fused_accumulation
    precision = study[Training].precision
    shares = shards_gradients(study)
    traffic = 2.0 * precision.gradients + precision.activation
    for _, held in study.contributions_by_row("parameters"):
        if not is_trained(study, held) or (fused and held.place != "before"):
            continue
        _, _, shard = spread(study, expert=held.expert)
        yield Stream(
            name=f"gradient accumulation, {held.name}",
            bytes_=traffic * held.elements / (shard if shares else 1.0),
            pass_=BESIDE,
            count=held.count,
            source="reads the gradient, reads and writes the sum",
        )
