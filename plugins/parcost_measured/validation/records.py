"""Validated JSON objects: an attrs class gives fields, types and ranges.

A class is the schema: its annotations are the types, fields without defaults are required, and
`metadata` has the minimum. Errors are returned, never raised, so that one bad field does not hide
the next.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_type_hints

from attrs import NOTHING, Attribute, field, fields, frozen, has

T = TypeVar("T")

_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


#: Numbers beyond these overflow where they are multiplied, and are of no run.
_LEAST, _MOST = 1e-15, 1e18


def number_from(least: float, default: Any = NOTHING) -> Any:
    """Return a field for a number of at least *least*."""
    return field(default=default, metadata={"least": least})


def positive(default: Any = NOTHING) -> Any:
    """Return a field for a number above 0."""
    return field(default=default, metadata={"above": 0})


def one_of(*words: str, default: Any = NOTHING) -> Any:
    """Return a field for one of *words*."""
    return field(default=default, metadata={"words": words})


@frozen
class Reading:
    """The result of reading a record: the object, if it is valid, its errors and unknown fields."""

    made: Any
    problems: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read(kind: type[T], value: Any, path: str = "") -> Reading:
    """Return *value* as an object of class *kind*; *path* is its place in the record."""
    if not isinstance(value, Mapping):
        where = f"`{path}`" if path else "the row"
        return Reading(None, (f"{where} is {_value_text(value)}, not an object",))
    problems: list[str] = []
    unknown: list[str] = []
    arguments: dict[str, Any] = {}
    known = _schema(cast("Hashable", kind))
    for name, (attribute, types) in known.items():
        where = f"{path}.{name}" if path else name
        if name not in value:
            if attribute.default is NOTHING:
                problems.append(f"`{where}` is missing{_hint(name, value, known)}")
            continue
        found = _field(attribute, types, value[name], where)
        problems += found.problems
        unknown += found.unknown
        arguments[name] = found.made
    unknown += [f"{path}.{name}" if path else str(name) for name in value if name not in known]
    made = None if problems else kind(**arguments)
    return Reading(made, tuple(problems), tuple(unknown))


@cache
def _schema(kind: Hashable) -> Mapping[str, tuple[Attribute[Any], tuple[Any, ...]]]:
    hints = get_type_hints(kind)
    return {a.name: (a, _types(hints[a.name])) for a in fields(cast("Any", kind))}


def _types(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if isinstance(hint, UnionType) else (hint,)


def _field(attribute: Attribute[Any], types: tuple[Any, ...], value: Any, where: str) -> Reading:
    if value is None and NoneType in types:
        return Reading(None)
    for kind in types:
        if has(kind) and isinstance(value, Mapping):
            return read(kind, value, where)
    plain = getattr(types[0], "__origin__", types[0])
    if plain is Mapping and isinstance(value, Mapping):
        return Reading(value)
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    if texts and any(getattr(kind, "__origin__", None) is Sequence for kind in types):
        return Reading(tuple(value))
    if isinstance(value, bool) and bool in types:
        return Reading(value)
    if isinstance(value, str) and str in types:
        return _word(attribute, value, where)
    if is_number(value):
        if int in types and float(value).is_integer():
            return _check_range(attribute, int(value), where)
        if float in types:
            return _check_range(attribute, float(value), where)
    wanted = " or ".join(_type_name(kind) for kind in types if kind is not NoneType)
    return Reading(None, (f"`{where}` is {_value_text(value)}, not {wanted}",))


def is_number(value: Any) -> bool:
    """Return whether *value* is a finite number and no bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return isfinite(float(value))
    except OverflowError:
        return False


def _check_range(attribute: Attribute[Any], value: float, where: str) -> Reading:
    if value and not _LEAST <= abs(value) <= _MOST:
        said = f"`{where}` is {value:g}, which is implausible: {_LEAST:g} to {_MOST:g} is expected"
        return Reading(None, (said,))
    least, over = attribute.metadata.get("least"), attribute.metadata.get("above")
    if least is not None and value < least:
        return Reading(None, (f"`{where}` is {value:g}, but it must be at least {least:g}",))
    if over is not None and value <= over:
        return Reading(None, (f"`{where}` is {value:g}, but it must be above {over:g}",))
    return Reading(value)


def _word(attribute: Attribute[Any], value: str, where: str) -> Reading:
    words = attribute.metadata.get("words")
    if words is None or value in words:
        return Reading(value)
    close = get_close_matches(value.lower(), words, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "it is one of " + ", ".join(words)
    return Reading(None, (f"`{where}` is {_value_text(value)}; {hint}",))


def _type_name(kind: Any) -> str:
    return _WORDS.get(kind, "an object")


def _hint(name: str, value: Mapping[Any, Any], known: Mapping[str, Any]) -> str:
    others = [str(other) for other in value if other not in known]
    close = get_close_matches(name, others, n=1)
    return f"; the row has `{close[0]}`" if close else ""


def _value_text(value: Any) -> str:
    if value is None:
        return "null"
    text = repr(value) if not isinstance(value, str) else f"`{value}`"
    return text if len(text) <= 60 else text[:57] + "..."
