"""Validation of answers to hooks: their kind, their text and their numbers.

An answer that does not fit is left out and its plugin is named. Otherwise it would fail far from
its plugin, in a sum or on a page. The whole study would fail with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any, cast

from attrs import evolve, fields, has

from parcost.contract import checks, figures, groups, pipelines, searches, terms
from parcost.contract.calls import CallError, call
from parcost.contract.checks import check_problem
from parcost.contract.formulas import Formula
from parcost.contract.search_validation import HOOKS, Blame, validate_answer
from parcost.contract.study import Replay
from parcost.contract.term_validation import (
    Counts,
    interval_problem,
    is_within,
    number_complaint,
    validate_term,
    value_problem,
)
from parcost.language.diagnostics import Diagnostic, quote, type_name
from parcost.language.errors import PluginError, SpecError
from parcost.numeric import all_of, array_kind, where

#: What each hook may answer with.
_ANSWERS: Mapping[str, tuple[type, ...]] = {
    "library": (str,),
    "parameters": (terms.ParameterGroup,),
    "operators": (terms.Operator,),
    "flops": (terms.FlopCount,),
    "groups": (groups.Group,),
    "pipelines": (pipelines.Pipeline,),
    "checks": (checks.Check,),
    "outcome_checks": (checks.Check,),
    "terms": (terms.Work, terms.Edge, terms.Once),
    "memory": (terms.Memory,),
    "figures": (figures.Figure,),
    "intervals": (figures.Interval,),
    "sections": (figures.Section,),
    "axes": (searches.Axis,),
    "objectives": (searches.Objective,),
    "search_goals": (searches.Goal,),
    "details": (figures.Figure,),
    "calculations": (figures.Figure, figures.Section, checks.Check),
    "replays": (Replay,),
    "views": (figures.Section,),
}
_DECLARED = ("parameters", "operators", "flops")  # records of a vocabulary
_NUMBERED = ("terms", "memory")
#: Attributes that people read, by the kind of answer.
_TEXTS: Mapping[type, tuple[str, ...]] = {
    terms.Work: ("name",),
    terms.Edge: ("name",),
    terms.Once: ("name",),
    terms.Memory: ("name",),
    groups.Group: ("name",),
    pipelines.Pipeline: ("schedule",),
    figures.Figure: ("name", "title", "unit", "note"),
    figures.Interval: ("name",),
    figures.Section: ("title",),
}
_CELLS = (str, bool, int, float)
_MOST_ITEMS = 100_000  # of one answer: a generator may have no end
_CELL_KINDS = frozenset("fiubU")  # of arrays that a page can show


def items_of(hook: str, answer: Any) -> tuple[Sequence[Any], str]:
    """Return the items of an answer to *hook*, and the error in it as a whole."""
    if answer is None:
        return (), ""
    if isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable):
        return (), f"returned {type_name(answer)} where a list of {_expectation(hook)} is expected"
    items = list(islice(answer, _MOST_ITEMS + 1))
    if len(items) > _MOST_ITEMS:
        return (), f"returned more than {_MOST_ITEMS:,} items: a generator without an end?"
    return items, ""


def has_diagnostics(error: SpecError) -> bool:
    """Return whether *error* reports a mistake in a spec."""
    found = error.diagnostics
    return bool(found) and all(isinstance(d, Diagnostic) for d in found)


def validate(hook: str, answer: Any, counts: Counts, blame: Blame) -> tuple[Sequence[Any], str]:
    """Return the contributions in an answer to *hook*, and the error in it or an empty text.

    *counts* keeps the counts of the terms before, and *blame* makes the error of the plugin.
    """
    expected = _ANSWERS.get(hook)
    if expected is not None and not isinstance(answer, expected):
        return (), f"returned {type_name(answer)} where {_expectation(hook)} is expected"
    complaint = _bad_text(answer)
    if complaint:
        return (), complaint
    if hook in _NUMBERED:
        return _term(answer, counts, blame)
    if hook in HOOKS:
        found, complaint = validate_answer(hook, answer, blame)
        return (found,), complaint
    return (answer,), _complaint(hook, answer, blame)


def _complaint(hook: str, answer: Any, blame: Blame) -> str:
    """Return what is wrong with an answer besides its kind and its texts, if anything."""
    if hook in _DECLARED:
        return _bad_record(answer)
    match answer:
        case checks.Check():
            return check_problem(answer)
        case figures.Figure():
            return value_problem(answer) or _bad_formula(answer, blame)
        case figures.Interval():
            return interval_problem(answer) or _bad_formula(answer, blame)
        case figures.Section():
            return _bad_section(answer) or (_bad_ranges(answer) if hook == "views" else "")
        case groups.Group():
            return _bad_group(answer)
        case pipelines.Pipeline():
            return _bad_pipeline(answer)
    return ""


def _term(term: Any, counts: Counts, blame: Blame) -> tuple[Sequence[Any], str]:
    """Return a term in plain numbers, or one for each resource that it names."""
    term, complaint = validate_term(term, counts)
    complaint = complaint or _bad_formula(term, blame)
    if complaint or not isinstance(getattr(term, "resource", ""), terms.Names):
        return (term,), complaint
    try:
        return list(_by_name(term)), ""
    except ValueError as error:  # its numbers have different shapes
        return (), f"`{term.name}`: {error}"


def _by_name(term: Any) -> Iterator[Any]:
    """Yield a term for each resource that it keeps busy somewhere, nothing elsewhere."""
    for i, name in enumerate(term.resource.names):
        here = term.resource.at == i
        numbers: dict[str, Any] = {"seconds": where(here, term.seconds, 0.0)}
        if isinstance(term, terms.Edge):
            numbers["boundaries"] = tuple(where(here, s, 0.0) for s in term.boundaries)
        else:
            spread = "flops" if isinstance(term, terms.Work) else "tail"
            numbers[spread] = where(here, getattr(term, spread), 0.0)
        yield evolve(term, resource=name, **numbers)


# --- texts and formulas -------------------------------------------------------------------


@cache
def _texts_of(class_: type) -> tuple[tuple[str, ...], Callable[[Any], Any]] | None:
    """Return the texts of a kind of answer, and what reads them; None if it has none."""
    names = next((_TEXTS[base] for base in class_.__mro__ if base in _TEXTS), ())
    if not names:
        return None
    read = attrgetter(*names)
    return names, read if len(names) > 1 else lambda answer: (read(answer),)


def _bad_text(answer: Any) -> str:
    known = _texts_of(answer.__class__)
    if known is None:
        return ""
    names, read = known
    for name, text in zip(names, read(answer), strict=True):
        if text.__class__ is not str:
            return f"gave a {type_name(answer)} the {name} {quote(text)}, which is no text"
        if not text.isprintable():
            return f"gave a {type_name(answer)} the {name} {quote(text)}, which cannot be printed"
    if names[0] == "name" and not answer.name:
        return f"gave a {type_name(answer)} no name"
    return ""


def _bad_formula(answer: Any, blame: Blame) -> str:
    """Return what is wrong with the formula of *answer*, or with one of its parts, if anything."""
    formula: Any = answer.formula
    is_interval = answer.__class__ is figures.Interval
    if formula.__class__ is Formula and formula.is_valid and not is_interval:
        return ""
    further = [answer.upper] if is_interval else []
    return _bad_parts(answer.name, formula, further, blame)


def _bad_parts(name: str, formula: Any, parts: list[Any], blame: Blame) -> str:
    """Return what is wrong with a formula, its parts or *parts*, if anything."""
    if complaint := _bad_part(name, formula, parts):
        return complaint
    seen: dict[int, Any] = {}
    while parts:
        part = parts.pop()
        if part is formula or id(part) in seen or (part.__class__ is Formula and part.is_valid):
            continue
        seen[id(part)] = part
        if complaint := _bad_part(name, part, parts):
            return complaint
    for part in (formula, *seen.values()):
        part.is_valid = True
        if part.explain is not None:
            kept = (part.own_text, part.raw, part.computes)  # and no cycle, which waits to be freed
            part.explain = partial(_explanation, name, kept, part.explain, blame)
    return ""


def _explanation(
    name: str,
    kept: tuple[str, Mapping[str, Any], bool],
    explain: Callable[[], Any],
    blame: Blame,
) -> Formula:
    """Return the formula that *explain* makes, or what is *kept* and why it stays."""
    error: PluginError | None
    try:
        made = call(explain)
        complaint = _bad_parts(name, made, [], blame)
        error = blame(f"explained `{name}`: {complaint}") if complaint else None
    except CallError as raised:
        error = blame(f"the explanation of `{name}` {raised}")
    if error is None:
        return cast("Formula", made)
    text, inputs, is_expression = kept
    text = f"{text}, which cannot be explained: {error}"
    return Formula(text, inputs, is_expression=is_expression)


def can_be_shown(formula: Formula) -> bool:
    """Return whether a page can show the text and the inputs of a formula, apart from parts."""
    return not _bad_part("", formula, [])


def _bad_part(name: str, formula: Any, parts: list[Any]) -> str:
    """Return what is wrong with one formula; inputs that have one join *parts*."""
    if formula.__class__ is not Formula and not isinstance(formula, Formula):
        return f"gave `{name}` the formula {quote(formula)}, which is no Formula"
    for text in (formula.own_text, formula.source, formula.title):
        if text.__class__ is not str:
            return f"gave `{name}` a formula whose text or source is no text"
        if text and not text.isprintable():
            return f"gave `{name}` a formula that cannot be printed"
    inputs: Any = formula.raw
    if inputs.__class__ is not dict and not isinstance(inputs, Mapping):
        wrong = f"inputs = {quote(inputs)}, which are no mapping"
        return f"gave the formula of `{name}` {wrong}"
    for letter, value in inputs.items():
        plain = value
        if value.__class__ is tuple and len(value) == 2 and value[1].__class__ is str:
            plain = value[0]
        if letter.__class__ is str:
            if plain.__class__ is float:
                continue
            if plain.__class__ is Formula:
                parts.append(plain)
                continue
        if not (letter.__class__ is str and _is_input(value, parts)):
            return (
                f"gave the formula of `{name}` the input {quote(letter)} = "
                f"{quote(value)}, where a number and its unit are expected"
            )
    return ""


def _is_input(value: Any, parts: list[Any]) -> bool:
    """Return whether *value* is an input of a formula; what has one itself joins *parts*."""
    if value.__class__ is tuple:
        if len(value) != 2 or value[1].__class__ is not str:
            return False
        value = value[0]
    if value.__class__ is float:
        return True
    if value.__class__ is Formula:
        parts.append(value)
        return True
    if value.__class__ is dict:
        return all(_is_input(one, parts) for one in value.values())
    if value.__class__ is list:
        return all(_is_input(one, parts) for one in value)
    return _is_cell(value)


def _is_cell(value: Any) -> bool:
    """Return whether a page can show *value*: text, a number, or an array of numbers."""
    if value is None or isinstance(value, _CELLS):
        return True
    if isinstance(value, (list, tuple)):
        return all(map(_is_cell, value))
    return array_kind(value) in _CELL_KINDS


def _bad_section(section: figures.Section) -> str:
    lead: Any = section.lead
    if lead.__class__ is not int or lead < 0:
        wrong = f"lead = {quote(lead)}, which is no number of rows"
        return f"gave the section {quote(section.title)} {wrong}"
    for name in ("columns", "notes"):
        texts = getattr(section, name)
        if not isinstance(texts, (list, tuple)) or not all(isinstance(t, str) for t in texts):
            called = f"the section {quote(section.title)}"
            return f"gave {called} {name} = {quote(texts)}, which is no list of texts"
    rows: Any = section.rows
    for row in rows:
        if not (
            isinstance(row, (list, tuple))
            and len(row) == len(section.columns)
            and all(map(_is_cell, row))
        ):
            columns = f"{len(section.columns)} cells of text or numbers are expected"
            return f"gave the section {quote(section.title)} the row {quote(row)}, where {columns}"
    return ""


def _bad_ranges(view: figures.Section) -> str:
    """Return what is wrong with the lists in a view, which are printed as ranges, if anything."""
    for row in view.rows:
        for cell in row:
            if isinstance(cell, list) and not all(map(_is_whole, cell)):
                wrong = "a list of whole numbers is expected"
                return f"gave the view {quote(view.title)} the cell {quote(cell)}, where {wrong}"
    return ""


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (array_kind(value) in ("i", "u") and value.ndim == 0)


# --- groups and pipelines -----------------------------------------------------------------


def _bad_group(group: groups.Group) -> str:
    for name in ("shape", "fewest"):
        numbers = getattr(group, name)
        if not isinstance(numbers, (list, tuple)) or not all(is_within(n, 0.0) for n in numbers):
            return f"gave the group `{group.name}` {name} = {quote(numbers)}, which is no shape"
    if not is_within(group.ranks, 0.0) or not is_within(group.reduction, 0.0):
        return f"gave the group `{group.name}` {quote(group.ranks)} ranks"
    for name in ("links", "pairs"):
        links = getattr(group, name)
        if not isinstance(links, (list, tuple)) or len(links) != len(group.shape):
            return f"gave the group `{group.name}` {name} = {quote(links)}, not one for each level"
        if not all(_is_link(link) for link in links):
            return f"gave the group `{group.name}` {name} = {quote(links)}, which are no links"
    if not all(_is_link(link) for link in (group.flat, group.pair, group.hop)):
        return f"gave the group `{group.name}` a link that is none"
    return ""


def _is_link(link: Any) -> bool:
    return isinstance(link, groups.Link)


def _bad_pipeline(pipeline: pipelines.Pipeline) -> str:
    for name in ("stages", "chunks"):
        number: Any = getattr(pipeline, name)
        if array_kind(number) == "f" and all_of(number >= 1):  # of several structures at once
            continue
        if number.__class__ is not int or number < 1:
            return f"cut the step into {name} = {quote(number)}, which is no whole number above 0"
    return number_complaint(pipeline, "the pipeline")


# --- records that plugins declare ----------------------------------------------------------

_SEQUENCES = (list, tuple)


def _bad_record(answer: Any) -> str:
    """Return what is wrong with a record of a plugin's own, by what its attributes declare."""
    for name, test in _tests_of(answer.__class__):
        value = getattr(answer, name)
        if not test(value):
            called = quote(answer.name)
            return f"gave the {type_name(answer)} {called} {name} = {quote(value)}"
    return ""


@cache
def _tests_of(class_: type) -> Sequence[tuple[str, Callable[[Any], bool]]]:
    """Return the attributes of a record, each with what its declared type lets through."""
    if not has(class_):
        return ()
    found = []
    for attribute in fields(class_):
        test = _TESTS.get(str(attribute.type).partition("[")[0])
        if test is not None:
            found.append((attribute.name, test))
    return found


def _is_size(value: Any) -> bool:
    return value.__class__ is float or is_within(value, -inf, inf)


def _is_text(value: Any) -> bool:
    return value.__class__ is str and value.isprintable()


def _is_flag(value: Any) -> bool:
    return value.__class__ is bool or array_kind(value) == "b"


def _is_series(value: Any) -> bool:
    if isinstance(value, _SEQUENCES):
        return all(isinstance(number, (float, int)) or _is_size(number) for number in value)
    return _is_size(value)


_TESTS: Mapping[str, Callable[[Any], bool]] = {
    "Real": _is_size,
    "float": _is_size,
    "str": _is_text,
    "Literal": _is_text,
    "Pass": _is_text,
    "bool": _is_flag,
    "Sequence": _is_series,
}


def _expectation(hook: str) -> str:
    if hook == "capacities":
        return "a number of bytes"
    return " or ".join(class_.__name__ for class_ in _ANSWERS.get(hook, ())) or "answers"
