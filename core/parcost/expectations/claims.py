"""The claims of ``expect``: expected values of figures, compared with the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from parcost.binding.binder import Binder
from parcost.binding.definitions import find_kinds
from parcost.binding.modules import Module
from parcost.binding.scope import Scope
from parcost.binding.values import Quantity, number
from parcost.contract.figures import Figure, Interval
from parcost.contract.schema import BlockType
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError, error_at
from parcost.language.numbers import quantity
from parcost.language.units import BITS, BYTES, DECIMAL, ONE, unit
from parcost.numeric import all_of
from parcost.records import frozen
from parcost.report.figures import figures_by_name, interval_of, select
from parcost.report.result import Expectation, Result, missing_message

#: The words behind a measured value that is to lie in the interval of a figure.
WITHIN = "within interval"
_EQUALITIES = ("=", "==")
_MOST_NAMES = 8  # in a message
_MOST_ERRORS = 100
_MANY_TIMES = 10.0  # the claimed value: a percentage would be hard to read


@frozen(eq=False)
class Claims:
    """The claims of a scenario: its ``expect`` blocks, and the binder that evaluates them."""

    blocks: Sequence[tuple[s.Block, Module]]
    binder: Binder

    @property
    def empty(self) -> bool:
        """Whether there are no claims."""
        return not any(block.items for block, _ in self.blocks)


def expectations(claims: Claims, known: Result | None = None) -> Sequence[Expectation]:
    """Return the claims with their results; without *known*, only check that they bind."""
    found: list[Expectation] = []
    problems: list[Diagnostic] = []
    for block, module in claims.blocks:
        for item in block.items:
            if len(problems) == _MOST_ERRORS:
                message = f"{_MOST_ERRORS} claims have errors; further claims are not checked"
                raise SpecError([*problems, problem("too-many-errors", message, item.span)])
            try:
                claim = _claim(item)
                values = _evaluate_claim(claims.binder, module, claim)
                if known is not None:
                    found.append(_judge_claim(claim, *values, known, claims.binder.types))
            except SpecError as error:
                problems += error.diagnostics
    if problems:
        raise SpecError(problems)
    return found


def _claim(item: s.Item) -> s.Claim:
    """Return an item of an ``expect`` block as a claim; claims about intervals have no
    tolerance.
    """
    if isinstance(item, s.Claim):
        return item
    if isinstance(item, s.Attribute) and not item.words:
        words = " ".join(word.text for word in item.qualifiers)
        if words == WITHIN:
            return s.Claim(item.name, WITHIN, item.value, None, item.span)
        raise SpecError([_missing_tolerance(item, words)])
    raise error_at(
        "misplaced-statement", "`expect` contains claims, such as `mfu >= 40 %`", item.span
    )


def _missing_tolerance(item: s.Attribute, words: str) -> Diagnostic:
    """Return the error of a claim without a tolerance; *words* are the text after the value."""
    bare = f"{item.name.text} = {item.value.span.text.strip()}"
    help = f"write `{bare} +- 5 %`"
    message = f"`{item.name.text} =` needs a tolerance"
    if words:
        help += f", or `{bare} {WITHIN}` of a figure that has one"
        message += f", and `{words}` is none"
    return problem("missing-tolerance", message, item.span, help=help)


def _evaluate_claim(
    binder: Binder, module: Module, claim: s.Claim
) -> tuple[Quantity, Quantity | None]:
    """Return the value and the tolerance of a claim."""
    scope = Scope(None, module, None, "expect")
    wanted = number(binder.evaluate(claim.value, scope), claim.value.span)
    if claim.tolerance is None:
        return wanted, None
    slack = number(binder.evaluate(claim.tolerance, scope), claim.tolerance.span)
    if slack.number < 0:
        raise error_at("out-of-range", "a tolerance must be at least 0", claim.tolerance.span)
    return wanted, slack


def _judge_claim(
    claim: s.Claim,
    wanted: Quantity,
    slack: Quantity | None,
    known: Result,
    types: Mapping[str, BlockType],
) -> Expectation:
    name, relation = claim.name, claim.relation
    if not (found := select(known, [name.text])):
        names, missing = list(figures_by_name(known)), known.missing
        last = name.text.rpartition(".")[2]
        kinds = " and of ".join(find_kinds(last, types)[:3])
        elsewhere = f"`{last}` is an attribute of {kinds}; " if kinds else ""
        message = missing_message(name.text, missing)
        help = (
            ""
            if name.text in missing
            else did_you_mean(name.text, [*names, *missing]) or elsewhere + _figure_names(names)
        )
        raise error_at("unknown-name", message, name.span, notes=_absences(known), help=help)
    figure = found[0]
    dimension = unit(figure.unit)[1] if figure.unit else ONE
    if wanted.dimension != dimension:
        raise SpecError([_other_dimension(claim, wanted, figure.unit)])
    if figure.unit == "%" and _is_bare(claim.value) and wanted.number > 1:
        raise SpecError([_bare_percentage(claim, wanted)])
    limit, interval = "", None
    if relation == WITHIN:
        interval = _interval(claim, figure, known)
        holds = _holds_within(interval, wanted.number)
    else:
        allowed = _absolute_tolerance(slack, wanted, claim, figure)
        holds = _compare(figure.value, relation, wanted.number, allowed)
        if relation in _EQUALITIES:
            interval = known.interval(figure.name)
            limit = claim.tolerance.span.text.strip() if claim.tolerance is not None else ""
    failed = not all_of(holds)
    missed = interval is not None and not all_of(_holds_within(interval, wanted.number))
    outcome, equal = "", relation in (WITHIN, *_EQUALITIES)
    if failed or missed:
        around = interval if missed and (relation == WITHIN or not failed) else None
        outcome = _comparison(figure, wanted.number if equal else None, limit, failed, around)
    return Expectation(
        text=claim.span.text.strip(),
        figure=figure,
        holds=holds,
        outcome=outcome,
        diagnostic=_claim_failure(claim, figure, outcome if equal else "") if failed else None,
    )


def _comparison(
    figure: Figure, wanted: float | None, limit: str, failed: bool, missed: Interval | None
) -> str:
    """Return a sentence with the claimed value, the prediction, the error and the limit."""
    value, unit_ = figure.value, figure.unit
    if not isinstance(value, (float, int)):
        return "not met at every point"
    predicted = f"{quantity(value, unit_)} is predicted"
    if wanted is None:
        return predicted
    stated = quantity(wanted, unit_)
    if unit_ == "%":
        error = f"{100 * abs(value - wanted):.3g} points"
    elif wanted and abs(value / wanted) >= _MANY_TIMES:
        error = f"{value / wanted:.3g} times as much, which is"
    else:
        error = f"{100 * abs(value / wanted - 1):.3g} %" if wanted else quantity(abs(value), unit_)
    text = (
        f"{stated} was expected and {predicted}: {error} too {'high' if value > wanted else 'low'}"
    )
    if limit:
        text += f", and {limit} is allowed" if failed else f", within the {limit} allowed"
    if missed is not None:
        joined = "and" if failed else "but"
        text += f", {joined} {stated} is outside the interval ({interval_of(missed, unit_)})"
    return text


def _other_dimension(claim: s.Claim, wanted: Quantity, unit_: str) -> Diagnostic:
    """Return the error of a claim whose dimension is not the dimension of the figure."""
    name, value = claim.name.text, claim.value.span
    dimension = unit(unit_)[1] if unit_ else ONE
    id, message, help = "wrong-dimension", f"`{name}` is measured in {dimension}", None
    bare = f"{wanted.number:g}"
    if dimension == ONE:
        message = f"`{name}` is a plain number"
    elif wanted.dimension == ONE:
        id = "missing-unit"
        units = ("GB", "GiB") if dimension == BYTES else (unit_,)
        help = "write " + " or ".join(f"`{bare} {name}`" for name in units)
    elif (wanted.dimension, dimension) == (BITS, BYTES):
        id = "bit-for-byte"
        meant = value.text.strip().replace("bit", "B").replace("b", "B")
        help = f"write `{meant}` if bytes are meant, or `bytes({value.text.strip()})`"
    return problem(id, message, value, help=help)


def _is_bare(value: object) -> bool:
    """Return whether a value is a number without a unit."""
    return isinstance(value, s.Number) and not value.unit


def _bare_percentage(claim: s.Claim, wanted: Quantity) -> Diagnostic:
    """Return the error of a number above 1 without a percent sign, for a figure in percent."""
    number = claim.value.span.text.strip()
    whole = quantity(wanted.number, "%")
    message = f"`{claim.name.text}` is in percent: {number} is {whole}"
    help = f"write `{number} %` or `{whole}`"
    return problem("missing-unit", message, claim.value.span, help=help)


def _interval(claim: s.Claim, figure: Figure, known: Result) -> Interval:
    """Return the interval of *figure*, for a claim that refers to it."""
    found = known.interval(figure.name)
    if found is None:
        having = [f"`{interval.name}`" for _, interval in known.intervals]
        listed = f"{' and '.join(having)} have one; " if having else ""
        message = f"`{figure.name}` has no interval"
        help = f"{listed}write a tolerance, such as `+- 5 %`"
        raise error_at("no-interval", message, claim.span, notes=_absences(known), help=help)
    return found


def _absences(known: Result) -> list[str]:
    """Return a sentence for each plugin whose figures are missing: it failed or is left out."""
    failed = [f"plugin {f.plugin} {f.message} in `{f.hook}`" for f in known.study.faults]
    return [*failed, *known.study.plugins.absences]


def _holds_within(interval: Interval, value: float) -> Any:
    holds = (interval.low <= value) & (value <= interval.high)
    return bool(holds) if isinstance(interval.low, (float, int)) else holds


def _claim_failure(item: s.Claim, figure: Figure, outcome: str) -> Diagnostic:
    """Return the diagnostic of a false claim."""
    single = isinstance(figure.value, (float, int))
    value = quantity(figure.value, figure.unit)
    if single and value.endswith("iB") and "iB" not in item.span.text:  # a claim in GB
        value = f"{quantity(figure.value, 'B', kinds=(DECIMAL,))} ({value})"
    notes = [outcome] if single and outcome else []
    return problem(
        "expectation",
        f"`{item.span.text.strip()}` is false",
        item.span,
        f"this is {value if single else 'not met at every point'}",
        notes=[*notes, *([f"{figure.title}: {figure.note}"] if figure.note else [])],
    )


def _figure_names(names: Sequence[str]) -> str:
    listed = ", ".join(names[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    rest = f", and {more} more, which `parcost figures` lists" if more > 0 else ""
    return f"figures are {listed}{rest}"


def _absolute_tolerance(
    slack: Quantity | None, wanted: Quantity, claim: s.Claim, figure: Figure
) -> Any:
    """Return the tolerance in the figure's unit.

    A tolerance in percent is a share of the wanted value; only for a figure that is itself in
    percent, such as MFU, it is in percentage points.
    """
    if slack is None:
        return 0.0
    tolerance = claim.tolerance
    in_percent = isinstance(tolerance, s.Number) and tolerance.unit == "%"
    if slack.dimension == wanted.dimension and (figure.unit == "%" or not in_percent):
        return slack.number
    if slack.dimension != ONE:
        message = f"this tolerance is in {slack.dimension}"
        help = "write the tolerance in percent, or in the unit of the figure"
        raise error_at("wrong-dimension", message, claim.span, help=help)
    return slack.number * abs(wanted.number)


def _compare(value: Any, relation: str, wanted: Any, allowed: Any) -> Any:
    holds = {
        "<=": lambda: value <= wanted + allowed,
        "<": lambda: value < wanted + allowed,
        ">=": lambda: value >= wanted - allowed,
        ">": lambda: value > wanted - allowed,
        "=": lambda: abs(value - wanted) <= allowed,
        "==": lambda: abs(value - wanted) <= allowed,
        "!=": lambda: abs(value - wanted) > allowed,
    }[relation]()
    return bool(holds) if isinstance(value, (float, int)) else holds
