"""How much of the hardware does what the model asks for."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Formula, Outcome, Real, Study, Work
from parcost.numeric import ratio
from parcost_plugins.figures.time import tokens
from parcost_plugins.vocabulary import Cluster, Training, flops_per_token
from parcost_plugins.vocabulary.attended import writes_scores


def utilisation(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the FLOP/s of a device: those that the model asks for, and all of them."""
    devices, step = study[Cluster].devices, outcome.step_seconds
    asked = ratio(tokens(study) * flops_per_token(study), devices * step)
    inputs = {
        "tokens": (tokens(study), ""),
        "C": (flops_per_token(study), "FLOP"),
        "N": (devices, ""),
        "T": (step, "s"),
    }
    yield Figure(
        name="flops_per_device",
        title="model FLOP/s per device",
        value=asked,
        unit="TFLOPS",
        formula=Formula(text="tokens C / (N T)", inputs=inputs),
    )
    compute = study[Training].precision.compute
    peak = getattr(study[Cluster].device, compute)
    if peak is None:  # a rule has said so
        return
    causal = study[Training].model.causal
    of_peak = f"of the dense {compute} peak; attention counted"
    asked_for = "causal" if causal else "in both directions"
    yield Figure(
        name="mfu",
        column=2,
        title="model FLOPs utilisation (MFU)",
        value=asked / peak,
        unit="%",
        formula=Formula(text="tokens C / (N T peak)", inputs={**inputs, "peak": (peak, "FLOP/s")}),
        note=f"{of_peak} {asked_for}, recomputation left out",
        brief=f"of the dense {compute} peak",
    )
    # Kernels that write the scores compute all of them, and mask half afterwards.
    masked = causal and writes_scores(study)
    executed = "with its masked half" if masked else asked_for
    executed_flops = _executed(study, outcome)
    done = ratio(executed_flops, step)
    yield Figure(
        name="hfu",
        title="hardware FLOPs utilisation (HFU)",
        value=done / peak,
        unit="%",
        formula=Formula(
            text="D / (T peak)",
            inputs={"D": (executed_flops, "FLOP"), "T": (step, "s"), "peak": (peak, "FLOP/s")},
        ),
        note=f"{of_peak} {executed}, all that is executed, on the average device",
        brief="with what is computed again",
    )


def size(study: Study) -> Iterator[Figure]:
    """Yield the parameters and the FLOPs of the model by definition."""
    total = sum((held.total * sum(held.count) for held in study.parameters), 0.0)
    yield Figure(
        name="parameters",
        title="parameters",
        value=total,
        unit="",
        formula=Formula(text="all matrices, biases and norms of the model"),
    )
    yield Figure(
        name="flops_per_token",
        title="training FLOPs per token",
        value=flops_per_token(study),
        unit="FLOP",
        formula=Formula(
            text="3 x (" + " + ".join(counted.name for counted in study.flops) + ")",
            inputs={counted.name: (counted.per_token, "FLOP") for counted in study.flops},
        ),
    )


def _executed(study: Study, outcome: Outcome) -> Real:
    """Return the FLOPs that a device executes in a step, averaged over the stages."""
    cut = outcome.pipeline
    stages = cut.stages * cut.chunks
    found: Real = 0.0
    for _, term in study.contributions("terms"):
        if isinstance(term, Work):
            often = term.count * stages if isinstance(term.count, (float, int)) else sum(term.count)
            found = found + term.flops * often
    return found * cut.micro_batches / cut.stages
