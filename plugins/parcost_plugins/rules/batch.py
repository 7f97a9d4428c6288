"""The global batch is whole sequences, in whole micro-batches, for every replica."""

from __future__ import annotations

import re
from collections.abc import Iterator

from parcost import Check, Real, Study
from parcost.numeric import all_of, divides, where
from parcost_plugins.physics.neighbours import divisors, multiples
from parcost_plugins.rules.rulebook import RULES
from parcost_plugins.vocabulary import Layout, Training

_REPLICAS = ("layout.dp",)
_THOUSANDS = re.compile(r"\bsequence\s*=\s*([0-9.]+)\s*k\b")


def rules(study: Study) -> Iterator[Check]:
    """Return the rules of the batch.

    Each assumes that the rules before it are satisfied, and that dp is a whole number: one mistake
    gives one message.
    """
    training, dp = study[Training], study[Layout].dp
    batch, micro, count = training.global_batch, training.micro_batch, training.micro_batches
    step = micro * dp
    whole = (dp % 1 == 0) & (batch % 1 == 0)
    enough = whole & (batch >= step)
    divides = enough & (batch % step == 0)
    below, above = multiples(step, batch)
    fewer, more = multiples(where(dp % 1 == 0, step, 1.0), batch)
    inputs = {"batch": batch, "micro": micro, "dp": dp, "step": step}
    yield from _decimal_sequence(study)
    yield RULES.check(
        "batch-whole",
        where(dp % 1 == 0, batch, 1.0) % 1 == 0,  # it may be a product with dp
        "training.global_batch",
        batch=batch,
        sequence=training.sequence,
        fewer=fewer,
        more=more,
    )
    yield RULES.check(
        "batch-small",
        where(whole, batch, step) >= step,
        "training.global_batch",
        inputs=inputs,
        reads=_REPLICAS,
    )
    yield RULES.check(
        "batch-divides",
        where(enough, batch % step, 0.0) == 0,
        "training.global_batch",
        help="take {below} or {above} sequences" + _micro_batches(training, dp),
        inputs={**inputs, "below": below, "above": above},
        reads=_REPLICAS,
    )
    yield RULES.check(
        "batch-product",
        where(divides, count * step, batch) == batch,
        "training.micro_batches",
        inputs={**inputs, "count": count, "product": count * step, "fitting": batch / step},
        reads=_REPLICAS,
    )


def _decimal_sequence(study: Study) -> Iterator[Check]:
    """Warn of a sequence such as `8k`, which is 8,000 tokens and not 8,192."""
    span = study.where("training.sequence")
    written = _THOUSANDS.search(span.text) if span is not None else None
    if written is None:
        return
    count = float(written[1])
    yield RULES.check(
        "decimal-sequence",
        False,
        "training.sequence",
        factor=1.024,
        count=f"{count:g}",
        decimal=f"{1000 * count:,.0f}",
        binary=f"{1024 * count:,.0f}",
    )


def _micro_batches(training: Training, dp: Real) -> str:
    """Return the micro-batch sizes that divide the batch of a replica, for a help line."""
    if not all_of(divides(dp, training.global_batch)):
        return ""
    near = divisors(training.global_batch / dp, training.micro_batch)
    return f", or micro_batch = {near}" if near else ""
