"""What levels of each kind carry, and how far their messages go."""

from __future__ import annotations

from typing import Any

import pytest

from parcost import Check, Group, Study
from parcost.engine.rules import diagnose
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load
from parcost_plugins import topology
from parcost_plugins.collectives import direct, hierarchical, pairwise, ring
from parcost_plugins.topology import kinds
from parcost_plugins.topology.tiers import tiers
from parcost_plugins.vocabulary import Cluster, Fabric, Layout, Level

from ..rows import try_each

PLUGINS = load(
    ("topology", topology),
    ("ring", ring),
    ("direct", direct),
    ("pairwise", pairwise),
    ("hierarchical", hierarchical),
    installed=False,
)
NODE = {"size": 8.0, "bandwidth": 450e9, "latency": 0.0}
PORT = {"bandwidth": 50e9, "latency": 0.0}


def study(*levels: dict[str, Any], tp: float = 1.0, dp: float = 1.0, pp: int = 1) -> Study:
    fabric = Fabric(levels=tuple(Level(label=f"l{i}", **level) for i, level in enumerate(levels)))
    cluster = Cluster(device=None, devices=tp * dp * pp, fabric=fabric)
    return SpecStudy("test", {Cluster: (cluster,), Layout: (Layout(tp=tp, dp=dp, pp=pp),)}, PLUGINS)


def group(*levels: dict[str, Any], name: str = "dp", **layout: Any) -> Group:
    return study(*levels, **layout).group(name)


# --- oversubscription ----------------------------------------------------------------------


def test_a_flat_ring_hardly_notices_an_oversubscribed_leaf_and_an_exchange_does() -> None:
    """Leaves of four nodes, 3:1. The ring leaves a leaf once a lap, through all of its ports: its
    share phi o is 3/32, so that its nodes limit it. Of an exchange 3/4 leaves (B.3)."""
    leaf = {**PORT, "size": 4.0, "oversubscription": 3.0}
    plain = group(NODE, {**PORT, "size": 4.0}, PORT, dp=128.0)
    thin = group(NODE, leaf, PORT, dp=128.0)
    assert thin.flat.bandwidth == plain.flat.bandwidth == 400e9
    assert thin.links[2].bandwidth == pytest.approx(50e9 / 3)
    n, phi = 1e9, (128 - 32) / 128
    exchange = study(NODE, leaf, PORT, dp=128.0).collective("all_to_all", n, "dp", "pairwise")
    assert exchange.seconds == pytest.approx(max(n * 120 / 128, phi * n * 3) / 50e9)


@pytest.mark.parametrize("phi, seconds", [(0.2, 20e-3), (1.0, 60e-3)])
def test_what_leaves_a_leaf_of_three_to_one_takes_three_times_as_long(
    phi: float, seconds: float
) -> None:
    """1 GB at 50 GB/s (EX-B2), by the links of the two levels at once."""
    placed = group({**PORT, "size": 32.0, "oversubscription": 3.0}, PORT, dp=64.0)
    inside, outside = placed.links
    assert max(inside.seconds(0.0, 1e9), outside.seconds(0.0, phi * 1e9)) == pytest.approx(seconds)


def test_flows_that_collide_share_a_path() -> None:
    placed = group(NODE, {**PORT, "collisions": 1.5, "efficiency": 0.9}, tp=8.0, dp=4.0)
    assert placed.links[1].bandwidth == pytest.approx(50e9 * 0.9 / 1.5)


# --- fat trees and rails ---------------------------------------------------------------------


@try_each("nodes, hops", [(32, 1), (33, 3), (512, 3), (1024, 3), (2048, 3), (2049, 5)])
def test_rails_of_64_ports_cross_one_three_or_five_switches(nodes: int, hops: int) -> None:
    """A leaf serves 32 nodes, two levels 2048. All of a cluster of so many nodes take part."""
    net = {**PORT, "kind": "rail", "pxn": True, "radix": 64.0, "hop_latency": 1e-6}
    expected = 1 if nodes <= 64 else hops  # a single switch needs no ports up
    assert group(NODE, net, tp=8.0, dp=float(nodes)).links[1].latency == pytest.approx(
        expected * 1e-6
    )


def test_groups_that_reach_less_far_cross_fewer_switches() -> None:
    """Of 128 nodes, those of a pipeline of 16 are under one leaf of 32."""
    net = {**PORT, "kind": "rail", "pxn": True, "radix": 64.0, "hop_latency": 1e-6}
    job = study(NODE, net, tp=8.0, dp=16.0, pp=8)
    assert job.group("dp").links[1].latency == pytest.approx(1e-6)
    assert job.group("pp").links[1].latency == pytest.approx(3e-6)


def test_the_path_is_software_switches_and_cables() -> None:
    net = {**PORT, "latency": 14e-6, "hops": 5.0, "hop_latency": 0.2e-6, "cable_latency": 0.5e-6}
    assert group(NODE, net, tp=8.0, dp=4.0).links[1].latency == pytest.approx(15.5e-6)


RAIL = {**PORT, "kind": "rail", "oversubscription": 2.0, "latency": 10e-6, "hop_latency": 1e-6}


def test_ranks_of_the_same_place_stay_on_their_rail() -> None:
    placed = group(NODE, RAIL, tp=8.0, dp=4.0)
    assert placed.pair.bandwidth == 50e9
    assert placed.pair.latency == pytest.approx(11e-6)


def test_messages_between_rails_leave_the_leaf_unless_they_move_inside_the_node_first() -> None:
    """tp 2: a group of dp has four places in a node. Two switches more, and half the ports."""
    crossing = group(NODE, RAIL, tp=2.0, dp=16.0)
    assert crossing.pair.bandwidth == 25e9
    assert crossing.pair.latency == pytest.approx(13e-6)
    assert crossing.hop.latency == pytest.approx(13e-6)
    moved = group(NODE, {**RAIL, "pxn": True}, tp=2.0, dp=16.0)
    assert moved.pair.bandwidth == 50e9
    assert moved.pair.latency == pytest.approx(11e-6)
    # rings and exchanges level by level keep to the rails either way
    assert crossing.links[1].bandwidth == moved.links[1].bandwidth == 50e9
    assert crossing.flat.bandwidth == moved.flat.bandwidth


# --- dragonflies --------------------------------------------------------------------------------


def dragonfly(**more: Any) -> dict[str, Any]:
    """A level that joins groups of 32 devices, with eight links of 50 GB/s each."""
    return {**PORT, "kind": "dragonfly", "size": 9.0, "ports": 8.0, **more}


GROUP = {**PORT, "size": 4.0}


@pytest.mark.parametrize(
    "routing, to_all, to_one",
    [("minimal", 1.0, 1 / 8), ("valiant", 1 / 2, 1 / 2), ("adaptive", 1.0, 1 / 2)],
)
def test_a_dragonfly_carries_traffic_to_all_groups_better_than_to_one(
    routing: str, to_all: float, to_one: float
) -> None:
    """Nine groups with one link to each other: 8 x 50 GB/s for 32 devices."""
    placed = group(NODE, GROUP, dragonfly(routing=routing), tp=8.0, dp=36.0)
    own = 8 * 50e9 / 32
    assert placed.links[2].bandwidth == pytest.approx(own * to_all)
    assert placed.pairs[2].bandwidth == pytest.approx(own * to_one)


def test_a_dragonfly_with_few_links_sends_most_by_way_of_other_groups() -> None:
    """64 groups and eight links each reach eight of 63: two links for a message."""
    placed = group(NODE, GROUP, dragonfly(size=64.0), tp=8.0, dp=256.0)
    assert placed.links[2].bandwidth == pytest.approx(8 * 50e9 / 32 / 2)


def test_a_message_crosses_three_switches_of_a_dragonfly_and_five_by_valiant() -> None:
    for routing, hops in (("adaptive", 3), ("minimal", 3), ("valiant", 5)):
        net = dragonfly(routing=routing, hop_latency=1e-6)
        placed = group(NODE, GROUP, net, tp=8.0, dp=36.0)
        assert placed.links[2].latency == pytest.approx(hops * 1e-6)


# --- tori ----------------------------------------------------------------------------------------


def test_a_torus_has_the_size_of_its_dimensions() -> None:
    (tier,) = tiers(study({**PORT, "kind": "torus", "dimensions": (4, 4, 8)}, dp=128.0)[Cluster])
    assert tier.capacity == 128.0
    placed = group({**PORT, "kind": "torus", "dimensions": (4, 4, 8)}, dp=128.0)
    assert placed.links[0].level.dimensions == (4, 4, 8)  # type: ignore[attr-defined]
    assert placed.links[0].bandwidth == 50e9  # of one link, one direction


# --- domains of 8 and 72 ---------------------------------------------------------------------------


@pytest.mark.parametrize("cap, shape", [(8.0, (8.0, 8.0)), (72.0, (64.0, 1.0))])
def test_a_group_of_64_leaves_a_domain_of_8_and_not_one_of_72(
    cap: float, shape: tuple[float, ...]
) -> None:
    assert group({**NODE, "size": cap}, PORT, dp=64.0).shape == shape


# --- mistakes ------------------------------------------------------------------------------------


def failures(*levels: dict[str, Any]) -> dict[str, Check]:
    found = kinds.rules(tiers(study(*levels, tp=8.0, dp=8.0)[Cluster]))
    return {check.id: check for check in found if check.holds is False}


@try_each(
    "levels, id, message, help",
    [
        (
            ({**NODE, "dimensions": (2, 4)},),
            "level-kind",
            "`dimensions` does not apply to level `l0`, whose kind is switch",
            "it belongs to `kind = torus`",
        ),
        (
            ({**NODE, "pxn": True}, PORT),
            "level-kind",
            "`pxn` does not apply to level `l0`, whose kind is switch",
            "it belongs to `kind = rail`",
        ),
        (
            ({**NODE, "kind": "mesh", "in_network": True}, PORT),
            "level-kind",
            "`in_network` does not apply to level `l0`, whose kind is mesh",
            (
                "it belongs to `kind = switch` or `kind = rail` or `kind = fat_tree` or "
                "`kind = ethernet`"
            ),
        ),
        (
            ({**NODE, "wrap": False}, PORT),
            "level-kind",
            "`wrap` does not apply to level `l0`, whose kind is switch",
            "it belongs to `kind = torus`",
        ),
        (
            (NODE, {**PORT, "routing": "valiant"}),
            "level-kind",
            "`routing` does not apply to level `l1`, whose kind is switch",
            "it belongs to `kind = dragonfly` or `kind = dragonfly_plus`",
        ),
        (
            (NODE, {**PORT, "radix": 64.0}),
            "level-kind",
            "`radix` does not apply to level `l1`, whose kind is switch",
            "it belongs to `kind = rail` or `kind = fat_tree`",
        ),
        (
            ({**PORT, "kind": "torus"},),
            "torus-dimensions",
            "level `l0` is a torus, but its dimensions are left out",
            "write the number of units along each dimension, such as `dimensions = [16, 16]`",
        ),
        (
            ({**PORT, "kind": "torus", "dimensions": (4, 4), "size": 64.0},),
            "torus-size",
            "the dimensions 4 x 4 of level `l0` have 16 units, and its size is 64",
            "write `size = 16`, or leave it out: it follows from the dimensions",
        ),
        (
            ({**NODE, "kind": "rail"}, PORT),
            "rail-first",
            "level `l0` is a rail, but there is no node level inside it",
            "a rail connects the devices with the same index in their nodes: write a level `node` before it",
        ),
        (
            (NODE, {**PORT, "kind": "fat_tree", "radix": 6.0}),
            "fat-tree-full",
            "level `l1` has 64 ports, but three levels of switches of radix 6 connect at most 54",
            "write `radix = 8`",
        ),
        (
            (NODE, {**PORT, "size": 2.0}, {**dragonfly(routing="minimal", size=10.0)}),
            "dragonfly-links",
            (
                "minimal routing needs a global link to every other group: a group of level `l2` "
                "has 8, and there are 9 other groups"
            ),
            "write `ports = 9`, or `routing = adaptive`",
        ),
    ],
)
def test_a_level_has_what_its_kind_has(
    levels: tuple[dict[str, Any], ...], id: str, message: str, help: str
) -> None:
    found = diagnose(failures(*levels)[id], study(*levels))
    assert (found.message, found.help) == (message, help)


def test_levels_that_are_described_well_break_no_rule() -> None:
    assert not failures(NODE, {**RAIL, "pxn": True, "radix": 64.0, "in_network": True})
    assert not failures(NODE, GROUP, dragonfly(routing="minimal"))
    assert not failures({**PORT, "kind": "torus", "dimensions": (8, 8), "wrap": False})
