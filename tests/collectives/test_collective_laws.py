"""What holds of every algorithm: lower bounds, monotony, edges, and arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from parcost import Group
from parcost.engine.study import SpecStudy
from parcost.numeric import ceil_log2
from parcost.plugins.discovery import load
from parcost_plugins.collectives import (
    bruck,
    direct,
    double_tree,
    halving_doubling,
    hierarchical,
    in_network,
    leader,
    naive,
    pairwise,
    pipelined,
    recursive_doubling,
    ring,
    torus,
    tree,
    van_de_geijn,
)
from parcost_plugins.collectives.bounds import LowerBound
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import mark_most, try_each

MODULES = (
    bruck,
    direct,
    double_tree,
    halving_doubling,
    hierarchical,
    leader,
    naive,
    pairwise,
    pipelined,
    recursive_doubling,
    ring,
    tree,
    van_de_geijn,
)
CASES = [
    pytest.param(algorithm, operation, id=f"{algorithm.name}-{operation}")
    for module in MODULES
    for algorithm in module.collectives()
    for operation in sorted(algorithm.operations)
]
# The slow tests try every law, with more examples.
SOME = [
    pytest.param(*case.values, id=case.id, marks=[pytest.mark.slow] if number % 5 else [])
    for number, case in enumerate(CASES)
]
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "point_to_point",
)

AT_ONCE = ("pairwise", "hierarchical_pipelined", "hierarchical_overlapped")

ranks = st.integers(1, 300).map(float)
TINY = 1e-300  # seconds: below, floats are too coarse to compare by ratio

few = settings(
    max_examples=min(40, settings().max_examples)
)  # of each of the many pairs of algorithm and operation
sizes = st.floats(0, 1e12)
latencies = st.floats(0, 1e-2)
bandwidths = st.floats(1e6, 1e13)


def one_level(P: Any, alpha: Any, bandwidth: Any) -> Group:
    link = AlphaBeta(name="node", latency=alpha, bandwidth=bandwidth)
    return Group(name="g", ranks=P, shape=(P,), links=(link,))


def two_levels(g: Any, k: Any, near: tuple[Any, Any], far: tuple[Any, Any]) -> Group:
    links = (
        AlphaBeta(name="node", latency=near[0], bandwidth=near[1]),
        AlphaBeta(name="network", latency=far[0], bandwidth=far[1]),
    )
    return Group(name="g", ranks=g * k, shape=(g, k), links=links)


def lower_bound(operation: str, P: Any, n: Any, alpha: Any, bandwidth: Any) -> Any:
    """Return the larger of the latency and the bandwidth bound (Chan et al. 2007)."""
    share = (P - 1) / P
    bytes_ = {
        "broadcast": n * np.minimum(P - 1, 1),
        "reduce": n * np.minimum(P - 1, 1),
        "scatter": n * share,
        "gather": n * share,
        "all_reduce": 2 * n * share,
        "all_gather": n * share,
        "reduce_scatter": n * share,
        "all_to_all": n * share,
        "point_to_point": n * np.minimum(P - 1, 1),
    }[operation]
    rounds = np.minimum(P - 1, 1) if operation == "point_to_point" else ceil_log2(P)
    return np.maximum(rounds * alpha, bytes_ / bandwidth)


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(P=ranks, n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_no_algorithm_beats_its_lower_bound(
    algorithm: Any, operation: str, P: float, n: float, alpha: float, bandwidth: float
) -> None:
    seconds = algorithm.seconds(operation, n, one_level(P, alpha, bandwidth))
    assert seconds >= lower_bound(operation, P, n, alpha, bandwidth) * (1 - 1e-12) - TINY


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(
    g=st.integers(1, 16).map(float),
    k=st.integers(1, 40).map(float),
    n=sizes,
    near=st.tuples(latencies, bandwidths),
    far=st.tuples(latencies, bandwidths),
)
def test_levels_do_not_help_to_beat_the_bound_of_the_ports_in_use(
    algorithm: Any,
    operation: str,
    g: float,
    k: float,
    n: float,
    near: tuple[float, float],
    far: tuple[float, float],
) -> None:
    alpha, bandwidth = min(near[0], far[0]), max(near[1], far[1])
    if algorithm.name in AT_ONCE:  # uses the ports of both levels at the same time
        bandwidth = near[1] + far[1]
    seconds = algorithm.seconds(operation, n, two_levels(g, k, near, far))
    bound = lower_bound(operation, g * k, n, alpha, bandwidth)
    assert seconds >= bound * (1 - 1e-12) - TINY


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(
    P=ranks,
    n=st.tuples(sizes, sizes),
    alpha=st.tuples(latencies, latencies),
    bandwidth=st.tuples(bandwidths, bandwidths),
)
def test_more_bytes_latency_or_seconds_per_byte_never_make_it_faster(
    algorithm: Any,
    operation: str,
    P: float,
    n: tuple[float, float],
    alpha: tuple[float, float],
    bandwidth: tuple[float, float],
) -> None:
    for grow_n, grow_alpha, grow_beta in itertools.product([0, 1], repeat=3):
        easy = one_level(P, min(alpha), max(bandwidth))
        hard = one_level(P, sorted(alpha)[grow_alpha], sorted(bandwidth)[1 - grow_beta])
        before = algorithm.seconds(operation, min(n), easy)
        after = algorithm.seconds(operation, sorted(n)[grow_n], hard)
        assert after >= before * (1 - 1e-9)


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_one_rank_costs_nothing(
    algorithm: Any, operation: str, n: float, alpha: float, bandwidth: float
) -> None:
    assert algorithm.seconds(operation, n, one_level(1.0, alpha, bandwidth)) == 0
    link = (alpha, bandwidth)
    assert algorithm.seconds(operation, n, two_levels(1.0, 1.0, link, link)) == 0


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(P=ranks, bandwidth=bandwidths)
def test_no_bytes_cost_no_bandwidth(
    algorithm: Any, operation: str, P: float, bandwidth: float
) -> None:
    assert algorithm.seconds(operation, 0.0, one_level(P, 0.0, bandwidth)) in (0.0, float("inf"))


@pytest.mark.parametrize("algorithm, operation", CASES)
def test_an_array_gives_what_its_elements_give(algorithm: Any, operation: str) -> None:
    g = np.array([1.0, 2.0, 3.0, 4.0, 8.0, 8.0, 6.0, 1.0, 16.0])
    k = np.array([1.0, 1.0, 2.0, 4.0, 1.0, 32.0, 5.0, 7.0, 16.0])
    n = np.array([0.0, 1.0, 5e5, 1e6, 3e7, 1e9, 7e9, 123.0, 1e10])
    near, far = (3e-6, 450e9), (14e-6, 50e9)
    together = algorithm.seconds(operation, n, two_levels(g, k, near, far))
    alone = [
        algorithm.seconds(operation, float(n[i]), two_levels(float(g[i]), float(k[i]), near, far))
        for i in range(len(n))
    ]
    assert all(isinstance(seconds, (float, int)) for seconds in alone)
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@few
@given(P=ranks, n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_gathering_and_scattering_make_a_ring_all_reduce(
    P: float, n: float, alpha: float, bandwidth: float
) -> None:
    group, algorithm = one_level(P, alpha, bandwidth), ring.Ring()
    parts = algorithm.seconds("all_gather", n, group) + algorithm.seconds(
        "reduce_scatter", n, group
    )
    assert algorithm.seconds("all_reduce", n, group) == pytest.approx(parts, rel=1e-12)


@few
@given(st.integers(0, 12), sizes, latencies, bandwidths)
def test_halving_and_doubling_make_an_all_reduce_on_powers_of_two(
    exponent: int, n: float, alpha: float, bandwidth: float
) -> None:
    group = one_level(2.0**exponent, alpha, bandwidth)
    algorithm = halving_doubling.HalvingDoubling()
    parts = algorithm.seconds("all_gather", n, group) + algorithm.seconds(
        "reduce_scatter", n, group
    )
    assert algorithm.seconds("all_reduce", n, group) == pytest.approx(parts, rel=1e-12)


@few
@given(P=ranks, n=sizes, bandwidth=bandwidths)
def test_a_ring_all_reduce_meets_the_bandwidth_bound(P: float, n: float, bandwidth: float) -> None:
    seconds = ring.Ring().seconds("all_reduce", n, one_level(P, 0.0, bandwidth))
    assert seconds == pytest.approx(lower_bound("all_reduce", P, n, 0.0, bandwidth), rel=1e-12)


def test_the_bytes_of_a_ring_grow_with_its_ranks_towards_two_buffers() -> None:
    P = np.arange(1.0, 2000.0)
    seconds = ring.Ring().seconds("all_reduce", 1.0, one_level(P, 0.0, 1.0))
    assert (np.diff(seconds) > 0).all()
    assert seconds[-1] < 2 <= seconds[-1] * 1.001


@pytest.mark.parametrize(
    "operation", mark_most(["all_reduce", "all_gather", "reduce_scatter", "broadcast"], 4)
)
@few
@given(P=ranks, n=sizes, here=st.tuples(latencies, bandwidths))
def test_a_hierarchy_of_one_level_is_the_ring_of_that_level(
    operation: str, P: float, n: float, here: tuple[float, float]
) -> None:
    other = (1.0, 1.0)
    flat = ring.Ring().seconds(operation, n, one_level(P, *here))
    algorithm = hierarchical.Hierarchical()
    assert algorithm.seconds(operation, n, two_levels(P, 1.0, here, other)) == flat
    assert algorithm.seconds(operation, n, two_levels(1.0, P, other, here)) == flat


@few
@given(
    operation=st.sampled_from(OPERATIONS),
    g=st.integers(1, 16).map(float),
    k=st.integers(1, 16).map(float),
    n=sizes,
)
def test_the_best_is_no_slower_than_any(operation: str, g: float, k: float, n: float) -> None:
    group = two_levels(g, k, (3e-6, 450e9), (14e-6, 50e9))
    study = SpecStudy("test", {}, PLUGINS)
    best = study.collective(operation, n, group)
    each = {
        algorithm.name: algorithm.seconds(operation, n, group)
        for _, algorithm in PLUGINS.offers("collectives").values()
        if operation in algorithm.operations
        and operation not in getattr(algorithm, "by_name_only", ())
    }
    assert best.seconds == min(each.values())
    assert each[best.algorithm] == best.seconds


PLUGINS = load(*((module.__name__, module) for module in MODULES), installed=False)


def test_every_operation_has_an_algorithm_for_any_number_of_ranks() -> None:
    study = SpecStudy("test", {}, PLUGINS)
    for operation in OPERATIONS:
        seconds = study.collective(operation, 1e6, one_level(7.0, 1e-6, 1e11)).seconds
        assert 0 < seconds < 1


def test_an_algorithm_by_name_is_used_even_if_slower() -> None:
    study = SpecStudy("test", {}, PLUGINS)
    call = study.collective("all_reduce", 1e9, one_level(8.0, 1e-6, 1e11), "tree")
    assert call.algorithm == "tree"
    assert call.seconds == pytest.approx(6 * (1e-6 + 1e-2))


@try_each(
    "operation, P, name",
    [
        ("all_reduce", 6.0, "ring"),  # not the hierarchy of one level
        ("all_gather", 8.0, "halving_doubling"),  # not bruck
        ("all_gather", 2.0, "ring"),
        ("all_to_all", 2.0, "pairwise"),
    ],
)
def test_of_equally_fast_algorithms_the_last_name_is_used(
    operation: str, P: float, name: str
) -> None:
    call = SpecStudy("test", {}, PLUGINS).collective(operation, 1e12, one_level(P, 1e-9, 1e11))
    assert call.algorithm == name


def test_an_array_names_every_algorithm_that_is_fastest_somewhere() -> None:
    n = np.array([8.0, 1e9])
    call = SpecStudy("test", {}, PLUGINS).collective("all_reduce", n, one_level(8.0, 1e-6, 1e11))
    assert call.algorithm == "recursive_doubling or halving_doubling"
    assert call.seconds == pytest.approx([3e-6, 6e-6 + 2 * 7 / 8 * 1e-2], rel=1e-3)


def test_an_unsupported_operation_takes_infinite_time() -> None:
    study = SpecStudy("test", {}, PLUGINS)
    call = study.collective("broadcast", 1.0, one_level(8.0, 1e-6, 1e11), "pairwise")
    assert (call.seconds, call.formula.text) == (
        float("inf"),
        "pairwise does not support broadcast",
    )
    alone = study.collective("broadcast", 1.0, one_level(1.0, 1e-6, 1e11), "pairwise")
    assert alone.seconds == 0


def test_the_formula_lists_the_link_that_the_algorithm_is_priced_on() -> None:
    group = two_levels(8.0, 4.0, (3e-6, 450e9), (14e-6, 50e9))
    study = SpecStudy("test", {}, PLUGINS)
    flat = study.collective("all_reduce", 1e9, group, "ring").formula
    assert flat.inputs == {
        "n": (1e9, "B"),
        "P": (32.0, ""),
        "alpha": (14e-6, "s"),
        "B": (50e9, "B/s"),
    }
    levels = study.collective("all_reduce", 1e9, group, "hierarchical").formula
    assert levels.inputs["g[node]"] == (8.0, "")
    assert levels.inputs["B[network]"] == (50e9, "B/s")
    assert flat.shown == "all_reduce by ring: 2 (P - 1) alpha + 2 n (P - 1) / P / B"


# --- the bound, and additions -------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS)
@few
@given(P=ranks, n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_the_bound_that_is_offered_is_that_of_the_table(
    operation: str, P: float, n: float, alpha: float, bandwidth: float
) -> None:
    offered = LowerBound().seconds(operation, n, one_level(P, alpha, bandwidth))
    if operation == "point_to_point":  # a message waits for its start, then for its bytes
        alone = (alpha + n / bandwidth) * min(P - 1, 1)
        assert offered == pytest.approx(alone, rel=1e-12, abs=TINY)
    else:
        expected = lower_bound(operation, P, n, alpha, bandwidth)
        assert offered == pytest.approx(expected, rel=1e-12, abs=TINY)


@pytest.mark.parametrize("algorithm, operation", SOME)
@few
@given(
    g=st.integers(1, 16).map(float),
    k=st.integers(1, 40).map(float),
    n=sizes,
    near=st.tuples(latencies, bandwidths),
    far=st.tuples(latencies, bandwidths),
    gamma=st.floats(0, 1e-6),
)
def test_no_algorithm_beats_the_bound_on_two_levels_with_additions(
    algorithm: Any,
    operation: str,
    g: float,
    k: float,
    n: float,
    near: tuple[float, float],
    far: tuple[float, float],
    gamma: float,
) -> None:
    group = evolve(two_levels(g, k, near, far), reduction=gamma)
    seconds = algorithm.seconds(operation, n, group)
    bound = LowerBound().seconds(operation, n, group)
    assert seconds >= bound * (1 - 1e-12) - TINY


def test_a_unit_sends_all_that_others_need_through_its_ports() -> None:
    # two nodes of four with a network of 1 B/s a rank: an all-reduce of 8 B needs 8 B a node
    # each way, and all-to-all of 8 B a rank 16 B a node
    fast, slow = (0.0, 1e30), (0.0, 1.0)
    group = two_levels(4.0, 2.0, fast, slow)
    assert LowerBound().seconds("all_reduce", 8.0, group) == pytest.approx(2.0)
    assert LowerBound().seconds("all_to_all", 8.0, group) == pytest.approx(4.0)
    assert hierarchical.Hierarchical().seconds("all_reduce", 8.0, group) == pytest.approx(2.0)


def test_a_switch_that_reduces_beats_the_bound_of_end_points_and_meets_its_own() -> None:
    level = Level(bandwidth=1.0, latency=0.0, in_network=True)
    link = AlphaBeta(name="node", latency=0.0, bandwidth=1.0, level=level)
    group = Group(name="g", ranks=8.0, shape=(8.0,), links=(link,))
    nvls = in_network.Nvls().seconds("all_reduce", 8.0, group)
    assert LowerBound().seconds("all_reduce", 8.0, group) == 8.0
    assert nvls == 9.0  # and end points pass 14


def test_a_torus_may_use_all_of_its_links() -> None:
    level = Level(bandwidth=1.0, latency=0.0, kind="torus", dimensions=(4, 4, 4))
    link = AlphaBeta(name="pod", latency=0.0, bandwidth=1.0, level=level)
    group = Group(name="g", ranks=64.0, shape=(64.0,), links=(link,))
    assert LowerBound().seconds("all_gather", 64.0, group) == pytest.approx(63 / 6)
    assert torus.Torus().seconds("all_gather", 64.0, group) == pytest.approx(63 / 6)


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "reduce"])
def test_additions_cost_gamma_for_each_byte(operation: str) -> None:
    # a ring of eight adds seven eighths of the buffer; a chain of whole buffers adds seven
    group = evolve(one_level(8.0, 1e-6, 1e9), reduction=1e-9)
    study = SpecStudy("test", {}, PLUGINS)
    n = 1e6
    plain = study.collective(operation, n, one_level(8.0, 1e-6, 1e9), "ring").seconds
    call = study.collective(operation, n, group, "ring")
    if operation == "reduce":
        rounds = 6 + (6 * n / (1e-6 * 1e9)) ** 0.5
        expected = rounds * n / (rounds - 6) * 1e-9
    else:
        expected = 7 / 8 * n * 1e-9
    assert call.seconds - plain == pytest.approx(expected)
    assert call.formula.inputs["gamma"] == (1e-9, "s/B")
    assert "gamma" in call.formula.text


def test_auto_takes_no_bound_and_no_ideal() -> None:
    study = SpecStudy("test", {}, load())
    group = two_levels(8.0, 8.0, (1e-6, 450e9), (5e-6, 50e9))
    for operation in OPERATIONS:
        names = study.collective(operation, 1e9, group).algorithm
        for kept_out in ("lower_bound", "hierarchical_overlapped", "nccl", "naive", "linear"):
            assert kept_out not in names
    bound = study.collective("all_reduce", 1e9, group, "lower_bound")
    assert bound.algorithm == "lower_bound"
    assert bound.seconds == pytest.approx(4.375e-3)  # 2 x 125 MB x 7/8 through a card of 50 GB/s


@few
@given(
    n=sizes, here=st.tuples(latencies, bandwidths), P=ranks, name=st.sampled_from(["all", "reduce"])
)
def test_leaders_on_one_level_are_a_ring_or_a_tree_of_that_level(
    n: float, here: tuple[float, float], P: float, name: str
) -> None:
    other = (1.0, 1.0)
    algorithm = leader.LeaderAllReduce() if name == "all" else leader.LeaderReduce()
    flat = ring.Ring().seconds("all_reduce", n, one_level(P, *here))
    far = two_levels(1.0, P, other, here)
    assert algorithm.seconds("all_reduce", n, far) == pytest.approx(flat, rel=1e-12, abs=TINY)
    if name == "all":
        near = two_levels(P, 1.0, here, other)
        assert algorithm.seconds("all_reduce", n, near) == pytest.approx(flat, rel=1e-12, abs=TINY)


@few
@given(n=sizes, near=st.tuples(latencies, bandwidths), far=st.tuples(latencies, bandwidths))
def test_chunks_lie_between_the_ideal_and_the_hierarchy(
    n: float, near: tuple[float, float], far: tuple[float, float]
) -> None:
    group = two_levels(8.0, 4.0, near, far)
    least, between, most = (
        algorithm.seconds("all_reduce", n, group)
        for algorithm in (
            pipelined.HierarchicalOverlapped(),
            pipelined.HierarchicalPipelined(),
            hierarchical.Hierarchical(),
        )
    )
    assert least <= between * (1 + 1e-12) <= most * (1 + 1e-11)
