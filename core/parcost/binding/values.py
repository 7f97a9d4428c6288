"""Values of the language, and operations on them; every failure becomes a diagnostic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import evolve

from parcost.contract.origin import Origin
from parcost.contract.schema import Curve
from parcost.language import syntax as s
from parcost.language.errors import error_at
from parcost.language.units import BITS, BYTES, ONE, Dimension
from parcost.records import record

#: Magnitudes of attributes in base units: products of several such numbers are still finite.
LARGEST = 1e30
SMALLEST = 1e-30

if TYPE_CHECKING:
    from parcost.language.text import Span

NO_AXES: frozenset[int] = frozenset()


@record(eq=False)
class Quantity:
    """A number, or an array over the points of a sweep, with its dimension.

    *axes* are the sweeps that it depends on. *literal* is true if its expression contains a number.
    """

    number: Any
    dimension: Dimension = ONE
    axes: frozenset[int] = NO_AXES
    literal: bool = False


@record(eq=False)
class Truth:
    """A condition: a bool, or an array of bools over the points of a sweep."""

    value: Any
    axes: frozenset[int] = NO_AXES


@record(eq=False)
class Items:
    """A list, before it is known to be a sweep."""

    items: tuple[Any, ...]
    axes: frozenset[int] = NO_AXES


@record(eq=False)
class Symbol:
    """A value that is not a number: a word, a string, a block, or a measured curve."""

    what: Any
    axes: frozenset[int] = NO_AXES


Value = Quantity | Truth | Items | Symbol


@record(eq=False)
class BoundValue:
    """The value of an attribute: as a value of the language, and as stored in the block."""

    value: Value
    held: Any
    origin: Origin


def describe(value: Value) -> str:
    """Return the kind of *value* as text, for messages."""
    match value:
        case Quantity(dimension=dimension):
            return f"in {dimension}" if dimension != ONE else "a plain number"
        case Truth():
            return "a condition"
        case Items():
            return "a list"
        case Symbol(what=str()):
            return "a string"
        case Symbol(what=Curve()):
            return "a measured curve"
    return "a name"


def reference_value(value: Value) -> Value:
    """Return *value* without its literal flag: it is used through a reference."""
    if isinstance(value, Quantity) and value.literal:
        return Quantity(value.number, value.dimension, value.axes)
    return value


def number(value: Value, span: Span) -> Quantity:
    """Return *value* if it is a quantity.

    Raises:
        SpecError: The value is of another kind.
    """
    if isinstance(value, Quantity):
        return value
    raise error_at("not-a-number", "this must be a number", span, f"this is {describe(value)}")


def truth(value: Value, span: Span) -> Truth:
    """Return *value* if it is a condition."""
    if isinstance(value, Truth):
        return value
    message = "this must be a condition"
    help = "compare with `==`, `<` or `>`"
    raise error_at("not-a-condition", message, span, f"this is {describe(value)}", help=help)


def chain(node: s.Chain, values: list[Value], *, masked: bool) -> Value:
    """Return the result of a chain of operators of one precedence.

    *masked* allows infinities and NaN in arrays, at points where another branch is chosen.
    """
    spans = [operand.span for operand in node.operands]
    axes = axes_of(values)
    if node.operators[0] in ("&&", "||"):
        return _logic(node.operators[0], [truth(v, p) for v, p in zip(values, spans, strict=True)])
    numbers = [number(v, p) for v, p in zip(values, spans, strict=True)]
    if node.operators[0] in _COMPARISONS:
        left, right = numbers
        same_dimension("compare", left, right, spans[0], spans[1])
        compare = _COMPARISONS[node.operators[0]]
        return Truth(compare(left.number, right.number), axes)
    total = numbers[0]
    result, dimension = total.number, total.dimension
    literal = total.literal
    for operator, operand, span in zip(node.operators, numbers[1:], spans[1:], strict=True):
        literal = literal or operand.literal
        if operator in "+-":
            if operand.dimension != dimension:
                verb = "add" if operator == "+" else "subtract"
                same_dimension(verb, Quantity(0.0, dimension), operand, spans[0].to(spans[0]), span)
            result = result + operand.number if operator == "+" else result - operand.number
        elif operator == "*":
            result, dimension = result * operand.number, dimension * operand.dimension
        else:
            zero = operand.number == 0.0
            if not masked and (zero if isinstance(zero, bool) else zero.any()):
                raise error_at("division-by-zero", "division by zero", span, "this is 0")
            result, dimension = _divide(result, operand.number), dimension / operand.dimension
    return Quantity(finite(result, node.span, masked=masked), dimension, axes, literal)


def finite(result: Any, span: Span, *, masked: bool = False) -> Any:
    """Return *result* if all its elements are finite.

    Raises:
        SpecError: An element overflowed.
    """
    if isinstance(result, (float, int)):
        good = math.isfinite(result)
    else:
        import numpy as np

        good = masked or bool(np.all(np.isfinite(result)))
    if not good:
        raise error_at("not-finite", "the result is too large for a float", span, "not finite")
    return result


def negate(value: Value, operator: str, span: Span) -> Value:
    """Return ``-value`` or ``!value``."""
    if operator == "!":
        condition = truth(value, span)
        flipped = not condition.value if isinstance(condition.value, bool) else ~condition.value
        return Truth(flipped, condition.axes)
    operand = number(value, span)
    return evolve(operand, number=-operand.number)


def choose(condition: Truth, then: Value, otherwise: Value, node: s.Conditional) -> Value:
    """Return *then* or *otherwise*, elementwise: the condition is an array."""
    axes = condition.axes | then.axes | otherwise.axes
    import numpy as np

    left = number(then, node.then.span)
    right = number(otherwise, node.otherwise.span)
    chosen = np.where(condition.value, left.number, right.number)
    finite(chosen, node.span)
    return Quantity(chosen, left.dimension, axes, left.literal or right.literal)


def check_branches(then: Value, otherwise: Value, node: s.Conditional) -> None:
    """Check that both branches of a conditional are of one kind and dimension."""
    if isinstance(then, Quantity) and isinstance(otherwise, Quantity):
        same_dimension("choose between", then, otherwise, node.then.span, node.otherwise.span)
    elif type(then) is not type(otherwise):
        raise error_at(
            "mixed-dimensions",
            "both branches must be of one kind",
            node.otherwise.span,
            f"this is {describe(otherwise)}",
            also=[(node.then.span, f"this is {describe(then)}")],
        )


def axes_of(values: list[Value]) -> frozenset[int]:
    """Return the sweeps that any of *values* depends on."""
    return NO_AXES.union(*(value.axes for value in values))


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, (float, int)) and isinstance(b, (float, int)):
        return a / b
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(a, b)


def same_dimension(verb: str, a: Quantity, b: Quantity, first: Span, second: Span) -> None:
    """Check that two quantities have one dimension.

    Raises:
        SpecError: The dimensions differ, so the operation *verb* is undefined.
    """
    if a.dimension == b.dimension:
        return
    hint = None
    if {a.dimension, b.dimension} == {BITS, BYTES}:
        hint = "8 bits are a byte: `bytes(x)` converts"
    raise error_at(
        "mixed-dimensions",
        f"cannot {verb} {a.dimension} and {b.dimension}",
        second,
        f"this is {describe(b)}",
        also=[(first, f"this is {describe(a)}")],
        help=hint,
    )


def _logic(operator: str, values: list[Truth]) -> Truth:
    result = values[0].value
    axes = values[0].axes
    for value in values[1:]:
        result = result & value.value if operator == "&&" else result | value.value
        axes = axes | value.axes
    return Truth(result, axes)


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}
