"""Device copies of gradients on their way through the buckets of DeepSpeed.

A gradient is copied into a bucket if it fits. Gradients that share a bucket are joined in one
message, which is divided by the number of ranks. With gradients and messages in bf16, of
n elements, and a bucket of B:

    n > B          4 n bytes: divided
    B/2 < n <= B   8 n bytes: copied and divided, a message by itself
    n <= B/2      12 n bytes: copied, joined and divided

ZeRO 1 divides all gradients at the end of a step, in a term of its own. A message in another type
than the gradients is a copy in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Real, Study
from parcost.numeric import maximum, where
from parcost_plugins.vocabulary import Parameters, Stream, Training
from parcost_plugins.vocabulary.run_choices import (
    reduces_each_micro_batch,
    staged_elements,
    zero_stage,
)
from parcost_plugins.vocabulary.stage_parameters import group_by_count, trained_parameters

SOURCE = (
    "DeepSpeed, runtime/zero/stage_1_and_2.py: average_tensor, allreduce_bucket; stage3.py and "
    "comm/coalesced_collectives.py: reduce_scatter_coalesced"
)


def copies(study: Study) -> Iterator[Stream]:
    """Yield the copies by groups of parameters with equal counts, named after their first.

    A single rank copies as well. Gradients that are reduced once per step are spread over its
    micro-batches.
    """
    training, stage = study[Training], zero_stage(study)
    own, sent = training.precision.wide_gather, training.precision.reduction
    bucket = staged_elements(study)
    often = stage >= 2 and reduces_each_micro_batch(study)
    share = 1.0 if often else 1.0 / training.micro_batches
    divided = 2.0 * sent if stage >= 2 else 0.0

    def bytes_moved(one: Parameters) -> Real:
        each = one.elements / maximum(one.matrices, 1.0)
        copied = where(each <= bucket, 2.0 * own, 0.0)
        joined = where((2.0 * each <= bucket) + (own != sent) > 0, own + sent, 0.0)
        return one.elements * (copied + joined + divided)

    for count, group in group_by_count(trained_parameters(study)).items():
        yield Stream(
            name=f"copies of gradients to be reduced: {group[0].name}",
            bytes_=share * sum(map(bytes_moved, group), start=0.0),
            kernels=share * sum((maximum(one.matrices, 1.0) for one in group), start=0.0),
            pass_="B",
            count=count,
            source=SOURCE,
        )
