"""Ridges of machines, against data sheets divided by hand."""

from __future__ import annotations

import pytest

import parcost

DEVICE = "use catalog.devices.{device}\n"
FABRIC = """
fabric machine {{
  level node {{ size = 8 devices, bandwidth = {inner}, latency = 1 us }}
  level network {{ bandwidth = {outer}, latency = 5 us{ports} }}
}}
"""


def ridges(
    device: str = "h100_sxm",
    inner: str = "450 GB/s per_direction",
    outer: str = "400 Gbps per_direction",
    ports: str = "",
    more: str = "",
) -> parcost.Result:
    text = DEVICE.format(device=device) + FABRIC.format(inner=inner, outer=outer, ports=ports)
    (scenario,) = parcost.load_text(text + f"roofline r {{ {more} }}\n")
    return scenario.evaluate().result


def test_the_ridges_of_an_h100() -> None:
    """989 TFLOP/s over 3.35 TB/s, 450 GB/s and 50 GB/s."""
    found = ridges()
    assert found.figure("r.memory") == pytest.approx(295, abs=0.5)
    assert found.figure("r.node") == pytest.approx(2197.8, abs=0.1)
    assert found.figure("r.network") == pytest.approx(19_780)


def test_both_directions_are_halved_to_one() -> None:
    assert ridges(inner="900 GB/s bidirectional").figure("r.node") == ridges().figure("r.node")


def test_devices_that_share_a_port_have_a_higher_ridge() -> None:
    assert ridges(ports=", ports = 4").figure("r.network") == pytest.approx(
        2 * ridges().figure("r.network")
    )


def test_another_precision_has_another_ridge() -> None:
    assert ridges(more="compute = fp8").figure("r.memory") == pytest.approx(
        2 * ridges().figure("r.memory"), rel=1e-3
    )


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    found = ridges("a100_sxm_80g", more="compute = fp8")
    assert not found.legal
    assert [d.id for d in found.diagnostics] == ["no-peak"]
    assert "bf16" in (found.diagnostics[0].help or "")


def test_the_table_of_ridges_is_a_section() -> None:
    (section,) = [s for _, s in ridges().sections]
    assert [row[0] for row in section.rows] == ["memory", "node", "network"]
