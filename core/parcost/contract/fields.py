"""Records of plugins. Each field declares its valid values together with its type and default.

    class Edge(Record):
        called = "the term `{0.name}`"

        name: str  # a word that can be printed, by its name
        seconds: Real = field(metadata=AMOUNT)
        cause: str = ""  # a text, by its type

A field has its :class:`Rule` in its metadata. Without metadata, :data:`BY_TYPE` has the rule of its
type. A field that is left at its default is valid. :meth:`Record.problem` checks conditions on
several fields. One validator reads these declarations: :func:`parcost.contract.validation.problem`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from parcost.contract.counts import CountsByStructure
from parcost.contract.formulas import Formula
from parcost.language.diagnostics import quote
from parcost.numeric import all_of, array_kind, array_rank
from parcost.records import frozen

if TYPE_CHECKING:
    from parcost.numeric import Real

NO_FORMULA: Any = None  # a formula that a number brings along

_CELLS = (str, bool, int, float)
_CELL_KINDS = frozenset("fiubU")  # of arrays that a page can show
_KINDS = frozenset("fiub")  # of arrays whose items are numbers


@frozen
class Rule:
    """The valid values of a field.

    *error* takes the name and the value of a field. It returns an empty text if the value is valid,
    else the error: ``seconds = -1.0, which is negative or not finite``. The error follows "gave the
    term `hop`" in the message of a fault. *valid* is a Python expression of ``value`` and *names*
    that is faster than *error*: if it is true, *error* is not called.
    """

    error: Callable[[str, Any], str]
    valid: str = "False"
    names: Mapping[str, Any] = MappingProxyType({})


#: What picks, out of an array over a mesh, the points whose numbers count: others are never used.
LEGAL: ContextVar[Callable[[Any], Any] | None] = ContextVar("LEGAL", default=None)

#: A rule as metadata of a field.
Declaration: TypeAlias = Mapping[str, Rule]


class Record:
    """Base class of the records that plugins return; their fields declare valid values.

    *called* is the template of a record's name in messages; ``{0}`` is replaced by the record.
    """

    __slots__ = ()
    called: ClassVar[str] = "the {0.__class__.__name__} {0.name!r}"

    def problem(self) -> str:
        """Return the error in the combination of the fields, "gave ...", or an empty text."""
        return ""


# --- numbers with their formulas ----------------------------------------------------------


def plain_number(value: Real | Formula) -> Real:
    """Return a number or a formula unchanged: :func:`split_formula` converts formulas later."""
    return value  # type: ignore[return-value]


def split_formula(term: Any, number: str, formula: str) -> None:
    """Move a formula in field *number* of *term* to field *formula*; *number* becomes its value."""
    value = getattr(term, number)
    if value.__class__ is Formula:
        object.__setattr__(term, formula, value)
        object.__setattr__(term, number, value.value)


# --- tests of values ----------------------------------------------------------------------


def is_number(value: Any) -> bool:
    """Return whether *value* is a number, or a numeric array of any type and shape."""
    return isinstance(value, (float, int)) or array_kind(value) in _KINDS


def is_within(value: Any, least: float = -inf, most: float = inf) -> bool:
    """Return whether a number, or every element of an array, is within limits; else False."""
    if isinstance(value, (float, int)):
        return least <= value <= most
    try:
        if not value.size or value.dtype.kind not in _KINDS:
            return False
        if bool(value.min() >= least) and (most == inf or bool(value.max() <= most)):
            return True
        if (pick := LEGAL.get()) is None:
            return False
        value = pick(value)
        return bool(value.min() >= least) and bool(value.max() <= most)
    except (TypeError, ValueError, AttributeError):
        return False


def is_series(values: Any) -> bool:
    """Return whether *values* is a list, a tuple or a one-dimensional array."""
    return isinstance(values, (list, tuple)) or array_rank(values) == 1


def is_list(value: Any, test: Callable[[Any], bool]) -> bool:
    """Return whether *value* is a list or a tuple of items that pass *test*."""
    return isinstance(value, (list, tuple)) and all(map(test, value))


def is_flag(value: Any) -> bool:
    """Return whether *value* is a bool, or an array of bools."""
    return value.__class__ is bool or array_kind(value) == "b"


def is_cell(value: Any) -> bool:
    """Return whether a page can show *value*: text, a number, or an array of numbers."""
    if value is None or isinstance(value, _CELLS):
        return True
    return is_list(value, is_cell) or array_kind(value) in _CELL_KINDS


# --- rules --------------------------------------------------------------------------------


def rule(
    test: Callable[[Any], bool], error: str, valid: str = "False", **names: Any
) -> Declaration:
    """Declare that a value must pass *test*; *error* describes a value that does not."""

    def error_of(name: str, value: Any) -> str:
        return "" if test(value) else f"{name} = {quote(value)}, {error}"

    return {"rule": Rule(error_of, valid, names)}


def items(test: Callable[[Any], bool], item: str, error: str) -> Declaration:
    """Declare a list whose items must pass *test*; *item* and *error* describe a wrong one."""

    def error_of(name: str, values: Any) -> str:
        if not is_series(values):
            return f"{name} = {quote(values)}, which are not a list"
        wrong = [value for value in values if not test(value)]
        return f"{item}{quote(wrong[0])}, {error}" if wrong else ""

    return {"rule": Rule(error_of)}


def bounds(least: float, most: float, error: str) -> Declaration:
    """Declare a number, or an array of numbers, from *least* to *most*."""

    def error_of(name: str, value: Any) -> str:
        return "" if is_within(value, least, most) else f"{name} = {quote(value)}, {error}"

    return {"rule": Rule(error_of, f"value.__class__ is float and {least} <= value <= {most}")}


def _text_error(name: str, value: Any) -> str:
    if not isinstance(value, str):
        return f"{name} = {quote(value)}, which is not a text"
    return "" if str.isprintable(value) else f"{name} = {quote(value)}, which cannot be printed"


def _name_error(name: str, value: Any) -> str:
    if value.__class__ is not str:
        return f"the {name} {quote(value)}, which is not a text"
    if not value.isprintable():
        return f"the {name} {quote(value)}, which cannot be printed"
    return "" if value else f"no {name}"


def _is_whole(value: Any) -> bool:
    """Return whether *value* is a whole number above 0, or an array of numbers of at least 1."""
    if value.__class__ is int:
        return bool(value > 0)
    return array_kind(value) == "f" and bool(all_of(value >= 1))


_PRINTABLE = "value.__class__ is str and value.isprintable()"
NAME: Declaration = {"rule": Rule(_name_error, f"{_PRINTABLE} and value")}
TEXT: Declaration = {"rule": Rule(_text_error, "isinstance(value, str) and str.isprintable(value)")}
TEXTS = rule(
    lambda value: is_list(value, lambda text: isinstance(text, str)),
    "which is not a list of texts",
    "value.__class__ is tuple and text.issuperset(map(type, value))",
    text=frozenset((str,)),
)
FLAG = rule(is_flag, "which is neither true nor false", "value.__class__ is bool")
NUMBER = bounds(-inf, inf, "which is not a number")
AMOUNT = bounds(0.0, inf, "which is negative or not finite")
SHARE = bounds(0.0, 1.0, "which is not between 0 and 1")
WHOLE = rule(_is_whole, "which is not a whole number above 0")
_NUMBER_OR_NAN = rule(is_number, "which is not a number", "value.__class__ is float")

#: What a field declares by its type, where its metadata does not.
BY_TYPE: dict[str, Declaration] = {
    "str": TEXT,
    "Literal": TEXT,
    "Pass": TEXT,
    "bool": FLAG,
    "Mask": FLAG,
    "Real": _NUMBER_OR_NAN,
    "float": _NUMBER_OR_NAN,
    "int": rule(lambda value: isinstance(value, int), "which is not a whole number"),
    "Sequence[str]": TEXTS,
    "tuple[str, ...]": TEXTS,
    "Sequence[float]": rule(
        lambda value: is_number(value) or is_list(value, is_number),
        "which is not a list of numbers",
        "value.__class__ is tuple and numbers.issuperset(map(type, value))"
        " or value.__class__ is counts",
        numbers=frozenset((float, int, bool)),
        counts=CountsByStructure,
    ),
}
