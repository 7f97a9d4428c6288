"""Values of the language, and the operations on them. Total: every failure is a diagnostic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from parcost.diagnostics import SpecError, did_you_mean, problem
from parcost.language import syntax as s
from parcost.language.units import BITS, BYTES, ONE, SECONDS, Dimension
from parcost.schema import Curve

if TYPE_CHECKING:
    from parcost.language.text import Span

LONGEST_LIST = 1_000_000
NO_AXES: frozenset[int] = frozenset()


@frozen(eq=False)
class Quantity:
    """A number (or an array over points) with its dimension.

    *axes* are the sweeps that it depends on. *literal* says that a number was
    written out in it, rather than only referred to.
    """

    number: Any
    dimension: Dimension = ONE
    axes: frozenset[int] = NO_AXES
    literal: bool = False


@frozen(eq=False)
class Truth:
    """A condition: a bool, or an array of them."""

    value: Any
    axes: frozenset[int] = NO_AXES


@frozen(eq=False)
class Items:
    """A list, before it is known to be a sweep."""

    items: tuple[Any, ...]
    axes: frozenset[int] = NO_AXES


@frozen(eq=False)
class Said:
    """Something that is no number: a word, a string, a block, or a measured curve."""

    what: Any
    axes: frozenset[int] = NO_AXES


Value = Quantity | Truth | Items | Said


def describe(value: Value) -> str:
    """Return what kind of thing *value* is, in words."""
    match value:
        case Quantity(dimension=dimension):
            return f"in {dimension}" if dimension != ONE else "a plain number"
        case Truth():
            return "a condition"
        case Items():
            return "a list"
        case Said(what=str()):
            return "a string"
        case Said(what=Curve()):
            return "a measured curve"
    return "a name"


def number(value: Value, span: Span) -> Quantity:
    """Return *value* if it is a quantity.

    Raises:
        SpecError: It is something else.
    """
    if isinstance(value, Quantity):
        return value
    raise SpecError(
        [problem("not-a-number", "a number is needed here", span, f"this is {describe(value)}")]
    )


def truth(value: Value, span: Span) -> Truth:
    """Return *value* if it is a condition."""
    if isinstance(value, Truth):
        return value
    raise SpecError(
        [
            problem(
                "not-a-condition",
                "a condition is needed here",
                span,
                f"this is {describe(value)}",
                help="compare with `==`, `<` or `>`",
            )
        ]
    )


def chain(node: s.Chain, values: list[Value], *, masked: bool) -> Value:
    """Return the value of operands joined by operators of one precedence.

    *masked* allows infinities and NaN in arrays: another branch was chosen there.
    """
    spans = [operand.span for operand in node.operands]
    axes = _axes(values)
    if node.operators[0] in ("&&", "||"):
        return _logic(node.operators[0], [truth(v, p) for v, p in zip(values, spans, strict=True)])
    numbers = [number(v, p) for v, p in zip(values, spans, strict=True)]
    if node.operators[0] in _COMPARISONS:
        left, right = numbers
        _same_dimension("compare", left, right, spans[0], spans[1])
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
                _same_dimension(
                    verb, Quantity(0.0, dimension), operand, spans[0].to(spans[0]), span
                )
            result = result + operand.number if operator == "+" else result - operand.number
        elif operator == "*":
            result, dimension = result * operand.number, dimension * operand.dimension
        else:
            if not masked and _any(operand.number, 0.0):
                raise SpecError(
                    [problem("division-by-zero", "this divides by zero", span, "this is 0")]
                )
            result, dimension = _divide(result, operand.number), dimension / operand.dimension
    return Quantity(finite(result, node.span, masked=masked), dimension, axes, literal)


def finite(result: Any, span: Span, *, masked: bool = False) -> Any:
    """Return *result* if it is finite (everywhere).

    Raises:
        SpecError: It overflowed.
    """
    if isinstance(result, (float, int)):
        good = math.isfinite(result)
    else:
        import numpy as np

        good = masked or bool(np.all(np.isfinite(result)))
    if not good:
        raise SpecError(
            [problem("not-finite", "this is too large to compute with", span, "not finite")]
        )
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
    """Return *then* or *otherwise*; elementwise where the condition is an array."""
    axes = condition.axes | then.axes | otherwise.axes
    if isinstance(condition.value, bool):
        return evolve(then if condition.value else otherwise, axes=axes)
    import numpy as np

    left = number(then, node.then.span)
    right = number(otherwise, node.otherwise.span)
    chosen = np.where(condition.value, left.number, right.number)
    finite(chosen, node.span)
    return Quantity(chosen, left.dimension, axes, left.literal or right.literal)


def agree(then: Value, otherwise: Value, node: s.Conditional) -> None:
    """Check that both branches of a conditional are of one kind and dimension."""
    if isinstance(then, Quantity) and isinstance(otherwise, Quantity):
        _same_dimension("choose between", then, otherwise, node.then.span, node.otherwise.span)
    elif type(then) is not type(otherwise):
        raise SpecError(
            [
                problem(
                    "mixed-dimensions",
                    "both branches must be of one kind",
                    node.otherwise.span,
                    f"this is {describe(otherwise)}",
                    also=[(node.then.span, f"this is {describe(then)}")],
                )
            ]
        )


def call(node: s.Call, arguments: list[Value]) -> Value:
    """Return the value of ``function(arguments)``."""
    name = node.function.text
    function = _FUNCTIONS.get(name)
    if function is None:
        raise SpecError(
            [
                problem(
                    "unknown-function",
                    f"there is no function `{name}`",
                    node.function.span,
                    help=did_you_mean(name, _FUNCTIONS)
                    or "the functions are " + ", ".join(f"`{f}`" for f in sorted(_FUNCTIONS)),
                )
            ]
        )
    least, most, apply = function
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"at least {least}"
        raise SpecError(
            [
                problem(
                    "wrong-arguments",
                    f"`{name}` takes {wanted} argument{'s' * (wanted != '1')}, "
                    f"not {len(arguments)}",
                    node.span,
                )
            ]
        )
    return apply(node, arguments)


def functions() -> list[str]:
    """Return the names of the functions of the language."""
    return sorted(_FUNCTIONS)


def _axes(values: list[Value]) -> frozenset[int]:
    axes = NO_AXES
    for value in values:
        if value.axes:
            axes |= value.axes
    return axes


def _any(value: Any, wanted: float) -> bool:
    if isinstance(value, (float, int)):
        return value == wanted
    return bool((value == wanted).any())


def _divide(a: Any, b: Any) -> Any:
    if isinstance(a, (float, int)) and isinstance(b, (float, int)):
        return a / b
    import numpy as np

    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(a, b)


def _same_dimension(verb: str, a: Quantity, b: Quantity, first: Span, second: Span) -> None:
    if a.dimension == b.dimension:
        return
    hint = None
    if {a.dimension, b.dimension} == {BITS, BYTES}:
        hint = "8 bits are a byte: `bytes(x)` converts"
    raise SpecError(
        [
            problem(
                "mixed-dimensions",
                f"cannot {verb} {a.dimension} and {b.dimension}",
                second,
                f"this is {describe(b)}",
                also=[(first, f"this is {describe(a)}")],
                help=hint,
            )
        ]
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


def _extreme(name: str) -> Callable[[s.Call, list[Value]], Value]:
    def apply(node: s.Call, arguments: list[Value]) -> Value:
        from parcost.numeric import maximum, minimum

        pick = minimum if name == "min" else maximum
        numbers = [number(a, n.span) for a, n in zip(arguments, node.arguments, strict=True)]
        result = numbers[0].number
        for operand, argument in zip(numbers[1:], node.arguments[1:], strict=True):
            _same_dimension("compare", numbers[0], operand, node.arguments[0].span, argument.span)
            result = pick(result, operand.number)
        literal = any(n.literal for n in numbers)
        return Quantity(result, numbers[0].dimension, _axes(arguments), literal)

    return apply


def _elementwise(name: str, *, plain: bool) -> Callable[[s.Call, list[Value]], Value]:
    def apply(node: s.Call, arguments: list[Value]) -> Value:
        operand = number(arguments[0], node.arguments[0].span)
        if plain and operand.dimension != ONE:
            raise SpecError(
                [
                    problem(
                        "wrong-dimension",
                        f"`{name}` takes a plain number",
                        node.arguments[0].span,
                        f"this is {describe(operand)}",
                    )
                ]
            )
        import numpy as np

        function = {"ceil": np.ceil, "floor": np.floor, "log2": np.log2, "sqrt": np.sqrt}[name]
        with np.errstate(invalid="ignore", divide="ignore"):
            result = function(operand.number)
        if not np.ndim(result):
            result = float(result)
        return evolve(operand, number=finite(result, node.span))

    return apply


def _bytes(node: s.Call, arguments: list[Value]) -> Value:
    operand = number(arguments[0], node.arguments[0].span)
    bits = operand.dimension.exponents[1]
    if bits == 0:
        return operand
    dimension = operand.dimension
    for _ in range(abs(bits)):
        dimension = dimension / BITS * BYTES if bits > 0 else dimension * BITS / BYTES
    return evolve(operand, number=operand.number / 8.0**bits, dimension=dimension)


def _range(node: s.Call, arguments: list[Value]) -> Value:
    bounds = [number(a, n.span) for a, n in zip(arguments, node.arguments, strict=True)]
    first, last, *rest = (_scalar(b, n.span) for b, n in zip(bounds, node.arguments, strict=True))
    step = rest[0] if rest else 1.0
    for bound, argument in zip(bounds[1:], node.arguments[1:], strict=True):
        _same_dimension("count from", bounds[0], bound, node.arguments[0].span, argument.span)
    if step <= 0:
        raise SpecError([problem("out-of-range", "a range needs a step above zero", node.span)])
    count = math.floor((last - first) / step + 1e-9) + 1 if last >= first else 0
    _check_length(count, node.span)
    dimension = bounds[0].dimension
    return Items(tuple(Quantity(first + i * step, dimension) for i in range(count)))


def _divisors(node: s.Call, arguments: list[Value]) -> Value:
    count = _scalar(number(arguments[0], node.arguments[0].span), node.span)
    if count < 1 or count != int(count) or count > 1e12:
        raise SpecError(
            [
                problem(
                    "out-of-range",
                    "`divisors` takes a whole number from 1 to 10^12",
                    node.arguments[0].span,
                )
            ]
        )
    whole = int(count)
    low = [d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0]
    high = [whole // d for d in reversed(low) if d * d != whole]
    return Items(tuple(Quantity(float(d)) for d in low + high))


def _curve(node: s.Call, arguments: list[Value]) -> Value:
    from parcost.language.units import BIT_RATE, RATE

    sizes: list[float] = []
    seconds: list[float] = []
    for value, argument in zip(arguments, node.arguments, strict=True):
        pair = value.items if isinstance(value, Items) else ()
        size, point = (*pair, None, None)[:2]
        if len(pair) != 2 or not isinstance(size, Quantity) or not isinstance(point, Quantity):
            raise SpecError(
                [
                    problem(
                        "malformed-curve",
                        "a point of a curve is `[size, time]` or `[size, bandwidth]`",
                        argument.span,
                    )
                ]
            )
        if size.dimension != BYTES or point.dimension not in (SECONDS, RATE, BIT_RATE):
            raise SpecError(
                [
                    problem(
                        "malformed-curve",
                        "a point of a curve is a size in bytes and a time or a bandwidth",
                        argument.span,
                        f"this is {describe(size)} and {describe(point)}",
                    )
                ]
            )
        at, there = _scalar(size, argument.span), _scalar(point, argument.span)
        if at <= 0 or there <= 0 or (sizes and at <= sizes[-1]):
            raise SpecError(
                [
                    problem(
                        "malformed-curve",
                        "the points of a curve are positive, with growing sizes",
                        argument.span,
                    )
                ]
            )
        rate = there / 8.0 if point.dimension == BIT_RATE else there
        sizes.append(at)
        seconds.append(there if point.dimension == SECONDS else at / rate)
    import numpy as np

    return Said(Curve(np.array(sizes), np.array(seconds)))


def _scalar(value: Quantity, span: Span) -> float:
    if value.axes or not isinstance(value.number, (float, int)):
        raise SpecError([problem("swept-argument", "this argument cannot depend on a sweep", span)])
    return float(value.number)


def _check_length(count: int, span: Span) -> None:
    if count > LONGEST_LIST:
        message = f"this list has {count:,} items, and {LONGEST_LIST:,} are the most"
        raise SpecError([problem("too-many-points", message, span)])


_MANY = 10_000
_FUNCTIONS: dict[str, tuple[int, int, Callable[[s.Call, list[Value]], Value]]] = {
    "min": (1, _MANY, _extreme("min")),
    "max": (1, _MANY, _extreme("max")),
    "ceil": (1, 1, _elementwise("ceil", plain=True)),
    "floor": (1, 1, _elementwise("floor", plain=True)),
    "log2": (1, 1, _elementwise("log2", plain=True)),
    "sqrt": (1, 1, _elementwise("sqrt", plain=True)),
    "bytes": (1, 1, _bytes),
    "range": (2, 3, _range),
    "divisors": (1, 1, _divisors),
    "curve": (2, _MANY, _curve),
}
