"""How much of the hardware does what the model asks for."""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Figure, Outcome, Real, Study, Work, formula
from parcost_plugins.analysis.figures.time import tokens
from parcost_plugins.vocabulary import Cluster, Training, flops_per_token
from parcost_plugins.vocabulary.attention_reach import writes_scores


def utilisation(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield the FLOP/s of a device: those that the model asks for, and all of them."""
    step = (outcome.step_seconds, "s")
    letters = {
        "tokens": tokens(study),
        "C": (flops_per_token(study), "FLOP"),
        "N": study[Cluster].devices,
        "T": step,
    }
    yield Figure(
        name="flops_per_device",
        title="model FLOP/s per device",
        value=formula("ratio(tokens C, N T)", letters),
        unit="TFLOPS",
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
        value=formula("ratio(tokens C, N T peak)", letters, peak=(peak, "FLOP/s")),
        unit="%",
        note=f"{of_peak} {asked_for}, recomputation left out",
        brief=f"of the dense {compute} peak",
    )
    # Kernels that write the scores compute all of them, and mask half afterwards.
    masked = causal and writes_scores(study)
    executed = "with its masked half" if masked else asked_for
    yield Figure(
        name="hfu",
        title="hardware FLOPs utilisation (HFU)",
        value=formula(
            "ratio(D, T peak)",
            D=(_executed_flops(study, outcome), "FLOP"),
            T=step,
            peak=(peak, "FLOP/s"),
        ),
        unit="%",
        note=f"{of_peak} {executed}, all that is executed, on the average device",
        brief="with what is computed again",
    )


def size(study: Study) -> Iterator[Figure]:
    """Yield the parameters and the FLOPs of the model by definition."""
    held: dict[str, Real] = {}
    for each in study.parameters:
        held[each.name] = held.get(each.name, 0.0) + each.total * sum(each.count)
    yield Figure(
        name="parameters",
        title="parameters",
        value=formula("sum(psi)", psi=held, source="all matrices, biases and norms of the model"),
        unit="",
    )
    counted = {flops.name: flops.per_token for flops in study.flops}
    yield Figure(
        name="flops_per_token",
        title="training FLOPs per token",
        value=formula("3 sum(C)", C=(counted, "FLOP")),
        unit="FLOP",
    )


def _executed_flops(study: Study, outcome: Outcome) -> Real:
    """Return the FLOPs that a device executes in a step, averaged over the stages."""
    cut = outcome.pipeline
    stages = cut.stages * cut.chunks
    found: Real = 0.0
    for _, term in study.contributions("terms"):
        if isinstance(term, Work):
            often = term.count * stages if isinstance(term.count, (float, int)) else sum(term.count)
            found = found + term.flops * often
    return found * cut.micro_batches / cut.stages
