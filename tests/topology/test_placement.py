"""Placement of groups, against looking at every rank, and the shares of ports."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import parcost
from parcost import Curve, SpecError, Study
from parcost.engine.study import SpecStudy
from parcost.plugins.discovery import load
from parcost_plugins import topology
from parcost_plugins.collectives import direct, ring
from parcost_plugins.topology.occupancy import occupancy
from parcost_plugins.vocabulary import Cluster, Fabric, Layout, Level

from ..rows import try_each

PLUGINS = load(("topology", topology), ("ring", ring), ("direct", direct), installed=False)
NVLINK = {"size": 8.0, "bandwidth": 450e9, "latency": 3e-6}
NICS = {"bandwidth": 50e9, "latency": 14e-6}


def study(
    *levels: dict[str, Any],
    tp: Any = 1.0,
    dp: Any = 1.0,
    pp: int = 1,
    order: str = "tp-dp-pp",
    devices: Any = None,
) -> Study:
    """Return a study of a layout on a fabric of *levels*, named l0, l1, ..."""
    fabric = Fabric(levels=tuple(Level(label=f"l{i}", **level) for i, level in enumerate(levels)))
    size = tp * dp * pp if devices is None else devices
    cluster = Cluster(device=None, devices=size, fabric=fabric)
    layout = Layout(tp=tp, dp=dp, pp=pp, order=order)
    return SpecStudy("test", {Cluster: (cluster,), Layout: (layout,)}, PLUGINS)


# --- shapes ------------------------------------------------------------------------------


def members(degrees: dict[str, int], order: str, name: str) -> Iterator[list[int]]:
    """Yield the ranks of every group called *name*, by their coordinates."""
    names = order.split("-")
    sizes = [degrees[n] for n in names]
    groups = defaultdict(list)
    for rank, slow_first in enumerate(itertools.product(*(range(s) for s in reversed(sizes)))):
        coordinates = dict(zip(reversed(names), slow_first, strict=True))
        del coordinates[name]
        groups[tuple(sorted(coordinates.items()))].append(rank)
    yield from groups.values()


def looked_at(groups: list[list[int]], capacities: list[int]) -> tuple[list[int], list[int | None]]:
    """Return the most and the fewest units of the level below in a unit, level by level.

    The fewest are None where no group leaves its unit.
    """
    most, fewest = [], []
    for below, cap in itertools.pairwise([1, *capacities, 10**9]):
        counts, leaving = [], []
        for group in groups:
            units = defaultdict(set)
            for rank in group:
                units[rank // cap].add(rank // below)
            held = [len(held) for held in units.values()]
            counts += held
            leaving += held if len(units) > 1 else []
        most.append(max(counts))
        fewest.append(min(leaving) if leaving else None)
    return most, fewest


DEGREES = [
    (1, 1, 1), (8, 2, 4), (2, 8, 4), (4, 4, 4), (16, 2, 2), (1, 64, 1), (1, 1, 8), (2, 1, 16),
    (6, 4, 2), (3, 8, 2), (5, 3, 2), (12, 2, 1), (2, 12, 3), (3, 5, 7), (1, 12, 1), (7, 1, 4),
]  # fmt: skip
FABRICS = [[8], [4], [1], [72], [8, 32], [4, 12], [2, 8, 16], [6]]


@pytest.mark.slow
@try_each("capacities", FABRICS, ids=str)
@try_each("tp, dp, pp", DEGREES)
@try_each("order", ["tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-dp-tp"])
def test_placement_is_what_looking_at_every_rank_finds(
    tp: int, dp: int, pp: int, order: str, capacities: list[int]
) -> None:
    sizes = [cap // below for below, cap in itertools.pairwise([1, *capacities])]
    levels = [{**NVLINK, "size": float(size)} for size in sizes] + [NICS]
    placed = study(*levels, tp=float(tp), dp=float(dp), pp=pp, order=order)
    for name, size in {"tp": tp, "dp": dp, "pp": pp}.items():
        groups = list(members({"tp": tp, "dp": dp, "pp": pp}, order, name))
        assert {len(group) for group in groups} == {size}
        most, fewest = looked_at(groups, capacities)
        group = placed.group(name)
        assert group.ranks == size
        assert list(group.shape) == most
        for ours, theirs in zip(group.fewest, fewest, strict=True):
            assert ours == theirs or theirs is None


@pytest.mark.slow
@try_each("capacities", FABRICS, ids=str)
@try_each("tp, dp, pp", DEGREES)
@try_each("order", ["tp-dp-pp", "tp-pp-dp", "pp-dp-tp"])
def test_a_hop_is_over_the_outermost_level_where_neighbours_part(
    tp: int, dp: int, pp: int, order: str, capacities: list[int]
) -> None:
    sizes = [cap // below for below, cap in itertools.pairwise([1, *capacities])]
    plain = {"bandwidth": 1.0, "ports": 1.0}
    levels = [{**plain, "latency": 10.0 * i, "size": float(s)} for i, s in enumerate(sizes)]
    levels.append({**plain, "latency": 10.0 * len(sizes)})
    degrees = {"tp": tp, "dp": dp, "pp": pp}
    group = study(*levels, tp=float(tp), dp=float(dp), pp=pp, order=order).group("pp")
    groups = list(members(degrees, order, "pp"))
    aligned = group.shape == group.fewest and all(part == int(part) for part in group.shape)
    for rank in range(pp - 1):
        parted = {
            max([0, *(i + 1 for i, cap in enumerate(capacities) if a // cap != b // cap)])
            for a, b in (ranks[rank : rank + 2] for ranks in groups)
        }
        outermost = 10.0 * max(parted)
        latency = group.hop_after(rank).latency
        assert outermost <= latency <= group.hop.latency
        if aligned:
            assert {outermost} == {latency} == {10.0 * level for level in parted}


def test_hops_of_an_array_of_layouts_are_those_of_each_of_them() -> None:
    tp = np.array([1.0, 2.0, 3.0, 4.0, 8.0])
    levels = (NVLINK, {**NICS, "size": 2.0}, {**NICS, "latency": 20e-6})
    together = study(*levels, tp=tp, pp=16).group("pp")
    for i, t in enumerate(tp):
        alone = study(*levels, tp=float(t), pp=16).group("pp")
        for rank in range(15):
            ours = together.hop_after(rank).seconds(1.0, 1e6)
            assert np.broadcast_to(ours, tp.shape)[i] == alone.hop_after(rank).seconds(1.0, 1e6)


@given(
    capacities=st.lists(st.integers(1, 12), min_size=1, max_size=3),
    stride=st.integers(1, 12),
    size=st.integers(1, 20),
    blocks=st.integers(1, 6),
)
def test_any_stride_on_any_levels_is_placed_as_it_looks(
    capacities: list[int], stride: int, size: int, blocks: int
) -> None:
    caps = list(np.cumprod(capacities))
    groups = [
        [block * stride * size + first + i * stride for i in range(size)]
        for block in range(blocks)
        for first in range(stride)
    ]
    most, fewest = looked_at(groups, [int(cap) for cap in caps])
    devices = float(stride * size * blocks)
    shape, least = occupancy([float(c) for c in caps], [(float(stride), float(size))], devices)
    assert list(shape) == most
    for ours, theirs in zip(least, fewest, strict=True):
        assert ours == theirs or theirs is None


@pytest.mark.parametrize("stride, size", [(3, 2**20), (5, 10**9), (1, 2**21 - 1)])
def test_a_group_too_large_to_be_looked_at_is_never_placed_too_well(stride: int, size: int) -> None:
    shape, fewest = occupancy([8.0, 256.0], [(float(stride), float(size))], 1e12)
    assert shape[0] >= -(-8 // stride)
    assert shape[0] * shape[1] * shape[2] >= size
    assert fewest[:2] == (1.0, 1.0)


def test_an_array_of_layouts_is_placed_as_each_of_them() -> None:
    tp = np.array([d[0] for d in DEGREES if d[2] == 2], dtype=float)
    dp = np.array([d[1] for d in DEGREES if d[2] == 2], dtype=float)
    levels = (NVLINK, {**NICS, "size": 4.0}, NICS)
    together = study(*levels, tp=tp, dp=dp, pp=2)
    for i, (t, d) in enumerate(zip(tp, dp, strict=True)):
        alone = study(*levels, tp=float(t), dp=float(d), pp=2)
        for name in ("tp", "dp", "pp"):
            many, one = together.group(name), alone.group(name)
            for field in ("shape", "fewest"):
                many_at = [np.broadcast_to(x, tp.shape)[i] for x in getattr(many, field)]
                assert many_at == list(getattr(one, field))
            for field in ("flat", "pair", "hop"):
                seconds = getattr(many, field).seconds(np.full(tp.shape, 3.0), 1e6)
                assert seconds[i] == pytest.approx(getattr(one, field).seconds(3.0, 1e6))
            for links in ("links", "pairs"):
                for ours, theirs in zip(getattr(many, links), getattr(one, links), strict=True):
                    bandwidth = np.broadcast_to(ours.bandwidth, tp.shape)[i]
                    assert bandwidth == pytest.approx(theirs.bandwidth)


def test_an_array_of_fabrics_is_placed_as_each_of_them() -> None:
    sizes = np.array([2.0, 4.0, 8.0, 6.0])
    group = study({**NVLINK, "size": sizes}, NICS, tp=8.0, dp=3.0).group("tp")
    assert group.shape[0].tolist() == [2, 4, 8, 6]
    assert group.shape[1].tolist() == [4, 2, 1, 2]


# --- shares of ports ---------------------------------------------------------------------------


def test_four_of_eight_ranks_of_a_node_own_four_of_its_eight_network_cards() -> None:
    placed = study(NVLINK | {"latency": 0.0}, NICS | {"latency": 0.0}, tp=2.0, dp=8.0)
    group = placed.group("dp")
    assert group.shape == (4.0, 2.0)
    assert group.flat.bandwidth == 4 * 50e9
    seconds = placed.collective("all_reduce", 1e9, "dp", "ring").seconds
    assert seconds == pytest.approx(8.75e-3)


def test_a_group_with_one_rank_in_each_node_has_a_network_card_to_itself() -> None:
    group = study(NVLINK, NICS, tp=8.0, dp=4.0).group("dp")
    assert group.shape == (1.0, 4.0)
    assert group.flat.bandwidth == group.links[1].bandwidth == 50e9
    assert group.flat.latency == 14e-6
    assert group.flat.name == "l1"


def test_a_link_over_several_levels_is_named_by_the_one_to_make_faster() -> None:
    leaf, spine = {**NICS, "size": 4.0}, NICS
    group = study(NVLINK, leaf, spine, tp=8.0, dp=16.0).group("dp")
    # One ring: 50 GB/s from node to node, and 4 x 50 GB/s of the four nodes of a leaf.
    assert (group.shape, group.flat.bandwidth, group.flat.name) == ((1, 4, 4), 50e9, "l1")
    # A single partner at a time has one port at either level: of equals, the outermost.
    assert (group.pair.bandwidth, group.pair.name) == (50e9, "l2")
    slow = study({**NVLINK, "bandwidth": 300e9}, NICS, dp=16.0).group("dp")
    assert (slow.flat.bandwidth, slow.flat.name) == (300e9, "l0")  # below 8 x 50 GB/s
    assert (slow.pair.bandwidth, slow.pair.name) == (50e9, "l1")


def test_each_candidate_names_the_level_that_limits_it() -> None:
    bandwidth = np.array([300e9, 400e9, 450e9])
    flat = study({**NVLINK, "bandwidth": bandwidth}, NICS, dp=16.0).group("dp").flat
    assert flat.bandwidth.tolist() == [300e9, 400e9, 400e9]
    assert [flat.name.names[int(at)] for at in flat.name.at] == ["l0", "l1", "l1"]
    assert str(flat.name) == "l0 or l1"


def test_a_group_within_a_node_sees_nothing_of_the_network() -> None:
    group = study(NVLINK, NICS, tp=8.0, dp=4.0).group("tp")
    assert (group.flat.name, group.flat.bandwidth, group.flat.latency) == ("l0", 450e9, 3e-6)
    assert group.pair.bandwidth == group.hop.bandwidth == 450e9


def test_two_ranks_share_a_network_card_where_a_node_has_half_as_many() -> None:
    half = {**NICS, "ports": 4.0}
    data = study(NVLINK, half, tp=2.0, dp=8.0).group("dp")
    assert data.links[1].bandwidth == 25e9  # for each of eight ranks that cross at once
    assert data.flat.bandwidth == 100e9  # for the two cards of its four ranks
    everything = study(NVLINK, half, dp=16.0).group("dp")
    assert everything.flat.bandwidth == 200e9  # all four cards
    one_each = study(NVLINK, half, tp=8.0, dp=2.0).group("dp")
    assert one_each.flat.bandwidth == 25e9


def test_a_rank_stripes_over_the_ports_that_are_its_own() -> None:
    group = study(NVLINK, {**NICS, "ports": 32.0}, tp=8.0, dp=2.0).group("dp")
    assert group.links[1].bandwidth == group.hop.bandwidth == 4 * 50e9


def test_stages_within_a_node_leave_their_network_cards_to_the_one_at_its_end() -> None:
    # 16 stages of two ranks: of each four stages in a node, one has its neighbour outside.
    half = {**NICS, "ports": 4.0}
    group = study(NVLINK, half, tp=2.0, pp=16).group("pp")
    assert group.shape == (4.0, 4.0)
    assert group.hop.bandwidth == 50e9  # two ranks cross at once, on four cards
    assert group.pair.bandwidth == 25e9
    spread = study(NVLINK, half, tp=8.0, pp=4).group("pp")
    assert spread.hop.bandwidth == 25e9  # eight ranks cross at once, on four cards


def test_a_lone_rank_never_sends_through_more_than_one_port() -> None:
    group = study(NVLINK, NICS, pp=16).group("pp")
    assert group.shape == (8.0, 2.0)
    assert group.hop.bandwidth == 50e9


def test_a_message_between_stages_crosses_the_slowest_level_of_any_neighbours() -> None:
    placed = study(NVLINK, NICS, tp=8.0, pp=4)
    seconds = placed.collective("point_to_point", 1e6, "pp").seconds
    assert seconds == pytest.approx(14e-6 + 1e6 / 50e9)
    inside = study(NVLINK, NICS, tp=2.0, pp=4, dp=2.0, order="tp-pp-dp")
    seconds = inside.collective("point_to_point", 1e6, "pp").seconds
    assert seconds == pytest.approx(3e-6 + 1e6 / 450e9)


def test_efficiency_multiplies_the_bandwidth() -> None:
    group = study({**NVLINK, "efficiency": 0.8}, {**NICS, "efficiency": 0.9}, dp=16.0).group("dp")
    assert [link.bandwidth for link in group.links] == pytest.approx([360e9, 45e9])
    assert group.flat.bandwidth == pytest.approx(360e9)


def test_oversubscription_narrows_the_way_out_of_a_unit_and_nothing_inside() -> None:
    leaf = {**NICS, "size": 4.0, "oversubscription": 3.0}
    group = study(NVLINK, leaf, NICS, tp=8.0, dp=8.0).group("dp")
    assert group.shape == (1.0, 4.0, 2.0)
    assert [link.bandwidth for link in group.links] == pytest.approx([450e9, 50e9, 50e9 / 3])
    # one GB that leaves the leaf takes 60 ms, and 20 ms inside of it
    assert 1e9 / group.links[2].bandwidth == pytest.approx(60e-3)
    assert 1e9 / group.links[1].bandwidth == pytest.approx(20e-3)


def test_a_ring_through_many_ranks_of_a_leaf_hardly_feels_its_oversubscription() -> None:
    leaf = {**NICS, "size": 4.0, "oversubscription": 3.0}
    group = study(NVLINK, leaf, NICS, dp=64.0).group("dp")
    # 32 ranks of the leaf own 32 uplinks at a third: more than the 8 cards of a node
    assert group.flat.bandwidth == 8 * 50e9


@pytest.mark.parametrize("tp, together", [(2.0, 64e9), (4.0, 192e9), (8.0, 448e9)])
def test_a_mesh_gives_a_group_one_port_for_each_peer(tp: float, together: float) -> None:
    mesh = {"size": 8.0, "bandwidth": 64e9, "latency": 2e-6, "kind": "mesh"}
    group = study(mesh, NICS, tp=tp, dp=16.0 / tp).group("tp")
    assert group.links[0].bandwidth == group.flat.bandwidth == together
    assert group.pair.bandwidth == group.pairs[0].bandwidth == group.hop.bandwidth == 64e9


def test_a_measured_level_is_scaled_by_the_ports_that_a_rank_has() -> None:
    curve = Curve(sizes=np.array([1e4, 1e8]), seconds=np.array([1e-5, 1e-2]))
    half = {"bandwidth": curve, "latency": 5e-6, "ports": 4.0}
    group = study(NVLINK, half, dp=16.0).group("dp")
    measured = study({**half, "ports": None}, dp=16.0).group("dp").links[0]
    # half a card for each rank; all four cards for a ring, which NVLink outruns no more
    assert group.links[1].seconds(1.0, 1e6) == pytest.approx(measured.seconds(1.0, 2e6))
    assert group.flat.seconds(1.0, 1e6) == pytest.approx(measured.seconds(1.0, 1e6 / 4))
    assert group.flat.bandwidth == pytest.approx(4 * 1e8 / 1e-2)
    inside = study(NVLINK, half, dp=8.0).group("dp")
    assert inside.flat.seconds(7.0, 1e6) == pytest.approx(7 * 3e-6 + 1e6 / 450e9)


# --- edges ------------------------------------------------------------------------------------------


def test_a_degree_of_one_costs_nothing_wherever_it_stands() -> None:
    placed = study(NVLINK, NICS)
    for name in ("tp", "dp", "pp"):
        assert placed.group(name).shape == (1.0, 1.0)
        assert placed.collective("all_reduce", 1e9, name).seconds == 0


def test_a_last_level_without_a_size_joins_all_that_there_is() -> None:
    assert study(NVLINK, NICS, dp=8000.0).group("dp").shape == (8.0, 1000.0)
    assert study({**NVLINK, "size": None}, dp=8000.0).group("dp").shape == (8000.0,)


def test_a_domain_larger_than_the_cluster_holds_every_group() -> None:
    group = study({**NVLINK, "size": 72.0}, NICS, tp=5.0, dp=3.0).group("dp")
    assert group.shape == (3.0, 1.0)


def test_a_layout_that_does_not_divide_is_placed_all_the_same() -> None:
    # Its rule speaks elsewhere, and here nothing may fail before it does.
    group = study(NVLINK, NICS, tp=3.0, dp=64 / 3, devices=64.0).group("dp")
    assert np.isfinite(group.flat.bandwidth)


def test_a_fabric_without_levels_is_bad_input() -> None:
    with pytest.raises(SpecError) as error:
        study(tp=2.0).group("tp")
    assert error.value.diagnostics[0].id == "no-levels"


def test_a_ring_over_two_levels_keeps_the_inner_one_busy_while_it_moves_bytes() -> None:
    (scenario,) = parcost.load_text(CROSSING.format(rate=60))
    study = scenario.first
    flat = study.group("shard").flat  # four ranks in each node: four cards against one port
    assert (flat.name, flat.resource, flat.also) == ("node", "network", ("node",))
    assert flat.also_busy == (1.0,)
    (scenario,) = parcost.load_text(CROSSING.format(rate=30))
    slow = scenario.first.group("shard").flat
    assert (slow.name, slow.resource, slow.also) == ("network", "network", ("node",))
    assert slow.also_busy[0] == pytest.approx(4 * 30 / 225)
    # Of a gather over 32 ranks on 8 nodes, all but the start-up: 20 us until kernels run, NCCL's
    # 8.4 for the call, 24 steps of 3 us in nodes and 7 of 14 us between them.
    work = {term.name: term for _, term in scenario.first.contributions("terms")}
    assert work["parameter all-gather"].latency == pytest.approx(
        (20 + 8.4 + 24 * 3 + 7 * 14) * 1e-6
    )
    assert study.group("tp").flat.also == ()


@pytest.mark.slow
def test_a_slower_network_never_makes_a_step_shorter_where_it_becomes_the_slowest() -> None:
    rates = [120, 80, 60, 57, 56.25, 56, 50, 40, 30]
    steps = []
    for rate in rates:
        (scenario,) = parcost.load_text(CROSSING.format(rate=rate))
        outcome = scenario.evaluate().result.outcome
        assert outcome is not None
        steps.append(outcome.step_seconds)
    for faster, slower_ in itertools.pairwise(steps):
        assert slower_ >= faster * (1 - 1e-9)


CROSSING = """
use catalog.devices.h100_sxm
use catalog.precisions.bf16
use catalog.models.llama3_8b
device h100_sxm {{ memory = 10 TB }}
fabric f {{
  level node    {{ size = 8 devices, bandwidth = 225 GB/s per_direction, latency = 3 us }}
  level network {{ bandwidth = {rate} GB/s per_direction, latency = 14 us }}
}}
cluster {{ devices = 64 }}
layout {{ tp = 2, cp = 4, zero = 3, sequence_parallel = on }}
training {{ sequence = 8192, global_batch = 64 sequences }}
"""
