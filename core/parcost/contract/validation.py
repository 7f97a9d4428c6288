"""Validation of answers to hooks, by the declarations of their classes.

An invalid answer is omitted, and its plugin is reported. Otherwise the whole study would fail
later, in a sum or on a page, far from the plugin. Declarations are explained in
:mod:`parcost.contract.fields`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from itertools import islice
from math import inf
from operator import attrgetter
from types import GeneratorType
from typing import Any, TypeAlias, cast, get_args, get_type_hints

from attrs import evolve, fields, has

from parcost.contract import hookspecs
from parcost.contract.calls import CallError, call
from parcost.contract.fields import (
    BY_TYPE,
    NAME,
    Record,
    Rule,
    is_cell,
    is_flag,
    is_number,
    is_within,
)
from parcost.contract.figures import Section
from parcost.contract.formulas import Formula
from parcost.contract.searches import Goal, Objective
from parcost.contract.terms import Edge, Names
from parcost.language.diagnostics import quote, type_name
from parcost.language.errors import ParcostError, PluginError
from parcost.numeric import INFINITY, all_of, array_kind, array_rank, where
from parcost.records import frozen

_AMOUNTS = ("seconds", "latency", "flops", "tail")  # of a term, by the resource that it keeps busy
#: Makes the error of a plugin out of what it did.
Blame: TypeAlias = Callable[..., PluginError]
_MOST_ITEMS = 100_000  # of one answer: a generator may have no end
_LISTS = frozenset((GeneratorType, list, tuple))  # most answers, which need no further look


@cache
def answer_types(hook: str) -> tuple[type, ...]:
    """Return the classes of answers to *hook*, by its declaration.

    >>> [type_.__name__ for type_ in answer_types("terms")]
    ['Work', 'Edge', 'Once']
    """
    hints = get_type_hints(vars(hookspecs)[hook], localns={"Real": float})
    (found,) = get_args(hints["return"])
    return get_args(found) or (found,)


def items_of(hook: str, function: Callable[..., Any], *arguments: Any) -> tuple[Sequence[Any], str]:
    """Return the items that *function* returns for *hook*, and an error for an invalid list."""
    answer = function(*arguments)
    if answer is None:
        return (), ""
    if type(answer) not in _LISTS and (
        isinstance(answer, (str, bytes, Mapping)) or not isinstance(answer, Iterable)
    ):
        return (), f"returned {type_name(answer)} where a list of {expectation(hook)} is expected"
    items = list(islice(answer, _MOST_ITEMS + 1))
    if len(items) > _MOST_ITEMS:
        return (), f"returned more than {_MOST_ITEMS:,} items: a generator without an end?"
    return items, ""


def expectation(hook: str) -> str:
    """Return the valid types of answers to a hook, in words."""
    types = answer_types(hook)
    return "a number of bytes" if types == (float,) else " or ".join(t.__name__ for t in types)


@frozen
class Declarations:
    """The declarations of a class of records: rules, formulas, and fields that vary in a sweep.

    *problem* returns the error in a record. *numbers* reads the fields with one number for each
    point, whose names are *varying*. The field *series* holds a sequence of numbers; "" if there is
    none.
    """

    key: Callable[[Any], Any]  # the first field, which tells records apart
    problem: Callable[[Any], str]
    formulas: Sequence[Callable[[Any], Any]]
    varying: Sequence[str]
    numbers: Callable[[Any], tuple[Any, ...]]
    series: str


@cache
def declarations(class_: Any) -> Declarations:
    """Return the declarations of *class_*; a class without fields has none."""
    rules: list[tuple[str, Any, Rule]] = []
    formulas, varying, series = [], [], ""
    for field in fields(class_) if has(class_) else ():
        annotation = field.type.__name__ if isinstance(field.type, type) else str(field.type)
        type_ = annotation.removesuffix(" | None")
        by_type = NAME if field.name == "name" else BY_TYPE.get(type_)
        declared = field.metadata or by_type or BY_TYPE.get(type_.partition("[")[0], {})
        if "rule" in declared:
            rules.append((field.name, field.default, declared["rule"]))
        if type_ == "Formula":
            formulas.append(attrgetter(field.name))
        elif type_ in ("Real", "Mask"):
            varying.append(field.name)
        elif type_ == "Sequence[Real]":
            series = field.name
    key = attrgetter(fields(class_)[0].name if has(class_) else "name")
    own = issubclass(class_, Record) and class_.problem is not Record.problem
    problem = _compile(rules, has_own=own)
    return Declarations(key, problem, formulas, varying, _reader(varying), series)


def _compile(rules: Sequence[tuple[str, Any, Rule]], *, has_own: bool) -> Callable[[Any], str]:
    """Return a compiled function from a record to its error; a loop would take twice the time."""
    known: dict[str, Any] = {"inf": inf, "fault": _fault}
    lines = ["def problem(answer):"]
    for i, (name, default, rule) in enumerate(rules):
        known |= {f"default{i}": default, f"rule{i}": rule, **rule.names}
        broken = f"value is not default{i} and not ({rule.valid})"
        lines += [f" value = answer.{name}", f" if {broken} and rule{i}.error({name!r}, value):"]
        lines += [f"  return fault(answer, rule{i}, {name!r}, value)"]
    exec("\n".join([*lines, " return answer.problem()" if has_own else " return ''"]), known)  # noqa: S102  names of fields and our own words
    found: Callable[[Any], str] = known["problem"]
    return found


def _fault(answer: Any, rule: Rule, name: str, value: Any) -> str:
    if rule is NAME["rule"]:
        class_ = type_name(answer)
        called = f"{'an' if class_[0] in 'AEI' else 'a'} {class_}"
    else:
        called = answer.called.format(answer)
    return f"gave {called} {rule.error(name, value)}"


def _reader(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return a function that reads attributes of these names into a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    read = attrgetter(*names or ["__class__"])
    return lambda answer: (read(answer),)[: len(names)]


def key_of(answer: Any) -> str:
    """Return the name of *answer*: its first field, or the answer itself if it is a string."""
    class_: Any = type(answer)
    return str(answer if class_ is str else declarations(class_).key(answer))


def problem(answer: Any) -> str:
    """Return the error in *answer* by the declarations of its class, or an empty text.

    >>> from parcost import Edge
    >>> problem(Edge(name="hop", seconds=-1.0))
    'gave the term `hop` seconds = -1.0, which is negative or not finite'
    """
    return declarations(answer.__class__).problem(answer)


def validate(hook: str, answer: Any, blame: Blame) -> tuple[Sequence[Any], str]:
    """Return the contributions in an answer to *hook*, and the error in it or an empty text.

    *blame* returns an error that names the plugin.
    """
    if hook in ("capacities", "usable_memory"):
        wrong = (
            ""
            if is_within(answer)
            else f"gave the capacity {quote(answer)}, which is not a size in bytes"
        )
        return (answer,), wrong
    class_: Any = type(answer)
    declared = _declarations(hook, class_)
    if declared is None:
        return (), f"returned {type_name(answer)} where {expectation(hook)} is expected"
    if hook == "library":
        return (answer,), ""
    wrong = declared.problem(answer)
    for read in () if wrong else declared.formulas:
        wrong = wrong or _formula_problem(answer.name, read(answer), blame)
    if hook == "sections" and not wrong:
        wrong = _range_error(answer)
    if wrong or hook not in _PARTS:
        return (answer,), wrong
    try:
        return _PARTS[hook](answer, blame), ""
    except ValueError as error:  # its numbers have different shapes
        return (), f"`{key_of(answer)}`: {error}"


@cache
def _declarations(hook: str, class_: Any) -> Declarations | None:
    """Return the declarations of *class_* if it is a valid type for *hook*."""
    return declarations(class_) if issubclass(class_, answer_types(hook)) else None


# --- functions ----------------------------------------------------------------------------


def _guard_objective(objective: Objective, blame: Blame) -> Sequence[Objective]:
    cost = _guard(objective.cost, f"the cost of `{objective.name}`", "numbers", blame)
    value = _guard(objective.value, f"the value of `{objective.name}`", "numbers", blame)
    return [evolve(objective, cost=cost, value=value)]


def _guard_goal(goal: Goal, blame: Blame) -> Sequence[Goal]:
    limits = [
        evolve(
            limit, holds=_guard(limit.holds, f"the limit `{limit.says}`", "true and false", blame)
        )
        for limit in goal.limits
    ]
    return [evolve(goal, limits=limits)]


def _terms(term: Any, _: Blame) -> Sequence[Any]:
    """Return one term for each resource of :class:`Names`; its seconds are 0 elsewhere."""
    names = term.resource
    if names.__class__ is not Names:
        return (term,)
    declared = declarations(term.__class__)
    amounts = dict(zip(declared.varying, declared.numbers(term), strict=True))
    found = []
    for i, name in enumerate(names.names):
        here = names.at == i
        numbers: dict[str, Any] = {
            amount: where(here, amounts[amount], 0.0) for amount in _AMOUNTS if amount in amounts
        }
        if isinstance(term, Edge):
            numbers["boundaries"] = tuple(where(here, s, 0.0) for s in term.boundaries)
        found.append(evolve(term, resource=name, **numbers))
    return found


def _range_error(section: Section) -> str:
    """Return the error in the lists of integers of a section, or an empty text."""
    lists = [cell for row in section.rows for cell in row if isinstance(cell, list)]
    wrong = [cell for cell in lists if not all(map(_is_whole, cell))]
    if not wrong:
        return ""
    cell = f"the cell {quote(wrong[0])}, where a list of whole numbers is expected"
    return f"gave the section {quote(section.title)} {cell}"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) or (array_kind(value) in ("i", "u") and not array_rank(value))


#: What the core takes in place of an answer: functions name their plugin where they fail later.
_PARTS: Mapping[str, Callable[[Any, Blame], Sequence[Any]]] = {
    "terms": _terms,
    "objectives": _guard_objective,
    "search_goals": _guard_goal,
}


def _guard(function: Callable[..., Any], what: str, expected: str, blame: Blame) -> Any:
    """Return *function* with checks: if it fails or its result is invalid, the error names *what*.

    *expected* is "numbers" or "true and false": a single value, or one per input. The result for a
    finite input must be a number.
    """

    def do(*numbers: Any) -> Any:
        try:
            found = call(function, *numbers, passing=ParcostError)
        except CallError as error:
            raise blame(f"{what} {error}", error.cause) from error
        kind = "true and false" if is_flag(found) else "numbers" if is_number(found) else ""
        if kind != expected or not _fits(found, numbers):
            raise blame(f"{what} is {quote(found)} where {expected} are expected")
        known: Any = where(numbers[0] < INFINITY, found == found, True)  # noqa: PLR0124  nan is not
        if not all_of(known):
            raise blame(f"{what} is {quote(found)} for {quote(numbers[0])}")
        return found

    return do


def _fits(found: Any, numbers: Sequence[Any]) -> bool:
    """Return whether the shape of *found* broadcasts with the shapes of its inputs."""
    if not array_rank(found):
        return True
    import numpy as np

    try:
        np.broadcast_shapes(found.shape, *map(np.shape, numbers))
    except ValueError:
        return False
    return True


# --- formulas -----------------------------------------------------------------------------


def _formula_problem(name: str, formula: Any, blame: Blame) -> str:
    """Return the error in a formula or one of its parts, or an empty text.

    If an explanation of a valid formula fails later, the error names the plugin.
    """
    seen: dict[int, Any] = {}
    left = [] if formula.__class__ is Formula and formula.is_valid else [formula]
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        if wrong := _part_problem(name, part, left):
            return wrong
        seen[id(part)] = part
    for part in seen.values():
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
    """Return the formula that *explain* returns. If it fails, return the formula *kept* with the
    reason.
    """
    try:
        made = call(explain)
        wrong = _formula_problem(name, made, blame)
        if not wrong:
            return cast("Formula", made)
        error = blame(f"explained `{name}`: {wrong}")
    except CallError as raised:
        error = blame(f"the explanation of `{name}` {raised}")
    text, inputs, is_expression = kept
    text = f"{text}, which cannot be explained: {error}"
    return Formula(text, inputs, is_expression=is_expression)


def can_be_shown(formula: Formula) -> bool:
    """Return whether a page can show the text and the inputs of a formula, ignoring its parts."""
    return not _part_problem("", formula, [])


def _part_problem(name: str, formula: Any, parts: list[Any]) -> str:
    """Return the error in one formula, or an empty text.

    Formulas among its inputs that are not validated yet are added to *parts*.
    """
    if not isinstance(formula, Formula):
        return f"gave `{name}` the formula {quote(formula)}, which is not a Formula"
    for text in (formula.own_text, formula.source, formula.title):
        if text.__class__ is not str:
            return f"gave `{name}` a formula whose text or source is not a string"
        if text and not text.isprintable():
            return f"gave `{name}` a formula that cannot be printed"
    inputs: Any = formula.raw
    if inputs.__class__ is not dict and not isinstance(inputs, Mapping):
        return f"gave the formula of `{name}` inputs = {quote(inputs)}, which are not a mapping"
    for symbol, value in inputs.items():
        is_pair = value.__class__ is tuple and len(value) == 2 and value[1].__class__ is str
        plain = value[0] if is_pair else value
        if symbol.__class__ is not str or not (plain.__class__ is float or _is_input(plain, parts)):
            wrong = f"{quote(symbol)} = {quote(value)}, where a number and its unit are expected"
            return f"gave the formula of `{name}` the input {wrong}"
    return ""


def _is_input(value: Any, parts: list[Any]) -> bool:
    """Return whether *value* is a valid input; unvalidated formulas in it are added to *parts*."""
    if value.__class__ is Formula:
        if not value.is_valid:
            parts.append(value)
        return True
    if value.__class__ in (dict, list):
        for one in value.values() if value.__class__ is dict else value:
            if one.__class__ is not float and not _is_input(one, parts):
                return False
        return True
    return is_cell(value)
