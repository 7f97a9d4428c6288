"""Reports as plain data, ready for JSON.

The names are a contract, versioned by ``schema_version``: additions leave the number
as it is, anything else raises it. Names of numbers end in their unit; numbers are in
base units (seconds, bytes, FLOP). Over a sweep numbers are lists, one entry for each
point that may run, in the order of ``points``. What is not finite is null.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parcost.language import units
from parcost.language.units import (
    BYTES,
    DOLLARS,
    FLOP,
    FLOPS,
    GRAMS,
    JOULES,
    ONE,
    RATE,
    SECONDS,
    WATTS,
    Dimension,
)

if TYPE_CHECKING:
    from parcost.batch import Rejected
    from parcost.outcome import Fault, Outcome
    from parcost.plugins import Plugin
    from parcost.report import Expectation, Report, Result
    from parcost.terms import Figure, Formula, Section

SCHEMA_VERSION = 1

_SUFFIXES: Mapping[Dimension, str] = {
    ONE: "",
    SECONDS: "seconds",
    BYTES: "bytes",
    RATE: "bytes_per_second",
    FLOP: "flop",
    FLOPS: "flop_per_second",
    WATTS: "watts",
    JOULES: "joules",
    DOLLARS: "dollars",
    GRAMS: "grams",
}


def header() -> dict[str, Any]:
    """Return what stands at the head of every document."""
    from parcost import __version__

    return {"schema_version": SCHEMA_VERSION, "parcost_version": __version__}


def key(name: str, unit: str) -> str:
    """Return the name of a number with its unit.

    >>> key("mfu", "%"), key("step_time", "s"), key("memory", "GiB"), key("replicas", "")
    ('mfu_fraction', 'step_time_seconds', 'memory_bytes', 'replicas')
    """
    if unit == "%":
        suffix = "fraction"
    else:
        try:
            dimension = units.unit(unit)[1] if unit else ONE
        except KeyError:
            dimension = ONE  # a plugin's own word for a plain number
        suffix = _SUFFIXES.get(dimension, str(dimension).replace("/", "_per_"))
    return name if not suffix or name.endswith(suffix) else f"{name}_{suffix}"


def report(told: Report, *, sections: bool = True) -> dict[str, Any]:
    """Return a report; *sections*, such as advice, may cost more than all the rest."""
    shown: dict[str, Any] = {
        "name": told.name,
        "path": told.path,
        "exit_code": told.exit_code,
        "without": list(told.results[0].study.plugins.left_out) if told.results else [],
        "axes": {
            key(name, told.units.get(name, "")): plain(list(values)) for name, values in told.axes
        },
        "results": [_result(result, told.units, sections=sections) for result in told.results],
    }
    if told.axes:
        units = {f.name: f.unit for result in told.results for _, f in result.figures}
        units |= told.units
        shown["points"] = [
            {key(n, units.get(n, "")): plain(v) for n, v in row.items()} for row in told.rows()
        ]
    return shown


def rejected(entry: Rejected) -> dict[str, Any]:
    """Return a file without a report."""
    return {
        "path": entry.path,
        "exit_code": entry.exit_code,
        "diagnostics": diagnostics(entry.diagnostics),
    }


def diagnostics(found: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return diagnostics."""
    from parcost.render.diagnostics import as_data

    return [as_data(diagnostic) for diagnostic in found]


def formula(of: Formula) -> dict[str, Any]:
    """Return a formula: its text, its inputs by letter, and its source."""
    inputs = {
        letter: {"value": plain(value), "unit": unit} for letter, (value, unit) in of.inputs.items()
    }
    return {"text": of.text, "inputs": inputs, "source": of.source}


def plugin(of: Plugin | None) -> dict[str, str] | None:
    """Return who contributed something; None is the core, which only adds up."""
    if of is None:
        return None
    return {"name": of.name, "distribution": of.distribution, "version": of.version}


def plain(value: Any) -> Any:
    """Return *value* in the types of JSON; None for what is not finite.

    >>> plain((1, float("inf"), "x", {"a": 2.5}))
    [1, None, 'x', {'a': 2.5}]
    """
    if value.__class__ is float:  # most are
        return value if math.isfinite(value) else None
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case _ if hasattr(value, "tolist"):
            return plain(value.tolist())
        case list() | tuple():
            return [plain(v) for v in value]
        case _ if getattr(value, "label", ""):
            return value.label
    return str(value)


def _result(result: Result, units: Mapping[str, str], *, sections: bool) -> dict[str, Any]:
    outcome = result.outcome
    # Asked for first: a plugin that fails now adds a fault.
    told = [section_of(p, section) for p, section in result.sections] if sections else []
    shown: dict[str, Any] = {
        "at": {key(name, units.get(name, "")): plain(value) for name, value in result.at.items()},
        "feasible": plain(result.feasible),
        "complete": not result.faults,
        "figures": {key(f.name, f.unit): _figure(p, f) for p, f in result.figures},
        "expectations": [_expectation(e) for e in result.expectations],
        "diagnostics": diagnostics(result.diagnostics),
        "faults": [_fault(fault) for fault in result.faults],
    }
    if outcome is not None:
        shown |= _outcome(outcome)
    if result.legal and sections:
        shown["sections"] = told
    return shown


def _outcome(outcome: Outcome) -> dict[str, Any]:
    pipeline = outcome.pipeline
    return {
        "step_seconds": plain(outcome.step_seconds),
        "ideal_seconds": plain(outcome.ideal_seconds),
        "makespan_seconds": plain(outcome.makespan_seconds),
        "executed_flop": plain(outcome.flops),
        "reference_stage": plain(outcome.device),
        "pipeline": {
            "schedule": pipeline.schedule,
            "stages": pipeline.stages,
            "chunks": pipeline.chunks,
            "micro_batches": plain(pipeline.micro_batches),
        },
        "ledger": [
            {
                "name": line.name,
                "kind": line.kind,
                "pass": line.pass_,
                "resource": line.resource,
                "exposed_seconds": plain(line.exposed),
                "hidden_seconds": plain(line.hidden),
                "formula": formula(line.formula),
                "plugin": plugin(line.plugin),
            }
            for line in outcome.ledger
        ],
        "memory": {
            "total_bytes": plain(outcome.memory_bytes),
            "stage": plain(outcome.memory_device),
            "moment": plain(outcome.memory_moment),
            "by_stage_bytes": plain(list(outcome.device_memory)),
            "lines": [
                {
                    "name": line.name,
                    "bytes": plain(line.bytes_),
                    "formula": formula(line.formula),
                    "plugin": plugin(line.plugin),
                }
                for line in outcome.memory_lines
            ],
        },
    }


def _figure(by: Plugin, figure: Figure) -> dict[str, Any]:
    return {
        "title": figure.title,
        "value": plain(figure.value),
        "note": figure.note,
        "formula": formula(figure.formula),
        "plugin": plugin(by),
    }


def _expectation(expectation: Expectation) -> dict[str, Any]:
    figure = expectation.figure
    return {
        "claim": expectation.text,
        "figure": key(figure.name, figure.unit),
        "predicted": plain(figure.value),
        "holds": plain(expectation.holds),
    }


def section_of(by: Plugin, section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "columns": list(section.columns),
        "rows": plain([list(row) for row in section.rows]),
        "notes": list(section.notes),
        "plugin": plugin(by),
    }


def _fault(fault: Fault) -> dict[str, Any]:
    return {"plugin": plugin(fault.plugin), "hook": fault.hook, "message": fault.message}
