"""Every formula that a shipped spec prints computes the number beside it, in symbols and digits.

The reader, :func:`parcost_apps.testing.compute`, shares nothing with the product.
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
from parcost import Formula
from parcost.language import units
from parcost.language.numbers import quantity
from parcost.numeric import is_array
from parcost.report.formulas import substitute
from parcost_apps.testing import compute

from ..rows import try_each

SPECS = Path(__file__).parents[2] / "specs"
SHIPPED = sorted(
    path.relative_to(SPECS).as_posix()
    for folder in ("documents", "examples", "runs")
    for path in (SPECS / folder).glob("*.par")
)
#: Texts that name an algorithm, and have no expression. It may fall, and never rise.
MOST_ALGORITHMS = 12
#: Different expressions. It may rise, and never fall.
FEWEST_EXPRESSIONS = 656


def formulas(result: parcost.Result) -> Iterator[tuple[str, Formula, Any]]:
    """Yield all that has a formula: a name, the formula and the number that it is of."""
    for _, figure in (*result.figures, *result.details):
        yield f"figure {figure.name}", figure.formula, figure.value
    for _, interval in result.intervals:
        yield f"interval of {interval.name}", interval.formula, interval.low
        yield f"interval of {interval.name}", interval.upper, interval.high
    if result.outcome is None:
        return
    for line in result.outcome.ledger:
        own = isinstance(line.term, (parcost.Work, parcost.Once))
        value = line.term.seconds if own else line.exposed
        yield f"ledger line {line.name}", line.formula, value
    for held in result.outcome.memory_lines:
        yield f"memory line {held.name}", held.formula, held.term.bytes_


def parts(formula: Formula) -> Iterator[Formula]:
    """Yield a formula, and the formulas of its inputs, and of theirs."""
    seen, waiting = {}, [formula]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            yield one
            waiting += one.parts.values()


def is_same(found: Any, value: Any, *, cut: bool) -> bool:
    """Return whether numbers agree; where *cut*, only where the second is not 0."""
    found, value = np.broadcast_arrays(found, np.asarray(value, dtype=float))
    if cut and found.ndim:  # a term that is cut by what limits it is nothing elsewhere
        found, value = found[value != 0], value[value != 0]
    return bool(np.allclose(found, value, rtol=1e-9, atol=0.0, equal_nan=True))


PRINTED = re.compile(
    r"(?<![\w.])((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"( ?(?!x\b)(%|[A-Za-z]+(?:/[A-Za-z]+)?))?(?![\w(])"
)


def is_printed(text: str, value: float) -> bool:
    """Return whether the numbers of *text*, as they are printed, give *value* to 0.2 %."""

    def number(match: re.Match[str]) -> str:
        plain = float(match[1].replace(",", ""))
        return f"({plain * units.unit(match[3])[0]!r})" if match[3] else f"{plain!r}"

    plain = PRINTED.sub(number, text).replace(" x ", " * ").replace("infinite", "infinity")
    with np.errstate(all="ignore"):
        return bool(np.isclose(float(compute(plain, {})), value, rtol=2e-3, atol=0.0))


def test_a_printed_formula_is_read_with_its_units() -> None:
    assert is_printed("2 (8 - 1) x 1 MiB / (8 x 450 GB/s)", 14 * 2**20 / 3.6e12)
    assert is_printed("max(20.9124 s - 20.8809 s, 0)", 0.0315)
    assert not is_printed("max(20.91 s - 20.88 s, 0)", 0.0315)
    assert is_printed("1,024 (1 - 99.5 %)", 5.12)


def mismatches(paths: Iterable[str], texts: dict[str, set[str]]) -> list[str]:
    """Return what does not compute its number, and add to *texts* by kind."""
    found = []
    read: set[tuple[object, ...]] = set()  # a text is read once with the same numbers
    for path in paths:
        for report in parcost.evaluate(SPECS / path):
            for result in report.results:
                for name, outer, value in formulas(result):
                    for one in parts(outer):
                        if not one.inputs and not one.is_expression:  # a leaf: nothing is behind it
                            continue
                        kind = "expressions" if one.is_expression else "algorithms"
                        texts[kind].add(one.text)
                        if not one.is_expression:
                            continue
                        of = value if one is outer else one.value
                        numbers = {symbol: number for symbol, (number, _) in one.inputs.items()}
                        plain = not is_array(one.value, *numbers.values())
                        if plain and not is_array(of):
                            key = (one.text, *one.inputs.items(), of, one.value, one is outer)
                            if key in read:
                                continue
                            read.add(key)
                        computed = compute(one.text, numbers)
                        if not is_same(computed, of, cut=one is outer):
                            found.append(f"{path}: {name}: {one.text} = {computed}, not {of}")
                        if plain and not is_printed(shown := substitute(one), one.value):
                            found.append(f"{path}: {name}: {shown} is printed, and {one.value}")
    return found


@pytest.mark.slow
def test_formulas_of_shipped_specs_compute_their_numbers(
    record_property: Callable[[str, object], None],
) -> None:
    texts: dict[str, set[str]] = {"expressions": set(), "algorithms": set()}
    assert not mismatches(SHIPPED, texts)
    for kind, found in texts.items():
        record_property(kind, len(found))
        print(f"{len(found)} {kind}")
    assert len(texts["expressions"]) >= FEWEST_EXPRESSIONS
    assert len(texts["algorithms"]) <= MOST_ALGORITHMS, "\n".join(sorted(texts["algorithms"]))


def test_a_price_by_the_hour_is_shown_by_the_hour() -> None:
    """2.5 USD for an hour of a device is no 9,000 USD/h."""
    (report,) = parcost.evaluate(SPECS / "examples/run_cost.par")
    (figure,) = (f for _, f in report.result.figures if f.name == "cost")
    price, unit = figure.formula.inputs["c"]
    assert quantity(price, unit) == "2.5 USD/h"
    hours = figure.formula.inputs["T"][0] / 3600
    assert figure.value == pytest.approx(figure.formula.inputs["N"][0] * 2.5 * hours)


@pytest.mark.slow
def test_every_input_is_in_the_base_of_its_unit() -> None:
    """A unit that an input is printed in is one of the language, and not a guess."""
    for path in ("examples/run_cost.par", "examples/inference.par", "examples/goodput.par"):
        for report in parcost.evaluate(SPECS / path):
            for name, outer, _ in formulas(report.results[0]):
                for one in parts(outer):
                    for symbol, (_, unit) in one.inputs.items():
                        if unit:
                            assert units.unit(unit), f"{path}: {name}: {symbol} in {unit}"


@pytest.mark.slow
def test_tensor_collectives_of_a_step_count_all_stages() -> None:
    """Latent attention: 60 attentions and 60 MLPs reduce their output, forward and again.

    Attention reduces the gradients of three compressed inputs, an MLP that of one.
    """
    (scenario,) = parcost.load_text(
        """
        use catalog.devices.h800_sxm
        use catalog.fabrics.hgx_h800
        use catalog.precisions.bf16
        model latent {
          layers = 60, hidden = 1024, heads = 8, ffn = 4096, vocabulary = 32000, gated = on
          q_lora = 256, kv_lora = 128, nope_dim = 64, rope_dim = 32, v_dim = 64
        }
        cluster { devices = 32 }
        layout { tp = 8, pp = 4, zero = 1 }
        training { sequence = 4096, global_batch = 144 sequences, recompute = full }
        """
    )
    found = {f.name: f for _, f in scenario.evaluate().results[0].details}
    assert found["tp_collectives"].value == (60 * (1 + 3 + 1) + 60 * (1 + 1 + 1)) * 144


def test_the_step_and_mfu_are_explained_by_their_parts() -> None:
    (report,) = parcost.evaluate(SPECS / "examples/minimal.par")
    found = {f.name: f for _, f in report.result.figures}
    step = found["step_time"]
    assert sum(value for value, _ in step.formula.inputs.values()) == pytest.approx(step.value)
    assert {"work", "once"} <= step.formula.parts.keys()
    assert {"tokens", "C", "N", "T", "peak"} == found["mfu"].formula.inputs.keys()


@pytest.mark.slow
def test_a_term_is_explained_down_to_the_spec() -> None:
    """The price of a collective has the formula of its bytes, whose symbols the spec gives."""
    (report,) = parcost.evaluate(SPECS / "examples/tensor_parallel.par")[:1]
    lines = report.results[0].outcome.ledger
    line = next(line for line in lines if line.name == "tensor all-reduce")
    assert line.formula.parts["n"].text == "s b h e"


@try_each(
    "text, inputs, expected",
    [
        ("2 (P - 1) n / (P B)", {"P": 8.0, "n": 16.0, "B": 2.0}, 14.0),
        ("a / b c", {"a": 6.0, "b": 3.0, "c": 2.0}, 4.0),
        ("2^3^2 - 1 - 1", {}, 510.0),
        ("-a^2", {"a": 3.0}, -9.0),
        ("sum((g - 1) n / G)", {"g[a]": 2.0, "g[b]": 4.0, "G[a]": 1.0, "G[b]": 2.0, "n": 1.0}, 2.5),
        ("max(a, 2)^2 2", {"a": 3.0}, 18.0),
        ("a < 2 ? 1 : a == 3 ? 5 : 6", {"a": 3.0}, 5.0),
        ("P' alpha[node]", {"P'": 3.0, "alpha[node]": 2.0}, 6.0),
    ],
)
def test_the_reader(text: str, inputs: Mapping[str, float], expected: float) -> None:
    assert math.isclose(float(compute(text, inputs)), expected)


@try_each("text", ["sum over terms", "n / Q", "n of all", "(n", "n ? 1"])
def test_the_reader_refuses_prose(text: str) -> None:
    with pytest.raises(AssertionError):
        compute(text, {"n": 1.0})
