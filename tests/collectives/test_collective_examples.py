"""Worked numbers for collectives: hand arithmetic and figures from the literature."""

from __future__ import annotations

from typing import Any

import pytest

from parcost import Group
from parcost_plugins.collectives.bruck import Bruck
from parcost_plugins.collectives.direct import Direct
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.pairwise import Pairwise
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.collectives.tree import Tree
from parcost_plugins.topology.links import AlphaBeta

MIB = 2.0**20


def one_level(P: float, alpha: float, bandwidth: float) -> Group:
    link = AlphaBeta(name="node", latency=alpha, bandwidth=bandwidth)
    return Group(name="g", ranks=P, shape=(P,), links=(link,))


def two_levels(g: float, k: float, nvlink: float, nic: float, nics: float = 8.0) -> Group:
    """Return *k* nodes of *g* ranks without latency; a flat ring uses *nics* per node."""
    near = AlphaBeta(name="node", latency=0.0, bandwidth=nvlink)
    far = AlphaBeta(name="network", latency=0.0, bandwidth=nic)
    flat = AlphaBeta(name="network", latency=0.0, bandwidth=min(nvlink, nics * nic))
    return Group(name="g", ranks=g * k, shape=(g, k), links=(near, far), flat=flat)


def test_a_ring_all_reduce_of_a_gigabyte_over_eight_ranks() -> None:
    group = one_level(8.0, 1e-6, 450e9)
    assert Ring().seconds("all_reduce", 1e9, group) == pytest.approx(3.902889e-3, rel=1e-6)


@pytest.mark.parametrize(
    "algorithm, expected",
    [(Ring(), 119.9051e-6), (HalvingDoubling(), 176.8006e-6), (RecursiveDoubling(), 187.7722e-6)],
)
def test_six_ranks_pay_for_not_being_a_power_of_two(algorithm: Any, expected: float) -> None:
    group = one_level(6.0, 5e-6, 25e9)
    assert algorithm.seconds("all_reduce", MIB, group) == pytest.approx(expected, rel=1e-6)


def test_a_bruck_all_to_all_sends_three_half_buffers_over_eight_ranks() -> None:
    assert Bruck().seconds("all_to_all", 1000.0, one_level(8.0, 0.0, 1.0)) == 1500.0


def test_a_hierarchical_all_reduce_over_eight_nodes_of_eight() -> None:
    group = two_levels(8.0, 8.0, 450e9, 50e9)
    assert Hierarchical().seconds("all_reduce", 1e9, group) == pytest.approx(8.263889e-3, rel=1e-6)


@pytest.mark.parametrize("nics, expected", [(1.0, 39.375e-3), (8.0, 4.921875e-3)])
def test_a_flat_ring_is_as_fast_as_the_network_cards_it_leaves_by(
    nics: float, expected: float
) -> None:
    group = two_levels(8.0, 8.0, 450e9, 50e9, nics)
    assert Ring().seconds("all_reduce", 1e9, group) == pytest.approx(expected)


def test_a_flat_ring_is_near_what_four_nodes_of_b200_were_measured_at() -> None:
    # all-reduce of 4 GiB over 4 x 8 B200 with 50 GB/s cards: 22.05 ms (stas00/ml-engineering)
    seconds = Ring().seconds("all_reduce", 4 * 2.0**30, two_levels(8.0, 4.0, 900e9, 50e9))
    assert seconds == pytest.approx(20.80e-3, rel=1e-3)
    assert seconds == pytest.approx(22.05e-3, rel=0.06)


def test_an_all_to_all_direct_and_in_two_levels() -> None:
    group = two_levels(8.0, 8.0, 450e9, 50e9)
    assert Pairwise().seconds("all_to_all", 64e6, group) == pytest.approx(1.120e-3, rel=1e-3)
    assert Hierarchical().seconds("all_to_all", 64e6, group) == pytest.approx(1.2444e-3, rel=1e-4)


def test_the_network_bytes_of_an_exchange_do_not_cross_the_node() -> None:
    # 7 of 64 blocks of 1 MB over 450 GB/s; what leaves the node does not delay them
    group = two_levels(8.0, 8.0, 450e9, 1e30)
    assert Pairwise().seconds("all_to_all", 64e6, group) == pytest.approx(15.6e-6, rel=5e-3)
    # a rank starts all of its 63 messages, and the network's bytes take longest
    near = AlphaBeta(name="node", latency=1e-6, bandwidth=450e9)
    far = AlphaBeta(name="network", latency=3e-6, bandwidth=50e9)
    group = Group(name="g", ranks=64.0, shape=(8.0, 8.0), links=(near, far))
    expected = 7 * 1e-6 + 56 * 3e-6 + 56 * 1e6 / 50e9
    assert Pairwise().seconds("all_to_all", 64e6, group) == pytest.approx(expected)


def test_each_level_of_a_network_carries_all_that_leaves_the_level_below() -> None:
    # four ranks in a node, two nodes in a rack, two racks: 3 blocks stay in the node, 12
    # leave it, of which 8 leave the rack too
    links = [
        AlphaBeta(name=name, latency=0.0, bandwidth=b)
        for name, b in (("node", 100.0), ("rack", 10.0), ("row", 8.0))
    ]
    group = Group(name="g", ranks=16.0, shape=(4.0, 2.0, 2.0), links=tuple(links))
    assert Pairwise().seconds("all_to_all", 16.0, group) == pytest.approx(12 / 10)
    links[2] = AlphaBeta(name="row", latency=0.0, bandwidth=4.0)
    group = Group(name="g", ranks=16.0, shape=(4.0, 2.0, 2.0), links=tuple(links))
    assert Pairwise().seconds("all_to_all", 16.0, group) == pytest.approx(8 / 4)


def test_the_hierarchy_sends_seven_messages_where_the_exchange_sends_56_to_other_nodes() -> None:
    near = AlphaBeta(name="node", latency=0.0, bandwidth=1e30)
    far = AlphaBeta(name="network", latency=1.0, bandwidth=1e30)
    group = Group(name="g", ranks=64.0, shape=(8.0, 8.0), links=(near, far))
    assert Pairwise().seconds("all_to_all", 64e6, group) == pytest.approx(56.0)
    assert Hierarchical().seconds("all_to_all", 64e6, group) == pytest.approx(7.0)


def test_a_long_broadcast_down_a_chain_costs_little_more_than_its_bytes() -> None:
    # n/B = 10 ms; 6 latencies = 30 us; 2 sqrt(6 * 5 us * 10 ms) = 1.0954 ms
    group = one_level(8.0, 5e-6, 100e9)
    seconds = Ring().seconds("broadcast", 1e9, group)
    assert seconds == pytest.approx(10e-3 + 30e-6 + 1.0954451e-3, rel=1e-7)


def test_a_short_broadcast_down_a_chain_is_not_cut() -> None:
    group = one_level(8.0, 5e-6, 100e9)
    assert Ring().seconds("broadcast", 8.0, group) == pytest.approx(7 * (5e-6 + 8 / 100e9))


def test_a_tree_reduces_up_and_broadcasts_down() -> None:
    # 9 ranks: four rounds each way, of the whole buffer
    group = one_level(9.0, 5e-6, 100e9)
    assert Tree().seconds("broadcast", 1e6, group) == pytest.approx(4 * (5e-6 + 10e-6))
    assert Tree().seconds("all_reduce", 1e6, group) == pytest.approx(8 * (5e-6 + 10e-6))


def test_a_message_costs_one_latency_and_its_bytes() -> None:
    seconds = Direct().seconds("point_to_point", 1e6, one_level(4.0, 5e-6, 100e9))
    assert seconds == pytest.approx(15e-6)


def test_a_reduce_scatter_by_halving_is_approximate_off_powers_of_two() -> None:
    # P = 6, q = 4: two merging rounds, two halvings; n + n 3/4 + n/6 bytes
    group = one_level(6.0, 1.0, 1.0)
    seconds = HalvingDoubling().seconds("reduce_scatter", 12.0, group)
    assert seconds == pytest.approx(4 + 12 + 9 + 2)


@pytest.mark.parametrize("operation", ["all_gather", "broadcast"])
def test_what_cannot_run_off_powers_of_two_takes_for_ever(operation: str) -> None:
    group = one_level(6.0, 5e-6, 25e9)
    assert HalvingDoubling().seconds(operation, MIB, group) == float("inf")


def test_members_spread_unevenly_wait_for_the_largest_node_and_the_fewest_ports() -> None:
    # five ranks as 3 + 2: rings of three inside, halves of the buffer between the two nodes
    near = AlphaBeta(name="node", latency=0.0, bandwidth=1.0)
    far = AlphaBeta(name="network", latency=0.0, bandwidth=1.0)
    group = Group(
        name="g", ranks=5.0, shape=(3.0, 2.0), fewest=(2.0, 1.0), links=(near, far), flat=far
    )
    seconds = Hierarchical().seconds("all_reduce", 12.0, group)
    assert seconds == pytest.approx(2 * 12 * 2 / 3 + 2 * 6 * 1 / 2)
