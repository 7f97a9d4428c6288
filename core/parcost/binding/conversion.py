"""Converts a value of the language to an attribute's type: kind, dimension, qualifier, range."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from attrs import evolve

from parcost.binding import values as v
from parcost.binding.definitions import Definition
from parcost.binding.expressions import Expressions
from parcost.binding.scope import BrokenError, Scope, SetValue
from parcost.binding.values import BoundValue
from parcost.contract.origin import Origin
from parcost.contract.schema import BlockType, Curve, Field
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic, did_you_mean, problem
from parcost.language.errors import SpecError, error_at
from parcost.language.numbers import quantity as shown
from parcost.language.units import (
    BIT_RATE,
    BITS,
    BYTES,
    FLOPS,
    ONE,
    RATE,
    SECONDS,
    Dimension,
    known_units,
)


def convert(
    expressions: Expressions, node: s.Attribute, scope: Scope, origin: Origin
) -> BoundValue:
    """Return the value of attribute *node*, converted to the type of its field.

    Raises:
        SpecError: The value is of another kind or dimension, or out of range.
    """
    field = scope.field
    assert field is not None
    if isinstance(node.value, SetValue):
        value = expressions.given_value(node.value, scope)
    else:
        value = expressions.evaluate(node.value, scope)
    if field.kind == "quantity":
        return _quantity(expressions, node, value, scope, field, origin)
    expressions.binder.mark_structural(value.axes)
    if field.kind == "integers":
        return BoundValue(value, _integers(value, node, field), origin)
    what = value.what if isinstance(value, v.Symbol) else None
    if field.kind == "reference" and isinstance(what, Definition):
        return BoundValue(value, expressions.binder.object(what), origin)
    if field.kind == "reference" or not isinstance(what, str):
        raise SpecError([_wrong_kind(expressions, node, value, field)])
    if field.kind != "text" and what not in expressions.names.choices(field):
        span = node.value.span
        raise SpecError([expressions.names.wrong_word(what, span, node.name.text, field)])
    return BoundValue(value, what == "on" if field.kind == "switch" else what, origin)


def is_literal(node: s.Attribute, field: Field, bound: BoundValue) -> bool:
    """Return whether *node* is a literal, so that its value *bound* is the same in every study."""
    if _qualifiers_refer(node, field):
        return False
    value, meant = node.value, bound.value
    if type(value) is s.Path:  # a let would mean another word
        return isinstance(meant, v.Symbol) and meant.what == value.text
    if isinstance(value, s.List):  # elsewhere a list is a sweep
        return field.kind == "integers" and all(type(item) is s.Number for item in value.items)
    return type(value) in (s.Number, s.Text)


def stays_inside(node: s.Attribute, field: Field, type_: BlockType) -> bool:
    """Return whether *node* is a number that depends only on attributes of its own block."""
    return (
        field.kind == "quantity"
        and not _qualifiers_refer(node, field)
        and _names_only(type_, node.value)
    )


def _names_only(type_: BlockType, node: s.Expr | s.Item) -> bool:
    """Return whether all names in an expression are attributes of *type_*."""
    match node:
        case s.Path(parts=[name]):
            return name.text in type_.fields
        case s.Chain() | s.FunctionCall() | s.Unary():
            return all(_names_only(type_, part) for part in s.parts_of(node))
    return isinstance(node, s.Number)


def _qualifiers_refer(node: s.Attribute, field: Field) -> bool:
    """Return whether a qualifier after the value refers to another attribute."""
    words = [word for word, factor in field.qualifiers.items() if isinstance(factor, str)]
    return any(word in node.span.text for word in words)


def _wrong_kind(
    expressions: Expressions, node: s.Attribute, value: v.Value, field: Field
) -> Diagnostic:
    wanted = {
        "word": "a word",
        "switch": "`on` or `off`",
        "text": "a string in quotes",
        "reference": f"the name of a `{field.target}`",
        "integers": "a list of whole numbers",
    }[field.kind]
    message = f"`{node.name.text}` must be {wanted}"
    help = _unit_hint(expressions, node, field)
    return problem(
        "wrong-kind", message, node.value.span, f"this is {v.describe(value)}", help=help
    )


def _unit_hint(expressions: Expressions, node: s.Attribute, field: Field) -> str | None:
    """Return a help line with the probable name for a quoted or misspelled value, or None."""
    text = node.span.text.partition("=")[2].strip(' "')
    known: Sequence[str] = ()
    if field.kind == "word":
        known = expressions.names.choices(field)
    elif field.kind == "reference":
        known = [
            label for kind, label in expressions.binder.definitions.table if kind == field.target
        ]
    hint = did_you_mean(text, known)
    if not isinstance(node.value, s.Text):
        return hint
    if field.kind not in ("word", "reference", "switch"):
        return None
    return "write a name without quotes" + (f"; {hint}" if hint else f": `{text}`")


def _integers(value: v.Value, node: s.Attribute, field: Field) -> tuple[int, ...]:
    items = value.items if isinstance(value, v.Items) else (value,)
    name, span = node.name.text, node.value.span
    if not items:
        message = f"the list of `{name}` is empty"
        help = "leave the attribute out to use its default"
        raise error_at("empty-list", message, span, help=help, notes=[f"{name}: {field.doc}"])
    whole: list[int] = []
    for item in items:
        if (
            not isinstance(item, v.Quantity)
            or item.dimension != ONE
            or not isinstance(item.number, (float, int))
            or item.number != int(item.number)
            or abs(item.number) >= 2**31
        ):
            complaint = f"`{name}` must be a list of whole numbers"
            raise error_at("wrong-kind", complaint, span)
        whole.append(int(item.number))
    if field.minimum is not None and min(whole) < field.minimum:
        at, written = whole.index(min(whole)), getattr(node.value, "items", ())
        raise error_at(
            "out-of-range",
            f"numbers of `{name}` must be at least {field.minimum:g}",
            written[at].span if at < len(written) else span,
            f"this is {min(whole)}",
            help=f"the nearest legal value is {field.minimum:g}",
            notes=[f"{name}: {field.doc}"],
        )
    return tuple(whole)


def _quantity(
    expressions: Expressions,
    node: s.Attribute,
    value: v.Value,
    scope: Scope,
    field: Field,
    origin: Origin,
) -> BoundValue:
    name = node.name.text
    if isinstance(value, v.Symbol) and isinstance(value.what, Curve):
        if not field.curve:
            raise SpecError([_not_a_number(node, value, field)])
        return BoundValue(value, value.what, origin)
    if isinstance(value, v.Symbol) and value.what is None:
        raise BrokenError
    if not isinstance(value, v.Quantity):
        raise SpecError([_not_a_number(node, value, field)])
    if value.dimension != field.dimension:
        value = _convert(node, value, field)
    if node.qualifiers or field.must_qualify:
        value, said = _apply_qualifier(expressions, node, value, scope, field)
        origin = evolve(origin, word=said)
    number = value.number
    if field.whole and origin.how == "default" and isinstance(number, float) and number % 1:
        wrong = _remainder(expressions, node, scope)
        if wrong is not None:
            raise SpecError([wrong])
    if field.whole or field.minimum is not None or field.positive or field.maximum:
        _check_range(name, number, node, field)
    _check_magnitude(name, number, node, field)
    if field.structural:
        expressions.binder.mark_structural(value.axes)
        number = int(number) if isinstance(number, (float, int)) else int(number.flat[0])
    return BoundValue(value, number, origin)


def _remainder(expressions: Expressions, node: s.Attribute, scope: Scope) -> Diagnostic | None:
    """Return the error if a default divides an attribute by another with a remainder.

    It points at the divisor in the file, and names the nearest valid divisors.
    """
    quotient, block = node.value, scope.definition
    if not isinstance(quotient, s.Chain) or quotient.operators != ("/",) or block is None:
        return None
    whole, divisor = (_attribute_in(one, block) for one in quotient.operands)
    if not whole or not divisor or divisor not in block.attributes:
        return None
    of, by = (expressions.binder.attribute(block, name).held for name in (whole, divisor))
    if not all(isinstance(n, (float, int)) and n % 1 == 0 for n in (of, by)) or by < 1:
        return None
    if of % by == 0 or of > _EXACT or by > _LARGEST_DIVISOR:
        return None
    below = next(n for n in range(int(by) - 1, 0, -1) if of % n == 0)
    above = next((n for n in range(int(by) + 1, 2 * int(by) + 1) if of % n == 0), None)
    near = f"{below} or {above}" if above else f"{below}"
    own = f"`{node.name.text}`, which is `{quotient.span.text}`"
    message = f"`{whole}` {of:.0f} is not divisible by `{divisor}` {by:.0f}"
    help = f"take {divisor} = {near}, or write {own}"
    return problem("not-whole", message, block.attributes[divisor][0].span, help=help)


def _attribute_in(operand: s.Expr, block: Definition) -> str:
    """Return the attribute of *block* that *operand* names, directly or in a call like max()."""
    for one in operand.arguments if isinstance(operand, s.FunctionCall) else (operand,):
        if isinstance(one, s.Path) and one.text in block.type.fields:
            return one.text
    return ""


def _not_a_number(node: s.Attribute, value: v.Value, field: Field) -> Diagnostic:
    return problem(
        "not-a-number",
        f"`{node.name.text}` is a number",
        node.value.span,
        f"this is {v.describe(value)}",
        notes=[f"{node.name.text}: {field.doc}"],
    )


def _items_with_unit(node: s.Attribute, wanted: Dimension) -> str | None:
    """Return the help line for a list with one unit at its end instead of one for each item."""
    known, kinds = known_units(), (wanted, BIT_RATE) if wanted == RATE else (wanted,)
    units = [q.text for q in node.qualifiers if q.text in known and known[q.text][1] in kinds]
    if not isinstance(node.value, s.List) or not units:
        return None
    items = ", ".join(f"{item.span.text} {units[0]}" for item in node.value.items)
    return f"write the unit of each item: `[{items}]`"


def _convert(node: s.Attribute, value: v.Quantity, field: Field) -> v.Quantity:
    name, span = node.name.text, node.value.span
    wanted = field.dimension
    if wanted == RATE and value.dimension == BIT_RATE:
        return evolve(value, number=value.number / 8.0, dimension=RATE)
    if wanted == BYTES and value.dimension == BITS:
        raise error_at(
            "bit-for-byte",
            f"`{name}` takes bytes, but the value is in bits",
            span,
            f"this is {shown(value.number / 8.0, 'B')}",
            help=f"write `{span.text.replace('bit', 'B').replace('b', 'B')}` "
            "if bytes are meant, or `bytes(...)` to convert",
        )
    if value.dimension == ONE:
        message = f"`{name}` needs a unit"
        help = (
            _items_with_unit(node, wanted)
            or f"write a unit of {wanted}, such as {_examples(wanted)}"
        )
        raise error_at("missing-unit", message, span, "this is a plain number", help=help)
    measured = "must be a plain number" if wanted == ONE else f"must be in {wanted}"
    kinds = (wanted, BIT_RATE) if wanted == RATE else (wanted,)
    under = [u for kind in kinds if wanted != ONE for u in _under(value.dimension, kind)]
    words = "".join(f" {word.text}" for word in node.qualifiers)  # after a value without its unit
    message = f"`{name}` {measured}"
    hint = None
    if under:
        rate = f"{span.text}/{'s' if wanted == RATE else under[0]}"
        bits = f"{span.text.replace('bit', 'b')}ps"
        hint = f"write `{bits if bits.rpartition(' ')[2] in known_units() else rate}{words}`"
    raise error_at("wrong-dimension", message, span, f"this is {v.describe(value)}", help=hint)


def _apply_qualifier(
    expressions: Expressions, node: s.Attribute, value: v.Quantity, scope: Scope, field: Field
) -> tuple[v.Quantity, str]:
    """Return *value* scaled by its qualifier, and the qualifier ("" if none exists)."""
    name = node.name.text
    said = [q.text for q in node.qualifiers]
    for qualifier in node.qualifiers:
        if qualifier.text not in field.qualifiers:
            raise SpecError([_unknown_qualifier(name, qualifier, field)])
    items = node.value.items if isinstance(node.value, s.List) else (node.value,)
    units = {item.unit if isinstance(item, s.Number) else "" for item in items}
    said += [unit for unit in sorted(units) if unit in field.qualifiers]
    if len(said) > 1:
        message = f"`{name}` cannot be both {said[0]} and {said[1]}"
        raise error_at(
            "duplicate", message, node.qualifiers[-1].span if node.qualifiers else node.value.span
        )
    if not said:
        if field.must_qualify and value.literal and not isinstance(node.value, SetValue):
            choices = " or ".join(f"`{q}`" for q in field.qualifiers)
            message = f"`{name}` needs a qualifier: {choices}"
            help = _qualifier_help(node.value.span.text, field.qualifiers)
            raise error_at(
                "ambiguous-quantity", message, node.value.span, "the value is ambiguous", help=help
            )
        return value, ""
    word = said[0]
    factor = field.qualifiers[word]
    if isinstance(factor, str):
        assert scope.definition is not None
        by = expressions.binder.attribute(scope.definition, factor).value
        if not isinstance(by, v.Quantity):
            message = f"`{name} = {word}` needs `{factor}`"
            help = f"write `{factor} = ...` in the same block"
            raise error_at("not-given", message, node.span, help=help)
        return evolve(value, number=value.number / by.number, axes=value.axes | by.axes), word
    return (value if factor == 1.0 else evolve(value, number=value.number * factor)), word


def _qualifier_help(text: str, words: Iterable[str]) -> str:
    """Return the help line for a missing qualifier, or for one of *words* written inside the value.

    >>> _qualifier_help("64 sequences * 4", ["sequences", "tokens"])
    'write the qualifier after the whole value: `(64 * 4) sequences`'
    >>> _qualifier_help("2 * 4", ["sequences", "tokens"])
    'write `(2 * 4) sequences` or `(2 * 4) tokens`'
    """
    inside = [word for word in words if re.search(rf"\b{re.escape(word)}\b", text)]
    for word in inside:
        text = re.sub(rf"\s*\b{re.escape(word)}\b", "", text)
    text = f"({text})" if re.search(r"[-+*?]|/ ", text) else text
    ways = " or ".join(f"`{text} {word}`" for word in inside or words)
    return f"write the qualifier after the whole value: {ways}" if inside else f"write {ways}"


_LARGEST_DIVISOR = 1e6  # next to which others are looked for
_EXACT = 2**53  # beyond, a number and its neighbour are the same


def _check_range(name: str, number: Any, node: s.Attribute, field: Field) -> None:
    worst = _worst(_elements(number), field)
    low, high = field.minimum, field.maximum
    complaint = hint = ""
    percent = "%" in node.value.span.text

    def number_text(number: float) -> str:
        if number == int(number) and abs(number) <= _EXACT and not percent:
            return f"{int(number)}"
        return f"{100 * number:g} %" if percent else f"{number:g}"

    if field.whole and worst != int(worst):
        complaint = f"`{name}` must be a whole number"
        near = sorted({max(int(worst), int(low or 0)), int(worst) + 1})
        hint = "the nearest are " + " and ".join(f"{n}" for n in near)
        id = "not-whole"
    elif (low is not None and worst < low) or (field.positive and worst <= 0):
        bound = "above 0" if field.positive else f"at least {number_text(low or 0)}"
        complaint, id = f"`{name}` must be {bound}", "out-of-range"
    elif field.whole and worst > _EXACT and (high is None or high > _EXACT):
        complaint, id = (
            f"`{name}` must be at most 2^53: larger whole numbers are not exact",
            "out-of-range",
        )
        hint = f"the nearest legal value is {_EXACT}"
    elif high is not None and worst > high:
        complaint, id = f"`{name}` must be at most {number_text(high)}", "out-of-range"
        hint = f"the nearest legal value is {number_text(high)}"
        is_share = field.dimension == ONE and high == 1 and not field.whole
        if is_share and not percent and 2 <= worst <= 100:
            hint = f"write `{number_text(worst)} %`"
    if complaint:
        raise error_at(
            id,
            complaint,
            node.value.span,
            f"this is {number_text(worst)}",
            help=hint or None,
            notes=[f"{name}: {field.doc}"],
        )


def _check_magnitude(name: str, number: Any, node: s.Attribute, field: Field) -> None:
    """Check that a number is in the range that formulas can multiply without over- or underflow."""
    sizes = map(abs, _elements(number))
    size = next((n for n in sizes if n and not v.SMALLEST <= n <= v.LARGEST), None)
    if size is None:
        return
    large = size > v.LARGEST
    unit = "" if field.dimension == ONE else f" {field.dimension}"
    raise error_at(
        "out-of-range",
        f"`{name}` is too {'large' if large else 'small'} for a float",
        node.value.span,
        f"this is {size:g}{unit}",
        help=f"the nearest legal value is {v.LARGEST if large else v.SMALLEST:g}{unit}",
        notes=[f"{name}: {field.doc}"],
    )


def _elements(number: Any) -> Sequence[float]:
    """Return the elements of an array, or the number itself."""
    return (number,) if isinstance(number, (float, int)) else number.ravel().tolist()


def _unknown_qualifier(name: str, qualifier: s.Name, field: Field) -> Diagnostic:
    if not field.qualifiers:
        message = f"`{name}` takes no qualifier after its value"
        help = "remove the word; separate attributes on one line with commas"
        return problem("unknown-qualifier", message, qualifier.span, help=help)
    return problem(
        "unknown-qualifier",
        f"`{name}` cannot be `{qualifier.text}`",
        qualifier.span,
        "one of " + ", ".join(f"`{q}`" for q in field.qualifiers),
        help=did_you_mean(qualifier.text, field.qualifiers),
    )


def _worst(numbers: Sequence[float], field: Field) -> float:
    """Return a number outside the range of *field*, or the maximum if none exists."""
    if field.whole and (broken := [number for number in numbers if number % 1]):
        return broken[0]
    low = min(numbers)
    too_low = (field.minimum is not None and low < field.minimum) or (field.positive and low <= 0)
    return low if too_low else max(numbers)


def _examples(dimension: Any) -> str:
    known = {
        BYTES: "`B`, `GB`, `GiB`",
        RATE: "`GB/s`, `Gbps`",
        SECONDS: "`s`, `ms`, `us`",
        FLOPS: "`TFLOPS`",
    }
    if dimension in known:
        return known[dimension]
    simple = [name for name, (_, d) in known_units().items() if d == dimension]
    compound = (
        f"{name}/{under}" for name, (_, d) in _SINGLE.items() for under in _under(d, dimension)
    )
    return ", ".join(f"`{name}`" for name in (simple or list(compound))[:4])


#: What compound units are made of, in the order in which they are proposed.
_SINGLE = {name: known_units()[name] for name in ("USD", "g", "J", "FLOP", "B", "b", "h", "s")}


def _under(over: Any, wanted: Any) -> list[str]:
    """Return the units by which a quantity of dimension *over* must be divided to get *wanted*."""
    return [name for name, (_, d) in _SINGLE.items() if d != ONE and over / d == wanted]


def qualifier(field: Field, origin: Origin | None = None) -> str:
    """Return the qualifier to print after a value, as " word"; "" if the field needs none."""
    if origin is not None and field.qualifiers.get(origin.word) == 1:
        return f" {origin.word}"
    if not field.must_qualify:
        return ""
    return next(f" {word}" for word, factor in field.qualifiers.items() if factor == 1)
