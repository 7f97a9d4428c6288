"""Pictures of calculators: their curves are those of formulas worked out by hand."""

from __future__ import annotations

import itertools

import pytest

import parcost
from parcost import Chart

TRANSFER = """
transfer all {
  operation = all_reduce
  size      = 8 MB
  ranks     = 8
  latency   = 1 us
  bandwidth = 450 GB/s per_direction
}
"""
PIPELINE = "pipeline deep { stages = 4, micro_batches = 8 }"
SERVING = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
serving chat { model = llama3_8b, device = h100_sxm, batch = 8, prompt = 1024, output = 128,
  compute = bf16, weights = 2 B, activation = 2 B }
"""


def chart_of(text: str, name: str) -> Chart:
    (scenario,) = parcost.load_text(text)
    (chart,) = [chart for _, chart in scenario.evaluate().result.charts if chart.name == name]
    assert chart.problem() == ""
    return chart


def test_a_ring_takes_its_latency_and_its_bytes_at_each_size() -> None:
    """An all-reduce of 8 ranks by a ring: 14 rounds of 1 us, and 7/4 of the buffer."""
    chart = chart_of(TRANSFER, "algorithms")
    ring = {
        row["size"][0]: row["seconds"][0]
        for row in chart.rows
        if row["kind"] == "curve" and row["algorithm"] == "ring"
    }
    for size in (2.0**10, 2.0**20, 2.0**34):
        assert ring[size] == pytest.approx(14e-6 + 1.75 * size / 450e9, rel=1e-9)


def test_a_crossover_stands_where_another_algorithm_becomes_the_fastest() -> None:
    chart = chart_of(TRANSFER, "algorithms")
    curves: dict[float, dict[str, float]] = {}
    for row in chart.rows:
        if row["kind"] == "curve":
            curves.setdefault(row["size"][0], {})[row["algorithm"]] = row["seconds"][0]
    best = [min(times, key=times.__getitem__) for _, times in sorted(curves.items())]
    changes = [b for a, b in itertools.pairwise(best) if a != b]
    crossovers = [row["algorithm"] for row in chart.rows if row["kind"] == "crossover"]
    assert crossovers == changes
    assert changes


def test_the_bubble_of_1f1b_is_that_of_its_formula() -> None:
    """(p - 1) / (m + p - 1): 3 / 11 with 4 stages and 8 micro-batches."""
    chart = chart_of(PIPELINE, "bubble")
    found = {row["micro_batches"]: row["bubble"][0] for row in chart.rows}
    for count in (1.0, 8.0, 256.0):
        assert found[count] == pytest.approx(3 / (count + 3))
    assert [row["micro_batches"] for row in chart.rows if row["own"] == "own"] == [8.0]


def test_the_rate_of_a_batch_is_that_of_the_block_with_it() -> None:
    chart = chart_of(SERVING, "batch")
    rates = {row["batch"]: row["rate"] for row in chart.rows}
    (scenario,) = parcost.load_text(SERVING)
    own = scenario.evaluate().result.figure("chat.tokens_per_second_per_device")
    assert rates[8.0] == pytest.approx(own)
    assert rates[1.0] < rates[8.0] < rates[64.0]
    assert {row["bound"] for row in chart.rows} >= {"memory bandwidth"}


def test_a_roof_of_a_level_rises_to_its_ridge_and_stays_at_the_peak() -> None:
    """989 TFLOP/s of bf16: 295.2 FLOP/B of memory, 2,198 of NVLink and 19,780 of a port of 50 GB/s."""
    text = """
    use catalog.devices.h100_sxm
    use catalog.fabrics.hgx_h100
    roofline h100 { device = h100_sxm, fabric = hgx_h100, compute = bf16 }
    """
    (scenario,) = parcost.load_text(text)
    rates = {f.name.removeprefix("h100."): f for _, f in scenario.evaluate().result.figures}
    chart = chart_of(text, "ridges")
    for name, figure in rates.items():
        left, ridge, right = [row for row in chart.rows if row["level"] == name]
        assert ridge["at"] == pytest.approx(figure.value, rel=1e-12)
        assert (ridge["tera"], right["tera"]) == pytest.approx((989.0, 989.0), rel=1e-9)
        assert left["tera"] == pytest.approx(989.0 * left["at"] / ridge["at"], rel=1e-9)
    assert {row["level"] for row in chart.rows} == {"memory", "node", "network"}
