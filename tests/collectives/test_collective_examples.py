"""Worked numbers for collectives: hand arithmetic and figures from the literature."""

from __future__ import annotations

import math
from typing import Any

import pytest

from parcost import Group
from parcost_plugins.collectives.bruck import Bruck
from parcost_plugins.collectives.direct import Direct
from parcost_plugins.collectives.double_tree import DoubleTree
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.leader import LeaderAllReduce, LeaderReduce
from parcost_plugins.collectives.naive import Naive
from parcost_plugins.collectives.pairwise import Pairwise
from parcost_plugins.collectives.pipelined import HierarchicalOverlapped, HierarchicalPipelined
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.collectives.torus import Bucket, Torus
from parcost_plugins.collectives.tree import Tree
from parcost_plugins.collectives.van_de_geijn import VanDeGeijn
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import try_each

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
def test_an_algorithm_for_powers_of_two_is_infinite_elsewhere(operation: str) -> None:
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


# --- two levels, as textbooks and libraries do it: 1 GB over eight nodes of eight --------------


@try_each(
    "algorithm, expected",
    [
        (Hierarchical(), 8.263889e-3),
        (LeaderAllReduce(), 41.111111e-3),
        (HierarchicalOverlapped(), 4.375e-3),
        (Ring(), 4.921875e-3),
    ],
)
def test_ways_of_an_all_reduce_on_two_levels(algorithm: Any, expected: float) -> None:
    group = two_levels(8.0, 8.0, 450e9, 50e9)
    assert algorithm.seconds("all_reduce", 1e9, group) == pytest.approx(expected, rel=1e-6)


def test_leaders_that_only_reduce_send_the_buffer_twice_over_nvlink() -> None:
    # 2 x 1 GB / 450 GB/s inside, 2 x 7/8 GB / 50 GB/s between leaders
    seconds = LeaderReduce().seconds("all_reduce", 1e9, two_levels(8.0, 8.0, 450e9, 50e9))
    assert seconds == pytest.approx(2e9 / 450e9 + 1.75e9 / 50e9)


def test_leaders_of_nodes_that_are_not_alike_are_as_many_as_the_nodes() -> None:
    # 12 ranks, 8 on one node and 4 on the other: two leaders, who exchange the whole buffer once
    near, far = two_levels(8.0, 2.0, 450e9, 50e9).links
    uneven = Group(
        name="g", ranks=12.0, shape=(8.0, 2.0), fewest=(4.0, 2.0), links=(near, far), hop=far
    )
    seconds = LeaderReduce().seconds("all_reduce", 1e9, uneven)
    assert seconds == pytest.approx(2e9 / 450e9 + 1e9 / 50e9)
    seconds = LeaderAllReduce().seconds("all_reduce", 1e9, uneven)
    assert seconds == pytest.approx(1.75e9 / 450e9 + 1e9 / 50e9 + 1e9 / 450e9)


def test_chunks_hide_the_shorter_level_but_for_one() -> None:
    # inside 3.889 ms, between nodes 4.375 ms, no latency: 4.375 + 3.889 / c
    group = two_levels(8.0, 8.0, 450e9, 50e9)
    inside = 1.75e9 / 450e9
    for c in (1.0, 4.0, 10.0):
        seconds = HierarchicalPipelined().cut(c).seconds("all_reduce", 1e9, group)
        assert seconds == pytest.approx(4.375e-3 + inside / c)


def test_chunks_that_pay_their_latency_are_not_cut_without_end() -> None:
    near = AlphaBeta(name="node", latency=3e-6, bandwidth=450e9)
    far = AlphaBeta(name="network", latency=14e-6, bandwidth=50e9)
    group = Group(name="g", ranks=64.0, shape=(8.0, 8.0), links=(near, far))
    free, once = (
        HierarchicalPipelined().seconds("all_reduce", 1e6, group),
        Hierarchical().seconds("all_reduce", 1e6, group),
    )
    assert free == once  # 196 us between nodes for each chunk of a few us


def test_four_nodes_of_b200_in_three_parts() -> None:
    # 4 GiB over 4 x 8 with 50 GB/s cards: 16.11 ms between nodes, 26.25 ms one after another
    # (900 GB/s inside at 82 %); 22.05 ms were measured
    group = two_levels(8.0, 4.0, 0.82 * 900e9, 50e9)
    whole = Hierarchical().seconds("all_reduce", 4 * 2.0**30, group)
    between = 2 * 2.0**32 / 8 * 3 / 4 / 50e9
    assert between == pytest.approx(16.11e-3, rel=1e-3)
    assert whole == pytest.approx(26.25e-3, rel=0.02)
    assert HierarchicalOverlapped().seconds("all_reduce", 2.0**32, group) <= 22.05e-3 <= whole


# --- trees, and non-powers of two ---------------------------------------------------------------


def test_two_trees_beat_one_ring_of_a_thousand_up_to_three_gigabytes() -> None:
    group = one_level(1024.0, 5e-6, 50e9)
    sizes = [2.0**e for e in range(10, 40)]
    wins = [
        Ring().seconds("all_reduce", n, group) < DoubleTree().seconds("all_reduce", n, group)
        for n in sizes
    ]
    assert sizes[wins.index(True)] == 2.0**32
    assert wins == sorted(wins)


def test_a_long_broadcast_down_two_trees_is_its_closed_form() -> None:
    # d = 10: n/B = 20 ms, 2 d alpha = 0.1 ms, sqrt(8 d alpha n / B) = sqrt(80 * 5e-6 * 0.02)
    seconds = DoubleTree().seconds("broadcast", 1e9, one_level(1024.0, 5e-6, 50e9))
    assert seconds == pytest.approx(0.02 + 1e-4 + 8e-6**0.5, rel=1e-12)


def test_a_long_broadcast_scattered_and_gathered_passes_its_bytes_twice() -> None:
    # 3 + 7 rounds, 2 x 7/8 of 1 GB
    seconds = VanDeGeijn().seconds("broadcast", 1e9, one_level(8.0, 5e-6, 100e9))
    assert seconds == pytest.approx(10 * 5e-6 + 1.75e9 / 100e9)


def test_rabenseifner_off_powers_of_two_moves_four_buffers_where_a_ring_moves_two() -> None:
    # P = 1025: 2n + 2n 1023/1024 bytes, and 22 rounds
    seconds = HalvingDoubling().seconds("all_reduce", 1e9, one_level(1025.0, 0.0, 1e9))
    assert seconds == pytest.approx(2 + 2 * 1023 / 1024)
    rounds = HalvingDoubling().seconds("all_reduce", 0.0, one_level(1025.0, 1.0, 1e9))
    assert rounds == 22


def test_a_naive_all_reduce_passes_fourteen_buffers_over_eight_ranks() -> None:
    assert Naive().seconds("all_reduce", 1.0, one_level(8.0, 0.0, 1.0)) == 14.0


# --- tori: 16 x 16 links of 45 GB/s -------------------------------------------------------------


def on_torus(*dimensions: int, wrap: bool = True) -> Group:
    level = Level(bandwidth=45e9, latency=1e-6, kind="torus", dimensions=dimensions, wrap=wrap)
    link = AlphaBeta(name="pod", latency=1e-6, bandwidth=45e9, level=level)
    P = float(math.prod(dimensions))
    return Group(name="g", ranks=P, shape=(P,), links=(link,))


def test_an_all_reduce_on_a_torus_uses_its_four_links() -> None:
    seconds = Torus().seconds("all_reduce", 1e9, on_torus(16, 16))
    assert seconds == pytest.approx(2 * (16e-6 + 1e9 * 255 / 256 / (4 * 45e9)))


def test_a_slice_without_ends_joined_takes_twice_as_long() -> None:
    closed = Torus().seconds("all_gather", 1e12, on_torus(16, 16))
    opened = Torus().seconds("all_gather", 1e12, on_torus(16, 16, wrap=False))
    assert opened / closed == pytest.approx(2.0, rel=1e-4)


def test_one_dimension_after_another_pays_fewer_rounds_than_a_ring_of_all() -> None:
    seconds = Bucket().seconds("all_gather", 1e9, on_torus(16, 16))
    assert seconds == pytest.approx(30e-6 + 1e9 * 255 / 256 / 45e9)


def test_an_exchange_on_a_torus_waits_for_the_middle_of_its_longest_side() -> None:
    seconds = Torus().seconds("all_to_all", 1e9, on_torus(8, 16))
    assert seconds == pytest.approx(1e9 * 16 / 8 / 45e9 + 8e-6)


def test_a_message_between_two_nodes_of_one_rank_is_shown_with_its_link() -> None:
    symbols = Pairwise().closed_form("all_to_all", two_levels(1.0, 2.0, 450e9, 50e9)).symbols
    assert [*symbols["M"].values()] == [1.0]
    rates, _ = symbols["B"]
    assert [*rates.values()] == [50e9]
