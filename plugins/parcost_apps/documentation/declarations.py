"""The valid values of an attribute in words, for the language reference and for editors."""

from __future__ import annotations

from typing import Any

from parcost.contract.schema import BlockType, Field
from parcost.language import units
from parcost.language.numbers import literal

_MEASURES = {
    units.BYTES: "bytes (`GB`, `GiB`, ...)",
    units.RATE: "rate (`GB/s`, `Gbps`, ...)",
    units.SECONDS: "time (`s`, `ms`, `us`, ...)",
    units.FLOP: "work (`FLOP`, `TFLOP`, ...)",
    units.FLOPS: "throughput (`TFLOPS`, ...)",
    units.WATTS: "power (`W`, ...)",
    units.JOULES: "energy (`J`, `Wh`, ...)",
    units.DOLLARS: "money (`USD`)",
    units.GRAMS: "mass (`g`, `kg`)",
    units.GRAMS / units.JOULES: "carbon per energy (`g/kWh`, ...)",
    units.DOLLARS / units.SECONDS: "price per time (`USD/h`, ...)",
    units.ONE: "number",
}


def value(field: Field) -> str:
    """Return the valid values of an attribute, in words."""
    match field.kind:
        case "quantity":
            return _number(field)
        case "word":
            words = " or ".join(f"`{choice}`" for choice in field.choices)
            offered = f"one of the {field.registry}" if field.registry else ""
            return " or ".join(filter(None, (words, offered)))
        case "switch":
            return "`on` or `off`"
        case "text":
            return "string"
        case "reference":
            return f"name of a `{field.target}`"
        case "integers":
            low = f", each at least {field.minimum:g}" if field.minimum else ""
            return f"list of whole numbers{low}"
        case "children":
            return f"blocks `{field.target}`"
    return field.kind


def _number(field: Field) -> str:
    said = "whole number" if field.whole else _MEASURES.get(field.dimension, str(field.dimension))
    if field.dimension == units.ONE and field.maximum == 1 and not field.whole:
        return "share (`85 %` or `0.85`)"
    low = "" if field.minimum in (None, 0.0) else f"at least {field.minimum:g}"
    high = "" if field.maximum is None else f"at most {field.maximum:g}"
    parts = [said, *filter(None, ("above 0" if field.positive else low, high))]
    if field.qualifiers:
        words = " or ".join(f"`{word}`" for word in field.qualifiers)
        parts.append(f"{'' if field.must_qualify else 'may be '}followed by {words}")
    if field.curve:
        parts.append("or `curve(...)`")
    return ", ".join(parts)


def default(type_: BlockType, name: str) -> str:
    """Return the default of an attribute as a spec would write it."""
    field = type_.fields[name]
    if field.kind == "children":
        return ""
    if name not in type_.defaults:
        return "required"
    declared: Any = type_.defaults[name]
    match declared:
        case None | ():
            return "not given"
        case bool():
            return "`on`" if declared else "`off`"
        case float() | int():
            return f"`{literal(float(declared), field.dimension)}`"
        case str() if field.kind == "text":
            return f'`"{declared}"`'
    return f"`{declared}`"


def flow(text: str | None, *, first: bool = False) -> str:
    """Return a docstring in one line; with *first*, only its first paragraph."""
    paragraphs = (text or "").strip().split("\n\n")
    flowing = " ".join(" ".join(paragraphs[:1] if first else paragraphs).split())
    return flowing.replace("``", "`")
