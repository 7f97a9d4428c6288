"""Formulas: a report computes a number from the same text that it prints.

    seconds = formula("2 (P - 1) (alpha + n / (P B))", P=8.0, n=(1e9, "B"), ...)

A formula is compiled once; text after a comma is a remark. Adjacent symbols are multiplied, as in
mathematics; ``/`` divides only by the next factor. ``c > 1 ? a : b`` is a condition. A symbol may
hold one number for each level of a fabric, or each stage: ``sum(E)``, ``max(E)`` and ``min(E)`` of
a single argument evaluate E for each of them.

An input is a number, a number with its unit, or another :class:`Formula`. Such formulas are part of
the explanation: a reader can follow any number down to the attributes of a spec, which
:func:`attribute` turns into formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, repeat
from math import inf
from typing import TYPE_CHECKING, Any, Final

from attrs import field

from parcost.contract.schema import block_name
from parcost.numeric import (
    ceil,
    exp,
    expm1,
    floor,
    is_array,
    log,
    log2,
    maximum,
    minimum,
    quiet,
    ratio,
    sqrt,
    where,
)
from parcost.records import record

if TYPE_CHECKING:
    from parcost.numeric import Real


_TOKEN = re.compile(
    r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![A-Za-z_])|[A-Za-z_]\w*'*(?:\[[^\[\]]*\])?"
    r"|[<>=!]=|[-+*/^(),?:<>])"
)
_COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
_ENDS: Final = ("", ")", ",", "+", "-", "*", "/", "^", "?", ":", *_COMPARISONS)
_FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Any], int]]] = {
    "max": (maximum, 2),
    "min": (minimum, 2),
    "ratio": (ratio, 2),  # nothing of nothing is nothing
    "ceil": (ceil, 1),
    "floor": (floor, 1),
    "sqrt": (sqrt, 1),
    "exp": (exp, 1),
    "expm1": (expm1, 1),
    "ln": (log, 1),
    "log2": (log2, 1),
}
_MOST: Final = {name: 1 for name, (_, least) in _FUNCTIONS.items() if least == 1} | {"ratio": 2}
_DEEPEST = 40  # brackets within one another
_LONGEST = 4000  # characters
_KEPT = 4096  # compiled texts


class FormulaError(ValueError):
    """Error: the text is not a valid formula, or its inputs do not match its symbols."""


@record(eq=False)
class Formula:
    """A number with its text, inputs and source.

    :func:`formula` makes it from an expression. Some results, such as a replay, are not
    expressions. Then *text* is the name of the algorithm, and *inputs* are its arguments.

    *title* is printed before the text. *explain* returns a formula with a more detailed text and
    inputs, and is called at the first read of either.

    *attribute* is the block and the name of the attribute with this value. A page prints the place
    in the spec that sets it. *communication* is the :class:`parcost.Communication` with this time;
    traces search for it in the formulas of terms.
    """

    own_text: str = field(alias="text")
    raw: Mapping[str, Any] = field(factory=dict, repr=False, alias="inputs")
    source: str = ""
    value: Any = None
    title: str = ""
    computes: bool = field(default=False, alias="is_expression")
    explain: Callable[[], Formula] | None = field(default=None, repr=False)
    attribute: tuple[object, str] | None = field(default=None, repr=False)
    communication: Any = field(default=None, repr=False)
    is_valid: bool = field(default=False, init=False, repr=False)

    @property
    def text(self) -> str:
        """The expression, or the name of the algorithm."""
        return self._run_explain().own_text

    @property
    def is_expression(self) -> bool:
        """Whether the text is an expression that :func:`formula` computes."""
        return self._run_explain().computes

    @property
    def inputs(self) -> Mapping[str, tuple[Any, str]]:
        """The number and unit of each symbol; a symbol with several numbers has one entry for each
        number.

        >>> formula("sum(g)", g={"node": 8.0, "rail": 4.0}).inputs
        {'g[node]': (8.0, ''), 'g[rail]': (4.0, '')}
        """
        return {symbol: (_number(value), unit) for symbol, value, unit in self.symbols()}

    @property
    def parts(self) -> Mapping[str, Formula]:
        """The formulas among the inputs, by symbol."""
        return {symbol: value for symbol, value, _ in self.symbols() if isinstance(value, Formula)}

    @property
    def shown(self) -> str:
        """The printed text, with the title in front."""
        return f"{self.title}: {self.text}" if self.title else self.text

    def symbols(self) -> Sequence[tuple[str, Any, str]]:
        """Return each symbol with its input and its unit."""
        found = []
        for symbol, given in self._run_explain().raw.items():
            value, unit = given if given.__class__ is tuple else (given, "")
            kind = value.__class__
            if kind is dict:
                found += [(f"{symbol}[{name}]", one, unit) for name, one in value.items()]
            elif kind is list and self.computes:
                found += [(f"{symbol}[{i}]", one, unit) for i, one in enumerate(value)]
            else:
                found.append((symbol, value, unit))
        return found

    def _run_explain(self) -> Formula:
        """Return the formula itself, with the text and the inputs of the explanation."""
        explain = self.explain
        if explain is not None:
            object.__setattr__(self, "explain", None)
            found = explain()
            object.__setattr__(self, "own_text", found.text)
            object.__setattr__(self, "raw", found.raw)
            object.__setattr__(self, "computes", found.is_expression)
        return self


def formula(
    text: str,
    inputs: Mapping[str, Any] | None = None,
    /,
    *,
    source: str = "",
    title: str = "",
    context: Mapping[str, Any] | None = None,
    origins: Callable[[], Mapping[str, Any]] | None = None,
    **symbols: Any,
) -> Formula:
    """Return the value of *text* for the given symbols, as a formula that explains itself.

    Symbols that are not Python names are given in *inputs*. *context* are further numbers for the
    explanation that the text does not use. *origins* is called at the first read, and returns
    formulas for some of the symbols.

    Raises:
        FormulaError: The text is not a formula, or has other symbols than those given.

    >>> formula("2 (P - 1) n / (P B)", P=8.0, n=(4.0, "B"), B=(7.0, "B/s")).value
    1.0
    >>> formula("n / B[node]", {"B[node]": (2.0, "B/s")}, n=formula("2 k", k=3.0)).value
    3.0
    """
    if inputs is not None:
        symbols = {**inputs, **symbols} if symbols else inputs  # type: ignore[assignment]
    names, function = _known.get(text) or _compile(text)
    try:
        found = function(symbols)
    except KeyError:
        raise _mismatch(text, names, symbols) from None
    except (ArithmeticError, ValueError, TypeError):
        found = _infinite_number(text, symbols)
    if len(names) != len(symbols):
        raise _mismatch(text, names, symbols)
    if context is not None:
        symbols = {**symbols, **context}
    if origins is None:
        return Formula(text, symbols, source, found, title, True)

    def explain() -> Formula:
        return Formula(text, {**symbols, **origins()}, is_expression=True)

    return Formula(text, symbols, source, found, title, True, explain)


def attribute(block: object, name: str) -> Formula:
    """Return the value of the attribute *name* of a block as a formula.

    A page prints the place in the spec that sets it, and its provenance.
    """
    text = f"{name} of {block_name(block)}"
    found = Formula(text, value=getattr(block, name), attribute=(block, name))
    # Without inputs, that is all that there is to be validated.
    object.__setattr__(found, "is_valid", text.isprintable())
    return found


def symbols_of(text: str) -> tuple[str, ...]:
    """Return the symbols of a text, in order of appearance.

    >>> symbols_of("(P - 1) n / P, of all")
    ('P', 'n')
    """
    return (_known.get(text) or _compile(text))[0]


def plain_of(value: Real | Formula) -> Real:
    """Return the plain number of a number or formula."""
    found: Real = value.value if isinstance(value, Formula) else value
    return found


def with_numbers(of: Formula, write: Callable[[Any, str], str]) -> str:
    """Return the expression with each symbol replaced by its number, in the format of *write*.

    >>> f = formula("2 (P - 1) n / sum(g)", P=8.0, n=4.0, g={"a": 1.0, "b": 2.0})
    >>> with_numbers(f, lambda number, unit: f"{number:g}{unit}")
    '2 (8 - 1) x 4 / (1 + 2)'
    """
    return _Numbers(of, write).text()


def compute_text(text: str, numbers: Mapping[str, Any], item: str = "") -> Any:
    """Return the value of *text* for numbers by symbol; the numbers of a series have names like
    ``g[node]``.

    With *item*, a symbol of a series has the value of that item.
    """
    names, function = _compile(text)
    symbols: dict[str, Any] = {}
    for symbol, number in numbers.items():
        name, bracket, one = symbol.removesuffix("]").partition("[")
        if not bracket or symbol in names:  # a text may name one item of a series
            symbols[symbol] = number
        elif one == item:
            symbols[name] = number
        elif not item or name not in symbols:
            symbols.setdefault(name, {})[one] = number
    with quiet():
        return function({name: symbols.get(name, {}) for name in names})


def _number(value: Any) -> Any:
    return value.value if value.__class__ is Formula else value


def _mismatch(text: str, names: tuple[str, ...], symbols: Mapping[str, Any]) -> FormulaError:
    wrong = ", ".join(f"`{name}`" for name in sorted(set(names) ^ symbols.keys()))
    return FormulaError(f"the formula `{text}` and its inputs differ in {wrong}")


def _infinite_number(text: str, symbols: Mapping[str, Any]) -> Any:
    """Return the value of *text*, computed with arrays instead of floats to allow infinity
    and NaN.
    """
    import numpy as np

    def array(value: Any) -> Any:
        if value.__class__ in (dict, list):
            several = value.values() if value.__class__ is dict else value
            return [array(_number(one)) for one in several]
        return np.asarray([value], dtype=float) if isinstance(value, (float, int)) else value

    names, function = _compile(text)
    if len(names) != len(symbols):
        raise _mismatch(text, names, symbols)
    given = (symbols[name] for name in names)
    numbers = [_number(value[0] if value.__class__ is tuple else value) for value in given]
    try:
        with quiet():
            found = function(dict(zip(names, map(array, numbers), strict=True)))
    except (ArithmeticError, ValueError, TypeError) as error:
        raise FormulaError(f"the formula `{text}` has no value: {error}") from error
    plain = all(isinstance(n, (float, int, dict, list)) for n in numbers)
    return float(found[0]) if plain and getattr(found, "shape", ()) == (1,) else found


#: The symbols of each text, and a function of their inputs.
_known: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]] = {}


def _compile(text: str) -> tuple[tuple[str, ...], Callable[[Mapping[str, Any]], Any]]:
    """Return the symbols of *text*, and a function that computes it from their inputs."""
    if text in _known:
        return _known[text]
    writer = _Python(text)
    body = writer.text()
    lines = [
        f" {name} = inputs[{symbol!r}]\n"
        f" if {name}.__class__ is _tuple: {name} = {name}[0]\n"
        f" if {name}.__class__ is _Formula: {name} = {name}.value\n"
        for symbol, name in writer.names.items()
    ]
    names = {f"_{name}": function for name, (function, _) in _FUNCTIONS.items()}
    environment: dict[str, Any] = {
        **names,
        "__builtins__": {},
        "infinity": inf,
        "_where": where,
        "_over": _over,
        "_tuple": tuple,
        "_Formula": Formula,
    }
    written = f"def function(inputs):\n{''.join(lines)} return {body}\n"
    exec(written, environment)  # noqa: S102  the parser wrote it: operators and numbered names
    if len(_known) >= _KEPT:
        _known.clear()
    _known[text] = tuple(writer.names), environment["function"]
    return _known[text]


def _over(word: str, function: Callable[..., Any], *values: Any) -> Any:
    """Return the sum, maximum or minimum of *function* over the items of *values*."""
    columns = [list(v.values()) if v.__class__ is dict else v for v in values]
    lengths = {len(column) for column in columns if column.__class__ is list}
    if len(lengths) != 1:
        raise FormulaError(f"`{word}` needs symbols with several numbers, with equal counts")
    found: Any = None
    series = [
        [_number(one) for one in column] if column.__class__ is list else repeat(column)
        for column in columns
    ]
    for row in zip(*series, strict=False):
        one = function(*row)
        if found is None:
            found = one
        elif word == "sum":
            found = found + one
        else:
            found = maximum(found, one) if word == "max" else minimum(found, one)
    return 0.0 if found is None else found


class _Writer:
    """Recursive descent parser that translates one formula to another notation."""

    times, power = " * ", " ** "

    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens: list[str] = []
        self.at = self.depth = 0
        place, end = 0, _end(source)
        if end > _LONGEST:
            raise FormulaError(f"the formula `{source[:40]}...` is too long")
        while place < end:
            match = _TOKEN.match(source, place)
            if match is None:
                raise FormulaError(f"the formula `{source}` cannot be read at `{source[place:]}`")
            self.tokens.append(match[1])
            place = match.end()
        self.tokens.append("")

    def text(self) -> str:
        """Return the whole formula in the other notation."""
        found = self.choice()
        if self.tokens[self.at]:
            raise FormulaError(
                f"the formula `{self.source}` continues with `{self.tokens[self.at]}`"
            )
        return found

    def choice(self) -> str:
        """Parse and write `a`, `a < b`, or `c ? a : b`."""
        first, compared = self.comparison()
        if self.tokens[self.at] != "?":
            return self.truth(first) if compared else first
        self.at += 1
        then = self.choice()
        self.take(":")
        return self.conditional(first if compared else self.condition(first), then, self.choice())

    def comparison(self) -> tuple[str, bool]:
        first = self.sum()
        operator = self.tokens[self.at]
        if operator not in _COMPARISONS:
            return first, False
        self.at += 1
        return f"{first} {operator} {self.sum()}", True

    def sum(self) -> str:
        found = self.product()
        while (token := self.tokens[self.at]) in ("+", "-"):
            self.at += 1
            found = f"{found} {token} {self.product()}"
        return found

    def product(self) -> str:
        found = self.factor()
        while True:
            token = self.tokens[self.at]
            if token == "/":
                self.at += 1
                found = f"{found} / {self.factor()}"
            elif token == "*" or token not in _ENDS:
                self.at += token == "*"
                found = self.multiply(found, self.factor())
            else:
                return found

    def factor(self) -> str:
        if self.tokens[self.at] == "-":
            self.at += 1
            return f"-{self.deeper(self.factor)}"
        base = self.atom()
        if self.tokens[self.at] == "^":
            self.at += 1
            return f"{base}{self.power}{self.deeper(self.factor)}"
        return base

    def atom(self) -> str:
        token = self.tokens[self.at]
        self.at += 1
        if token == "(":
            found = f"({self.deeper(self.choice)})"
            self.take(")")
            return found
        if token[:1].isdigit():
            return self.number(token)
        if not (token[:1].isalpha() or token[:1] == "_"):
            raise FormulaError(
                f"the formula `{self.source}` has `{token or 'its end'}` where a value is expected"
            )
        if self.tokens[self.at] == "(" and (token in _FUNCTIONS or token == "sum"):
            return self.call(token)
        return token if token == "infinity" else self.symbol(token)

    def call(self, name: str) -> str:
        if name in ("sum", "max", "min") and len(self.brackets(self.at)) == 2:
            self.at += 1
            found = self.over(name)
            self.take(")")
            return found
        self.at += 1
        arguments = [self.deeper(self.choice)]
        while self.tokens[self.at] == ",":
            self.at += 1
            arguments.append(self.deeper(self.choice))
        self.take(")")
        if (
            name == "sum"
            or len(arguments) < _FUNCTIONS[name][1]
            or arguments[_MOST.get(name, 1000) :]
        ):
            raise FormulaError(
                f"the formula `{self.source}` calls `{name}` with {len(arguments)} arguments"
            )
        return self.call_text(name, arguments)

    def brackets(self, at: int) -> list[int]:
        """Return the positions of a bracket at *at*, of its commas, and of its closing bracket."""
        depth, places = 0, []
        for place in range(at, len(self.tokens)):
            token = self.tokens[place]
            depth += (token == "(") - (token == ")")
            if place == at or not depth or (depth == 1 and token == ","):
                places.append(place)
            if not depth:
                break
        return places

    def deeper(self, part: Callable[[], str]) -> str:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise FormulaError(f"the formula `{self.source[:80]}` is too deep")
        found = part()
        self.depth -= 1
        return found

    def take(self, token: str) -> None:
        if self.tokens[self.at] != token:
            raise FormulaError(f"the formula `{self.source}` lacks a `{token}`")
        self.at += 1

    # --- what is written ----------------------------------------------------------------

    def multiply(self, one: str, other: str) -> str:
        return f"{one}{self.times}{other}"

    def number(self, token: str) -> str:
        return token

    def symbol(self, token: str) -> str:
        raise NotImplementedError

    def over(self, name: str) -> str:
        raise NotImplementedError

    def call_text(self, name: str, arguments: list[str]) -> str:
        return f"{name}({', '.join(arguments)})"

    def truth(self, comparison: str) -> str:
        return comparison

    def condition(self, number: str) -> str:
        return number

    def conditional(self, condition: str, then: str, otherwise: str) -> str:
        return f"{condition} ? {then} : {otherwise}"


class _Python(_Writer):
    """Translate the formula to a Python expression, with numbered names for its symbols."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.names: dict[str, str] = {}
        self.inner: dict[str, None] = {}

    def number(self, token: str) -> str:
        return repr(float(token))

    def symbol(self, token: str) -> str:
        name = self.names.setdefault(token, f"a{len(self.names)}")
        self.inner[name] = None
        return name

    def over(self, name: str) -> str:
        outer, self.inner = self.inner, {}
        body = self.deeper(self.choice)
        symbols = ", ".join(self.inner)
        self.inner = {**outer, **self.inner}
        return f"_over({name!r}, lambda {symbols}: {body}, {symbols})"

    def call_text(self, name: str, arguments: list[str]) -> str:
        found = arguments[0]
        if _FUNCTIONS[name][1] == 1:
            return f"_{name}({found})"
        for argument in arguments[1:]:
            found = f"_{name}({found}, {argument})"
        return found

    def truth(self, comparison: str) -> str:
        return f"_where({comparison}, 1.0, 0.0)"

    def condition(self, number: str) -> str:
        return f"({number}) != 0.0"

    def conditional(self, condition: str, then: str, otherwise: str) -> str:
        return f"_where({condition}, {then}, {otherwise})"


class _Numbers(_Writer):
    """Translate the formula to text with numbers in place of its symbols."""

    times, power = " x ", "^"

    def __init__(self, of: Formula, write: Callable[[Any, str], str]) -> None:
        super().__init__(of.text)
        self.inputs = of.inputs
        self.write = write
        self.item = ""

    def symbol(self, token: str) -> str:
        several = f"{token}[{self.item}]"
        value, unit = self.inputs[several if several in self.inputs else token]
        written = self.write(value, unit)
        return f"({written})" if written.startswith("-") else written

    def call(self, name: str) -> str:
        """Write a call. A ratio 0 / 0 is written as 0, and any other division by 0 as infinity."""
        start = self.at
        written = super().call(name)
        if name != "ratio":
            return written
        numbers = {symbol: value for symbol, (value, _) in self.inputs.items()}
        if is_array(*numbers.values()):
            return written
        above, below = (
            compute_text(" ".join(self.tokens[i + 1 : j]), numbers, self.item)
            for i, j in pairwise(self.brackets(start))
        )
        return written if below else "infinity" if above else "0"

    def multiply(self, one: str, other: str) -> str:
        both_brackets = other.startswith("(") and not one[-1:].isalnum()
        plain = other.startswith("(") and one.isdigit()
        return f"{one} {other}" if plain or both_brackets else f"{one}{self.times}{other}"

    def over(self, name: str) -> str:
        start, end = self.at, self.brackets(self.at - 1)[-1]
        found, outer = [], self.item
        for item in self.items(start, end):
            self.at, self.item = start, item
            one = self.deeper(self.choice)
            found.append(f"({one})" if " ? " in one else one)
        self.at, self.item = end, outer
        if not found:
            return "0"
        if len(found) == 1:
            return f"({found[0]})"
        return f"({' + '.join(found)})" if name == "sum" else f"{name}({', '.join(found)})"

    def items(self, start: int, end: int) -> list[str]:
        """Return the item names of the first symbol with several numbers among some tokens."""
        for token in self.tokens[start:end]:
            found = [k[len(token) + 1 : -1] for k in self.inputs if k.startswith(f"{token}[")]
            if token.isidentifier() and token not in self.inputs and found:
                return found
        return []


def _end(text: str) -> int:
    """Return the offset at which the expression ends; a remark may follow after a comma."""
    depth = 0
    for i, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            return i
    return len(text.rstrip())
