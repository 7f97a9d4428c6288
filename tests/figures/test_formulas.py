"""Every printed formula that is arithmetic computes the number beside it.

The evaluator here shares nothing with the product. It reads formulas as people write them:
letters next to each other are multiplied, ``x`` multiplies too, ``/`` divides by the next
factor, and clauses behind a comma define letters (``n = s b h e``) or round (``rounded up``).
``sum over levels of E`` adds E up with the letters of each level: g, alpha and B of it, and
G, the product of g below. What it cannot read is prose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import parcost
from parcost.language import units
from parcost.render.formulas import filled
from parcost.render.numbers import quantity
from parcost import Formula

SPECS = Path(__file__).parents[2] / "specs"

#: Formulas that are words, or use letters that nobody gives. It may fall, and never rise.
MOST_PROSE = 237
#: Different formulas that compute their number. It may rise, and never fall.
FEWEST_COMPUTED = 404

_TOKEN = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![A-Za-z_])|[A-Za-z_][\w']*(?:\[[^\]]*\])?|\S")
_NAMED = re.compile(r"(?:the faster of )?\w+ by \w+(?: or \w+)*: ")
_ROUNDING: Mapping[str, Callable[[Any], Any]] = {
    "rounded up": lambda value: np.ceil(value - 1e-9),
    "rounded down": lambda value: np.floor(value + 1e-9),
}
#: Clauses that begin so say that the rest of the formula is elsewhere.
_REST = ("and", "else", "or", "then", "where", "with", "without")


class ProseError(Exception):
    """A formula is no arithmetic of its inputs."""


def _fold(function: Callable[[Any, Any], Any], values: tuple[Any, ...]) -> Any:
    found = values[0]
    for value in values[1:]:
        found = function(found, value)
    return found


def _binomial(n: Any, k: Any) -> Any:
    product = 1.0
    for i in range(int(k)):
        product *= (n - i) / (i + 1)
    return product


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "max": lambda *values: _fold(np.maximum, values),
    "min": lambda *values: _fold(np.minimum, values),
    "sqrt": np.sqrt,
    "ceil": lambda value: np.ceil(value - 1e-9),
    "floor": lambda value: np.floor(value + 1e-9),
    "log2": np.log2,
    "ln": np.log,
    "C": _binomial,
}


def evaluate(text: str, inputs: Mapping[str, Any]) -> Any:
    """Return what *text* comes to, or raise :class:`ProseError`.

    >>> float(evaluate("2 (P - 1) n / (P B)", {"P": 8.0, "n": 16.0, "B": 2.0}))
    14.0
    >>> float(evaluate("N x (ring by direct: n / B, n = s e)", dict(N=2.0, s=3.0, e=2.0, B=1.0)))
    12.0
    >>> float(evaluate("N / M, rounded up", {"N": 5.0, "M": 2.0}))
    3.0
    """
    letters = dict(inputs)
    renamed = _NAMED.sub("", text)
    for i, name in enumerate(sorted((n for n in letters if not n.isidentifier()), key=len)[::-1]):
        plain = f"input_{i}_"
        pattern = rf"(?<![\w.\[]){re.escape(name)}(?![\w\[])"
        if re.search(pattern, renamed) and "[" not in name:
            renamed = re.sub(pattern, plain, renamed)
            letters[plain] = letters[name]
    return _Reader(renamed, letters).whole()


class _Reader:
    """A formula that is read from left to right."""

    def __init__(self, text: str, letters: Mapping[str, Any]) -> None:
        self.tokens = [match[0] for match in _TOKEN.finditer(text)]
        self.at = 0
        self.letters = dict(letters)

    def whole(self) -> Any:
        value = self.clauses("")
        if self.at < len(self.tokens):
            raise ProseError(" ".join(self.tokens[self.at :]))
        return value

    def clauses(self, end: str) -> Any:
        """Read an expression with its clauses, which may define letters that it has."""
        start = self.at
        depth, parts, begun = 0, [], start
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if not depth and token == end:
                break
            depth += (token == "(") - (token == ")")
            if not depth and token in (",", ";", ":"):
                parts.append(self.tokens[begun : self.at])
                begun = self.at + 1
            self.at += 1
        parts.append(self.tokens[begun : self.at])
        first, *more = parts
        letters, rounded = dict(self.letters), None
        for clause in reversed(more):
            if len(clause) > 2 and clause[1] == "=":
                try:
                    letters[clause[0]] = _read(clause[2:], letters)
                except ProseError:
                    continue
            elif " ".join(clause) in _ROUNDING:
                rounded = _ROUNDING[" ".join(clause)]
            elif clause[:1] and clause[0] in _REST:
                raise ProseError(" ".join(clause))
        value = _read(first, letters)
        return value if rounded is None else rounded(value)

    def sum(self) -> Any:
        value = self.product()
        while self.peek() in ("+", "-"):
            sign = 1.0 if self.take() == "+" else -1.0
            value = value + sign * self.product()
        return value

    def product(self) -> Any:
        value = self.power()
        while True:
            token = self.peek()
            if token == "/":
                self.take()
                value = _ratio(value, self.power())
            elif token == "x" and "x" not in self.letters:
                self.take()
                value = value * self.power()
            elif token and (token[0].isalnum() or token[0] == "_" or token == "("):
                value = value * self.power()
            else:
                return value

    def power(self) -> Any:
        value = self.factor()
        if self.peek() == "^":
            self.take()
            return value ** self.factor()
        return value

    def factor(self) -> Any:
        token = self.take()
        if token == "-":
            return -self.power()
        if token == "(":
            value = self.clauses(")")
            self.expect(")")
            return value
        if token[0].isdigit():
            return float(token)
        if token in ("sum", "largest") and self.tokens[self.at : self.at + 3] == [
            "over",
            "levels",
            "of",
        ]:
            self.at += 3
            return self.levels(token)
        if token in _FUNCTIONS and token not in self.letters:
            return self.call(token)
        if token == "e" and self.peek() == "^" and token not in self.letters:
            return math.e
        if token in self.letters:
            return self.letters[token]
        raise ProseError(token)

    def call(self, name: str) -> Any:
        if self.peek() != "(":
            return _FUNCTIONS[name](self.factor())
        self.take()
        values = [self.sum()]
        while self.peek() == ",":
            self.take()
            values.append(self.sum())
        self.expect(")")
        return _FUNCTIONS[name](*values)

    def levels(self, word: str) -> Any:
        """Read a product, once for each level, innermost first."""
        names = [name[2:-1] for name in self.letters if name.startswith("g[")]
        if not names:
            raise ProseError("levels")
        start, below, found = self.at, 1.0, []
        kept = self.letters
        for name in names:
            own = {k: v for k in ("g", "alpha", "B") if (v := kept.get(f"{k}[{name}]")) is not None}
            self.at, self.letters = start, {**kept, **own, "G": below}
            found.append(self.product())
            below = below * kept[f"g[{name}]"]
        self.letters = kept
        return sum(found) if word == "sum" else _fold(np.maximum, tuple(found))

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self) -> str:
        if self.at >= len(self.tokens):
            raise ProseError("the end")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        if self.take() != token:
            raise ProseError(f"no {token}")


def _read(tokens: list[str], letters: Mapping[str, Any]) -> Any:
    reader = _Reader("", letters)
    reader.tokens = tokens
    value = reader.sum()
    if reader.at < len(tokens):
        raise ProseError(" ".join(tokens[reader.at :]))
    return value


def _ratio(a: Any, b: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.divide(a, b)


def formulas(result: parcost.Result) -> Iterator[tuple[str, Formula, Any]]:
    """Yield what has a formula: a name, the formula and the numbers that it may be of."""
    for _, figure in (*result.figures, *result.details):
        yield f"figure {figure.name}", figure.formula, figure.value
    if result.outcome is None:
        return
    for line in result.outcome.ledger:
        own = isinstance(line.term, (parcost.Work, parcost.Once))
        value = line.term.seconds if own else line.exposed
        yield f"ledger line {line.name}", line.formula, value
    for held in result.outcome.memory_lines:
        yield f"memory line {held.name}", held.formula, held.term.bytes_


def computes(formula: Formula, value: Any) -> bool | None:
    """Return whether *formula* computes *value*, or None where it is prose."""
    letters = {name: given for name, (given, _) in formula.inputs.items()}
    try:
        found = evaluate(formula.text, letters)
    except (ProseError, TypeError):
        return None
    if np.ndim(value):  # a term that is cut by what limits it is nothing elsewhere
        found, value = np.broadcast_arrays(found, value)
        found, value = found[value != 0], value[value != 0]
    elif not np.ndim(found):
        return math.isclose(found, value, rel_tol=1e-9)
    return bool(np.allclose(found, value, rtol=1e-9, atol=0.0))


SHIPPED = sorted(
    path.relative_to(SPECS).as_posix()
    for folder in ("documents", "examples", "runs")
    for path in (SPECS / folder).glob("*.par")
)


def _recompute(paths: Iterable[str]) -> dict[bool | None, dict[str, str]]:
    """Return the texts of formulas by whether they compute their number, with an instance."""
    found: dict[bool | None, dict[str, str]] = {True: {}, False: {}, None: {}}
    prose: set[tuple[str, frozenset[str]]] = set()  # with other numbers it is prose as well
    for path in paths:
        for report in parcost.evaluate(SPECS / path):
            for result in report.results:
                for name, formula, value in formulas(result):
                    words = formula.text, frozenset(formula.inputs)
                    if words in prose:
                        continue
                    answer = computes(formula, value)
                    if answer is None:
                        prose.add(words)
                    if formula.text not in found[answer]:
                        found[answer][formula.text] = f"{path}: {name}: {value}"
    return found


@pytest.mark.slow
def test_formulas_of_shipped_specs_compute_their_numbers(
    record_property: Callable[[str, object], None],
) -> None:
    found = _recompute(SHIPPED)
    right, wrong, prose = found[True], found[False], found[None]
    record_property("formulas that compute their number", len(right))
    record_property("formulas that are prose", len(prose))
    print(f"{len(right)} formulas compute their number, {len(prose)} are prose")
    assert not wrong, "\n".join(f"{text}\n    {where}" for text, where in wrong.items())
    assert len(right) >= FEWEST_COMPUTED
    assert len(prose) <= MOST_PROSE, "\n".join(sorted(prose))


def test_formulas_of_a_step_compute_their_numbers() -> None:
    """A few specs of every test run: a step, buckets, a run's cost, transfers, and a torus."""
    paths = ("minimal", "buckets", "run_cost", "tensor_parallel", "networks", "torus")
    wrong = _recompute(f"examples/{path}.par" for path in paths)[False]
    assert not wrong, "\n".join(f"{text}\n    {where}" for text, where in wrong.items())


def test_a_price_by_the_hour_is_shown_by_the_hour() -> None:
    """2.5 USD for an hour of a device is no 9,000 USD/h."""
    (report,) = parcost.evaluate(SPECS / "examples/run_cost.par")
    (figure,) = (f for _, f in report.result.figures if f.name == "cost")
    price, unit = figure.formula.inputs["c"]
    assert quantity(price, unit) == "2.5 USD/h"
    hours = figure.formula.inputs["T"][0] / 3600
    assert figure.value == pytest.approx(figure.formula.inputs["N"][0] * 2.5 * hours)


def test_every_input_is_in_the_base_of_its_unit() -> None:
    """A unit that an input is printed in is one of the language, and not a guess."""
    for path in ("examples/run_cost.par", "examples/inference.par", "examples/goodput.par"):
        for report in parcost.evaluate(SPECS / path):
            for name, formula, _ in formulas(report.results[0]):
                for letter, (_, unit) in formula.inputs.items():
                    if unit:
                        assert units.unit(unit), f"{path}: {name}: {letter} in {unit}"


def test_tensor_collectives_of_a_step_count_all_stages() -> None:
    """DeepSeek-V2: 60 attentions and 60 MLPs reduce their output, forward and again.

    Attention reduces the gradients of three compressed inputs, an MLP that of one.
    """
    (report, *_) = parcost.evaluate(SPECS / "documents/002_deepseek_v2.par")
    (figure,) = (f for _, f in report.results[0].details if f.name == "tp_collectives")
    assert figure.value == (60 * (1 + 3 + 1) + 60 * (1 + 1 + 1)) * 144
    assert computes(figure.formula, figure.value)


@pytest.mark.parametrize(
    ("text", "inputs", "expected"),
    [
        ("2 (P - 1) n / (P B)", {"P": 8.0, "n": 16.0, "B": 2.0}, 14.0),
        ("a / b c", {"a": 6.0, "b": 3.0, "c": 2.0}, 4.0),
        ("sum over levels of (g - 1) n / G", {"g[a]": 2.0, "g[b]": 4.0, "n": 1.0}, 2.5),
        ("max(a, 2) ^2", {"a": 3.0}, 9.0),
        ("ring by direct: n / B, n = s e", {"s": 3.0, "e": 2.0, "B": 1.0}, 6.0),
        ("N / M, rounded up", {"N": 5.0, "M": 2.0}, 3.0),
        ("C(6, 2)", {}, 15.0),
    ],
)
def test_the_evaluator(text: str, inputs: dict[str, float], expected: float) -> None:
    assert evaluate(text, inputs) == expected


@pytest.mark.parametrize("text", ["lines of the ledger", "n / Q", "a, and more", "(n"])
def test_the_evaluator_refuses_prose(text: str) -> None:
    with pytest.raises(ProseError):
        evaluate(text, {"n": 1.0, "a": 1.0})


def test_numbers_stand_where_levels_are_summed() -> None:
    """`in numbers` of what is summed over levels has each level, and no letter is left."""
    for path in ("examples/transfers.par", "examples/minimal.par"):
        for report in parcost.evaluate(SPECS / path):
            for name, formula, value in formulas(report.results[0]):
                if computes(formula, value) and any("[" in letter for letter in formula.inputs):
                    shown = filled(formula)
                    assert "over levels" not in shown, f"{path}: {name}: {shown}"
                    assert not re.search(r"\b(alpha|g|G|B)\b(?!/s)", shown.replace(" B", "")), shown


def test_two_levels_in_numbers() -> None:
    letters = {"g[a]": 8.0, "B[a]": 4.0, "g[b]": 2.0, "B[b]": 5.0}
    inputs = {name: (value, "") for name, value in letters.items()}
    formula = Formula(text="sum over levels of (g - 1) / G / B", inputs=inputs)
    assert filled(formula) == "((8 - 1) / 1 / 4 + (2 - 1) / 8 / 5)"
    largest = Formula(text="largest over levels of g / B + 1", inputs=inputs)
    assert filled(largest) == "max(8 / 4, 2 / 5) + 1"


def test_the_step_and_mfu_are_explained_by_their_parts() -> None:
    (report,) = parcost.evaluate(SPECS / "examples/minimal.par")
    found = {f.name: f for _, f in report.result.figures}
    step = found["step_time"]
    assert sum(value for value, _ in step.formula.inputs.values()) == pytest.approx(step.value)
    assert {"work", "once"} <= step.formula.inputs.keys()
    assert {"tokens", "C", "N", "T", "peak"} == found["mfu"].formula.inputs.keys()
    assert computes(found["mfu"].formula, found["mfu"].value)
