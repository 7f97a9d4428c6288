"""The functions of the language. They never raise: every failure is a diagnostic."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from attrs import evolve

from parcost.binding.values import (
    LARGEST,
    SMALLEST,
    Items,
    Quantity,
    Symbol,
    Value,
    axes_of,
    describe,
    finite,
    number,
    same_dimension,
)
from parcost.contract.schema import Curve
from parcost.language import syntax as s
from parcost.language.diagnostics import did_you_mean
from parcost.language.errors import error_at
from parcost.language.units import BIT_RATE, BITS, BYTES, ONE, RATE, SECONDS
from parcost.numeric import maximum, minimum

if TYPE_CHECKING:
    from parcost.language.text import Span
    from parcost.numeric import Real

LONGEST_LIST = 1_000_000


def call(node: s.FunctionCall, arguments: list[Value]) -> Value:
    """Return the value of ``function(arguments)``."""
    name = node.function.text
    function = _FUNCTIONS.get(name)
    if function is None:
        message = f"there is no function `{name}`"
        help = did_you_mean(name, _FUNCTIONS) or "the functions are " + ", ".join(
            f"`{f}`" for f in sorted(_FUNCTIONS)
        )
        raise error_at("unknown-function", message, node.function.span, help=help)
    least, most, apply = function
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"at least {least}"
        message = f"`{name}` takes {wanted} argument{'s' * (wanted != '1')}, not {len(arguments)}"
        raise error_at("wrong-arguments", message, node.span)
    return apply(node, arguments)


def functions() -> list[str]:
    """Return the names of the functions of the language."""
    return sorted(_FUNCTIONS)


def _extreme(pick: Callable[[Real, Real], Real]) -> Callable[[s.FunctionCall, list[Value]], Value]:
    def apply(node: s.FunctionCall, arguments: list[Value]) -> Value:

        numbers = [number(a, n.span) for a, n in zip(arguments, node.arguments, strict=True)]
        result = numbers[0].number
        for operand, argument in zip(numbers[1:], node.arguments[1:], strict=True):
            same_dimension("compare", numbers[0], operand, node.arguments[0].span, argument.span)
            result = pick(result, operand.number)
        literal = any(n.literal for n in numbers)
        return Quantity(result, numbers[0].dimension, axes_of(arguments), literal)

    return apply


def _elementwise(name: str) -> Callable[[s.FunctionCall, list[Value]], Value]:
    def apply(node: s.FunctionCall, arguments: list[Value]) -> Value:
        operand = number(arguments[0], node.arguments[0].span)
        if operand.dimension != ONE:
            message = f"`{name}` takes a plain number"
            raise error_at(
                "wrong-dimension", message, node.arguments[0].span, f"this is {describe(operand)}"
            )
        import numpy as np

        with np.errstate(invalid="ignore", divide="ignore"):
            result = getattr(np, name)(operand.number)
        if not np.ndim(result):
            result = float(result)
        return evolve(operand, number=finite(result, node.span))

    return apply


def _bytes(node: s.FunctionCall, arguments: list[Value]) -> Value:
    operand = number(arguments[0], node.arguments[0].span)
    bits = operand.dimension.exponents[1]
    if bits == 0:
        return operand
    dimension = operand.dimension
    for _ in range(abs(bits)):
        dimension = dimension / BITS * BYTES if bits > 0 else dimension * BITS / BYTES
    return evolve(operand, number=operand.number / 8.0**bits, dimension=dimension)


def _range(node: s.FunctionCall, arguments: list[Value]) -> Value:
    bounds = [number(a, n.span) for a, n in zip(arguments, node.arguments, strict=True)]
    first, last, *rest = (_scalar(b, n.span) for b, n in zip(bounds, node.arguments, strict=True))
    step = rest[0] if rest else 1.0
    for bound, argument in zip(bounds[1:], node.arguments[1:], strict=True):
        same_dimension("count from", bounds[0], bound, node.arguments[0].span, argument.span)
    if step <= 0:
        raise error_at("out-of-range", "the step of a range must be above 0", node.span)
    count = math.floor((last - first) / step + 1e-9) + 1 if last >= first else 0
    if count > LONGEST_LIST:
        message = f"this list has {count:,} items; the limit is {LONGEST_LIST:,}"
        raise error_at("too-many-points", message, node.span)
    dimension = bounds[0].dimension
    return Items(tuple(Quantity(first + i * step, dimension) for i in range(count)))


def _divisors(node: s.FunctionCall, arguments: list[Value]) -> Value:
    count = _scalar(number(arguments[0], node.arguments[0].span), node.span)
    if count < 1 or count != int(count) or count > 1e12:
        message = "`divisors` needs a whole number from 1 to 10^12"
        raise error_at("out-of-range", message, node.arguments[0].span)
    whole = int(count)
    low = [d for d in range(1, math.isqrt(whole) + 1) if whole % d == 0]
    high = [whole // d for d in reversed(low) if d * d != whole]
    return Items(tuple(Quantity(float(d)) for d in low + high))


def _curve(node: s.FunctionCall, arguments: list[Value]) -> Value:

    sizes: list[float] = []
    seconds: list[float] = []
    for value, argument in zip(arguments, node.arguments, strict=True):
        pair = value.items if isinstance(value, Items) else ()
        size, point = (*pair, None, None)[:2]
        if len(pair) != 2 or not isinstance(size, Quantity) or not isinstance(point, Quantity):
            message = "a point of a curve must be `[size, time]` or `[size, bandwidth]`"
            raise error_at("malformed-curve", message, argument.span)
        if size.dimension != BYTES or point.dimension not in (SECONDS, RATE, BIT_RATE):
            raise error_at(
                "malformed-curve",
                "a point of a curve must be a size in bytes, and a time or a bandwidth",
                argument.span,
                f"this is {describe(size)} and {describe(point)}",
            )
        at, there = _scalar(size, argument.span), _scalar(point, argument.span)
        if at <= 0 or there <= 0 or (sizes and at <= sizes[-1]):
            raise error_at(
                "malformed-curve",
                "sizes of a curve must ascend, and all values must be positive",
                argument.span,
                f"this is a size of {describe(size)}"
                + (", after a larger or equal one" if sizes and at <= sizes[-1] else ""),
            )
        if not (min(at, there) >= SMALLEST and max(at, there) <= LARGEST):
            message = f"numbers of a curve must be between {SMALLEST:g} and {LARGEST:g}"
            raise error_at("malformed-curve", message, argument.span)
        rate = there / 8.0 if point.dimension == BIT_RATE else there
        sizes.append(at)
        seconds.append(there if point.dimension == SECONDS else at / rate)
    import numpy as np

    return Symbol(Curve(np.array(sizes), np.array(seconds)))


def _scalar(value: Quantity, span: Span) -> float:
    if value.axes or not isinstance(value.number, (float, int)):
        raise error_at("swept-argument", "this argument cannot be a sweep", span, help=_ONE)
    return float(value.number)


_ONE = "write one number, or one study for each value"
_MANY = 10_000
_FUNCTIONS: dict[str, tuple[int, int, Callable[[s.FunctionCall, list[Value]], Value]]] = {
    "min": (1, _MANY, _extreme(minimum)),
    "max": (1, _MANY, _extreme(maximum)),
    "ceil": (1, 1, _elementwise("ceil")),
    "floor": (1, 1, _elementwise("floor")),
    "log2": (1, 1, _elementwise("log2")),
    "sqrt": (1, 1, _elementwise("sqrt")),
    "bytes": (1, 1, _bytes),
    "range": (2, 3, _range),
    "divisors": (1, 1, _divisors),
    "curve": (2, _MANY, _curve),
}
