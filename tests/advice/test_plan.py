"""The strategies that fit, against memory worked out by hand."""

from __future__ import annotations

import pytest

import parcost

SPEC = """
use catalog.devices.h100_sxm
use catalog.models.{model}
use catalog.precisions.bf16
use catalog.fabrics.hgx_h100
cluster {{ devices = {devices} }}
layout {{ tp = {tp} }}
training {{ sequence = 1024, global_batch = {batch} sequences }}
plan {{ }}
"""


def strategies(
    model: str, devices: int, batch: int = 64, tp: int = 1
) -> dict[str, tuple[str, str]]:
    (scenario,) = parcost.load_text(SPEC.format(model=model, devices=devices, batch=batch, tp=tp))
    (section,) = [
        s for _, s in scenario.evaluate().result.sections if s.title == "Choice of a strategy"
    ]
    return {str(row[1]): (str(row[0]), str(row[3])) for row in section.rows}


def test_a_small_model_fits_one_device() -> None:
    """16 to 18 bytes for each of 124 million parameters are 2.2 GB."""
    assert strategies("gpt2_small", 1)["nothing is split"] == ("one device", "yes")


@pytest.mark.slow
def test_seven_billion_parameters_need_sharding() -> None:
    """18 x 6.7e9 = 121 GB are more than 80 GB; 6 + 12 / 8 bytes are 50 GB."""
    fits_by_layout = strategies("llama2_7b", 8)
    assert [fits for layout, (_, fits) in fits_by_layout.items() if "zero = 0" in layout] == ["no"]
    assert any(
        fits == "yes" for layout, (_, fits) in fits_by_layout.items() if "zero = 1" in layout
    )


def test_an_indivisible_layout_is_an_error() -> None:
    fits_by_layout = strategies("llama2_7b", 16, batch=8, tp=2)
    why = fits_by_layout["dp = 16, zero = 0"][1]
    assert why.startswith("no: ")
    assert "16" in why
    assert "16.0" not in why


@pytest.mark.slow
def test_a_plan_needs_its_block() -> None:
    (scenario,) = parcost.load_text(
        SPEC.format(model="gpt2_small", devices=1, batch=8, tp=1).replace("plan { }", "")
    )
    titles = [s.title for _, s in scenario.evaluate().result.sections]
    assert "Choice of a strategy" not in titles
