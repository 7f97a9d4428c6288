"""No step is shorter than its matrix products at the peak of all devices."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Outcome, Study
from parcost.numeric import maximum
from parcost_plugins.analysis.figures.time import tokens
from parcost_plugins.vocabulary import Cluster, Training, flops_per_token


def rules(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Require that the model's FLOPs fit into the step.

    They do not where the products are not priced: a plugin was left out, or an
    efficiency is more than there is.
    """
    device, recipe = study[Cluster].device, study[Training].precision
    compute = recipe.compute if recipe.narrow == "none" else recipe.narrow
    peak = getattr(device, compute)
    if peak is None:  # a rule has said so
        return
    asked = tokens(study).value * flops_per_token(study)
    least = asked / (study[Cluster].devices * peak)
    step = outcome.step_seconds
    yield Check(
        id="faster-than-peak",
        holds=least <= step,
        subject="cluster.device",
        message="a step of {step:.4g} s is shorter than the {least:.4g} s that its model FLOPs "
        "take at the {compute} peak of all devices: MFU would be {mfu:.0f} %",
        inputs={
            "step": step,
            "least": least,
            "compute": compute,
            "mfu": 100.0 * least / maximum(step, 1e-300),
        },
        help="something is not priced: see which plugins were left out",
    )
