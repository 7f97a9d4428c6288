"""Device copies of gradients on their way through the buckets of DeepSpeed.

A gradient is copied into a bucket if it fits. The example has gradients and messages in bf16, n
elements, and a bucket of B elements. ZeRO 3 concatenates the gradients of a bucket in one message,
which is divided by the number of ranks:

    n > B          4 n bytes: divided
    B/2 < n <= B   8 n bytes: copied and divided, a message by itself
    n <= B/2      12 n bytes: copied, joined and divided

ZeRO 1 and 2 send a bucket without a copy, unless it has parts of the shards of several ranks. Such
parts are concatenated, and a rank copies its own part back. With psi elements over N ranks, (N - 1)
B / psi of the buckets contain a border between shards. A rank copies its shard out of the buckets.
If messages have another type than gradients, they are copies, and are copied back.

ZeRO 1 divides all gradients at the end of a step, in a separate term.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from parcost import Real, Study
from parcost.numeric import maximum, minimum, where
from parcost_plugins.physics.run_choices import (
    reduces_each_micro_batch,
    staged_elements,
    zero_stage,
)
from parcost_plugins.physics.stage_parameters import (
    group_by_count,
    trained_kinds,
    trained_parameters,
)
from parcost_plugins.vocabulary import Offload, Parameters, Stream, Training

SOURCE = (
    "DeepSpeed, runtime/zero/stage_1_and_2.py: average_tensor, allreduce_bucket; stage3.py and "
    "comm/coalesced_collectives.py: reduce_scatter_coalesced"
)


def copies(study: Study) -> Iterator[Stream]:
    """Yield the copies by groups of parameters with equal counts, named after their first.

    A single rank copies, too. Copies once per step are averaged over the micro-batches.
    """
    training, stage = study[Training], zero_stage(study)
    often = stage >= 2 and reduces_each_micro_batch(study)
    share = 1.0 if often else 1.0 / training.micro_batches
    each_moves = _gathered_shards if stage == 3 else _shards_of_buckets

    def copy_bytes(one: Parameters) -> Real:
        return one.elements * each_moves(study, one, one.elements / maximum(one.matrices, 1.0))

    for count, group in group_by_count(trained_parameters(study)).items():
        yield Stream(
            name=f"copies of gradients into the reduction buffer: {group[0].name}",
            bytes_=share * sum(map(copy_bytes, group), start=0.0),
            kernels=share * sum((maximum(one.matrices, 1.0) for one in group), start=0.0),
            pass_="B",
            count=count,
            source=SOURCE,
        )


def _gathered_shards(study: Study, _: Parameters, size: Real) -> Real:
    """Return the bytes moved for an element of a gradient of a *size*, under ZeRO 3."""
    precision, bucket = study[Training].precision, staged_elements(study)
    own, sent = precision.wide_gather, precision.reduction
    copied = where(size <= bucket, 2.0 * own, 0.0)
    joined = where((2.0 * size <= bucket) + (own != sent) > 0, own + sent, 0.0)
    return copied + joined + 2.0 * sent


def _shards_of_buckets(study: Study, one: Parameters, size: Real) -> Real:
    """Return the bytes moved for an element of a gradient of *one* group, under ZeRO 1 and 2."""
    training, bucket = study[Training], staged_elements(study)
    framework, precision = training.framework, training.precision
    own, sent = precision.wide_gather, precision.reduction
    kinds = [kind for kind in trained_kinds(study) if kind.expert == one.expert]
    psi, ranks = reduce(maximum, (kind.elements for kind in kinds)), kinds[0].shards(True)
    copied = where(size <= bucket, 2.0 * own, 0.0)
    divided = 2.0 * own if zero_stage(study) == 2 else 0.0
    shard = 2.0 * own / ranks * (1.0 - study[Offload].optimizer)
    kept = shard if framework.contiguous_gradients else 0.0
    several = minimum((ranks - 1.0) * maximum(size, bucket) / psi, 1.0)
    joined = 0.0 if framework.reduce_scatter else several * (2.0 * own + 2.0 * own / ranks)
    cast = where(own != sent, 2.0 * (own + sent), 0.0)
    return copied + divided + kept + joined + cast
