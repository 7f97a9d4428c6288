"""Fabrics by generation: what one device sends, one way, and how far its groups are."""

from __future__ import annotations

from math import prod

import pytest

import parcost
from parcost_plugins.vocabulary import Fabric

from ..rows import try_each


def levels(name: str) -> dict[str, object]:
    (scenario,) = parcost.load_text(f"use catalog.fabrics.{name}\n")
    return {level.label: level for level in scenario.studies()[0][Fabric].levels}  # type: ignore[attr-defined]


# GB/s out of one device in one direction: links times the rate of a link.
SCALE_UP = {
    "gaudi2_node": 21 * 100 / 8,
    "gaudi3_node": 21 * 200 / 8,
    "gh200_nvl32": 18 * 25,
    "gh200_quad": 18 * 25,
    "gb300_nvl72": 18 * 50,
    "hgx_b300": 18 * 50,
    "superpod_a100": 12 * 25,
    "superpod_h100": 18 * 25,
    "tpu_v4_pod": 6 * 50,
    "tpu_v5e_pod": 4 * 50,
    "tpu_v5p_pod": 6 * 100,
    "tpu_v6e_pod": 4 * 100,
    "pcie4_nvlink_pairs": 4 * 14.0625,
    # lanes x transfers per second, after 128b/130b and, in generation 6, flits
    "pcie3_roce_100g": 16 * 8 / 8 * 128 / 130,
    "pcie4_roce_200g": 16 * 16 / 8 * 128 / 130,
    "pcie5_roce_400g": 16 * 32 / 8 * 128 / 130,
    "pcie6_roce_800g": 16 * 64 / 8 * 242 / 256,
}


@try_each("name", SCALE_UP)
def test_a_device_sends_what_its_links_carry_in_one_direction(name: str) -> None:
    first = next(iter(levels(name).values()))
    links = 1
    if first.kind == "mesh":  # type: ignore[attr-defined]
        links = first.size - 1  # type: ignore[attr-defined]
    if first.kind == "torus":  # type: ignore[attr-defined]
        links = 2 * len(first.dimensions)  # type: ignore[attr-defined]
    assert first.bandwidth * links == pytest.approx(SCALE_UP[name] * 1e9, rel=2e-3)  # type: ignore[attr-defined]


# GB/s of the network for one device in one direction.
SCALE_OUT = {
    "gaudi2_node": 37.5,
    "gaudi3_node": 75,
    "gh200_nvl32": 50,
    "gh200_quad": 25,
    "gb300_nvl72": 100,
    "hgx_b300": 100,
    "aws_p5en": 50,
    "superpod_a100": 25,
    "superpod_h100": 50,
    "tpu_v5e_pod": 2 * 12.5 / 8,
    "tpu_v5p_pod": 6.25,
    "tpu_v6e_pod": 4 * 25 / 8,
    "pcie3_roce_100g": 12.5 / 2,
    "pcie4_roce_200g": 25 / 2,
    "pcie5_roce_400g": 50 / 2,
    "pcie6_roce_800g": 100 / 2,
}


@try_each("name", SCALE_OUT)
def test_a_device_has_its_share_of_the_ports_of_its_node(name: str) -> None:
    first, second, *_ = levels(name).values()
    size = first.size or prod(first.dimensions)  # type: ignore[attr-defined]
    ports = size if second.ports is None else second.ports  # type: ignore[attr-defined]
    assert second.bandwidth * ports / size == pytest.approx(SCALE_OUT[name] * 1e9)  # type: ignore[attr-defined]


@try_each(
    "name, chips",
    [("tpu_v4_pod", 4096), ("tpu_v5e_pod", 256), ("tpu_v5p_pod", 8960), ("tpu_v6e_pod", 256)],
)
def test_a_pod_has_as_many_chips_as_places(name: str, chips: int) -> None:
    assert prod(levels(name)["pod"].dimensions) == chips  # type: ignore[attr-defined]


def test_a_group_of_frontier_passes_on_57_percent_of_what_its_nodes_inject() -> None:
    frontier = levels("frontier_dragonfly")
    group, system = frontier["group"], frontier["system"]
    injected = group.size * group.ports  # type: ignore[attr-defined]
    assert system.ports / injected == pytest.approx(0.57, abs=0.005)  # type: ignore[attr-defined]
    assert system.ports == 4 * (system.size - 1)  # type: ignore[attr-defined]


TORUS = """
use catalog.devices.tpu_v5e
use catalog.fabrics.tpu_v5e_pod
use catalog.models.llama32_1b
use catalog.precisions.bf16
cluster { devices = 256 }
layout { zero = 3 }
overlap { multiprocessors = 0 }
training { sequence = 2048, global_batch = 256 sequences }
"""


def test_a_study_runs_on_a_torus() -> None:
    (scenario,) = parcost.load_text(TORUS)
    report = scenario.evaluate()
    assert report.result.outcome is not None
    assert not [d for d in report.diagnostics if d.severity.value == "error"]
