"""The explanation of a term: its formula, source and place in the step; and of an attribute."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve

from parcost import PASS_NAMES
from parcost.contract.formulas import Formula
from parcost.contract.page import Column, Heading, Item, Row, Table
from parcost.contract.page import Line as TextLine
from parcost.contract.schema import block_type
from parcost.contract.terms import Cause, Edge, Memory, Once, Work
from parcost.language.numbers import quantity, round_significant
from parcost.language.units import BINARY, DECIMAL
from parcost.numeric import Real, all_of, any_of, where
from parcost.records import record
from parcost.report.figures import interval_of
from parcost.report.formulas import fractions, substitute
from parcost_formats.rendering.cells import share
from parcost_formats.rendering.full_report import section_page
from parcost_formats.rendering.report_data import long_figures
from parcost_formats.rendering.resolved_spec import BlockText, block_texts, place_of

if TYPE_CHECKING:
    from parcost.contract.figures import Figure, Interval
    from parcost.contract.outcome import LedgerLine, MemoryLine, Outcome
    from parcost.contract.plugin import Plugin
    from parcost.contract.study import Study
    from parcost.report.result import Result

_Writer: TypeAlias = "Callable[..., str]"  # of a number, its unit, and its digits
_OF_PASS = tuple(f", {key}]" for key in PASS_NAMES)
_SERIES = re.compile(r"sum\(\w+\)")
_WHEN = {
    "fill": "before the first forward pass of the stage",
    "drain": "after the last backward pass of the stage",
    "device": "after the last backward pass of the device",
    "end": "after every stage has drained",
}
_STEP_TIME, _PEAK_MEMORY = "step time by cause", "peak memory"  # headings of the screen
_ADDED = {
    "slowdown": "compute that is slower while communication overlaps with it",
    "bubble": "idle time while the pipeline fills and drains",
    "send_recv": "waiting for a neighbouring stage",
}


_LISTED = {"Causes": "part of", "Step time": "pass", "Memory": ""}  # heads of names; else meaning
_ROUNDING = 1e-12  # of seconds that are a difference
_WHOLE = {"F": "forward", "R": "backward", "B": "backward", "W": "backward"}


def names(result: Result) -> list[str]:
    """Return the names that can be explained, in the order of the report."""
    found = [figure.name for _, figure in result.figures]
    if result.outcome is not None:
        found += [line.name for line in result.outcome.ledger]
        found += [line.name for line in result.outcome.memory_lines]
        found += [cause for _, causes in _causes(result.outcome) for cause in causes]
    found += [figure.name for _, figure in result.details]
    return list(dict.fromkeys(found))


def name_tables(result: Result) -> Iterator[Item]:
    """Yield the names that can be explained, in a table for each part of the report."""
    shown = {figure.name for _, figure in result.figures}
    details = [(f.name, f.title) for _, f in result.details if f.name not in shown]
    parts: list[tuple[str, list[tuple[str, str]]]] = [
        ("Figures", [(figure.name, figure.title) for _, figure in result.figures])
    ]
    if result.outcome is not None:
        lines = [(line.name, PASS_NAMES.get(line.pass_, "")) for line in result.outcome.ledger]
        held = [(line.name, "") for line in result.outcome.memory_lines]
        causes = [(cause, title) for title, found in _causes(result.outcome) for cause in found]
        parts += [("Causes", causes), ("Step time", lines), ("Memory", held)]
    for title, rows in [*parts, ("Further figures", details)]:
        if rows:
            yield Heading(title)
            head = _LISTED.get(title, "meaning")
            yield Table((Column("name"), Column(head, flexible=True)), [Row(row) for row in rows])


def explain(result: Result, term: str) -> Iterator[Item]:
    """Yield the explanation of each figure, ledger line, memory line and cause called *term*."""
    outcome, leaves = result.outcome, _Leaves(result.study, long_figures(result))
    shown = {figure.name for _, figure in result.figures}
    more = [(p, f) for p, f in result.details if f.name not in shown]
    for plugin, figure in (*result.figures, *more):
        if _matches_name(figure.name, term) or _matches_name(figure.title, term):
            yield from _figure(plugin, figure, leaves)
            for by, interval in result.intervals:
                if interval.name == figure.name:
                    yield from _interval(by, interval, figure.unit, leaves)
    if outcome is None:
        return
    for line in outcome.ledger:
        if _matches_name(line.name, term):
            yield from _line(line, outcome, leaves)
    for held in outcome.memory_lines:
        if _matches_name(held.name, term):
            yield from _memory(held, outcome, leaves)
    for title, causes in _causes(outcome):
        for cause in causes:
            if _matches_cause(cause, term) or _matches_name(title, term):
                yield from _cause(cause, outcome, memory=title == _PEAK_MEMORY)


def explain_section(result: Result, term: str) -> Iterator[Item]:
    """Yield the section, or the rows of a section, called *term*; computing sections is slow."""
    for _, section in result.sections:
        if _matches_name(section.title, term):
            yield from section_page(section)
        elif rows := [row for row in section.rows if _matches_name(str(row[0]), term)]:
            yield from section_page(evolve(section, notes=()), rows)


def explain_settings(result: Result, term: str) -> Iterator[Item]:
    """Yield the attributes of each block called *term*, or the attribute at this path.

    Each has its value, the place that sets it, and its source.
    """
    columns = (Column("attribute"), Column("value", flexible=True), Column("place", flexible=True))
    for text in _block_texts(result):
        declared = block_type(type(text.block))
        shown = {name: one for name, one in text.attributes.items() if one.text or one.implied}
        if term in (declared.kind, text.path):
            yield Heading(text.title)
            rows = [(n, one.text or one.implied, one.place) for n, one in shown.items()]
            yield Table(columns, [Row(row) for row in rows])
        for name, one in shown.items():
            paths = (f"{declared.kind}.{name}", f"{text.path}.{name}")
            if term in paths or ("." in term and paths[1].endswith(f".{term}")):
                yield Heading(paths[1])
                yield from _facts(
                    ("value", one.text.removesuffix(one.provenance) or one.implied),
                    ("set by", one.place),
                    ("source", one.provenance.lstrip()),
                    ("meaning", declared.fields[name].doc),
                )


def setting_names(result: Result) -> list[str]:
    """Return the paths of the attributes that can be explained."""
    return [f"{text.path}.{name}" for text in _block_texts(result) for name in text.attributes]


def _block_texts(result: Result) -> Iterator[BlockText]:
    return (text for texts in block_texts(result.study).values() for text in texts)


def _causes(outcome: Outcome) -> list[tuple[str, list[str]]]:
    """Return the causes of time and of memory, the largest first, each under its heading."""
    sums = ((_STEP_TIME, outcome.seconds_by_cause), (_PEAK_MEMORY, outcome.memory_by_cause))
    return [
        (title, sorted((cause for cause in found if found[cause]), key=lambda c: -found[c]))
        for title, found in sums
    ]


def _matches_cause(cause: str, term: str) -> bool:
    """Return whether *term* is the name or a synonym of a cause.

    >>> _matches_cause(Cause("TP communication", "tensor"), "Tensor")
    True
    """
    words = (cause, *(cause.synonyms if isinstance(cause, Cause) else ()))
    return _words(term) in map(_words, words)


def _cause(cause: str, outcome: Outcome, *, memory: bool) -> Iterator[Item]:
    """Yield the terms of a cause, the largest first."""
    total: Any = outcome.memory_bytes if memory else outcome.step_seconds
    write = _bytes if memory else _seconds
    found: list[tuple[str, str, Any]] = (
        [(line.name, "", line.bytes_) for line in outcome.memory_lines if line.cause == cause]
        if memory
        else [
            (line.name, PASS_NAMES.get(line.pass_, ""), line.exposed)
            for line in outcome.ledger
            if line.cause == cause
        ]
    )
    found.sort(key=lambda entry: -entry[2])
    amount = sum(entry[2] for entry in found)
    yield Heading(f"{cause}: {'cause of memory' if memory else 'cause of step time'}")
    stage = outcome.memory_device if memory else outcome.device
    where = f" of stage {stage:.0f}" if outcome.pipeline.stages > 1 else ""
    whole = f"the peak memory{where}" if memory else f"the step time{where}"
    yield from _facts(("value", f"{write(amount)}, {share(amount, total)} % of {whole}"))
    yield TextLine("")
    rows = [Row((name, when, write(one), f"{share(one, total)} %")) for name, when, one in found]
    yield Table(
        (
            Column("term", flexible=True),
            Column("" if memory else "pass"),
            Column("held" if memory else "exposed", "right"),
            Column("share", "right"),
        ),
        rows,
    )


def _seconds(value: Any) -> str:
    return quantity(value, "s", digits=6)


def _matches_name(name: str, term: str) -> bool:
    """Return whether *term* matches *name*, in full or without the stage at its end."""
    meant, name = _words(term), _words(name)
    return meant in (name, name.partition(",")[0])


def _words(name: str) -> str:
    """Return the lookup form of a name: `Pipeline bubble` is `pipeline_bubble`."""
    return " ".join(name.lower().replace("_", " ").split())


def _figure(plugin: Plugin, figure: Figure, leaves: _Leaves) -> Iterator[Item]:
    write = _writer(figure.unit)
    yield Heading(f"{figure.name}: {figure.title}")
    yield from _facts(
        ("value", quantity(figure.value, figure.unit, digits=6)),
        ("note", figure.note),
        *_formula(figure.formula, write),
        ("from", f"plugin {plugin}"),
    )
    yield from _symbols(figure.formula, write, leaves)


def _interval(plugin: Plugin, interval: Interval, unit: str, leaves: _Leaves) -> Iterator[Item]:
    write = _writer(unit)
    sources = dict.fromkeys((interval.formula.source, interval.upper.source))
    yield Heading(f"{interval.name}: interval of measured values")
    yield from _facts(
        ("interval", interval_of(interval, unit)),
        ("low end", _equation(interval.formula, write)),
        ("high end", _equation(interval.upper, write)),
        *(("source", source) for source in sources),
        ("from", f"plugin {plugin}"),
    )
    for formula in dict.fromkeys((interval.formula, interval.upper)):
        if formula.parts:  # plain symbols stand in the equation
            yield from _symbols(formula, write, leaves)


def _line(line: LedgerLine, outcome: Outcome, leaves: _Leaves) -> Iterator[Item]:
    passing = PASS_NAMES.get(line.pass_, "")
    yield Heading(f"{line.name}, {passing}" if passing else line.name)
    step = f"{share(line.exposed, outcome.step_seconds)} %"
    term = line.term
    yield from _facts(
        ("exposed", f"{quantity(line.exposed, 's', digits=6)} of each step, {step}"),
        ("hidden", quantity(_without_rounding(line.hidden, line.exposed), "s", digits=6)),
        ("per call", "" if term is None else quantity(term.seconds, "s", digits=6)),
        *_formula(line.formula, _traffic),
        ("occurs", _place(line)),
        ("overlap", _describe_overlap(line)),
        ("resource", line.resource),
        ("moves", _amount(0.0 if term is None else term.bytes_, "B")),
        ("executes", _amount(term.flops if isinstance(term, Work) else 0.0, "FLOP")),
        ("from", f"plugin {line.plugin}" if line.plugin else "the core of parcost: a sum of terms"),
    )
    yield from _symbols(line.formula, _traffic, leaves)


def _memory(line: MemoryLine, outcome: Outcome, leaves: _Leaves) -> Iterator[Item]:
    term = line.term
    yield Heading(f"{line.name}, held in memory")
    part = f"{share(line.bytes_, outcome.memory_bytes)} %"
    yield from _facts(
        ("memory", f"{_bytes(line.bytes_)} of the device with the highest peak, {part}"),
        ("each", _bytes(term.bytes_)),
        *_formula(line.formula, _memory_amount),
        ("occurs", _memory_life(term)),
        ("of", _base(line)),
        ("left here", "" if all_of(line.left == 1) else quantity(line.left, "%")),
        ("from", f"plugin {line.plugin}"),
    )
    yield from _symbols(line.formula, _memory_amount, leaves)


def _base(line: MemoryLine) -> str:
    """Return the base of a share, in bytes, as text; "" for a term that is not a share."""
    part, own = line.term.of_activations, line.term.bytes_
    if not all_of(part > 0) or any_of(own != 0):
        return ""
    return f"{_bytes(line.bytes_ / part)} of activations in flight on this device"


def _facts(*facts: tuple[str, str]) -> Iterator[Item]:
    rows = [Row(fact) for fact in facts if fact[1]]
    yield Table((Column(), Column(flexible=True)), rows)


def _formula(formula: Formula, write: _Writer) -> list[tuple[str, str]]:
    """Return the formula in symbols and with numbers, and its source."""
    numbers = _numbers(formula, write)
    facts = [("formula", _formula_text(formula))]
    return [*facts, *([("with numbers", numbers)] if numbers else []), ("source", formula.source)]


def _formula_text(formula: Formula) -> str:
    """Return a formula in symbols; a sum over the terms of the next table is written as "sum over
    terms".
    """
    shown = fractions(formula.shown)
    return (
        shown.replace("sum(", "sum over terms ").rstrip(")") if _SERIES.fullmatch(shown) else shown
    )


def _equation(formula: Formula, write: _Writer) -> str:
    """Return a formula in symbols and with numbers, in one line."""
    numbers = _numbers(formula, write)
    return f"{_formula_text(formula)}{f' = {numbers}' if numbers else ''}"


def _numbers(formula: Formula, write: _Writer) -> str:
    """Return a formula with numbers; "" if it has no numbers, or is only the sum of the table of
    symbols.
    """
    if _SERIES.fullmatch(formula.text):
        return ""
    numbers = substitute(formula, write)
    return "" if numbers in (formula.text, fractions(formula.shown)) else numbers


@record(eq=False)
class _Leaves:
    """The leaves of a formula tree: attributes of the *study*, and figures with a separate page.

    *figures* are the names of such figures, by the id of their formula.
    """

    study: Study
    figures: Mapping[int, str]

    def origin(self, of: Formula) -> str:
        """Return the place of an attribute's value in brackets, "" if unknown."""
        origin = None if of.attribute is None else self.study.origin(*of.attribute)
        if origin is None:
            return ""
        said = place_of(origin)
        return f" ({said}, @{origin.kind})" if origin.kind else f" ({said})" if said else ""

    def command(self, of: Formula) -> str:
        """Return the command that explains a formula with a separate page, else ""."""
        name = self.figures.get(id(of))
        study = self.study.command or f"parcost eval {shlex.quote(self.study.path)}"
        return f"{study.replace('eval', 'explain', 1)} {name}" if name else ""


def _symbols(formula: Formula, write: _Writer, leaves: _Leaves) -> Iterator[Item]:
    """Yield a table of the symbols; the symbols of a formula in it follow below, each once."""
    rows: list[Row] = []
    seen: set[int] = set()
    waiting = [(symbol, value, unit, 0) for symbol, value, unit in formula.symbols()][::-1]
    while waiting:
        symbol, value, unit, depth = waiting.pop()
        if not isinstance(value, Formula):
            rows.append(Row((symbol, write(value, unit), ""), indent=2 * depth))
            continue
        shown = write(value.value, unit)
        if id(value) in seen:
            rows.append(Row((symbol, shown, "as above"), indent=2 * depth))
            continue
        seen.add(id(value))
        equation = f"{_equation(value, write)}{leaves.origin(value)}"
        if command := leaves.command(value):
            rows.append(Row((symbol, shown, f"{equation}: `{command}`"), indent=2 * depth))
            continue
        rows.append(Row((symbol, shown, equation), indent=2 * depth))
        waiting += [(inner, *more, depth + 1) for inner, *more in value.symbols()][::-1]
    if rows:
        yield TextLine("")
        last = [Column("formula", flexible=True)] if any(row.cells[2] for row in rows) else []
        columns = [Column("symbol", flexible=True), Column("value", "right"), *last]
        yield Table(columns, [evolve(row, cells=row.cells[: len(columns)]) for row in rows])
        used = {row.cells[0][-2:-1] for row in rows if row.cells[0].endswith(_OF_PASS)}
        if used:
            said = [f"{key} {title}" for key, title in PASS_NAMES.items() if key in used]
            yield TextLine(f"Passes: {', '.join(said)}")


def _writer(unit: str) -> _Writer:
    """Return a function that formats bytes with prefixes as in *unit*: powers of 10, or of 2."""
    return _traffic if unit.endswith("B") and "i" not in unit and unit != "B" else _memory_amount


def _bytes(value: Any) -> str:
    return quantity(value, "B", digits=6, kinds=[BINARY])


def _memory_amount(value: Any, unit: str, digits: int = 4) -> str:
    """Return a number with its unit; bytes in powers of two, as drivers report them."""
    return quantity(value, unit, digits, [BINARY] if unit == "B" else ())


def _traffic(value: Any, unit: str, digits: int = 4) -> str:
    """Return a number with its unit; bytes in powers of ten, as bandwidths are."""
    return quantity(value, unit, digits, [DECIMAL] if unit == "B" else ())


def _amount(value: Any, unit: str) -> str:
    nothing = isinstance(value, (float, int)) and value == 0
    return "" if nothing else f"{_traffic(value, unit)} each time"


def _place(line: LedgerLine) -> str:
    term = line.term
    match term:
        case Work():
            where = f"in the {PASS_NAMES[term.pass_].removesuffix('s')} pass of every micro-batch"
            return f"{where}, {_count(term.count)}"
        case Once():
            when = "device" if term.after_device else term.when
            return f"{_count(term.count, ' per step')}, {_WHEN[when]}"
        case Edge():
            return "between neighbouring stages, for every micro-batch and either direction"
    return _ADDED.get(line.kind, "")


def _count(count: Sequence[float] | float, per: str = "") -> str:
    """Return how often a term occurs on the virtual stages.

    >>> _count((1.0,), " per step"), _count((2.0, 2.0)), _count((1.0, 0.0, 0.0))
    ('once per step on the only stage', '2 times on each of 2 virtual stages', \
'1 on virtual stage 0, 0 on virtual stages 1 to 2')
    """
    if isinstance(count, (float, int)):
        return f"{_times(count)}{per} on each virtual stage"
    if len(set(count)) > 1:
        runs = [(n, [i for i, _ in run]) for n, run in groupby(enumerate(count), itemgetter(1))]
        each = (
            f"{round_significant(n)} on virtual stage{f's {at[0]} to' if at[1:] else ''} {at[-1]}"
            for n, at in runs
        )
        return ", ".join(each) + per
    where = "the only stage" if len(count) == 1 else f"each of {len(count)} virtual stages"
    return f"{_times(count[0])}{per} on {where}"


def _times(count: float) -> str:
    return "once" if count == 1 else f"{round_significant(count)} times"


def _without_rounding(hidden: Real, exposed: Real) -> Real:
    """Return *hidden* seconds, or 0 if they are only a rounding error of the *exposed* seconds."""
    return where(hidden > _ROUNDING * exposed, hidden, 0.0)


def _describe_overlap(line: LedgerLine) -> str:
    match line.term:
        case Work(window=None) if any_of(line.hidden != 0):
            return "with the pass of another micro-batch, which the schedule runs at the same time"
        case Work(window=None):
            return "none: the term runs serially"
        case Work(window=window, share=part, slowdown=slower, alone=alone):
            under = f"`{window}` of the same pass"
            if not window:
                under = f"all serial work of the whole {_WHOLE[line.pass_]} pass"
            said = f"under {under}, at most {quantity(part, '%')} of it"
            if any_of(alone > 0):
                said += f"; {quantity(alone, '%')} of its occurrences run alone"
            drag = not (isinstance(slower, (float, int)) and slower == 0)
            return f"{said}; each hidden second costs {quantity(slower, 's')}" if drag else said
        case Once(when="end"):
            return "none: every stage has drained"
        case Once(when=when, beside=beside, tail=tail, on_arrival=waits, after_device=last):
            at = "first" if when == "fill" else "last"
            idle = f"under the idle time of the {'device' if last else 'stage'} in pipeline {when}"
            late = (
                "none: it starts with the arrival of the first micro-batch, and its exposed time "
                "includes that of earlier stages"
            )
            said = late if waits else idle
            if not (isinstance(beside, (float, int)) and beside == 0):
                said += f" and {quantity(beside, '%')} of its {at} micro-batch"
            if not (isinstance(tail, (float, int)) and tail == 0):
                said += f"; {quantity(tail, 's')} cannot overlap"
            return said
    return ""


def _memory_life(term: Memory) -> str:
    said = [_count(term.count)]
    if term.per_micro_batch:
        said.append("for each micro-batch in flight")
    if term.once_per_device:
        said.append("once per device")
    said.append(f"at: {', '.join(term.moments) or 'no moment'}")
    if term.cached:
        said.append(f"kept by the allocator at: {', '.join(term.cached)}")
    return ", ".join(said)
