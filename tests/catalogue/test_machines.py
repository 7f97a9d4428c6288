"""Every device of the catalogue trains something, and every system is ready to be used."""

from __future__ import annotations

from pathlib import Path

import pytest

import parcost
import parcost_specs
from parcost_plugins.physics import slowdown
from parcost_plugins.vocabulary import Cluster, Device

from ..rows import mark_most, try_each

ROOT = Path(parcost_specs.__file__).parent
DEVICES = sorted(p.stem for p in (ROOT / "devices").glob("*.par"))
SYSTEMS = sorted(p.stem for p in (ROOT / "systems").glob("*.par"))

# The fabric that a device comes with; others are tried as cards in ordinary hosts.
HOMES = {
    "v100_sxm2_16g": "dgx_v100",
    "v100_sxm2_32g": "dgx_v100",
    "v100_sxm3_32g": "dgx_2",
    "a100_sxm_40g": "aws_p4d",
    "a100_sxm_80g": "dgx_a100",
    "h100_sxm": "hgx_h100",
    "h20": "hgx_h100",
    "h200_sxm": "hgx_h200",
    "h800_sxm": "hgx_h800",
    "b100": "hgx_b200",
    "b200": "hgx_b200",
    "b300": "hgx_b200",
    "gb200": "nvl72",
    "gb300": "nvl72",
    "mi250_gcd": "frontier",
    "mi250x_gcd": "frontier",
    "mi300x": "mi300x_node",
    "mi325x": "mi300x_node",
}
CARDS = """
fabric cards {
  level node { size = 8 devices, bandwidth = 25 GB/s per_direction, latency = 5 us }
  level network { bandwidth = 25 GB/s per_direction, latency = 14 us }
}
"""

STUDY = """
use catalog.devices.{device}
{fabric}
use catalog.models.llama32_1b
use catalog.precisions.{precision}
cluster {{ devices = 144 }}
layout {{ tp = {tp}, zero = 1, vocabulary_multiple = 128 }}
training {{ sequence = 2048, micro_batch = 1, global_batch = 2304 sequences, recompute = {again} }}
"""


def device_called(name: str) -> Device:
    return parcost.load_text(f"use catalog.devices.{name}\n")[0].studies()[0][Device]


def result(name: str, tp: int) -> parcost.Result:
    device = device_called(name)
    text = STUDY.format(
        device=name,
        fabric=f"use catalog.fabrics.{HOMES[name]}" if name in HOMES else CARDS,
        precision="fp16" if device.bf16 is None else "bf16",
        tp=tp,
        again="full" if device.memory < 30 * 2**30 else "none",
    )
    return parcost.load_text(text)[0].evaluate().result


@pytest.mark.slow
def test_collectives_take_multiprocessors_of_graphics_processors_alone() -> None:
    taken = {name: device_called(name).collective_multiprocessors for name in DEVICES}
    engines = [name for name in DEVICES if name.startswith(("tpu", "gaudi", "train", "inferentia"))]
    assert {taken[name] for name in engines} == {0}
    assert {taken[name] for name in DEVICES if name not in engines} == {16}


def test_a_study_may_say_itself_what_collectives_take() -> None:
    text = STUDY.format(
        device="h100_sxm",
        fabric="use catalog.fabrics.hgx_h100",
        precision="bf16",
        tp=8,
        again="none",
    )
    (scenario,) = parcost.load_text(text)
    (study,) = scenario.studies()
    (own,) = scenario.replace({"overlap.multiprocessors": 33}).studies()
    assert slowdown(study) == 16 / (132 - 16)
    assert slowdown(own) == 33 / (132 - 33)


def test_the_catalogue_has_more_than_forty_devices_and_a_dozen_systems() -> None:
    assert len(DEVICES) >= 40
    assert len(SYSTEMS) >= 12


@pytest.mark.parametrize("name", mark_most(DEVICES))
def test_a_small_model_runs_at_a_plausible_share_of_the_peak(name: str) -> None:
    found = result(name, tp=1)
    assert not found.faults
    assert found.outcome is not None
    assert found.outcome.feasible
    assert 0.08 < found.figure("mfu") < 0.80


@pytest.mark.parametrize("name", mark_most(DEVICES))
def test_splitting_the_tensors_of_a_small_model_never_pays(name: str) -> None:
    assert result(name, tp=1).figure("mfu") > result(name, tp=8).figure("mfu")


# Dense peak of 16-bit products from the clock (GHz), the matrix units and their FLOP per cycle.
CLOCKS = {
    "v100_sxm2_16g": 1.53 * 640 * 128,
    "v100_pcie_16g": 1.38 * 640 * 128,
    "t4": 1.59 * 320 * 128,
    "a100_sxm_40g": 1.41 * 432 * 512,
    "a100_pcie_40g": 1.41 * 432 * 512,
    "a800_sxm_80g": 1.41 * 432 * 512,
    "a40": 1.74 * 336 * 256,
    "a10": 1.695 * 288 * 256,
    "rtx_a6000": 1.80 * 336 * 256,
    "rtx_3090": 1.695 * 328 * 128,
    "l4": 2.04 * 232 * 256,
    "l40": 2.49 * 568 * 128,
    "l40s": 2.49 * 568 * 256,
    "rtx_6000_ada": 2.505 * 568 * 256,
    "rtx_4090": 2.52 * 512 * 128,
    "rtx_5090": 2.407 * 680 * 128,
    "h100_sxm": 1.83 * 528 * 1024,
    "h800_sxm": 1.83 * 528 * 1024,
    "gh200": 1.83 * 528 * 1024,
    "mi100": 1.502 * 480 * 256,
    "mi210": 1.7 * 416 * 256,
    "mi250_gcd": 1.7 * 416 * 256,
    "mi250x_gcd": 1.7 * 440 * 256,
    "mi300a": 2.1 * 912 * 512,
    "mi300x": 2.1 * 1216 * 512,
    "mi325x": 2.1 * 1216 * 512,
    "mi350x": 2.2 * 1024 * 1024,
    "mi355x": 2.4 * 1024 * 1024,
    "tpu_v2": 0.7 * 2 * 32768,
    "tpu_v3": 0.94 * 4 * 32768,
    "tpu_v4": 1.05 * 8 * 32768,
    "tpu_v5e": 1.5 * 4 * 32768,
    "tpu_v5p": 1.75 * 8 * 32768,
    "gaudi2": 1.65 * 2 * 131072,
    "gaudi3": 1.6 * 8 * 131072,
}


@try_each("name", CLOCKS)
def test_a_dense_peak_follows_from_clock_and_units(name: str) -> None:
    device = device_called(name)
    peak = device.bf16 if device.fp16 is None else device.fp16
    assert peak == pytest.approx(CLOCKS[name] * 1e9, rel=0.021 if name == "tpu_v2" else 0.011)


# What the sheets print with 2:4 sparsity, in 16 bits: twice what anybody trains with.
SPARSE = {
    "a100_sxm_80g": 624,
    "a40": 299.4,
    "a10": 250,
    "l4": 242,
    "l40s": 724.1,
    "h100_sxm": 1978,
    "h100_nvl": 1671,
    "h20": 296,
    "b100": 3500,
    "b200": 4500,
    "gb200": 5000,
}


@try_each("name", SPARSE)
def test_no_peak_is_a_sparse_one(name: str) -> None:
    assert device_called(name).bf16 == pytest.approx(SPARSE[name] / 2 * 1e12, rel=1e-3)


def test_a_package_of_two_dies_is_two_devices() -> None:
    gcd, package = device_called("mi250x_gcd"), (383e12, 2 * 65_520 * 2**20, 3.28e12)
    assert (gcd.bf16, gcd.memory, gcd.memory_bandwidth) == tuple(x / 2 for x in package)


def test_units_that_add_up_in_fp32_run_at_half_rate_on_cards_for_players() -> None:
    for player, worker in (("rtx_3090", "rtx_a6000"), ("rtx_4090", "rtx_6000_ada")):
        one, other = device_called(player), device_called(worker)
        assert one.bf16 is not None
        assert other.bf16 is not None
        assert one.bf16 / one.multiprocessors < 0.55 * other.bf16 / other.multiprocessors


@try_each("name", SYSTEMS)
def test_a_system_is_a_cluster_that_may_be_made_larger(name: str) -> None:
    one = parcost.load_text(f"use catalog.systems.{name}\n")[0].studies()[0][Cluster]
    many = parcost.load_text(
        f"use catalog.systems.{name}\ncluster {name} {{ devices = {one.devices * 4:g} }}\n"
    )
    cluster = many[0].studies()[0][Cluster]
    assert cluster.devices == 4 * one.devices
    assert cluster.device.label == one.device.label
    assert cluster.fabric.label == one.fabric.label
    assert cluster.devices % cluster.fabric.levels[0].size == 0


def test_a_rack_has_the_memory_and_the_peak_that_its_sheet_prints() -> None:
    (study,) = parcost.load_text("use catalog.systems.gb200_nvl72\n")[0].studies()
    cluster = study[Cluster]
    assert cluster.device.fp4 is not None
    assert cluster.devices * cluster.device.fp4 * 2 == pytest.approx(1440e15, rel=1e-3)  # sparse
    assert cluster.devices * cluster.device.memory_bandwidth == pytest.approx(576e12)
