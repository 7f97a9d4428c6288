"""ZeRO shards over every rank that holds the same parameters, context-parallel ranks included."""

from __future__ import annotations

import pytest

import parcost

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.fabrics.hgx_h100
use catalog.models.{model}
use catalog.precisions.{precision}
cluster {{ devices = 8 }}
layout {{ {layout} }}
training {{ sequence = 8192, global_batch = 8 sequences }}
"""


def ids(layout: str, model: str = "llama3_8b", precision: str = "bf16") -> list[str]:
    text = SPEC.format(layout=layout, model=model, precision=precision)
    (scenario,) = parcost.load_text(text)
    return [diagnostic.id for diagnostic in scenario.evaluate().diagnostics]


@try_each(
    "layout, model, warned",
    [
        ("tp = 8, zero = 1", "llama3_8b", True),
        ("tp = 4, cp = 2, zero = 3", "llama3_8b", False),  # dp = 1, over two context-parallel ranks
        ("cp = 8, zero = 3", "llama3_8b", False),
        # One set of attention weights, and eight ranks that hold all experts.
        ("tp = 8, zero = 1", "mixtral_8x7b", False),
        ("tp = 8, ep = 8, zero = 1", "mixtral_8x7b", True),
    ],
)
def test_zero_shards_over_ranks_with_the_same_parameters(
    layout: str, model: str, warned: bool
) -> None:
    assert ("zero-alone" in ids(layout, model)) == warned


@pytest.mark.parametrize("precision", ["mxfp8", "mxfp8_nemo"])
def test_hopper_does_not_multiply_mxfp8(precision: str) -> None:
    text = SPEC.format(layout="zero = 1", model="llama3_8b", precision=precision)
    (scenario,) = parcost.load_text(text)
    report = scenario.evaluate()
    (error,) = [d for d in report.diagnostics if d.id == "device-microscaling"]
    assert "h100_sxm" in error.message
    assert report.exit_code == 1
    (blackwell,) = parcost.load_text(text.replace("h100_sxm", "b200"))
    assert blackwell.evaluate().result.legal


def test_hopper_multiplies_fp8_with_factors_of_large_blocks() -> None:
    assert "device-microscaling" not in ids("zero = 1", precision="fp8_blockwise")
