"""The cost of sending new weights to the machines that generate text.

In reinforcement learning other machines generate text (rollouts) with the weights that
training makes, and need new ones every few steps. Training waits while they are sent.
All devices send at once, each a part that no other one sends: the replicas of a parameter
share its bytes. Only weights are sent; optimizer and gradients stay.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import RATE, Once, Real, Study, block, formula, hookimpl, integer, quantity
from parcost_plugins.physics.stage_parameters import stage_kinds
from parcost_plugins.vocabulary import Layout, Training

__version__ = "0.1.0"  # for `requires`, where `--plugin` adds the folder


@block("rollouts", label="none")
class Rollouts:
    """The interval and the rate of weight updates for the machines that generate text."""

    every: Real = integer(doc="steps from one set of weights to the next")
    bandwidth: Real = quantity(
        RATE, positive=True, doc="to them, of one device while all devices send"
    )


@hookimpl
def blocks() -> list[type]:
    """Add ``rollouts`` to the language."""
    return [Rollouts]


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Spread the time of a weight update over the steps between two updates."""
    rollouts = study.get(Rollouts)
    if rollouts is None:  # the spec does not ask for any
        return
    each, replicas = study[Training].precision.weights, study[Layout].dp
    for stages in stage_kinds(study):  # one line for all pipeline stages that hold the same
        sent = formula("psi b / d", psi=stages.elements, b=(each, "B"), d=replicas)
        yield Once(
            name=stages.label("weights to rollouts"),
            cause="rollouts",
            seconds=formula(
                "n / B / k",
                n=(sent, "B"),
                B=(rollouts.bandwidth, "B/s"),
                k=rollouts.every,
                source="every byte is sent once, by one device",
            ),
            when="end",
            count=stages.count,
            resource="rollouts",
            bytes_=sent.value / rollouts.every,
        )
