"""A step cannot be shorter than its FLOPs at peak, nor have a higher MFU than any measured run."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Outcome, Study
from parcost.numeric import maximum
from parcost_plugins.analysis.figures.time import tokens
from parcost_plugins.analysis.rulebook import RULES
from parcost_plugins.physics import flops_per_token
from parcost_plugins.vocabulary import Cluster, PlausibleRange, Training

#: Attributes of the block `plausible` with an MFU that no run reaches, by data type.
_MOST = {"fp8": "mfu_fp8", "fp4": "mfu_fp4"}


def rules(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Require that the model FLOPs fit into the step, and warn of an implausibly high MFU.

    They do not fit if an efficiency exceeds 100 %, or if a plugin for GEMMs was left out.
    """
    device, recipe = study[Cluster].device, study[Training].precision
    compute = recipe.compute if recipe.narrow == "none" else recipe.narrow
    peak = getattr(device, compute)
    if peak is None:  # a rule has said so
        return
    asked = tokens(study).value * flops_per_token(study)
    least = asked / (study[Cluster].devices * peak)
    step = outcome.step_seconds
    mfu = least / maximum(step, 1e-300)
    yield RULES.check(
        "faster-than-peak",
        least <= step,
        "cluster.device",
        step=step,
        least=least,
        compute=compute,
        mfu=100.0 * mfu,
    )
    known = study.get(PlausibleRange)
    most = None if known is None else getattr(known, _MOST.get(compute, "mfu"))
    if most is None:
        return
    # above 100 % is an error already
    yield RULES.check(
        "implausible-mfu",
        (mfu <= most) | (mfu > 1.0),
        "cluster.device",
        factor=mfu / maximum(most, 1e-300),
        mfu=100.0 * mfu,
        compute=compute,
        most=100.0 * most,
    )
