"""parcost: what one step of distributed LLM training costs, and why.

    >>> import parcost
    >>> callable(parcost.load)
    True

Names are imported when they are first used, so that ``parcost --help`` starts at once. The table
below is the public interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from parcost.version import __version__ as __version__

if TYPE_CHECKING:
    from parcost.contract.charts import Chart as Chart
    from parcost.contract.charts import PassTimeline as PassTimeline
    from parcost.contract.charts import PointFigure as PointFigure
    from parcost.contract.charts import PointTable as PointTable
    from parcost.contract.checks import Check as Check
    from parcost.contract.figures import Figure as Figure
    from parcost.contract.figures import Interval as Interval
    from parcost.contract.figures import MissingFigure as MissingFigure
    from parcost.contract.figures import Section as Section
    from parcost.contract.formulas import Formula as Formula
    from parcost.contract.formulas import FormulaError as FormulaError
    from parcost.contract.formulas import attribute as attribute
    from parcost.contract.formulas import formula as formula
    from parcost.contract.formulas import plain_of as plain_of
    from parcost.contract.formulas import symbols_of as symbols_of
    from parcost.contract.groups import ClosedForm as ClosedForm
    from parcost.contract.groups import Communication as Communication
    from parcost.contract.groups import Group as Group
    from parcost.contract.groups import Library as Library
    from parcost.contract.groups import Link as Link
    from parcost.contract.groups import Phase as Phase
    from parcost.contract.groups import link_resources as link_resources
    from parcost.contract.hookspecs import API_VERSION as API_VERSION
    from parcost.contract.hookspecs import hookimpl as hookimpl
    from parcost.contract.importers import DecidingSubject as DecidingSubject
    from parcost.contract.importers import FileReader as FileReader
    from parcost.contract.importers import ForeignFile as ForeignFile
    from parcost.contract.importers import ForeignSource as ForeignSource
    from parcost.contract.importers import ImportedBlock as ImportedBlock
    from parcost.contract.importers import ImportedKey as ImportedKey
    from parcost.contract.importers import ImportedValue as ImportedValue
    from parcost.contract.importers import Importer as Importer
    from parcost.contract.importers import ImportFile as ImportFile
    from parcost.contract.importers import ImportOptions as ImportOptions
    from parcost.contract.importers import ImportProblem as ImportProblem
    from parcost.contract.importers import ImportQuestion as ImportQuestion
    from parcost.contract.importers import Translation as Translation
    from parcost.contract.offers import Catalogue as Catalogue
    from parcost.contract.offers import Exporter as Exporter
    from parcost.contract.offers import FileExporter as FileExporter
    from parcost.contract.offers import LiveExporter as LiveExporter
    from parcost.contract.offers import Rulebook as Rulebook
    from parcost.contract.offers import TimelineExporter as TimelineExporter
    from parcost.contract.offers import TimelineFileExporter as TimelineFileExporter
    from parcost.contract.outcome import Outcome as Outcome
    from parcost.contract.outcome import exposed_seconds as exposed_seconds
    from parcost.contract.pipelines import LONGEST_ORDER as LONGEST_ORDER
    from parcost.contract.pipelines import Activity as Activity
    from parcost.contract.pipelines import Case as Case
    from parcost.contract.pipelines import Op as Op
    from parcost.contract.pipelines import Pair as Pair
    from parcost.contract.pipelines import Pipeline as Pipeline
    from parcost.contract.pipelines import PipelineShape as PipelineShape
    from parcost.contract.pipelines import Times as Times
    from parcost.contract.queries import pure_function as pure_function
    from parcost.contract.schema import Curve as Curve
    from parcost.contract.schema import Rate as Rate
    from parcost.contract.schema import block as block
    from parcost.contract.schema import block_name as block_name
    from parcost.contract.schema import block_type as block_type
    from parcost.contract.schema import children as children
    from parcost.contract.schema import fraction as fraction
    from parcost.contract.schema import integer as integer
    from parcost.contract.schema import integers as integers
    from parcost.contract.schema import quantity as quantity
    from parcost.contract.schema import reference as reference
    from parcost.contract.schema import resolver as resolver
    from parcost.contract.schema import string as string
    from parcost.contract.schema import switch as switch
    from parcost.contract.schema import word as word
    from parcost.contract.searches import Axis as Axis
    from parcost.contract.searches import Goal as Goal
    from parcost.contract.searches import Limit as Limit
    from parcost.contract.searches import Objective as Objective
    from parcost.contract.settings import SettingsProblem as SettingsProblem
    from parcost.contract.settings import SettingsWriter as SettingsWriter
    from parcost.contract.settings import ToolSettings as ToolSettings
    from parcost.contract.sheet import Sheet as Sheet
    from parcost.contract.study import Call as Call
    from parcost.contract.study import Collective as Collective
    from parcost.contract.study import KernelModel as KernelModel
    from parcost.contract.study import Replay as Replay
    from parcost.contract.study import Schedule as Schedule
    from parcost.contract.study import Study as Study
    from parcost.contract.terms import Cause as Cause
    from parcost.contract.terms import Edge as Edge
    from parcost.contract.terms import FlopCount as FlopCount
    from parcost.contract.terms import Memory as Memory
    from parcost.contract.terms import Moment as Moment
    from parcost.contract.terms import Names as Names
    from parcost.contract.terms import Once as Once
    from parcost.contract.terms import Operator as Operator
    from parcost.contract.terms import ParameterGroup as ParameterGroup
    from parcost.contract.terms import Pass as Pass
    from parcost.contract.terms import StageCounts as StageCounts
    from parcost.contract.terms import Work as Work
    from parcost.contract.traces import Slice as Slice
    from parcost.contract.traces import StageMessage as StageMessage
    from parcost.contract.traces import StepTrace as StepTrace
    from parcost.contract.traces import communications_of as communications_of
    from parcost.engine.replay import longest_span as longest_span
    from parcost.engine.replay import makespan as makespan
    from parcost.engine.scenario import Scenario as Scenario
    from parcost.engine.session import Session as Session
    from parcost.engine.session import evaluate as evaluate
    from parcost.engine.session import load as load
    from parcost.engine.session import load_text as load_text
    from parcost.language.diagnostics import Diagnostic as Diagnostic
    from parcost.language.diagnostics import did_you_mean as did_you_mean
    from parcost.language.errors import MissingExtraError as MissingExtraError
    from parcost.language.errors import ParcostError as ParcostError
    from parcost.language.errors import PluginError as PluginError
    from parcost.language.errors import SpecError as SpecError
    from parcost.language.units import BIT_RATE as BIT_RATE
    from parcost.language.units import BITS as BITS
    from parcost.language.units import BYTES as BYTES
    from parcost.language.units import DOLLARS as DOLLARS
    from parcost.language.units import FLOP as FLOP
    from parcost.language.units import FLOPS as FLOPS
    from parcost.language.units import GRAMS as GRAMS
    from parcost.language.units import JOULES as JOULES
    from parcost.language.units import ONE as ONE
    from parcost.language.units import RATE as RATE
    from parcost.language.units import SECONDS as SECONDS
    from parcost.language.units import WATTS as WATTS
    from parcost.numeric import Mask as Mask
    from parcost.numeric import Real as Real
    from parcost.records import record as record
    from parcost.report.plots import Plot as Plot
    from parcost.report.report import Report as Report
    from parcost.report.result import Result as Result
    from parcost.search.layout_search import search_layouts as search_layouts
    from parcost.search.result import SearchedLayout as SearchedLayout
    from parcost.search.result import SearchResult as SearchResult

#: The public names, by the module below parcost that defines them.
HOMES = {
    "search.layout_search": "search_layouts",
    "search.result": "SearchResult SearchedLayout",
    "language.diagnostics": "Diagnostic did_you_mean",
    "language.errors": "MissingExtraError ParcostError PluginError SpecError",
    "engine.replay": "longest_span makespan",
    "contract.formulas": "Formula FormulaError attribute formula symbols_of plain_of",
    "contract.hookspecs": "API_VERSION hookimpl",
    "numeric": "Mask Real",
    "contract.queries": "pure_function",
    "records": "record",
    "contract.outcome": "Outcome exposed_seconds",
    "contract.schema": (
        "Curve Rate block block_type block_name children fraction integer integers quantity "
        "reference resolver switch string word"
    ),
    "contract.sheet": "Sheet",
    "contract.study": "Call Collective KernelModel Replay Schedule Study",
    "contract.charts": "Chart PassTimeline PointFigure PointTable",
    "contract.checks": "Check",
    "contract.figures": "Figure Interval MissingFigure Section",
    "contract.groups": "ClosedForm Communication Group Library Link Phase link_resources",
    "contract.importers": (
        "DecidingSubject FileReader ForeignFile ForeignSource ImportedBlock ImportFile "
        "ImportOptions ImportProblem ImportQuestion Importer ImportedKey ImportedValue Translation"
    ),
    "contract.settings": "SettingsProblem SettingsWriter ToolSettings",
    "contract.offers": (
        "Catalogue Exporter FileExporter TimelineExporter TimelineFileExporter Rulebook "
        "LiveExporter"
    ),
    "contract.pipelines": "LONGEST_ORDER Activity Case Op Pair Pipeline PipelineShape Times",
    "contract.searches": "Axis Goal Limit Objective",
    "contract.terms": (
        "Cause Edge FlopCount Memory Moment Names Once Operator ParameterGroup Pass "
        "StageCounts Work"
    ),
    "contract.traces": "Slice StageMessage StepTrace communications_of",
    "language.units": "BITS BIT_RATE BYTES DOLLARS FLOP FLOPS GRAMS JOULES ONE RATE SECONDS WATTS",
    "engine.session": "Session evaluate load load_text",
    "report.plots": "Plot",
    "report.report": "Report",
    "report.result": "Result",
    "engine.scenario": "Scenario",
}
_HOME = {name: f"parcost.{module}" for module, names in HOMES.items() for name in names.split()}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `parcost` has no attribute `{name}`")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
