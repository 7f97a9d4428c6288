"""parcost: what one step of distributed LLM training costs, and why.

    >>> import parcost
    >>> callable(parcost.load)
    True

Names are imported when they are first used, so that ``parcost --help`` waits for
nothing. The table below is the public interface.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parcost.api import Session as Session
    from parcost.api import evaluate as evaluate
    from parcost.api import load as load
    from parcost.api import load_text as load_text
    from parcost.diagnostics import (
        Diagnostic as Diagnostic,
    )
    from parcost.diagnostics import (
        ParcostError as ParcostError,
    )
    from parcost.diagnostics import (
        PluginError as PluginError,
    )
    from parcost.diagnostics import (
        SpecError as SpecError,
    )
    from parcost.evaluation.replay import longest_span as longest_span
    from parcost.evaluation.replay import makespan as makespan
    from parcost.formulas import Formula as Formula
    from parcost.formulas import FormulaError as FormulaError
    from parcost.formulas import formula as formula
    from parcost.formulas import letters_of as letters_of
    from parcost.formulas import plain_of as plain_of
    from parcost.hookspecs import hookimpl as hookimpl
    from parcost.language.units import (
        BIT_RATE as BIT_RATE,
    )
    from parcost.language.units import (
        BITS as BITS,
    )
    from parcost.language.units import (
        BYTES as BYTES,
    )
    from parcost.language.units import (
        DOLLARS as DOLLARS,
    )
    from parcost.language.units import (
        FLOP as FLOP,
    )
    from parcost.language.units import (
        FLOPS as FLOPS,
    )
    from parcost.language.units import (
        GRAMS as GRAMS,
    )
    from parcost.language.units import (
        JOULES as JOULES,
    )
    from parcost.language.units import (
        ONE as ONE,
    )
    from parcost.language.units import (
        RATE as RATE,
    )
    from parcost.language.units import (
        SECONDS as SECONDS,
    )
    from parcost.language.units import (
        WATTS as WATTS,
    )
    from parcost.numeric import Mask as Mask
    from parcost.numeric import Real as Real
    from parcost.outcome import Outcome as Outcome
    from parcost.queries import pure_function as pure_function
    from parcost.records import record as record
    from parcost.report import Report as Report
    from parcost.report import Result as Result
    from parcost.scenario import Scenario as Scenario
    from parcost.schema import Curve as Curve
    from parcost.schema import Rate as Rate
    from parcost.schema import block as block
    from parcost.schema import block_type as block_type
    from parcost.schema import called as called
    from parcost.schema import children as children
    from parcost.schema import fraction as fraction
    from parcost.schema import integer as integer
    from parcost.schema import integers as integers
    from parcost.schema import quantity as quantity
    from parcost.schema import reference as reference
    from parcost.schema import string as string
    from parcost.schema import switch as switch
    from parcost.schema import word as word
    from parcost.sheet import Sheet as Sheet
    from parcost.study import Call as Call
    from parcost.study import Study as Study
    from parcost.terms import LONGEST_ORDER as LONGEST_ORDER
    from parcost.terms import Activity as Activity
    from parcost.terms import Axis as Axis
    from parcost.terms import Case as Case
    from parcost.terms import Catalogue as Catalogue
    from parcost.terms import Check as Check
    from parcost.terms import Collective as Collective
    from parcost.terms import Edge as Edge
    from parcost.terms import Exporter as Exporter
    from parcost.terms import Figure as Figure
    from parcost.terms import FileExporter as FileExporter
    from parcost.terms import FlopCount as FlopCount
    from parcost.terms import Goal as Goal
    from parcost.terms import Group as Group
    from parcost.terms import Interval as Interval
    from parcost.terms import KernelModel as KernelModel
    from parcost.terms import Library as Library
    from parcost.terms import Limit as Limit
    from parcost.terms import Link as Link
    from parcost.terms import Memory as Memory
    from parcost.terms import Moment as Moment
    from parcost.terms import Names as Names
    from parcost.terms import Objective as Objective
    from parcost.terms import Once as Once
    from parcost.terms import Op as Op
    from parcost.terms import Operator as Operator
    from parcost.terms import Pair as Pair
    from parcost.terms import ParameterGroup as ParameterGroup
    from parcost.terms import Pass as Pass
    from parcost.terms import Phase as Phase
    from parcost.terms import Pipeline as Pipeline
    from parcost.terms import PipelineShape as PipelineShape
    from parcost.terms import Replay as Replay
    from parcost.terms import Row as Row
    from parcost.terms import Schedule as Schedule
    from parcost.terms import Section as Section
    from parcost.terms import Times as Times
    from parcost.terms import Work as Work
    from parcost.terms import busy as busy

__version__ = "0.2.0.dev0"

#: The public names by the module, below parcost, that defines them.
HOMES = {
    "diagnostics": ("Diagnostic", "ParcostError", "PluginError", "SpecError"),
    "evaluation.replay": ("longest_span", "makespan"),
    "formulas": ("Formula", "FormulaError", "formula", "letters_of", "plain_of"),
    "hookspecs": ("hookimpl",),
    "numeric": ("Mask", "Real"),
    "queries": ("pure_function",),
    "records": ("record",),
    "outcome": ("Outcome",),
    "schema": (
        "Curve",
        "Rate",
        "block",
        "block_type",
        "called",
        "children",
        "fraction",
        "integer",
        "integers",
        "quantity",
        "reference",
        "switch",
        "string",
        "word",
    ),
    "sheet": ("Sheet",),
    "study": ("Call", "Study"),
    "terms": (
        "LONGEST_ORDER",
        "Activity",
        "Axis",
        "Case",
        "Catalogue",
        "Check",
        "Collective",
        "Edge",
        "Exporter",
        "Figure",
        "FileExporter",
        "FlopCount",
        "Goal",
        "Group",
        "Interval",
        "KernelModel",
        "Limit",
        "Library",
        "Link",
        "Memory",
        "Moment",
        "Names",
        "Objective",
        "Once",
        "Op",
        "Operator",
        "Pair",
        "ParameterGroup",
        "Pass",
        "Phase",
        "Pipeline",
        "PipelineShape",
        "Replay",
        "Row",
        "Schedule",
        "Section",
        "Times",
        "Work",
        "busy",
    ),
    "language.units": (
        "BITS",
        "BIT_RATE",
        "BYTES",
        "DOLLARS",
        "FLOP",
        "FLOPS",
        "GRAMS",
        "JOULES",
        "ONE",
        "RATE",
        "SECONDS",
        "WATTS",
    ),
    "api": ("Session", "evaluate", "load", "load_text"),
    "report": ("Report", "Result"),
    "scenario": ("Scenario",),
}
_HOME = {name: f"parcost.{module}" for module, names in HOMES.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `parcost` has no attribute `{name}`")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value
