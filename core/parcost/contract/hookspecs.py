"""The hooks of parcost: functions that a plugin may implement.

The name of a hook is a noun: the contribution of the plugin. The core uses the results of all
plugins. A hook must not change its arguments. The core sorts the results, so the order of plugins
never changes a prediction. A hook implementation names only the arguments that it needs. All
arguments and results may contain arrays: write arithmetic, without loops or ``if`` on a quantity.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pluggy

from parcost.contract.charts import Chart, PassTimeline, PointTable
from parcost.contract.checks import Check
from parcost.contract.figures import Figure, Interval, MissingFigure, Section
from parcost.contract.groups import Group, Library
from parcost.contract.importers import FileReader, Importer
from parcost.contract.offers import (
    Catalogue,
    Exporter,
    FileExporter,
    Rulebook,
    TimelineExporter,
    TimelineFileExporter,
)
from parcost.contract.outcome import Outcome
from parcost.contract.pipelines import Pipeline
from parcost.contract.searches import Axis, Goal, Objective
from parcost.contract.settings import SettingsWriter
from parcost.contract.study import Collective, KernelModel, Replay, Schedule, Study
from parcost.contract.terms import Edge, FlopCount, Memory, Once, Operator, ParameterGroup, Work

if TYPE_CHECKING:
    from parcost.numeric import Real

#: The version of the contract: it grows where a plugin that fits one version may not fit the next.
API_VERSION = 4

hookspec = pluggy.HookspecMarker("parcost")
hookimpl = pluggy.HookimplMarker("parcost")

# --- What there is: asked once, before any study -----------------------------------


@hookspec
def blocks() -> Iterable[type]:  # type: ignore[empty-body]
    """The blocks that the plugin adds to the language, as schema classes."""


@hookspec
def catalogues() -> Iterable[Catalogue]:  # type: ignore[empty-body]
    """Directories of .par files that studies import by name."""


@hookspec
def collectives() -> Iterable[Collective]:  # type: ignore[empty-body]
    """Algorithms for collective operations, selected by name, or by speed with ``auto``."""


@hookspec
def libraries() -> Iterable[Library]:  # type: ignore[empty-body]
    """Communication libraries, selected by name; they limit the algorithms of ``auto``."""


@hookspec
def schedules() -> Iterable[Schedule]:  # type: ignore[empty-body]
    """Pipeline schedules, selected by name."""


@hookspec
def kernels() -> Iterable[KernelModel]:  # type: ignore[empty-body]
    """Models of kernel time, selected by name."""


@hookspec
def exporters() -> Iterable[Exporter | FileExporter]:  # type: ignore[empty-body]
    """Formats of reports."""


@hookspec
def timeline_exporters() -> Iterable[TimelineExporter | TimelineFileExporter]:  # type: ignore[empty-body]
    """Formats of timelines."""


@hookspec
def importers() -> Iterable[Importer]:  # type: ignore[empty-body]
    """Importers, which read files of other tools as specs."""


@hookspec
def file_readers() -> Iterable[FileReader]:  # type: ignore[empty-body]
    """The reader of files that are not specs, such as files of other tools.

    If there are several, the first by name is used.
    """


@hookspec
def rulebooks() -> Iterable[Rulebook]:  # type: ignore[empty-body]
    """The documentation pages of the rules of the plugin, read only when they are printed."""


@hookspec
def settings_writers() -> Iterable[SettingsWriter]:  # type: ignore[empty-body]
    """Settings writers, which write a study as the settings of another tool."""


# --- What a study is made of: asked once per evaluation, in this order --------------


@hookspec
def groups(study: Study) -> Iterable[Group]:  # type: ignore[empty-body]
    """The groups of ranks that communicate, placed on the fabric."""


@hookspec
def library(study: Study) -> Iterable[str]:  # type: ignore[empty-body]
    """The name of the communication library in use; without one, ``auto`` may choose any
    algorithm.
    """


@hookspec
def pipelines(study: Study) -> Iterable[Pipeline]:  # type: ignore[empty-body]
    """The split of the step into stages and micro-batches, as one pipeline; exactly one plugin
    provides it.
    """


@hookspec
def parameters(study: Study) -> Iterable[ParameterGroup]:  # type: ignore[empty-body]
    """The parameters that one rank holds, as records of the vocabulary."""


@hookspec
def operators(study: Study) -> Iterable[Operator]:  # type: ignore[empty-body]
    """The operators that one rank runs, as records of the vocabulary."""


@hookspec
def flops(study: Study) -> Iterable[FlopCount]:  # type: ignore[empty-body]
    """The model FLOPs of one token in the forward pass, without recomputation."""


# --- What it costs ------------------------------------------------------------------


@hookspec
def checks(study: Study) -> Iterable[Check]:  # type: ignore[empty-body]
    """The rules that the study must meet."""


@hookspec
def terms(study: Study) -> Iterable[Work | Edge | Once]:  # type: ignore[empty-body]
    """The time that the plugin adds to a step."""


@hookspec
def memory(study: Study) -> Iterable[Memory]:  # type: ignore[empty-body]
    """The memory that the plugin adds to a device."""


@hookspec
def calculations(study: Study) -> Iterable[Figure | Section | Check]:  # type: ignore[empty-body]
    """Results of the spec alone, without a step: the time of a collective, a serving latency.

    Called for every study. A study without training (no plugin gives it a pipeline) consists of
    these alone. A calculation returns results only if its block is in the spec. Names of figures
    about a labelled block start with its label, as in ``gradients.seconds``. If a check of severity
    error fails, the study is invalid.
    """


@hookspec
def replays(study: Study) -> Iterable[Replay]:  # type: ignore[empty-body]
    """Pipelines without a step, for ``parcost timeline`` to draw."""


# --- What may be chosen: asked by a search -------------------------------------------


@hookspec
def axes(study: Study) -> Iterable[Axis]:  # type: ignore[empty-body]
    """The attributes that a search may choose for this model and machine, and their values."""


@hookspec
def capacities(study: Study) -> Iterable[Real]:  # type: ignore[empty-body]
    """The memory limit of a device in bytes; a search skips layouts whose predicted memory exceeds
    it.
    """


@hookspec
def usable_memory(study: Study) -> Iterable[Real]:  # type: ignore[empty-body]
    """The memory of a device in bytes that a job can use; the headroom is the unused part."""


@hookspec
def objectives(study: Study) -> Iterable[Objective]:  # type: ignore[empty-body]
    """The objectives that a search may minimize or maximize, by name."""


@hookspec
def search_goals(study: Study) -> Iterable[Goal]:  # type: ignore[empty-body]
    """The goal of a search of this study: its objective, its axes, and its limits."""


# --- What it means: asked once the step is known -------------------------------------


@hookspec
def outcome_checks(study: Study, outcome: Outcome) -> Iterable[Check]:  # type: ignore[empty-body]
    """The rules that the outcome must meet, such as fitting into memory."""


@hookspec
def figures(  # type: ignore[empty-body]
    study: Study, outcome: Outcome, brief: bool
) -> Iterable[Figure | Interval | MissingFigure]:
    """Headline numbers, such as MFU, and intervals: the ranges of measured values of figures.

    An implementation that names ``brief`` is called twice: with true for these, and with false for
    further figures, such as volumes and counts. The latter are for a claim, for
    :meth:`Result.figure` and for lists. ``figures(study, brief)`` is also called for a figure that
    does not exist, and returns its requirement.
    """


@hookspec
def sections(  # type: ignore[empty-body]
    study: Study, outcome: Outcome, brief: bool, name: str, rows: Sequence[int]
) -> Iterable[Section]:
    """Further parts of the report, computed only on demand: advice, sensitivities.

    With *brief*, only sections with ``lead`` rows are printed, so that others may be omitted.
    ``sections(study, name, rows)`` is a page of ``parcost show``, by its *name*: ``ranks`` or
    ``stages``. Its *rows* are the ranks or stages to show, all of them if empty. A cell may be a
    list of whole numbers.
    """


# --- Pictures: called only by formats that draw ------------------------------------------


@hookspec
def charts(  # type: ignore[empty-body]
    study: Study, outcome: Outcome, timeline: PassTimeline, points: PointTable
) -> Iterable[Chart]:
    """Pictures made from the arguments in the signature of the implementation; it is called only if
    all of them exist.

    ``study`` alone is for calculations without a step. ``study`` and ``outcome`` are for a step.
    ``timeline`` is for a pipeline over time, and ``points`` for a sweep or search.
    """
