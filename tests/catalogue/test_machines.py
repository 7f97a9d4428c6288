"""Every device of the catalogue trains something on every fabric that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
import parcost_specs

HOMES = {
    "v100_sxm2_32g": "dgx_v100",
    "a100_sxm_40g": "aws_p4d",
    "a100_sxm_80g": "dgx_a100",
    "a100_pcie_80g": "dgx_a100",
    "h100_sxm": "hgx_h100",
    "h100_pcie": "aws_p5",
    "h200_sxm": "hgx_h200",
    "h800_sxm": "hgx_h800",
    "b200": "hgx_b200",
    "gb200": "nvl72",
    "mi250x_gcd": "frontier",
    "mi300x": "mi300x_node",
    "mi325x": "mi300x_node",
}

STUDY = """
use catalog.devices.{device}
use catalog.fabrics.{fabric}
use catalog.models.llama32_1b
use catalog.precisions.{precision}
cluster {{ devices = 144 }}
layout {{ tp = {tp}, zero = 1, vocabulary_multiple = 128 }}
training {{ sequence = 2048, micro_batch = 2, global_batch = 1152 sequences }}
"""


def test_every_device_and_fabric_is_tried() -> None:
    root = Path(parcost_specs.__file__).parent
    assert {p.stem for p in (root / "devices").glob("*.par")} == set(HOMES)
    assert {p.stem for p in (root / "fabrics").glob("*.par")} == set(HOMES.values())


@pytest.mark.parametrize("device", HOMES)
def test_a_small_model_runs_at_a_plausible_share_of_the_peak(device: str) -> None:
    precision = "fp16" if device.startswith("v100") else "bf16"
    text = STUDY.format(device=device, fabric=HOMES[device], precision=precision, tp=1)
    result = parcost.load_text(text)[0].evaluate().result
    assert not result.faults
    assert result.outcome is not None
    assert result.outcome.feasible
    assert 0.10 < result.figure("mfu") < 0.72


@pytest.mark.parametrize("device", HOMES)
def test_splitting_the_tensors_of_a_small_model_never_pays(device: str) -> None:
    precision = "fp16" if device.startswith("v100") else "bf16"
    speeds = []
    for tp in (1, 8):
        text = STUDY.format(device=device, fabric=HOMES[device], precision=precision, tp=tp)
        speeds.append(parcost.load_text(text)[0].evaluate().result.figure("mfu"))
    assert speeds[0] > speeds[1]
