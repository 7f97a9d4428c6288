"""Operation of a run beyond its steps: data, failures, checkpoints, days, cost, energy.

Most of it needs no step, so it is a calculation, such as a checkpoint interval. Days, cost and
energy use the step time of the study. Without a step they use published values of a run.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from parcost import Check, Figure, MissingFigure, Once, Outcome, Rulebook, Study, hookimpl
from parcost_plugins.operations.rulebook import RULES
from parcost_plugins.vocabulary import (
    Checkpoint,
    Data,
    Energy,
    Price,
    Reliability,
    Run,
    Training,
)
from parcost_plugins.vocabulary.answers import mark_details

_ASKED = (Checkpoint, Energy, Price, Reliability, Run)


@hookimpl
def terms(study: Study) -> Iterator[Once]:
    """Return the data loading stall."""
    if not study.all(Data):
        return
    from parcost_plugins.operations import data

    yield from data.stall(study)


@hookimpl
def outcome_checks(study: Study, outcome: Outcome) -> Iterator[Check]:
    """Warn if the data loaders are slower than the step."""
    if not study.all(Data):
        return
    from parcost_plugins.operations import data

    yield from data.loader_warning(study, outcome)


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check]:
    """Return the rules, and every figure that needs no step."""
    if not any(study.all(schema) for schema in (Data, *_ASKED)):
        return
    from parcost_plugins.operations import rules
    from parcost_plugins.operations.goodput import goodput, losses
    from parcost_plugins.operations.resources import resource_figures
    from parcost_plugins.operations.speed import published_throughput

    broken = yield from rules.input_checks(study)
    if broken or not any(study.all(schema) for schema in _ASKED):
        return
    yield from goodput(study)
    if not study.all(Training):
        yield from mark_details(losses(study), "mtbf", "interval", "blocking")
        speed = published_throughput(study)
        if speed is not None:
            headline, further = resource_figures(study, speed)
            yield from headline
            yield from (evolve(figure, detail=True) for figure in further)


@hookimpl
def figures(study: Study, outcome: Outcome, brief: bool) -> Iterator[Figure]:
    """Return the days, cost and energy of a run with these steps; their parts on demand."""
    if any(study.all(schema) for schema in _ASKED):
        from parcost_plugins.operations.goodput import losses
        from parcost_plugins.operations.resources import resource_figures
        from parcost_plugins.operations.speed import step_speed

        headline, further = resource_figures(study, step_speed(study, outcome))
        yield from headline if brief else (*losses(study), *further)


@hookimpl(specname="figures")
def missing_figures(study: Study, brief: bool) -> Iterator[MissingFigure]:
    """Return days, cost and energy as missing if a required block is missing."""
    if not brief:
        from parcost_plugins.operations.resources import needs

        yield from needs(study)


@hookimpl
def rulebooks() -> list[Rulebook]:
    """Return the rulebook of this package, with a page for each rule."""
    return [RULES]
