"""Figures of the model: MFU, HFU, parameters and FLOPs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from parcost import Figure, Formula, Outcome, Pipeline, Real, Study, Work, attribute, formula
from parcost.numeric import any_of
from parcost_plugins.analysis.figures.time import tokens
from parcost_plugins.physics.adapters import TRAINED_PASSES, passes_of, trains_model
from parcost_plugins.physics.attention_mask import writes_scores
from parcost_plugins.vocabulary import Cluster, Training
from parcost_plugins.vocabulary.anchor import step_time_note


def utilisation(study: Study, outcome: Outcome) -> Iterator[Figure]:
    """Yield model FLOP/s and hardware FLOP/s per device, and both utilisations."""
    step = (outcome.step_formula, "s")
    symbols = {
        "tokens": tokens(study),
        "C": (_flops_per_token(study), "FLOP"),
        "N": attribute(study[Cluster], "devices"),
        "T": step,
    }
    yield Figure(
        name="flops_per_device",
        title="model FLOP/s per device",
        value=formula("ratio(tokens C, N T)", symbols),
        unit="TFLOPS",
        note=step_time_note(study),
    )
    compute = study[Training].precision.compute
    peak = attribute(study[Cluster].device, compute)
    if peak.value is None:  # a rule has said so
        return
    causal = study[Training].model.causal
    of_peak = f"of the dense {compute} peak; attention counted"
    at = f", {note}" if (note := step_time_note(study)) else ""
    asked_for = "causal" if causal else "in both directions"
    yield Figure(
        name="mfu",
        column=2,
        title="MFU (model FLOPs)",
        value=formula("ratio(tokens C, N T peak)", symbols, peak=(peak, "FLOP/s")),
        unit="%",
        note=f"{of_peak} {asked_for}, excluding recomputation{at}",
        brief=f"of the dense {compute} peak{at}",
    )
    # Kernels that write the scores compute all of them, and mask half afterwards.
    masked = causal and writes_scores(study)
    executed = "including its masked half" if masked else asked_for
    yield Figure(
        name="hfu",
        title="HFU (hardware FLOPs)",
        value=formula(
            "ratio(D, T peak)",
            D=(_executed_flops(study, outcome), "FLOP"),
            T=step,
            peak=(peak, "FLOP/s"),
        ),
        unit="%",
        note=f"{of_peak} {executed}, including recomputation, mean over devices{at}",
        brief=f"including recomputation{at}",
    )


def size(study: Study) -> Iterator[Figure]:
    """Yield the number of parameters, and the model FLOPs by definition."""
    held: dict[str, Real] = {}
    trained: dict[str, Real] = {}
    for each in study.parameters:
        counted = trained if each.adapter else held
        counted[each.name] = counted.get(each.name, 0.0) + each.total * sum(each.count)
    yield Figure(
        name="parameters",
        title="parameters",
        value=formula(
            "sum(psi)", psi=held, source="sum over all matrices, biases and norms of the model"
        ),
        unit="",
    )
    if not trains_model(study):
        yield Figure(
            name="trained_parameters",
            title="trained parameters",
            value=formula(
                "sum(psi)", psi=trained, source="sum over both matrices of every adapter"
            ),
            unit="",
            brief="adapters only; the model is frozen",
        )
    yield Figure(
        name="flops_per_token",
        title="training FLOPs per token",
        value=_flops_per_token(study),
        unit="FLOP",
    )


def _flops_per_token(study: Study) -> Formula:
    """Return the model FLOPs per token, by part: forward, and backward with twice the FLOPs.

    For frozen matrices, backward has the same FLOPs as forward.
    """
    counted: dict[str, Formula] = {}
    frozen: dict[str, Formula] = {}
    for part in study.flops:
        found = counted if passes_of(study, part) == TRAINED_PASSES else frozen
        known = found[part.name].value if part.name in found else 0.0
        found[part.name] = Formula(part.source, value=known + part.per_token)
    if frozen:
        return formula(
            "3 sum(F) + 2 sum(F_0), forward FLOPs F by part, F_0 of frozen matrices",
            F=(counted, "FLOP"),
            F_0=(frozen, "FLOP"),
        )
    return formula("3 sum(F), forward FLOPs by part", F=(counted, "FLOP"))


def _executed_flops(study: Study, outcome: Outcome) -> Formula:
    """Return the FLOPs that a device executes per step, averaged over the stages."""
    cut = outcome.pipeline
    stages = cut.stages * cut.chunks
    each: dict[str, Real] = {}
    for _, term in study.contributions("terms"):
        if isinstance(term, Work):
            often = term.count * stages if isinstance(term.count, (float, int)) else sum(term.count)
            name = f"{term.name}, {term.pass_}"
            each[name] = each.get(name, 0.0) + term.flops * often
    found = sum(each.values(), 0.0) * cut.micro_batches / cut.stages
    return Formula("FLOPs of the work", value=found, explain=partial(_sum_of_work, each, cut))


def _sum_of_work(each: Mapping[str, Real], cut: Pipeline) -> Formula:
    """Return the executed FLOPs of all micro-batches, averaged over the stages."""
    executed = {name: flops for name, flops in each.items() if any_of(flops != 0)}
    symbols = {"D": (executed, "FLOP"), "m": cut.micro_batches, "p": cut.stages}
    return formula(
        "sum(D) m / p, D of one micro-batch and one tensor-parallel rank on all stages", symbols
    )
