"""Formulas compute what they show, for numbers and arrays, and reject everything else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost import (
    SECONDS,
    Figure,
    Formula,
    FormulaError,
    Interval,
    Memory,
    Once,
    Real,
    Section,
    Work,
    attribute,
    block,
    formula,
    quantity,
)
from parcost.contract.formulas import with_numbers
from parcost.report.formulas import substitute

from ..rows import try_each


@try_each(
    "text, symbols, expected",
    [
        ("2 (P - 1) n / (P B)", {"P": 8.0, "n": 16.0, "B": 2.0}, 14.0),
        ("a / b c", {"a": 6.0, "b": 3.0, "c": 2.0}, 4.0),
        ("a - b - c", {"a": 6.0, "b": 3.0, "c": 2.0}, 1.0),
        ("-a^2", {"a": 3.0}, -9.0),
        ("2^-a", {"a": 1.0}, 0.5),
        ("2^3^2", {}, 512.0),
        ("2 * 3 4", {}, 24.0),
        ("max(a, 2, 5)^2", {"a": 3.0}, 25.0),
        ("min(a, 2)", {"a": 3.0}, 2.0),
        ("ceil(log2(P))", {"P": 5.0}, 3.0),
        ("floor(sqrt(n)) + ln(exp(2))", {"n": 17.0}, 6.0),
        ("ratio(a, b) + ratio(b, b) + ratio(4, 2)", {"a": 0.0, "b": 0.0}, 2.0),
        ("c > 1 ? a : b", {"c": 2.0, "a": 3.0, "b": 4.0}, 3.0),
        ("c ? a : c == 0 ? b : 7", {"c": 0.0, "a": 3.0, "b": 4.0}, 4.0),
        ("2 (a <= b) + (a != b)", {"a": 1.0, "b": 2.0}, 3.0),
        ("sum((g - 1) n / G)", {"n": 8.0, "g": {"a": 2.0, "b": 4.0}, "G": [1.0, 2.0]}, 20.0),
        ("max(g n) + sum(g)", {"n": 8.0, "g": [2.0, 4.0]}, 38.0),
        ("sum(g)", {"g": {}}, 0.0),
        ("min(g / 2) - g'", {"g": [4.0, 2.0], "g'": 3.0}, -2.0),
        ("n > 3 ? 1 : infinity", {"n": 2.0}, math.inf),
        ("1.5e3 n", {"n": 2}, 3000.0),
        ("n / 2, of both (that's all)", {"n": 2.0}, 1.0),
        ("max (e + 1) f", {"max": 2.0, "e": 1.0, "f": 5.0}, 20.0),
    ],
)
def test_a_text_computes(text: str, symbols: dict[str, Any], expected: float) -> None:
    if text.startswith("max (e"):  # a function, where a bracket follows
        with pytest.raises(FormulaError):
            formula(text, **symbols)
        return
    assert formula(text, **symbols).value == expected


def test_symbols_as_they_are_printed() -> None:
    f = formula("P' alpha[node] + n_r", {"P'": 2.0, "alpha[node]": (3.0, "s")}, n_r=1.0)
    assert f.value == 7.0
    assert f.inputs == {"P'": (2.0, ""), "alpha[node]": (3.0, "s"), "n_r": (1.0, "")}


def test_a_formula_is_the_input_of_another() -> None:
    inner = formula("s b h e", s=4.0, b=1.0, h=2.0, e=(2.0, "B"))
    outer = formula("n / B", n=(inner, "B"), B=(8.0, "B/s"))
    assert outer.value == 2.0
    assert outer.inputs["n"] == (16.0, "B")
    assert outer.parts == {"n": inner}


@try_each(
    "text, symbols, said",
    [
        ("n / ", {"n": 1.0}, "where a value is expected"),
        ("n m", {"n": 1.0}, "differ in `m`"),
        ("n", {"n": 1.0, "m": 1.0}, "differ in `m`"),
        ("(n", {"n": 1.0}, "lacks a `)`"),
        ("n)", {"n": 1.0}, "continues with `)`"),
        ("n; m", {"n": 1.0, "m": 1.0}, "cannot be read"),
        ("n ? 1", {"n": 1.0}, "lacks a `:`"),
        ("ceil(n, 2)", {"n": 1.0}, "calls `ceil` with 2 arguments"),
        ("min(n)", {"n": 1.0}, "needs symbols with several numbers"),
        ("ratio(n)", {"n": 1.0}, "calls `ratio` with 1 arguments"),
        ("sum(n)", {"n": 1.0}, "needs symbols with several numbers"),
        ("sum(n m)", {"n": [1.0], "m": [1.0, 2.0]}, "needs symbols with several numbers"),
        ("2 n", {"n": {"a": 1.0}}, "has no value"),
        ("(" * 50 + "n" + ")" * 50, {"n": 1.0}, "too deep"),
        ("-" * 50 + "n", {"n": 1.0}, "too deep"),
        ("n + " * 2000 + "n", {"n": 1.0}, "too long"),
        ("__import__('os')", {}, "cannot be read"),
        ("n.real", {"n": 1.0}, "cannot be read"),
        ("1n", {"n": 1.0}, "cannot be read"),
    ],
)
def test_an_invalid_formula_is_an_error(text: str, symbols: dict[str, Any], said: str) -> None:
    with pytest.raises(FormulaError, match=None) as caught:
        formula(text, **symbols)
    assert said in str(caught.value)


def test_division_by_nothing_is_endless() -> None:
    assert formula("n / B", n=1.0, B=0.0).value == math.inf
    assert math.isnan(formula("n / B", n=0.0, B=0.0).value)
    assert formula("B > 0 ? n / B : 0", n=1.0, B=0.0).value == 0.0
    assert formula("10^n", n=400.0).value == math.inf
    assert math.isnan(formula("sqrt(n)", n=-1.0).value)
    assert formula("sum(n / B)", n=[1.0, 2.0], B=0.0).value == math.inf


def test_numbers_in_the_place_of_symbols() -> None:
    inputs = {"P": 8.0, "n": (2.0**20, "B"), "B": (450e9, "B/s")}
    assert substitute(formula("2 (P - 1) n / (P B)", inputs)) == (
        "2 (8 - 1) x 1 MiB / (8 x 450 GB/s)"
    )
    levels = {"g": {"a": 8.0, "b": 2.0}, "B": ({"a": 4.0, "b": 5.0}, ""), "G": [1.0, 8.0]}
    assert substitute(formula("sum((g - 1) / B) + 1", g=levels["g"], B=levels["B"])) == (
        "((8 - 1) / 4 + (2 - 1) / 5) + 1"
    )
    assert substitute(formula("max(g) + a", g=levels["g"], a=-1.0)) == "max(8, 2) + (-1)"


def test_terms_take_the_formula_of_their_number() -> None:
    f = formula("n / B", n=(4.0, "B"), B=(2.0, "B/s"), source="a page")
    work = Work(name="w", seconds=f, pass_="F")
    once = Once(name="o", seconds=f, when="end")
    held = Memory(name="m", bytes_=f)
    figure = Figure(name="f", title="f", value=f, unit="s")
    assert work.seconds == once.seconds == held.bytes_ == figure.value == 2.0
    assert work.formula is once.formula is held.formula is figure.formula is f
    interval = Interval(name="f", low=f, high=formula("2 n", n=f), coverage=0.9)
    assert (interval.low, interval.high) == (2.0, 4.0)
    assert interval.formula is f
    assert interval.upper.text == "2 n"
    assert Section(title="t", columns=("a", "b"), rows=[("x", f)]).rows == [("x", 2.0)]


def test_by_hand_a_formula_names_an_algorithm() -> None:
    f = Formula(text="replay of the order", inputs={"m": (4.0, "")}, value=3.0)
    assert not f.is_expression
    assert formula("2 T", T=f).value == 6.0


# --- properties ---------------------------------------------------------------------------

_SYMBOLS = {"h": 3.0, "b'": 0.25, "n'": 7.0, "g[x]": 2.0}


def _ratio(x: float, y: float) -> float:
    with np.errstate(all="ignore"):
        return float(np.divide(x, y))


def _pair(operator: str) -> Callable[[tuple[Any, Any]], tuple[str, Any]]:
    def join(pair: tuple[Any, Any]) -> tuple[str, Any]:
        (one, f), (other, g) = pair
        texts = {"*": f"({one}) ({other})", "<": f"(({one}) < ({other}) ? ({one}) : ({other}))"}
        does: dict[str, Callable[[float, float], float]] = {
            "+": lambda x, y: x + y,
            "-": lambda x, y: x - y,
            "*": lambda x, y: x * y,
            "/": _ratio,
            "<": lambda x, y: min(y, x),
        }
        return texts.get(operator, f"(({one}) {operator} ({other}))"), does[operator](f, g)

    return join


_leaves = st.one_of(
    st.sampled_from(sorted(_SYMBOLS.items())),
    st.floats(0, 1e6).map(lambda number: (repr(number), number)),
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        *(st.tuples(inner, inner).map(_pair(operator)) for operator in "+-*/<"),
        inner.map(lambda t: (f"-({t[0]})", -t[1])),
        inner.map(lambda t: (f"max({t[0]}, 1)", max(t[1], 1.0) if t[1] == t[1] else t[1])),
    ),
    max_leaves=12,
)


@pytest.mark.slow
@given(_trees)
def test_any_expression_computes(tree: tuple[str, float]) -> None:
    text, expected = tree
    used = {name: value for name, value in _SYMBOLS.items() if name in text}
    try:
        with np.errstate(all="ignore"):
            found = formula(text, used)
    except FormulaError as error:  # a part of it divides numbers that are written by zero
        assert "has no value" in str(error)  # noqa: PT017
        assert "0" in text
        assert "/" in text
        return
    if math.isnan(expected):
        return
    assert found.value == pytest.approx(expected, rel=1e-12, nan_ok=True)
    with_numbers(found, lambda number, unit: f"{number}{unit}")


@given(st.text("ab(2)+-*/^,?:<=> .[]'max", max_size=30))
def test_any_text_is_a_formula_or_an_error(text: str) -> None:
    symbols = {"a": 2.0, "b": 3.0}
    try:
        formula(text, symbols)
    except FormulaError as error:
        assert str(error)  # noqa: PT017  an error of another kind is a fault of ours


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5))
def test_an_array_is_its_numbers(numbers: list[float]) -> None:
    text = "n > 2 ? ceil(n / 3) + log2(n) : max(n, 1.5) - sqrt(n) / (n - 1)"
    with np.errstate(all="ignore"):
        together = formula(text, n=np.array(numbers)).value
    for n, found in zip(numbers, together, strict=True):
        assert formula(text, n=n).value == pytest.approx(float(found), rel=1e-14)


def test_origins_wait_for_the_first_read_of_the_formula() -> None:
    asked: list[str] = []

    def origins() -> dict[str, Any]:
        asked.append("origins")
        return {"B": (formula("b eta", b=4.0, eta=0.5), "B/s")}

    priced = formula("n / B", n=(6.0, "B"), B=(2.0, "B/s"), source="a page", origins=origins)
    assert (priced.value, asked) == (3.0, [])
    assert (priced.text, priced.source) == ("n / B", "a page")
    assert priced.is_expression
    assert priced.parts["B"].text == "b eta"
    assert {symbol: value for symbol, (value, _) in priced.inputs.items()} == {"n": 6.0, "B": 2.0}
    assert asked == ["origins"]


def test_an_attribute_is_a_formula_of_the_value_that_a_block_has() -> None:
    @block("cable")
    class Cable:
        """A cable."""

        latency: Real = quantity(SECONDS, doc="of a message")

    cable = Cable(latency=3e-6)
    leaf = attribute(cable, "latency")
    assert (leaf.value, leaf.text, leaf.attribute) == (3e-6, "latency of cable", (cable, "latency"))
    assert formula("2 alpha", alpha=(leaf, "s")).value == 6e-6
