"""Figures of mixtures of experts, by name."""

from __future__ import annotations

import pytest

import parcost

from ..rows import mark_most, try_each

TEXT = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.{model}
use catalog.precisions.bf16
device roomy extends h100_sxm {{ memory = 1 TB }}
cluster {{ device = roomy, devices = 64 }}
layout {{ {layout} }}
training {{ sequence = 4096, global_batch = 64 sequences }}
routing {{ {routing} }}
"""


def figure(name: str, layout: str, routing: str = "", model: str = "mixtral_8x7b") -> float:
    (scenario,) = parcost.load_text(TEXT.format(model=model, layout=layout, routing=routing))
    return scenario.evaluate().result.figure(name)


@pytest.mark.parametrize(
    ("name", "expected"),
    mark_most(
        [
            ("active_parameters", 12_879_925_248),
            ("experts_per_device", 1),
            ("expert_tokens", 4096 * 8 * 2 / 8),
            ("dispatch_bytes", 4096 * 2 * 4096 * 2 * 7 / 8),
            ("combine_bytes", 4096 * 2 * 4096 * 2 * 7 / 8),
            ("exchange_bytes", 7 * 4096 * 4096 * 2),  # 7 times the stream: top-2 of eight ranks
            ("dispatch_outer_bytes", 0),
            ("expert_units", 1),
        ],
        4,
    ),
)
def test_mixtral_on_eight_ranks(name: str, expected: float) -> None:
    assert figure(name, "ep = 8", "distribution = balanced") == expected


@try_each("name", ["dispatch_bytes", "combine_bytes", "exchange_bytes", "dispatch_outer_bytes"])
def test_experts_on_one_rank_send_nothing(name: str) -> None:
    assert figure(name, "ep = 1, dp = 64") == 0.0


@pytest.mark.slow
def test_tokens_beyond_the_capacity_are_dropped() -> None:
    routing = "distribution = measured, loads = [2, 1, 1, 1, 1, 1, 1, 1], capacity_factor = 1.25"
    # the busiest has 16/9 of the mean
    assert figure("expert_imbalance", "ep = 8", routing) == pytest.approx(16 / 9)
    assert figure("dropped_share", "ep = 8", routing) == pytest.approx(1 - 1.25 / (16 / 9))
    assert figure("dropped_tokens", "ep = 8", routing) == pytest.approx((2 - 1.25 * 9 / 8) / 9)
    assert figure("expert_capacity", "ep = 8", routing) == 1280


@pytest.mark.slow
def test_places_are_whole_in_what_is_computed_and_sent() -> None:
    """5 % above a mean of 1024 are 1075.2 places: 1076 are computed and sent."""
    routing = "distribution = balanced, capacity_factor = {}"
    assert figure("expert_capacity", "ep = 8", routing.format(1.05)) == 1076
    whole = figure("step_time", "ep = 8", routing.format(1076 / 1024))
    assert figure("step_time", "ep = 8", routing.format(1.05)) == whole
    assert figure("step_time", "ep = 8", routing.format(1075 / 1024)) < whole


def test_more_experts_than_compute_meets() -> None:
    whole = figure("parameters", "ep = 8")
    assert whole / figure("active_parameters", "ep = 8") == pytest.approx(46.7 / 12.9, rel=2e-3)


def test_parameters_of_a_stage() -> None:
    held = figure("parameters_per_stage", "pp = 4, ep = 8")
    h, f = 4096, 14_336
    layer = 2 * h * h + 2 * h * 1024 + 8 * h + 3 * h * f + 2 * h
    assert held == 8 * layer + 32_000 * h + h  # the last stage, with head and norm
