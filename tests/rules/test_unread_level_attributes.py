"""An attribute of a level changes a figure, or a diagnostic says that it has no effect."""

from __future__ import annotations

import pytest

import parcost
from parcost import Report

from ..rows import try_each

SPEC = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric f {{
  level node {{ size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 1 us{node} }}
  level leaf {{ size = 4, bandwidth = 50 GB/s per_direction, latency = 5 us{leaf} }}
  level spine {{ bandwidth = 50 GB/s per_direction, latency = 5 us{spine} }}
}}
cluster {{ devices = {devices} }}
layout {{ zero = 1, tp = 2 }}
collectives {{ data = ring }}
training {{ sequence = 4096, micro_batch = 1, global_batch = 64 sequences }}
{more}
"""
ATTRIBUTES = {
    "efficiency": "50 %",
    "ports": "2",
    "oversubscription": "4",
    "collisions": "3",
    "pxn": "on",
    "in_network": "on",
    "wrap": "off",
    "dimensions": "[8]",
    "routing": "valiant",
    "radix": "64",
    "hops": "4",
    "hop_latency": "30 us",
    "cable_latency": "30 us",
}
TRANSFER = """
transfer t {
  operation = all_to_all
  size      = 1 GB total
  group     = job
  algorithm = %s
}
"""
KINDS = ("switch", "mesh", "rail", "fat_tree", "dragonfly", "pcie", "ethernet")


def report(devices: int = 64, more: str = "", **levels: str) -> Report:
    written = {"node": "", "leaf": "", "spine": ""} | levels
    return parcost.load_text(SPEC.format(devices=devices, more=more, **written))[0].evaluate()


def seconds(found: Report) -> tuple[float, ...] | None:
    """Return what a step and an exchange take, or None where the spec is rejected."""
    names = ("step_time", "t.seconds", "t.node_bytes")
    try:
        return tuple(float(found.result.figure(name)) for name in names)
    except KeyError:
        return None


def unread_levels(found: Report) -> list[str]:
    return [d.message for d in found.result.diagnostics if d.id == "no-effect"]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [64, 32])
@pytest.mark.parametrize("level", ["node", "leaf", "spine"])
def test_each_attribute_of_a_level_has_an_effect_or_a_diagnostic(level: str, devices: int) -> None:
    exchange = TRANSFER % "pairwise"
    for kind in KINDS:
        plain = report(devices, exchange, **{level: f", kind = {kind}"})
        for attribute, value in ATTRIBUTES.items():
            found = report(devices, exchange, **{level: f", kind = {kind}, {attribute} = {value}"})
            if (after := seconds(found)) is None:
                continue  # rejected
            if seconds(plain) == after:
                messages = [d.message for d in found.result.diagnostics]
                assert any(f"`{attribute}`" in m for m in messages), (kind, attribute)


def test_oversubscription_of_the_outermost_level_divides_what_crosses_it() -> None:
    """Gradients cross the spine, each rank by its port of 50 GB/s, of which 4:1 leaves a quarter."""
    plain = float(report(more=TRANSFER % "hierarchical").result.figure("t.seconds"))
    narrow = report(more=TRANSFER % "hierarchical", spine=", kind = fat_tree, oversubscription = 4")
    assert unread_levels(narrow) == []
    bytes_ = 1e9 * (1 - 1 / 2)  # two leaves of four nodes
    added = float(narrow.result.figure("t.seconds")) - plain
    assert added == pytest.approx(bytes_ * (4 - 1) / 50e9, rel=1e-9)


def test_a_group_within_a_leaf_of_known_radix_does_not_notice_it() -> None:
    leaf = ", kind = fat_tree, radix = 128, oversubscription = 4"
    text = SPEC.format(devices=64, more="", node="", leaf="", spine="")
    two = "\n".join(line for line in text.split("\n") if "level leaf" not in line)
    for written, crosses in ((leaf, False), (leaf.replace("128", "64"), False), (", ", True)):
        ending = written if written != ", " else ", kind = fat_tree, oversubscription = 4"
        spec = two.replace("latency = 5 us }", f"latency = 5 us{ending} }}")
        found = parcost.load_text(spec)[0].evaluate()
        assert bool([m for m in unread_levels(found) if "oversubscription" in m]) is not crosses


@try_each(
    "level, written, named",
    [
        ("spine", ", kind = rail, pxn = on, oversubscription = 8", ["oversubscription"]),
        ("leaf", ", hops = 3", ["hops"]),
        ("leaf", ", hops = 3, hop_latency = 1 us", []),
        ("leaf", ", oversubscription = 4", []),
        ("spine", ", kind = fat_tree, radix = 64", ["radix"]),
    ],
)
def test_an_attribute_that_changes_no_link_has_no_effect(
    level: str, written: str, named: list[str]
) -> None:
    expected = [f"`{name}` of level `{level}` has no effect" for name in named]
    assert unread_levels(report(**{level: written})) == expected


def test_a_level_that_nothing_crosses_has_no_effect() -> None:
    found = report(16, spine=", efficiency = 50 %, collisions = 2")
    assert sorted(unread_levels(found)) == [
        "`collisions` of level `spine` has no effect",
        "`efficiency` of level `spine` has no effect",
    ]


def test_a_fact_with_a_source_is_none() -> None:
    assert unread_levels(report(16, spine=', efficiency = 50 % @measured("ours")')) == []


@pytest.mark.parametrize(("algorithm", "count"), [("ring", 1), ("pairwise", 0)])
def test_a_spine_that_no_ring_leaves_its_rail_for_is_a_warning(algorithm: str, count: int) -> None:
    """Rings stay on their rails whatever the spine is; an exchange of all nodes does not."""
    text = """
use catalog.devices.h100_sxm
use catalog.models.llama3_8b
use catalog.precisions.bf16
fabric f {
  level node { size = 8 devices, bandwidth = 450 GB/s per_direction, latency = 3 us }
  level network {
    bandwidth = 50 GB/s per_direction, latency = 14 us, kind = rail, oversubscription = 8
  }
}
cluster { devices = 64 }
layout { tp = 2, zero = 1 }
training { sequence = 8192, global_batch = 128 sequences }
"""
    more = TRANSFER % algorithm if algorithm != "ring" else ""
    (scenario,) = parcost.load_text(text + more)
    messages = [d.message for d in scenario.evaluate().diagnostics]
    assert messages.count("`oversubscription` of level `network` has no effect") == count
