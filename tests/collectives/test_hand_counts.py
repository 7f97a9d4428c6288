"""Rounds, bytes and additions that are counted by hand, and the edges of each algorithm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve

from parcost import Group
from parcost_plugins.collectives.bounds import LowerBound
from parcost_plugins.collectives.direct import Direct
from parcost_plugins.collectives.double_tree import DoubleTree
from parcost_plugins.collectives.halving_doubling import HalvingDoubling
from parcost_plugins.collectives.hierarchical import Hierarchical
from parcost_plugins.collectives.in_network import CollnetChain, CollnetDirect, Nvls, reduces
from parcost_plugins.collectives.leader import LeaderAllReduce, LeaderReduce
from parcost_plugins.collectives.naive import Linear, Naive
from parcost_plugins.collectives.pairwise import Pairwise
from parcost_plugins.collectives.pat import Pat
from parcost_plugins.collectives.pieces import pieces
from parcost_plugins.collectives.pipelined import HierarchicalOverlapped, HierarchicalPipelined
from parcost_plugins.collectives.recursive_doubling import RecursiveDoubling
from parcost_plugins.collectives.ring import Ring
from parcost_plugins.collectives.torus import Bucket, Torus
from parcost_plugins.collectives.tree import Tree
from parcost_plugins.collectives.van_de_geijn import VanDeGeijn
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import try_each

PLAIN: dict[str, Any] = {"bandwidth": 1.0, "latency": 1.0}


def level(**given: Any) -> Level:
    return Level(**{**PLAIN, **given})


def group(
    *shape: float, levels: Any = (), alphas: Any = (), rates: Any = (), **given: Any
) -> Group:
    """Return ranks on levels of latency and bandwidth 1, unless said otherwise."""
    alphas, rates = alphas or (1.0,) * len(shape), rates or (1.0,) * len(shape)
    levels = levels or (None,) * len(shape)
    links = tuple(
        AlphaBeta(name=f"l{i}", latency=alpha, bandwidth=rate, level=one)
        for i, (alpha, rate, one) in enumerate(zip(alphas, rates, levels, strict=True))
    )
    whole: dict[str, Any] = {"ranks": float(np.prod(shape)), **given}
    return Group(name="g", shape=tuple(map(float, shape)), links=links, **whole)


# --- what no algorithm beats -----------------------------------------------------------------------


def fan_out(P: int, ports: int) -> int:
    """Return the rounds until whoever hears from *ports* others a round knows of *P* ranks."""
    rounds, known = 0, 1
    while known < P:
        rounds, known = rounds + 1, known * (ports + 1)
    return rounds


@try_each("dimensions", [(), (8,), (8, 8), (8, 8, 8)])
@try_each("P", [1, 2, 3, 4, 5, 7, 8, 9, 25, 26, 27, 28, 49, 50, 81, 125, 343])
def test_news_spread_in_as_many_rounds_as_the_ports_of_a_rank_allow(
    dimensions: tuple[int, ...], P: int
) -> None:
    one = level(kind="torus" if dimensions else "switch", dimensions=dimensions)
    seconds = LowerBound().seconds("all_gather", 0.0, group(P, levels=(one,), alphas=(3.0,)))
    assert seconds == 3 * fan_out(P, max(2 * len(dimensions), 1))


def test_a_torus_that_says_no_dimensions_has_one_port() -> None:
    placed = group(4, levels=(level(kind="torus"),), rates=(5.0,), alphas=(0.0,))
    assert LowerBound().seconds("all_gather", 20.0, placed) == 20 * 3 / 4 / 5


@pytest.mark.parametrize("reducing", [0, 1])
def test_a_multicast_switch_needs_one_round(reducing: int) -> None:
    levels = [level(in_network=i == reducing) for i in range(2)]
    placed = group(8, 4, levels=levels, alphas=(3.0, 2.0))
    assert LowerBound().seconds("all_reduce", 0.0, placed) == 2
    alone = group(1, 1, levels=levels, alphas=(3.0, 2.0))
    assert LowerBound().seconds("all_reduce", 0.0, alone) == 0


def test_a_bound_of_a_message_is_its_time_and_of_one_rank_nothing() -> None:
    for algorithm in (LowerBound(), Direct()):
        for P, messages in ((1.0, 0), (2.0, 1), (5.0, 1)):
            found = algorithm.seconds("point_to_point", 12.0, group(P, rates=(4.0,), alphas=(7.0,)))
            assert found == messages * (7 + 3), algorithm.name


@try_each(
    "operation, added",
    [("all_reduce", 9.0), ("reduce", 9.0), ("reduce_scatter", 9.0), ("all_gather", 0.0)],
)
def test_the_busiest_rank_adds_its_share_of_what_the_others_have(
    operation: str, added: float
) -> None:
    """Four ranks of 12 B add three quarters of them, at 1000 s each."""
    placed = group(4, rates=(1e9,), alphas=(0.0,), reduction=1000.0)
    assert LowerBound().seconds(operation, 12.0, placed) == pytest.approx(1000 * added, abs=1e-3)


@try_each(
    "operation, near, far",
    [
        # a rank of eight, then a node of four, of which half of the ranks are beyond; 24 B
        ("all_reduce", 2 * 7 / 8, 2 / 2 / 4),
        ("all_gather", 7 / 8, 1 / 2 / 4),
        ("scatter", 7 / 8, 1 / 2 / 4),
        ("all_to_all", 7 / 8, 4 / 2 / 4),
        ("broadcast", 1.0, 1 / 4),
        ("reduce", 1.0, 1 / 4),
    ],
)
def test_a_unit_waits_for_what_passes_its_ports(operation: str, near: float, far: float) -> None:
    def seconds(*rates: float, **given: Any) -> Any:
        return LowerBound().seconds(
            operation, 24.0, group(4, 2, rates=rates, alphas=(0, 0), **given)
        )

    assert seconds(1.0, 1e9) == pytest.approx(24 * near / (1 + 1e9), rel=1e-6)
    assert seconds(3.0, 1e-3) == pytest.approx(24 * far / 1e-3)
    assert seconds(3.0, 2.0) == pytest.approx(24 * max(near / 5, far / 2))
    # a level that nobody crosses limits nothing, however slow it is
    lone = group(8, 1, rates=(2.0, 1e-9), alphas=(0, 0))
    assert LowerBound().seconds(operation, 24.0, lone) == pytest.approx(24 * near / 2, rel=1e-6)


def test_a_unit_of_three_of_four_ranks_sends_half_of_a_buffer_where_switches_reduce() -> None:
    """Twice the quarter of the ranks that is beyond, through three ports."""
    levels = (level(in_network=True),) * 2
    placed = group(3, 2, levels=levels, rates=(1e9, 1.0), alphas=(0, 0), ranks=4.0)
    assert LowerBound().seconds("all_reduce", 24.0, placed) == pytest.approx(24 / 2 / 3)


# --- who adds --------------------------------------------------------------------------------------

ALL: tuple[Any, ...] = (
    Ring(), DoubleTree(), HalvingDoubling(), Hierarchical(), Naive(), Linear(), Pairwise(),
    RecursiveDoubling(), Tree(), Direct(), Nvls(), LowerBound(),
)  # fmt: skip
QUIET = ("all_gather", "broadcast", "scatter", "gather", "all_to_all", "point_to_point")


@try_each("algorithm", ALL, ids=lambda a: a.name)
@try_each("shape", [(8,), (4, 2), (6, 2)])
def test_operations_that_sum_nothing_pay_for_no_additions(
    algorithm: Any, shape: tuple[float, ...]
) -> None:
    for operation in algorithm.operations & set(QUIET):
        free = group(*shape, ranks=8.0)
        assert algorithm.seconds(operation, 24.0, evolve(free, reduction=1e9)) == algorithm.seconds(
            operation, 24.0, free
        )


@try_each(
    "algorithm, operation, added",
    [
        # 24 B over four ranks of a node and two nodes: bytes that a rank reduces on the way
        (LeaderReduce(), "all_reduce", 24 + 12),  # up the node's tree, then half around a ring
        (LeaderAllReduce(), "all_reduce", 18 + 12),
        (CollnetDirect(), "all_reduce", 18),
        (Hierarchical(), "all_reduce", 18 + 3),
        (Hierarchical(), "reduce_scatter", 18 + 3),
        (Hierarchical(), "reduce", 18 + 6),  # a chain of two over the nodes, of a quarter
        (Naive(), "all_reduce", 7 * 24),
        (Naive(), "reduce", 7 * 24),
        (Tree(), "reduce", 3 * 24),
        (HalvingDoubling(), "all_reduce", 21),
        (HalvingDoubling(), "reduce", 21),
        (RecursiveDoubling(), "all_reduce", 3 * 24),
        (RecursiveDoubling(), "reduce_scatter", 3 * 24 - 21),
        (Pairwise(), "reduce_scatter", 21),
    ],
)
def test_bytes_reduced_by_a_rank(algorithm: Any, operation: str, added: float) -> None:
    plain = group(4, 2, levels=(level(in_network=True),) * 2)
    seconds = [
        algorithm.seconds(operation, 24.0, evolve(plain, reduction=gamma)) for gamma in (0.0, 1e3)
    ]
    assert seconds[1] - seconds[0] == pytest.approx(1e3 * added)


# --- trees -----------------------------------------------------------------------------------------


@try_each(
    "n, seconds",
    [
        # 16 ranks, d = 4, alpha = B = 1: whole 2 d + d n; cut n + 2 d + sqrt(8 d n), better from
        # n = 8 d / (d - 1)^2 = 3.56 on
        (0.0, 8.0),
        (3.5, 8 + 4 * 3.5),
        (3.7, 3.7 + 8 + (32 * 3.7) ** 0.5),
        (32.0, 32 + 8 + 32.0),
    ],
)
def test_two_trees_cut_a_message_from_where_on_that_is_faster(n: float, seconds: float) -> None:
    assert DoubleTree().seconds("broadcast", n, group(16)) == pytest.approx(seconds)
    assert DoubleTree().seconds("reduce", n, group(16)) == pytest.approx(seconds)
    assert DoubleTree().seconds("all_reduce", n, group(16)) == pytest.approx(2 * seconds)


def test_pieces_of_two_trees_have_a_byte_at_least() -> None:
    """Without latency, 32 B down trees of depth 4 go in sqrt(4 x 32 / 2) = 8 pieces."""
    free = group(16, alphas=(0.0,))
    assert DoubleTree().seconds("broadcast", 32.0, free) == pytest.approx(32 * (4 + 8) / 8)
    (empty,) = DoubleTree().phases("broadcast", 0.0, free)
    assert (empty.rounds, empty.bytes_) == (8, 0)  # which is not cut
    (one,) = DoubleTree().phases("broadcast", 1.0, group(8, alphas=(0.0,)))
    assert (one.rounds, one.bytes_) == (6, 3)  # nor is a byte that goes down three hops


def test_the_number_of_pieces_of_two_trees_may_be_set() -> None:
    (cut,) = DoubleTree().cut(5.0).phases("broadcast", 30.0, group(16))
    assert (cut.rounds, cut.bytes_) == (2 * (4 + 5), 2 * (4 + 5) * 30 / 10)
    (alone,) = DoubleTree().cut(5.0).phases("broadcast", 30.0, group(1))
    assert (alone.rounds, alone.bytes_) == (0, 0)
    for n in (3.0, 1e6):
        (whole,) = DoubleTree().phases("reduce", n, group(1))
        assert tuple(whole)[1:] == (0, 0, 0)


def test_a_root_deals_out_the_parts_of_its_nodes_and_then_of_their_ranks() -> None:
    for operation in ("scatter", "gather"):
        phases = [tuple(p)[1:] for p in Tree().phases(operation, 24.0, group(3, 4))]
        assert phases == [(2, 16, 0), (2, 6, 0)]
    phases = [tuple(p)[1:] for p in VanDeGeijn().phases("broadcast", 24.0, group(3, 4))]
    assert phases == [(2, 16, 0), (2, 6, 0), (11, 22, 0)]


# --- halving and doubling -------------------------------------------------------------------------


def test_ranks_that_are_no_power_merge_first_in_one_phase() -> None:
    """Six ranks: two hand on 24 B, four halve and double, two get 24 B back."""
    (phase,) = HalvingDoubling().phases("all_reduce", 24.0, group(3, 2))
    assert tuple(phase)[1:] == (2 + 4, 24 + 2 * 18 + 24, 24 + 18)
    (phase,) = HalvingDoubling().phases("reduce_scatter", 24.0, group(3, 2))
    assert tuple(phase)[1:] == (2 + 2, 24 + 18 + 4, 24 + 18)
    (phase,) = RecursiveDoubling().phases("all_reduce", 24.0, group(3, 2))
    assert tuple(phase)[1:] == (2 + 2, 4 * 24, 3 * 24)


def test_eight_ranks_on_unlike_nodes_need_no_merging() -> None:
    odd = group(6, 2, ranks=8.0)
    (phase,) = RecursiveDoubling().phases("all_reduce", 24.0, odd)
    assert tuple(phase)[1:] == (3, 72, 72)
    (phase,) = HalvingDoubling().phases("all_reduce", 24.0, odd)
    assert tuple(phase)[1:] == (6, 42, 21)


@pytest.mark.parametrize("algorithm", [RecursiveDoubling(), HalvingDoubling()])
def test_a_sweep_over_ranks_takes_at_each_point_what_the_point_takes(algorithm: Any) -> None:
    P = np.array([4.0, 6.0, 8.0, 12.0])
    swept = group(1, reduction=100.0)
    swept = evolve(swept, ranks=P, shape=(P,), fewest=(P,))
    alone = [algorithm.seconds("all_reduce", 24.0, group(float(p), reduction=100.0)) for p in P]
    assert algorithm.seconds("all_reduce", 24.0, swept).tolist() == alone


# --- switches that reduce -------------------------------------------------------------------------

SWITCH = level(in_network=True)


@try_each(
    "operation, P, rounds, bytes_",
    [
        ("all_reduce", 1, 0, 0),
        ("all_reduce", 2, 2, 36),
        ("all_reduce", 3, 2, 32),
        ("all_gather", 1, 0, 0),
        ("all_gather", 2, 1, 12),
        ("reduce_scatter", 3, 1, 16),
    ],
)
def test_a_switch_reads_24_bytes_and_multicasts_a_share(
    operation: str, P: int, rounds: int, bytes_: int
) -> None:
    (phase,) = Nvls().phases(operation, 24.0, group(P, levels=(SWITCH,)))
    assert tuple(phase)[1:] == (rounds, bytes_, 0)


def test_networks_that_reduce_carry_a_share_once_up_and_down_each_level_that_is_crossed() -> None:
    """Four ranks in a node, three nodes, and a level that is not crossed, which is no switch."""
    placed = group(4, 3, 1, levels=(SWITCH, SWITCH, level()))
    assert CollnetDirect().able("all_reduce", placed)
    inside, network, beyond = CollnetDirect().phases("all_reduce", 24.0, placed)
    assert tuple(inside)[1:] == (2, 36, 18)
    assert tuple(network)[1:] == (2, 6, 0)
    assert tuple(beyond)[1:] == (0, 0, 0)
    lone, *_ = CollnetDirect().phases("all_reduce", 24.0, group(1, 3, levels=(SWITCH, SWITCH)))
    assert tuple(lone)[1:] == (0, 0, 0)
    # a chain of four at alpha = B = 1: c = sqrt(2 x 24) pieces, forth and back
    chains, network, _ = CollnetChain().phases("all_reduce", 24.0, placed)
    c = 48**0.5
    assert tuple(chains)[1:] == pytest.approx((2 * (2 + c), 2 * (2 + c) * 24 / c, (2 + c) * 24 / c))
    assert tuple(network)[1:] == (2, 6, 0)


def test_the_remedy_for_switches_names_the_levels_crossed() -> None:
    plain = group(4, 2, 1, levels=(level(), level(), level()))
    assert not CollnetDirect().able("all_reduce", plain)
    assert CollnetDirect().remedy(plain, "f") == "fabric f { level l1 { in_network = on } }"
    assert Nvls().remedy(group(8, 1, levels=(level(), level())), "f") == (
        "fabric f { level l0 { in_network = on } }"
    )
    assert Nvls().remedy(plain, "f") == ""
    assert not CollnetDirect().able("all_reduce", group(8, 1, levels=(SWITCH, SWITCH)))
    assert not reduces(AlphaBeta(name="own", latency=0.0, bandwidth=1.0))


# --- the exchange -----------------------------------------------------------------------------------


@try_each(
    "alphas, rates, seconds",
    [
        # 24 B: one to each of 24 ranks, three in the node of four, 20 beyond, 12 beyond its rack
        ((1.0, 1.0, 1.0), (1.0, 1e9, 1e9), 3 + 3 + 20),  # the node's bytes, and all starts
        ((1.0, 2.0, 5.0), (0.1, 1e9, 1e9), 3 + 3 / 0.1 + 12 * 5),  # 12 x 5 beats 20 x 2
        ((1.0, 4.0, 5.0), (0.1, 1e9, 1e9), 3 + 3 / 0.1 + 20 * 4),
        ((1.0, 2.0, 5.0), (1.0, 0.1, 1.0), 3 + 20 * 2 + 20 / 0.1),
        ((1.0, 2.0, 5.0), (1.0, 1.0, 0.1), 3 + 12 * 5 + 12 / 0.1),
    ],
)
def test_an_exchange_waits_for_its_starts_and_for_the_bytes_of_its_slowest_level(
    alphas: tuple[float, ...], rates: tuple[float, ...], seconds: float
) -> None:
    placed = group(4, 3, 2, alphas=alphas, rates=rates)
    expected = pytest.approx(seconds, rel=1e-6)
    assert Pairwise().seconds("all_to_all", 24.0, placed) == expected
    # a level that is not crossed carries nothing, though there are ranks further out
    between = group(4, 1, 3, 2, alphas=(1.0, 9.0, *alphas[1:]), rates=(1.0, 1e-9, *rates[1:]))
    between = evolve(between, links=(placed.links[0], *between.links[1:]))
    assert Pairwise().seconds("all_to_all", 24.0, between) == expected


# --- trees of all ranks at once ----------------------------------------------------------------------


def test_trees_from_every_rank_want_nodes_of_one_rank() -> None:
    gathers, scatters = (
        tuple(Pat().phases(operation, 24.0, group(1, 6))[0])[1:]
        for operation in ("all_gather", "reduce_scatter")
    )
    assert (gathers, scatters) == ((3, 20, 0), (3, 20, 20))
    able = [Pat().able("all_gather", group(*shape)) for shape in ((1, 6), (2, 3), (1,))]
    assert able == [True, False, False]


# --- chains and chunks -------------------------------------------------------------------------------


@try_each(
    "P, alpha, cut, rounds, bytes_",
    [
        (1.0, 1.0, None, 0, 0),
        (1.0, 1.0, 6.0, 0, 0),
        (2.0, 1.0, None, 1, 24),
        (3.0, 0.0, None, 1 + 24, 25),  # without latency, pieces of one byte
        (4.0, 0.0, None, 2 + 24, 26),
        (8.0, 1.0, None, 6 + 12, 6 * 2 + 24),  # sqrt(6 x 24) pieces
        (8.0, 1.0, 6.0, 6 + 6, 12 * 4),
    ],
)
def test_a_chain_hands_24_bytes_on_in_pieces(
    P: float, alpha: float, cut: float | None, rounds: float, bytes_: float
) -> None:
    link = AlphaBeta(name="own", latency=alpha, bandwidth=1.0)
    assert pieces(P, 24.0, link, cut) == pytest.approx((rounds, bytes_))


@try_each("n", [1.0, 100.0, 3e3, 1e5, 3e6])
def test_the_best_number_of_chunks_is_the_best_that_is_tried(n: float) -> None:
    placed = group(4, 3, alphas=(1.0, 2.0), rates=(3.0, 1.0))
    tried = {
        c: HierarchicalPipelined().cut(c).seconds("all_reduce", n, placed)
        for c in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
    }
    assert HierarchicalPipelined().seconds("all_reduce", n, placed) == min(tried.values())
    best = min(tried, key=tried.__getitem__)
    rounds = [phase.rounds for phase in HierarchicalPipelined().phases("all_reduce", n, placed)]
    assert rounds == [6 * best, 4 * best]
    assert {1.0: 1.0, 3e6: 256.0}.get(n, best) == best


def test_a_message_is_not_cut_where_no_level_waits_for_another() -> None:
    (phase,) = HierarchicalPipelined().phases("all_reduce", 64.0, group(4, alphas=(0.0,)))
    assert tuple(phase)[1:] == (6, 96, 48)


def test_a_rank_adds_for_one_level_after_another_where_levels_overlap() -> None:
    """18 B and 3 B are added, at 1000 s each, in which all bytes pass."""
    placed = group(4, 2, reduction=1000.0)
    assert HierarchicalOverlapped().seconds("all_reduce", 24.0, placed) == 21000
    assert HierarchicalPipelined().cut(2.0).seconds("all_reduce", 24.0, placed) == pytest.approx(
        21000 / 2 + 21000 / 2 + (6 + 18) + (2 + 3)
    )


# --- tori ---------------------------------------------------------------------------------------------


def torus(*dimensions: int, wrap: bool = True) -> Level:
    return level(kind="torus", dimensions=dimensions, wrap=wrap)


def counts(algorithm: Any, operation: str, placed: Group) -> list[tuple[float, ...]]:
    return [tuple(phase)[1:] for phase in algorithm.phases(operation, 24.0, placed)]


@pytest.mark.parametrize(
    "operation, along, at_once",
    [
        # a ring of four, then one of three on a quarter; at once: 22 B over four links of a rank
        ("all_reduce", [(6, 36, 18), (4, 8, 4)], (6, 11, 22)),
        ("all_gather", [(3, 18, 0), (2, 4, 0)], (3, 5.5, 0)),
        ("reduce_scatter", [(3, 18, 18), (2, 4, 4)], (3, 5.5, 22)),
    ],
)
def test_a_torus_of_four_by_three_one_dimension_after_another_and_at_once(
    operation: str, along: list[tuple[float, ...]], at_once: tuple[float, ...]
) -> None:
    placed = group(12, levels=(torus(4, 3),))
    assert counts(Bucket(), operation, placed) == along
    assert counts(Torus(), operation, placed) == [at_once]
    two_levels = group(4, 3, levels=(torus(4), torus(3)))
    assert counts(Bucket(), operation, two_levels) == along


def test_a_grid_waits_for_its_whole_length_in_one_direction() -> None:
    grid = group(12, levels=(torus(4, 3, wrap=False),))
    assert counts(Torus(), "all_gather", grid) == [(5, 11, 0)]
    assert counts(Torus(), "all_to_all", grid) == [(3, 22, 0)]
    assert counts(Torus(), "all_to_all", group(12, levels=(torus(3, 4),))) == [(2, 22, 0)]
    # eight ranks fill the four of the first dimension, and two places of the second
    part = group(8, levels=(torus(4, 3),))
    assert counts(Torus(), "all_gather", part) == [(2 + 1, 21 / 2, 0)]
    assert counts(Torus(), "all_to_all", group(5, levels=(torus(5),))) == [(2, 24 * 4 / 5, 0)]
    # four are the ring of the first dimension alone
    assert counts(Torus(), "all_gather", group(4, levels=(torus(4, 3),))) == [(2, 9, 0)]
    assert counts(Torus(), "all_to_all", group(1, levels=(torus(4, 3),))) == [(0, 0, 0)]
    two_levels = group(4, 3, levels=(torus(4), torus(3)))
    assert counts(Torus(), "reduce_scatter", two_levels) == [(2, 9, 18), (1, 2, 4)]


def test_a_torus_wants_dimensions_that_the_ranks_fill_where_there_are_several() -> None:
    able = {
        "filled": group(12, levels=(torus(4, 3),)),
        "in part": group(8, levels=(torus(4, 3),)),
        "beside no torus of one": group(12, 1, levels=(torus(4, 3), level())),
    }
    unable = {
        "cut": group(6, levels=(torus(4, 3),)),
        "too many": group(24, levels=(torus(4, 3),)),
        "beside no torus": group(12, 2, levels=(torus(4, 3), level())),
        "of no dimensions": group(2, levels=(level(kind="torus"),)),
    }
    for name, placed in able.items():
        assert Torus().able("all_gather", placed), name
    for name, placed in unable.items():
        assert not Torus().able("all_gather", placed), name
