"""Values that are not in a spec: declared defaults, and values set from outside."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from attrs import evolve

from parcost.binding import values as v
from parcost.binding.scope import SetValue
from parcost.binding.values import BoundValue
from parcost.contract.origin import Origin
from parcost.contract.schema import block_type
from parcost.language import syntax as s
from parcost.language.diagnostics import Diagnostic
from parcost.language.errors import SpecError
from parcost.language.numbers import spec_text
from parcost.language.parse import parse
from parcost.language.text import Source, Span

_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def setting(path: str, value: Any) -> s.Attribute:
    """Return *value* as a syntax node, as if a spec had set the attribute at *path*.

    A string is an expression of the language; a number is in base units.

    Raises:
        SpecError: The string is not an expression.
    """
    name = path.rsplit(".", 1)[-1]
    if isinstance(value, str):
        return _parse_value(path, value, f"set {path}")
    span = Span(Source(f"set {path}", f"{value}"), 0, len(f"{value}"))
    word = s.Name(name, span)
    return s.Attribute((), s.Path((word,), span), SetValue(value, span), (), (), span)  # type: ignore[arg-type]


@cache
def plain_default(schema: type, name: str) -> BoundValue | None:
    """Return a declared default that is a literal; None if it is an expression."""
    type_ = block_type(schema)
    default, field = type_.defaults[name], type_.fields[name]
    if default is None or default == ():
        return BoundValue(v.Symbol(None), default, Origin("default", expression="none"))
    if isinstance(default, bool):
        spelled = spec_text(default)
        return BoundValue(v.Symbol(spelled), default, Origin("default", expression=spelled))
    if isinstance(default, (int, float)):
        number = int(default) if field.structural else float(default)
        value = v.Quantity(float(default), field.dimension)
        return BoundValue(value, number, Origin("default", expression=f"{default:g}"))
    if field.kind in ("word", "text"):
        return BoundValue(v.Symbol(default), default, Origin("default", expression=default))
    return None


@cache
def expression(kind: str, name: str, text: str) -> tuple[s.Attribute, Origin]:
    """Return the attribute node and the origin of a default expression, as if a spec had set it."""
    node = _parse_value(f"{kind}.{name}", text, f"default of {kind}.{name}")
    return node, Origin("default", expression=node.value.span.text)


def _parse_value(path: str, text: str, place: str) -> s.Attribute:
    """Return the attribute node for *text*, named after the last part of *path*."""
    name = path if _PATH.fullmatch(path) else f"let {path.rpartition('.')[2]}"
    source = Source(place, f"{name} = {text}\n")
    tree, found = parse(source)
    if not found and len(tree.items) == 1 and isinstance(tree.items[0], s.Attribute):
        item = tree.items[0]
        return evolve(item, name=evolve(item.name, parts=item.name.parts[-1:]))
    raise SpecError(found or [Diagnostic("syntax", f"`{text}` is not a value", place=place)])
