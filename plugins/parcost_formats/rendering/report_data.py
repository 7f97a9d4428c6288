"""Reports as plain data, ready for JSON.

The names are a contract, versioned by :data:`parcost_formats.rendering.json_header.SCHEMA_VERSION`.
Names of numbers end in their unit; numbers are in base units (seconds, bytes, FLOP). For a sweep,
numbers are lists, one entry for each valid point, in the order of ``points``. Infinity and NaN are
null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import asdict, evolve

from parcost.contract.formulas import Formula
from parcost.language import units
from parcost.language.json_encoding import Json, encode, plain_data
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
from parcost.report.result import point_count
from parcost.report.rows import rows
from parcost.report.verdict import verdict
from parcost_formats.rendering.assumptions import assumptions
from parcost_formats.rendering.diagnostics import as_data, suppression_data
from parcost_formats.rendering.json_parts import array, members, number, text

if TYPE_CHECKING:
    from parcost.contract.figures import Figure, Interval, Section
    from parcost.contract.outcome import LedgerLine, MemoryLine, Outcome
    from parcost.contract.plugin import Fault, Plugin
    from parcost.report.report import Report
    from parcost.report.result import Expectation, Result
    from parcost_formats.rendering.rejection import Rejection

_PLUGINS = 1000
_MOST_SYMBOLS = 12  # of a part that is printed whole, if it is a figure of its own
_LEAVES = 4096  # formulas without inputs, kept as text
_DEEPEST = 40  # formulas within one another

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


def report(whole: Report, *, sections: bool = True) -> Json:
    """Return a report as JSON; computing *sections*, such as advice, may take most of the time."""
    results = [_result(result, whole.units, sections=sections) for result in whole.results]
    plugins = whole.results[0].study.plugins if whole.results else None
    shown = {
        "name": text(whole.name),
        "path": text(whole.path),
        "exit_code": number(whole.exit_code),
        "with": encode(list(plugins.files) if plugins else []),
        "without": encode(list(plugins.left_out) if plugins else []),
        "axes": encode(
            {key(name, whole.units.get(name, "")): plain_data(list(vs)) for name, vs in whole.axes}
        ),
        "results": array(results),
    }
    if whole.axes:
        units = {f.name: f.unit for result in whole.results for _, f in result.figures}
        units |= whole.units
        shown["points"] = encode(
            [
                {key(n, units.get(n, "")): plain_data(v) for n, v in row.items()}
                for row in points(whole)
            ]
        )
    return members(shown)


def points(whole: Report, figures: Sequence[str] = ()) -> list[Mapping[str, Any]]:
    """Return every point of a report, with its headlines or *figures*.

    The reason of a point includes the plugins that failed there.
    """

    names = [name for name, _ in whole.axes]
    failed: dict[tuple[str, ...], Sequence[str]] = {}

    def row_key(row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(f"{row[name]}" for name in names)

    for result in whole.results:
        said = dict.fromkeys(fault.line for fault in result.faults)
        of_result = evolve(whole, results=[result]).rows() if said else ()
        failed |= {row_key(row): list(said) for row in of_result}
    return [
        {**row, "reason": "; ".join(filter(None, (row["reason"], *failed.get(row_key(row), ()))))}
        for row in rows(whole.axes, whole.results, figures)
    ]


def rejection(entry: Rejection) -> dict[str, Any]:
    """Return a file without a report as plain data."""
    return {
        "path": entry.path,
        "exit_code": entry.exit_code,
        "diagnostics": diagnostics(entry.diagnostics),
    }


def diagnostics(found: Sequence[Any]) -> list[Mapping[str, Any]]:
    """Return diagnostics as plain data."""

    return [as_data(diagnostic) for diagnostic in found]


def formula(of: Formula, figures: Mapping[int, str] = MappingProxyType({})) -> Json:
    """Return a formula as JSON: its text, its inputs by symbol, and its source.

    An input with a formula has that formula next to its value at its first occurrence. If the
    formula belongs to one of *figures*, the name of the figure replaces it.
    """
    return _formula(of, figures, set(), 0)


def _formula(of: Formula, figures: Mapping[int, str], seen: set[int], depth: int) -> Json:
    inputs = []
    for symbol, given, unit in of.symbols():
        value, more = given, ""
        if isinstance(given, Formula):
            value = given.value
            if id(given) in figures:
                more = f',"figure":{text(figures[id(given)])}'
            elif depth >= _DEEPEST:
                pass
            elif not given.raw and given.explain is None:
                more = _write_leaf(given.title, given.own_text, given.source)
            elif id(given) not in seen:
                seen.add(id(given))
                more = f',"formula":{_formula(given, figures, seen, depth + 1)}'
        if value.__class__ is float and value:  # zeros are equal, and spelled apart
            start = _number_start(symbol, value, unit)
        else:
            start = _start(symbol, value, unit)
        inputs.append(f"{start}{more}}}")
    joined = ",".join(inputs)
    return Json(f'{{"text":{text(of.shown)},"inputs":{{{joined}}},"source":{text(of.source)}}}')


@cache
def base_unit(unit: str) -> str:
    """Return the unit that a number shown in *unit* has in a document.

    >>> base_unit("GiB"), base_unit("USD/h"), base_unit("%"), base_unit("W"), base_unit("tokens")
    ('B', 'USD/s', '', 'W', 'tokens')
    """
    try:
        size, dimension = units.unit(unit)
    except KeyError:
        return unit  # a plugin's own word for a plain number
    if size == 1.0:
        return unit
    return "" if dimension == ONE else str(dimension)


def _start(symbol: str, value: Any, unit: str) -> str:
    """Return the start of an input's JSON: its symbol, its number and its unit."""
    return f'{text(symbol)}:{{"value":{number(value)},"unit":{text(base_unit(unit))}'


@lru_cache(_LEAVES)
def _number_start(symbol: str, value: float, unit: str) -> str:
    return _start(symbol, value, unit)


@lru_cache(_LEAVES)
def _write_leaf(title: str, written: str, source: str) -> str:
    """Return a formula without inputs, such as an attribute of a spec; many lines share it."""
    shown = Formula(written, title=title).shown
    return f',"formula":{{"text":{text(shown)},"inputs":{{}},"source":{text(source)}}}'


def plugin(of: Plugin | None) -> dict[str, str] | None:
    """Return the contributing plugin as plain data; None for the core."""
    if of is None:
        return None
    return {"name": of.name, "distribution": of.distribution, "version": of.version}


@lru_cache(_PLUGINS)
def _by(plugin_: Plugin | None) -> Json:
    return encode(plugin(plugin_))


def _result(result: Result, units: Mapping[str, str], *, sections: bool) -> Json:
    outcome, figures = result.outcome, long_figures(result)
    # Asked for first: a plugin that fails now adds a fault.
    found = [section_of(p, section) for p, section in result.sections] if sections else []
    at = {key(name, units.get(name, "")): plain_data(value) for name, value in result.at.items()}
    shown = {
        "at": encode(at),
        "verdict": encode(_verdict(result)),
        "feasible": number(result.feasible),
        "complete": encode(not result.faults),
        "figures": members(
            {
                key(f.name, f.unit): _figure(p, f, result.interval(f.name), figures)
                for p, f in result.figures
            }
        ),
        "expectations": encode([_expectation(e) for e in result.expectations]),
        "diagnostics": encode(diagnostics(result.diagnostics)),
        "suppressions": encode([suppression_data(one) for one in result.suppressions]),
        "assumed": encode([asdict(one) for one in assumptions(result.study)]),
        "faults": encode([_fault(fault) for fault in result.faults]),
    }
    if outcome is not None:
        shown |= _outcome(outcome, figures)
    if result.legal and sections:
        shown["sections"] = encode(found)
    return members(shown)


def _verdict(result: Result) -> str | list[str]:
    """Return the verdict of a result, or of each point of a sweep."""
    if not result.swept:
        return verdict(result)
    return [verdict(result, point) for point in range(point_count(result))]


def _outcome(outcome: Outcome, figures: Mapping[int, str]) -> dict[str, Json]:
    pipeline = outcome.pipeline
    cut = {
        "schedule": pipeline.schedule,
        "stages": pipeline.stages,
        "chunks": pipeline.chunks,
        "micro_batches": plain_data(pipeline.micro_batches),
    }
    memory = {
        "total_bytes": number(outcome.memory_bytes),
        "stage": number(outcome.memory_device),
        "moment": number(outcome.memory_moment),
        "by_stage_bytes": number(list(outcome.device_memory)),
        "lines": array([_memory(line, figures) for line in outcome.memory_lines]),
    }
    return {
        "step_seconds": number(outcome.step_seconds),
        "ideal_seconds": number(outcome.ideal_seconds),
        "makespan_seconds": number(outcome.makespan_seconds),
        "executed_flop": number(outcome.flops),
        "reference_stage": number(outcome.device),
        "pipeline": encode(cut),
        "ledger": array([_line(line, figures) for line in outcome.ledger]),
        "memory": members(memory),
    }


def _line(line: LedgerLine, figures: Mapping[int, str]) -> Json:
    return members(
        {
            "name": text(line.name),
            "kind": text(line.kind),
            "pass": text(line.pass_),
            "resource": text(line.resource),
            "cause": text(line.cause),
            "exposed_seconds": number(line.exposed),
            "hidden_seconds": number(line.hidden),
            "formula": formula(line.formula, figures),
            "plugin": _by(line.plugin),
        }
    )


def _memory(line: MemoryLine, figures: Mapping[int, str]) -> Json:
    return members(
        {
            "name": text(line.name),
            "bytes": number(line.bytes_),
            "cause": text(line.cause),
            "formula": formula(line.formula, figures),
            "plugin": _by(line.plugin),
        }
    )


def _figure(
    by: Plugin, figure: Figure, interval: Interval | None, figures: Mapping[int, str]
) -> Json:
    shown = {
        "title": text(figure.title),
        "value": number(figure.value),
        "note": text(figure.note),
        "formula": formula(figure.formula, figures),
        "plugin": _by(by),
    }
    if interval is not None:
        shown |= {
            "interval": array([number(interval.low), number(interval.high)]),
            "coverage": number(interval.coverage),
            "interval_formula": formula(interval.formula, figures),
        }
    return members(shown)


def _expectation(expectation: Expectation) -> dict[str, Any]:
    figure = expectation.figure
    return {
        "claim": expectation.text,
        "figure": key(figure.name, figure.unit),
        "predicted": plain_data(figure.value),
        "holds": plain_data(expectation.holds),
    }


def section_of(by: Plugin, section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "columns": list(section.columns),
        "rows": plain_data([list(row) for row in section.rows]),
        "notes": list(section.notes),
        **({"command": section.command} if section.command else {}),
        "plugin": plugin(by),
    }


def _fault(fault: Fault) -> dict[str, Any]:
    return {"plugin": plugin(fault.plugin), "hook": fault.hook, "message": fault.message}


def long_figures(result: Result) -> Mapping[int, str]:
    """Return the headline figures whose formulas have many symbols, by the id of the formula.

    Inside another formula, the name of such a figure replaces its symbols.
    """
    return {
        id(figure.formula): figure.name for _, figure in result.figures if _is_long(figure.formula)
    }


def _is_long(of: Formula) -> bool:
    waiting, count = [of], 0
    while waiting and count <= _MOST_SYMBOLS:
        symbols = waiting.pop().symbols()
        count += len(symbols)
        waiting += [value for _, value, _ in symbols if isinstance(value, Formula)]
    return count > _MOST_SYMBOLS
