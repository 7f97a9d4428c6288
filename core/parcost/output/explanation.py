"""One term, explained: how it comes about, who says so, and where it stands in the step."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from parcost.contract.formulas import Formula
from parcost.contract.page import Column, Heading, Item, Row, Table
from parcost.contract.schema import block_name, block_type
from parcost.contract.terms import Edge, Memory, Once, Work
from parcost.language import units
from parcost.language.numbers import literal, quantity, round_significant
from parcost.numeric import all_of, any_of, is_array
from parcost.output.cells import cell, share
from parcost.output.formulas import filled
from parcost.output.narrative import PASSES
from parcost.report.figures import interval_of
from parcost.spec.conversion import qualifier

if TYPE_CHECKING:
    from parcost.contract.outcome import Line, MemoryLine, Outcome
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.contract.terms import Figure, Interval
    from parcost.report.report import Report
    from parcost.report.result import Result

_WHEN = {
    "fill": "once per step, before the first forward pass of the stage",
    "drain": "once per step, after the last backward pass of the stage",
    "end": "once per step, after every stage has drained",
}
_ADDED = {
    "slowdown": "work that is slower while communication hides under it",
    "bubble": "idle while the pipeline fills and drains",
    "hop": "waiting for a neighbouring stage",
}


_WHOLE = {"F": "forward", "R": "backward", "B": "backward", "W": "backward"}


def names(result: Result) -> list[str]:
    """Return what can be explained, in the order of the report."""
    found = [figure.name for _, figure in result.figures]
    if result.outcome is not None:
        found += [line.name for line in result.outcome.ledger]
        found += [line.name for line in result.outcome.memory_lines]
    found += [figure.name for _, figure in result.details]
    return list(dict.fromkeys(found))


def listed_names(result: Result) -> Iterator[Item]:
    """Yield what can be explained, in a table for each part of the report."""
    shown = {figure.name for _, figure in result.figures}
    details = [(f.name, f.title) for _, f in result.details if f.name not in shown]
    parts: list[tuple[str, list[tuple[str, str]]]] = [
        ("Figures", [(figure.name, figure.title) for _, figure in result.figures])
    ]
    if result.outcome is not None:
        lines = [(line.name, PASSES.get(line.pass_, "")) for line in result.outcome.ledger]
        held = [(line.name, "") for line in result.outcome.memory_lines]
        parts += [("The step", lines), ("Memory", held)]
    for title, rows in [*parts, ("Further figures", details)]:
        if rows:
            yield Heading(title)
            yield Table((Column("term"), Column("", flexible=True)), [Row(row) for row in rows])


def point_options(report: Report) -> str:
    """Return what the command line says to see one point of a sweep."""
    options = [f"--set {shlex.quote(setting)}" for setting in settings(report)]
    lets = [f"one value of `{name}` in the file" for name, _ in report.axes if "." not in name]
    return " and ".join(filter(None, [" ".join(options), *lets]))


def settings(report: Report) -> list[str]:
    """Return what sets a swept scenario to one of its points: the first that may run.

    A sweep that stands in a `let` is left out: no path leads there.
    """
    points = report.rows()
    point = next((p for p in points if p["feasible"]), points[0])
    names = [name for name, _ in report.axes if "." in name]
    return [_setting(report, name, point[name]) for name in names]


def _setting(report: Report, name: str, value: Any) -> str:
    """Return an axis with its path and its value as the language spells them."""
    owner, _, attribute = name.rpartition(".")
    path, word = name, ""
    for within, block in _blocks(report.results[0].study):
        type_ = block_type(type(block))
        if owner in (block.label, type_.kind) and attribute in type_.fields:
            path, word = f"{within}{name}", qualifier(type_.fields[attribute])
            if is_array(getattr(block, attribute)):
                break  # of several blocks with this label, the one that sweeps
    if isinstance(value, (bool, str, list)) or value is None:
        return f"{path}={cell(value)}"
    unit = report.units.get(name, "")
    return f"{path}={literal(float(value), units.unit(unit)[1] if unit else units.ONE)}{word}"


def _blocks(study: Study) -> Iterator[tuple[str, Any]]:
    """Yield every block with the beginning of its path: those inside of others by these."""
    for blocks in study.blocks.values():
        for block in blocks:
            yield "", block
            for value in vars(block).values():
                for inner in value if isinstance(value, tuple) else ():
                    if hasattr(type(inner), "__block__"):
                        yield f"{block_name(block)}.", inner


def explain(result: Result, term: str) -> Iterator[Item]:
    """Yield everything called *term*; nothing where nothing is."""
    outcome = result.outcome
    shown = {figure.name for _, figure in result.figures}
    more = [(p, f) for p, f in result.details if f.name not in shown]
    for plugin, figure in (*result.figures, *more):
        if _matches_name(figure.name, term) or _matches_name(figure.title, term):
            yield from _figure(plugin, figure)
            for by, interval in result.intervals:
                if interval.name == figure.name:
                    yield from _interval(by, interval, figure.unit)
    if outcome is None:
        return
    for line in outcome.ledger:
        if _matches_name(line.name, term):
            yield from _line(line, outcome)
    for held in outcome.memory_lines:
        if _matches_name(held.name, term):
            yield from _memory(held, outcome)


def _matches_name(name: str, term: str) -> bool:
    """Return whether *term* means *name*: whole, or without the stage that it ends with."""
    meant, name = _words(term), _words(name)
    return meant in (name, name.partition(",")[0])


def _words(name: str) -> str:
    """Return a name as it is looked up: `Pipeline bubble` is `pipeline_bubble`."""
    return " ".join(name.lower().replace("_", " ").split())


def _figure(plugin: Plugin, figure: Figure) -> Iterator[Item]:
    yield Heading(f"{figure.name}: {figure.title}")
    yield from _facts(
        ("value", quantity(figure.value, figure.unit, digits=6)),
        *_formula(figure.formula),
        ("note", figure.note),
        ("from", f"plugin {plugin}"),
    )


def _interval(plugin: Plugin, interval: Interval, unit: str) -> Iterator[Item]:
    yield Heading(f"{interval.name}: where measured values lie")
    yield from _facts(
        ("interval", interval_of(interval, unit)),
        *_formula(interval.formula),
        *(_formula(interval.upper) if interval.upper is not interval.formula else ()),
        ("from", f"plugin {plugin}"),
    )


def _line(line: Line, outcome: Outcome) -> Iterator[Item]:
    passing = PASSES.get(line.pass_, "")
    yield Heading(f"{line.name}, {passing}" if passing else line.name)
    step = f"{share(line.exposed, outcome.step_seconds)} %"
    term = line.term
    yield from _facts(
        ("exposed", f"{quantity(line.exposed, 's', digits=6)} of each step, {step}"),
        ("hidden", quantity(line.hidden, "s", digits=6)),
        ("once", "" if term is None else quantity(term.seconds, "s", digits=6)),
        *_formula(line.formula),
        ("stands", _place(line)),
        ("hides", _hiding(line)),
        ("keeps busy", line.resource),
        ("moves", _amount(0.0 if term is None else term.bytes_, "B")),
        ("executes", _amount(term.flops if isinstance(term, Work) else 0.0, "FLOP")),
        ("from", f"plugin {line.plugin}" if line.plugin else "the core, which adds up"),
    )


def _memory(line: MemoryLine, outcome: Outcome) -> Iterator[Item]:
    term = line.term
    yield Heading(f"{line.name}, held in memory")
    held = f"{share(line.bytes_, outcome.memory_bytes)} %"
    yield from _facts(
        ("holds", f"{quantity(line.bytes_, 'B', digits=6)} of the busiest device, {held}"),
        ("once", quantity(term.bytes_, "B", digits=6)),
        *_formula(line.formula),
        ("stands", _memory_life(term)),
        ("left here", "" if all_of(line.left == 1) else quantity(line.left, "%")),
        ("from", f"plugin {line.plugin}"),
    )


def _facts(*facts: tuple[str, str]) -> Iterator[Item]:
    rows = [Row(fact) for fact in facts if fact[1]]
    yield Table((Column(), Column(flexible=True)), rows)


def _formula(formula: Formula) -> list[tuple[str, str]]:
    """Return the formula in letters and in numbers, its letters, and the formulas of those."""
    numbers = filled(formula)
    facts = [("formula", formula.shown)]
    if numbers != formula.text:
        facts.append(("in numbers", numbers))
    return [*facts, *_letters(formula), ("source", formula.source)]


def _letters(formula: Formula) -> Iterator[tuple[str, str]]:
    """Yield each letter, and below it the letters of its own formula; each formula once."""
    seen: set[int] = set()
    waiting = [(letter, value, unit, 1) for letter, value, unit in formula.letters()][::-1]
    while waiting:
        letter, value, unit, depth = waiting.pop()
        if not isinstance(value, Formula):
            yield f"{'  ' * depth}{letter}", quantity(value, unit)
            continue
        shown = f"{quantity(value.value, unit)} = {value.shown}"
        if id(value) in seen:
            yield f"{'  ' * depth}{letter}", f"{shown}, as above"
            continue
        seen.add(id(value))
        numbers = filled(value)
        yield f"{'  ' * depth}{letter}", f"{shown} = {numbers}" if numbers != value.text else shown
        waiting += [(inner, *more, depth + 1) for inner, *more in value.letters()][::-1]


def _amount(value: Any, unit: str) -> str:
    nothing = isinstance(value, (float, int)) and value == 0
    return "" if nothing else f"{quantity(value, unit)} each time"


def _place(line: Line) -> str:
    term = line.term
    match term:
        case Work():
            where = f"in the {PASSES[term.pass_].removesuffix('s')} pass of every micro-batch"
            return f"{where}, {_count(term.count)}"
        case Once():
            return f"{_WHEN[term.when]}, {_count(term.count)}"
        case Edge():
            return "between neighbouring stages, for every micro-batch and either direction"
    return _ADDED.get(line.kind, "")


def _count(count: Sequence[float] | float) -> str:
    if isinstance(count, (float, int)):
        return f"{round_significant(count)} times on each virtual stage"
    each = list(dict.fromkeys(count))
    if len(each) == 1:
        return f"{round_significant(each[0])} times on each of {len(count)} virtual stages"
    return (
        f"{', '.join(map(round_significant, count))} times on virtual stage 0 to {len(count) - 1}"
    )


def _hiding(line: Line) -> str:
    match line.term:
        case Work(window=None) if any_of(line.hidden != 0):
            return "under the pass of another micro-batch, which the schedule runs at once"
        case Work(window=None):
            return "nowhere: it is serial"
        case Work(window=window, share=part, slowdown=slower):
            under = f"`{window}` of the same pass"
            if not window:
                under = f"all serial work of the whole {_WHOLE[line.pass_]} pass"
            said = f"under {under}, at most {quantity(part, '%')} of it"
            drag = not (isinstance(slower, (float, int)) and slower == 0)
            return f"{said}; each hidden second costs {quantity(slower, 's')}" if drag else said
        case Once(when="end"):
            return "nowhere: every stage has drained"
        case Once(beside=beside, tail=tail):
            said = "in what the stage idles anyway in fill or drain"
            if not (isinstance(beside, (float, int)) and beside == 0):
                said += f", and beside {quantity(beside, '%')} of one micro-batch"
            if not (isinstance(tail, (float, int)) and tail == 0):
                said += f"; the last {quantity(tail, 's')} never"
            return said
    return ""


def _memory_life(term: Memory) -> str:
    said = [_count(term.count)]
    if term.per_micro_batch:
        said.append("for each micro-batch that is alive")
    if term.once_per_device:
        said.append("once per device")
    return ", ".join([*said, f"at: {', '.join(term.moments)}"])
