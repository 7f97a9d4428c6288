"""Ridges of machines, against data sheets divided by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import parcost
from parcost import Curve
from parcost_plugins.calculators.roofline import calculations
from parcost_plugins.vocabulary import Cluster

from ..rows import try_each

TYPES = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")

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


def test_a_mesh_has_a_link_to_each_other_device() -> None:
    """1307.4 TFLOP/s over 7 links of 64 GB/s in one direction, as the step sees it too."""
    text = """
    use catalog.devices.mi300x
    use catalog.fabrics.mi300x_node
    use catalog.models.llama3_8b
    use catalog.precisions.bf16
    cluster { devices = 8 }
    layout { tp = 8 }
    training { sequence = 1024, global_batch = 8 sequences }
    roofline r {}
    """
    found = parcost.load_text(text)[0].evaluate().result
    level, *_ = found.study[Cluster].fabric.levels
    assert found.figure("r.node") * level.efficiency == pytest.approx(1307.4e3 / (7 * 64), rel=1e-4)
    assert found.figure("r.node") == pytest.approx(found.figure("ridge.node"), rel=1e-12)


def test_another_precision_has_another_ridge() -> None:
    assert ridges(more="compute = fp8").figure("r.memory") == pytest.approx(
        2 * ridges().figure("r.memory"), rel=1e-3
    )


def test_a_precision_that_the_device_lacks_is_refused() -> None:
    found = ridges("a100_sxm_80g", more="compute = fp8")
    assert not found.legal
    assert [d.id for d in found.diagnostics] == ["roofline-no-peak"]
    assert "bf16" in (found.diagnostics[0].help or "")


def test_the_table_of_ridges_is_a_section() -> None:
    (section,) = [s for _, s in ridges().sections]
    assert [row[0] for row in section.rows] == ["memory", "node", "network"]


def level(label: str, bandwidth: Any, **more: Any) -> SimpleNamespace:
    plain = {"size": None, "ports": None, "kind": "switch", "efficiency": 1.0}
    return SimpleNamespace(label=label, bandwidth=bandwidth, **{**plain, **more})


CURVE = Curve(sizes=np.array([1e3, 1e6]), seconds=np.array([1e-5, 4e-3]))  # 250 MB/s in the end


@try_each(
    "levels, rates",
    [
        ([level("node", 100.0, size=8), level("net", 50.0)], [100.0, 50.0]),
        ([level("node", 100.0, efficiency=0.5)], [50.0]),
        # as many ports as devices below, a quarter, and twice
        ([level("node", 100.0, size=8), level("net", 50.0, ports=8.0)], [100.0, 50.0]),
        ([level("node", 100.0, size=8), level("net", 50.0, ports=2.0)], [100.0, 12.5]),
        ([level("node", 100.0, ports=2.0)], [200.0]),
        (
            [level("a", 9.0, size=4), level("b", 9.0, size=3), level("c", 12.0, ports=6.0)],
            [9.0, 9.0, 6.0],
        ),
        # a link to each of the others
        ([level("node", 10.0, size=8, kind="mesh")], [70.0]),
        ([level("node", 10.0, size=2, kind="mesh")], [10.0]),
        ([level("node", 10.0, size=1, kind="mesh")], [10.0]),
        ([level("node", 10.0, kind="mesh")], [10.0]),
        ([level("a", 9.0, size=4), level("b", 8.0, size=5, kind="mesh", ports=2.0)], [9.0, 16.0]),
        ([level("net", CURVE, efficiency=0.5)], [125e6]),
    ],
)
def test_what_a_device_has_of_each_level(levels: list[Any], rates: list[float]) -> None:
    asked: Any = SimpleNamespace(
        label="r",
        compute="bf16",
        device=SimpleNamespace(memory_bandwidth=3.0, **dict.fromkeys(TYPES, 0.0)),
        fabric=SimpleNamespace(levels=levels),
    )
    asked.device.bf16 = 600.0
    study: Any = SimpleNamespace(all=lambda _: [asked])
    found: list[Any] = [*calculations(study)]
    check, *figures, section = found
    expected = [3.0, *rates]
    assert check.holds
    assert check.help == "choose a type that it has: bf16"
    assert [f.value for f in figures] == pytest.approx([600.0 / rate for rate in expected])
    assert [row[1][0] for row in section.rows] == pytest.approx(expected)
    assert [row[2] for row in section.rows] == pytest.approx([600.0 / rate for rate in expected])


NESTED = """
device card extends h100_sxm {{
  bf16 = 1000 TFLOPS dense, memory_bandwidth = 8 TB/s
}}
fabric nested {{
  level pair {{
    size = 2 devices, kind = mesh, bandwidth = 100 GB/s per_direction, latency = 1 us
    efficiency = 50 %, {pair}
  }}
  level node {{ size = 5 units, kind = mesh, bandwidth = 20 GB/s per_direction, latency = 1 us, ports = 3 }}
  level net {{ {net}, latency = 1 us, ports = 30 }}
}}
roofline r {{ device = card, fabric = nested }}
"""


@pytest.mark.parametrize(
    ("pair", "net", "rates"),
    [
        # a link to the only other one at 50 %; 4 links behind 3 ports for 2 devices; 30 for 10
        ("", "bandwidth = 7 GB/s per_direction", (50, 20 * 4 * 3 / 2, 7 * 3)),
        ("ports = 6", "bandwidth = 7 GB/s per_direction", (50 * 6, 20 * 4 * 3 / 2, 7 * 3)),
        # the longest message counts: 90 GB in 10 s, of which a fifth is reached
        (
            "",
            "bandwidth = curve([1 GB, 1 s], [90 GB, 10 s]), efficiency = 20 %",
            (50, 20 * 4 * 3 / 2, 9 * 0.2 * 3),
        ),
    ],
)
def test_ridges_of_nested_levels(pair: str, net: str, rates: tuple[float, float, float]) -> None:
    text = "use catalog.devices.h100_sxm\n" + NESTED.format(pair=pair, net=net)
    found = parcost.load_text(text)[0].evaluate().result
    names = ("memory", "pair", "node", "net")
    each = [8e12, *(1e9 * rate for rate in rates)]
    for name, rate in zip(names, each, strict=True):
        assert found.figure(f"r.{name}") == pytest.approx(1e15 / rate, rel=1e-12)
    ((_, section),) = found.sections
    assert [row[1:] for row in section.rows] == [
        ((pytest.approx(rate), "B/s"), pytest.approx(1e15 / rate)) for rate in each
    ]
