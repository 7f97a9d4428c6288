"""Symbols of printed formulas lead to an attribute, to a formula, or to a word beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import parcost
from parcost.contract.formulas import Formula

JOB = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
use catalog.frameworks.megatron_core
fabric f {{ level net {{ bandwidth = 100 GB/s per_direction, latency = 1 us }} }}
cluster {{ devices = 16 }}
layout {{ tp = 2, pp = 2, zero = 1 }}
training {{ sequence = 8192, micro_batch = 1, global_batch = 64 sequences, recompute = full, framework = megatron_core }}
energy {{ intensity = 400 g/kWh }}
run {{ tokens = 1 T tokens }}
serving chat {{ model = llama3_8b, device = h100_sxm, batch = 8, prompt = 1000, output = 10, tp = 1, compute = bf16, weights = 2 B, activation = 2 B, kv = 2 B }}
{extra}
"""
_WORD = re.compile(r"[A-Za-z_]{3,}")


def symbols_without_origin(formula: Formula, seen: set[int]) -> Iterator[str]:
    """Yield the symbols below *formula* that no formula, no words and no name explain."""
    if id(formula) in seen or formula.attribute:
        return
    seen.add(id(formula))
    words = formula.text.partition(", ")[2]
    for symbol, value, _ in formula.symbols():
        if isinstance(value, Formula):
            yield from symbols_without_origin(value, seen)
        elif "[" in symbol or re.search(rf"(?<!\w){re.escape(symbol)}(?!\w)", words):
            continue
        elif not _WORD.fullmatch(symbol) or symbol in ("tau", "psi", "peak"):
            yield f"{symbol} of {formula.text}"


@pytest.mark.parametrize(
    "extra",
    [
        "",
        "kernels { launch_blocking = on }",
        "framework megatron_core { compiled_issue = 5 us, compiled_call = 40 us }\nkernels { mode = compiled }",
    ],
    ids=["eager", "blocking", "compiled"],
)
def test_symbols_of_hosts_models_and_memory_have_origins(extra: str) -> None:
    report = parcost.load_text(JOB.format(extra=extra))[0].evaluate().result
    assert report.outcome is not None
    lines = [*report.outcome.ledger, *report.outcome.memory_lines]
    named = ("frameworks.host", "model.", "memory.overheads")
    found = [
        one
        for line in lines
        if line.plugin is not None
        and line.plugin.name.startswith(named)
        and line.cause != "compute"
        for one in symbols_without_origin(line.formula, set())
    ]
    assert found == []


def test_rates_of_serving_and_shares_of_power_lead_to_their_attributes() -> None:
    report = parcost.load_text(JOB.format(extra=""))[0].evaluate().result
    figures = {figure.name: figure for _, figure in [*report.figures, *report.details]}
    peak = figures["chat.compute_seconds"].formula.parts["peak"]
    # 989 TFLOP/s of the design: 80.3 % in the best product, 92 % of it in real shapes, 86 % held
    assert peak.value == pytest.approx(989e12 * 0.803 * 0.92 * 0.86, rel=1e-3)
    assert peak.parts["P"].text == "bf16 of h100_sxm"
    assert figures["chat.weights_seconds"].formula.parts["B"].parts["W"].value == 3.35e12
    power = list(_below(figures["energy"].formula))
    texts = {formula.text for formula in power}
    assert {"idle_power of energy", "activity of energy", "waiting_activity of energy"} <= texts


def _below(formula: Formula) -> Iterator[Formula]:
    yield formula
    for part in formula.parts.values():
        yield from _below(part)


def test_the_memory_of_a_stage_is_the_sum_of_its_terms() -> None:
    report = parcost.load_text(JOB.format(extra=""))[0].evaluate().result
    assert report.outcome is not None
    for device, held in enumerate(report.outcome.device_memory):
        (figure,) = [
            f for _, f in [*report.figures, *report.details] if f.name == f"stage_{device}_memory"
        ]
        terms = figure.formula.inputs
        assert sum(bytes_ for bytes_, _ in terms.values()) == pytest.approx(held)
        assert any("weights" in name for name in terms)
