"""Calculators of pipelines, grids, estimates, links, machines and states, without a model.

A file may consist of only such a block. A calculator is imported when a study has its block.
"""

from __future__ import annotations

from collections.abc import Iterator

from parcost import Chart, Check, Figure, Replay, Section, Study, hookimpl
from parcost_plugins.vocabulary import (
    Estimate,
    Grid,
    LinkSheet,
    MachineSheet,
    PipelineSketch,
    StateSheet,
)
from parcost_plugins.vocabulary.answers import mark_details

_OF_PIPELINES = ("step_time", "bubble", "bubble_overhead", "in_flight", "fewest_micro_batches")
_OF_GRIDS = ("devices", "nodes", "tp_rank", "cp_rank", "dp_rank", "pp_rank")
_OF_ESTIMATES = ("step_time", "overhead", "communication_share", "bubble", "efficiency", "speedup")
_OF_LINKS = ("bandwidth", "total", "occupied")
_OF_STATES = ("bytes_per_parameter", "total", "per_device", "devices_needed", "filled", "largest")


@hookimpl
def calculations(study: Study) -> Iterator[Figure | Check | Section]:
    """Return the figures of blocks that need no model and no machine."""
    if study.all(PipelineSketch):
        from parcost_plugins.calculators.sheets.pipelines import sketches

        yield from mark_details(sketches(study), *_OF_PIPELINES)
    if study.all(Grid):
        from parcost_plugins.calculators.sheets.grids import grids

        yield from mark_details(grids(study), *_OF_GRIDS)
    if study.all(Estimate):
        from parcost_plugins.calculators.sheets.estimates import estimates

        yield from mark_details(estimates(study), *_OF_ESTIMATES)
    if study.all(LinkSheet):
        from parcost_plugins.calculators.sheets.links import links

        yield from mark_details(links(study), *_OF_LINKS)
    if study.all(MachineSheet):
        from parcost_plugins.calculators.sheets.links import machines

        yield from machines(study)
    if study.all(StateSheet):
        from parcost_plugins.calculators.sheets.states import states, tables

        yield from mark_details(states(study), *_OF_STATES)
        yield from tables(study)


@hookimpl
def charts(study: Study) -> Iterator[Chart]:
    """Return the bubble of pipelines over micro-batches."""
    if study.all(PipelineSketch):
        from parcost_plugins.calculators.sheets.pipeline_charts import bubble_charts

        yield from bubble_charts(study)


@hookimpl
def replays(study: Study) -> Iterator[Replay]:
    """Return the ``pipeline`` blocks."""
    if study.all(PipelineSketch):
        from parcost_plugins.calculators.sheets import pipelines

        yield from pipelines.replays(study)
