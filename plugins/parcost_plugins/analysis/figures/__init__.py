"""The headline figures of a report, under the names that claims use.

Publications use different conventions, so each figure states its convention. Rare figures are
imported on demand.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Check, Figure, MissingFigure, Outcome, Study, hookimpl
from parcost_plugins.analysis.anchors import anchored_figures
from parcost_plugins.analysis.figures import memory, model, plausibility, time
from parcost_plugins.vocabulary import Training

_STEP = "a training step; this study has only calculators: write a `training` block"
_OF_A_STEP = (
    "step_time",
    "tokens_per_second",
    "tokens_per_second_per_device",
    "mfu",
    "hfu",
    "bubble",
    "exposed_communication",
    "memory",
    "headroom",
)


@hookimpl
def figures(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return the figures, most important first; the less common ones on demand."""
    if not brief:
        from parcost_plugins.analysis.figures import statistics

        yield from statistics.counts(study, outcome)
        yield from statistics.sizes(study)
        yield from statistics.shares(study, outcome)
        yield from statistics.rates(study, outcome)
        return
    step, *rates = time.speed(study, outcome)
    yield step
    yield from anchored_figures(study, outcome)
    yield from rates
    yield from model.utilisation(study, outcome)
    yield from time.losses(study, outcome)
    yield from memory.peak_memory(study, outcome)
    yield from model.size(study)


@hookimpl(specname="figures")
def missing_figures(study: Study, brief: bool) -> Iterator[MissingFigure]:
    """Yield the figures of a step, of pipelines and experts that the study lacks."""
    if brief:
        return
    if not study.all(Training):
        for name in _OF_A_STEP:
            yield MissingFigure(name=name, needs=_STEP)
    if study.all(Training) and study.pipeline.stages == 1:
        yield MissingFigure(name="bubble_average", needs="`layout.pp` above 1")
    if study.all(Training) and not study[Training].model.experts:
        yield MissingFigure(name="expert_sparsity", needs="a model with experts")


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Return the rules that any plausible outcome must meet."""
    yield from plausibility.rules(study, outcome)
