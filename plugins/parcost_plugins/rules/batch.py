"""The global batch is whole sequences, in whole micro-batches, for every replica."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost import Check, Real, Study
from parcost.numeric import all_of, divides, where
from parcost_plugins.vocabulary import Layout, Training
from parcost_plugins.vocabulary.neighbours import divisors, multiples

_THOUSANDS = re.compile(r"\bsequence\s*=\s*([0-9.]+)\s*k\b")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules of the batch.

    Each assumes that the rules before it hold, and that dp is whole: one mistake gives one message.
    """
    training, dp = study[Training], study[Layout].dp
    batch, micro, count = training.global_batch, training.micro_batch, training.micro_batches
    step = micro * dp
    whole = (dp % 1 == 0) & (batch % 1 == 0)
    enough = whole & (batch >= step)
    divides = enough & (batch % step == 0)
    below, above = multiples(step, batch)
    fewer, more = multiples(training.sequence, batch * training.sequence)
    inputs = {"batch": batch, "micro": micro, "dp": dp, "step": step}
    yield from _decimal_sequence(study)
    yield Check(
        id="batch-whole",
        holds=batch % 1 == 0,
        subject="training.global_batch",
        message="the global batch is {batch:.6g} sequences of {sequence} tokens, "
        "not a whole number",
        inputs={"batch": batch, "sequence": training.sequence, "fewer": fewer, "more": more},
        help="write {fewer} or {more} tokens",
    )
    yield Check(
        id="batch-small",
        holds=where(whole, batch, step) >= step,
        subject="training.global_batch",
        message="a global batch of {batch} is less than micro_batch {micro} x dp {dp} = {step}",
        inputs=inputs,
        help="every replica needs a micro-batch: take a multiple of {step}, or fewer replicas",
    )
    yield Check(
        id="batch-divides",
        holds=where(enough, batch % step, 0.0) == 0,
        subject="training.global_batch",
        message="a global batch of {batch} is not divisible "
        "by micro_batch {micro} x dp {dp} = {step}",
        inputs={**inputs, "below": below, "above": above},
        help="take {below} or {above} sequences" + _micro_batches(training, dp),
    )
    yield Check(
        id="batch-product",
        holds=where(divides, count * step, batch) == batch,
        subject="training.micro_batches",
        message="micro_batches {count} x micro_batch {micro} x dp {dp} = {product} sequences, "
        "but the global batch is {batch}",
        inputs={**inputs, "count": count, "product": count * step, "fitting": batch / step},
        help="write micro_batches = {fitting}, or leave it out: it is computed from the others",
    )


def _decimal_sequence(study: Study) -> Iterator[Check]:
    """Warn of a sequence such as `8k`, which is 8,000 tokens and not 8,192."""
    span = study.where("training.sequence")
    written = _THOUSANDS.search(span.text) if span is not None else None
    if written is None:
        return
    count = float(written[1])
    yield Check(
        id="decimal-sequence",
        holds=False,
        subject="training.sequence",
        message="a sequence of {count}k is {decimal} tokens; {count} Ki is {binary}",
        inputs={
            "count": f"{count:g}",
            "decimal": f"{1000 * count:,.0f}",
            "binary": f"{1024 * count:,.0f}",
        },
        help="write `sequence = {count} Ki`, or the number of tokens in full",
        severity="warning",
        factor=1.024,
    )


def _micro_batches(training: Training, dp: Real) -> str:
    """Return the micro-batch sizes that divide the batch of a replica, as a help line."""
    if not all_of(divides(dp, training.global_batch)):
        return ""
    near = divisors(training.global_batch / dp, training.micro_batch)
    return f", or micro_batch = {near}" if near else ""
