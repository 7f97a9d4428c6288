"""What may stand as the value of an attribute, in a line: for references and for forms."""

from __future__ import annotations

from parcost.contract.schema import Field
from parcost.language.units import (
    BYTES,
    DOLLARS,
    FLOP,
    FLOPS,
    GRAMS,
    JOULES,
    ONE,
    RATE,
    SECONDS,
    WATTS,
)

_MEASURES = {
    BYTES: "bytes (`GB`, `GiB`, ...)",
    RATE: "rate (`GB/s`, `Gbps`, ...)",
    SECONDS: "time (`s`, `ms`, `us`, ...)",
    FLOP: "work (`FLOP`, `TFLOP`, ...)",
    FLOPS: "throughput (`TFLOPS`, ...)",
    WATTS: "power (`W`, ...)",
    JOULES: "energy (`J`, `Wh`, ...)",
    DOLLARS: "money (`USD`)",
    GRAMS: "mass (`g`, `kg`)",
    ONE: "number",
}


def accepted_values(field: Field) -> str:
    """Return what may stand as the value of an attribute."""
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
    if field.dimension == ONE and field.maximum == 1 and not field.whole:
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
