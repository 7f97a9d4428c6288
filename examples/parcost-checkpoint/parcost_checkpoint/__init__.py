"""What saving the state of training costs.

Training waits while a checkpoint is written. All devices write at once, each a part that
no other one writes: the replicas of a parameter share its bytes. What is saved is what a
restart needs, the weights and the state of the optimizer, and not the gradients.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import RATE, Formula, Once, Real, Study, block, hookimpl, integer, quantity
from parcost_plugins.vocabulary import Layout, Training
from parcost_plugins.vocabulary.held import alike


@block("checkpoint", label="none")
class Checkpoint:
    """How often training is saved, and how fast."""

    every: Real = integer(doc="steps from one checkpoint to the next")
    bandwidth: Real = quantity(
        RATE, positive=True, doc="to storage, of one device while all of them write"
    )


@hookimpl
def blocks() -> list[type]:
    """Add ``checkpoint`` to the language."""
    return [Checkpoint]


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Spread the time of a checkpoint over the steps between two of them."""
    saved = study.get(Checkpoint)
    if saved is None:  # the spec does not ask for any
        return
    precision, replicas = study[Training].precision, study[Layout].dp
    each = precision.weights + precision.optimizer
    for stages in alike(study):  # one line for all pipeline stages that hold the same
        bytes_ = stages.elements * each / replicas
        yield Once(
            name=stages.named("checkpoint"),
            seconds=bytes_ / saved.bandwidth / saved.every,
            formula=Formula(
                text="psi b / d / B / k",
                inputs={
                    "psi": (stages.elements, ""),
                    "b": (each, "B"),
                    "d": (replicas, ""),
                    "B": (saved.bandwidth, "B/s"),
                    "k": (saved.every, ""),
                },
                source="every byte is written once, by one device",
            ),
            when="end",
            count=stages.count,
            resource="storage",
            bytes_=bytes_ / saved.every,
        )
