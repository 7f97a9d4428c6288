"""What holds of every algorithm: lower bounds, monotony, edges, and arrays."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parcost import Group, Study
from parcost.diagnostics import SpecError
from parcost.numeric import ceil_log2
from parcost.plugins import load
from parcost_plugins.collectives import (
    bruck,
    direct,
    halving_doubling,
    hierarchical,
    pairwise,
    recursive_doubling,
    ring,
    tree,
)
from parcost_plugins.topology.links import AlphaBeta

MODULES = (
    bruck,
    direct,
    halving_doubling,
    hierarchical,
    pairwise,
    recursive_doubling,
    ring,
    tree,
)
CASES = [
    pytest.param(algorithm, operation, id=f"{algorithm.name}-{operation}")
    for module in MODULES
    for algorithm in module.collectives()
    for operation in sorted(algorithm.operations)
]
OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "all_to_all",
    "point_to_point",
)

ranks = st.integers(1, 300).map(float)
TINY = 1e-300  # seconds: below, floats are too coarse to compare by ratio

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
        "all_reduce": 2 * n * share,
        "all_gather": n * share,
        "reduce_scatter": n * share,
        "all_to_all": n * share,
        "point_to_point": n * np.minimum(P - 1, 1),
    }[operation]
    rounds = np.minimum(P - 1, 1) if operation == "point_to_point" else ceil_log2(P)
    return np.maximum(rounds * alpha, bytes_ / bandwidth)


@pytest.mark.parametrize("algorithm, operation", CASES)
@given(P=ranks, n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_no_algorithm_beats_its_lower_bound(
    algorithm: Any, operation: str, P: float, n: float, alpha: float, bandwidth: float
) -> None:
    seconds = algorithm.seconds(operation, n, one_level(P, alpha, bandwidth))
    assert seconds >= lower_bound(operation, P, n, alpha, bandwidth) * (1 - 1e-12) - TINY


@pytest.mark.parametrize("algorithm, operation", CASES)
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
    if algorithm.name == "pairwise":  # sends by the ports of both levels at the same time
        bandwidth = near[1] + far[1]
    seconds = algorithm.seconds(operation, n, two_levels(g, k, near, far))
    bound = lower_bound(operation, g * k, n, alpha, bandwidth)
    assert seconds >= bound * (1 - 1e-12) - TINY


@pytest.mark.parametrize("algorithm, operation", CASES)
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


@pytest.mark.parametrize("algorithm, operation", CASES)
@given(n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_one_rank_costs_nothing(
    algorithm: Any, operation: str, n: float, alpha: float, bandwidth: float
) -> None:
    assert algorithm.seconds(operation, n, one_level(1.0, alpha, bandwidth)) == 0
    link = (alpha, bandwidth)
    assert algorithm.seconds(operation, n, two_levels(1.0, 1.0, link, link)) == 0


@pytest.mark.parametrize("algorithm, operation", CASES)
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


@given(P=ranks, n=sizes, alpha=latencies, bandwidth=bandwidths)
def test_gathering_and_scattering_make_a_ring_all_reduce(
    P: float, n: float, alpha: float, bandwidth: float
) -> None:
    group, algorithm = one_level(P, alpha, bandwidth), ring.Ring()
    parts = algorithm.seconds("all_gather", n, group) + algorithm.seconds(
        "reduce_scatter", n, group
    )
    assert algorithm.seconds("all_reduce", n, group) == pytest.approx(parts, rel=1e-12)


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


@given(P=ranks, n=sizes, bandwidth=bandwidths)
def test_a_ring_all_reduce_meets_the_bandwidth_bound(P: float, n: float, bandwidth: float) -> None:
    seconds = ring.Ring().seconds("all_reduce", n, one_level(P, 0.0, bandwidth))
    assert seconds == pytest.approx(lower_bound("all_reduce", P, n, 0.0, bandwidth), rel=1e-12)


def test_the_bytes_of_a_ring_grow_with_its_ranks_towards_two_buffers() -> None:
    P = np.arange(1.0, 2000.0)
    seconds = ring.Ring().seconds("all_reduce", 1.0, one_level(P, 0.0, 1.0))
    assert (np.diff(seconds) > 0).all()
    assert seconds[-1] < 2 <= seconds[-1] * 1.001


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
@given(P=ranks, n=sizes, here=st.tuples(latencies, bandwidths))
def test_a_hierarchy_of_one_level_is_the_ring_of_that_level(
    operation: str, P: float, n: float, here: tuple[float, float]
) -> None:
    other = (1.0, 1.0)
    flat = ring.Ring().seconds(operation, n, one_level(P, *here))
    algorithm = hierarchical.Hierarchical()
    assert algorithm.seconds(operation, n, two_levels(P, 1.0, here, other)) == flat
    assert algorithm.seconds(operation, n, two_levels(1.0, P, other, here)) == flat


@given(
    operation=st.sampled_from(OPERATIONS),
    g=st.integers(1, 16).map(float),
    k=st.integers(1, 16).map(float),
    n=sizes,
)
def test_the_best_is_no_slower_than_any(operation: str, g: float, k: float, n: float) -> None:
    group = two_levels(g, k, (3e-6, 450e9), (14e-6, 50e9))
    study = Study("test", {}, PLUGINS)
    best = study.collective(operation, n, group)
    each = {
        algorithm.name: algorithm.seconds(operation, n, group)
        for _, algorithm in PLUGINS.named("collectives").values()
        if operation in algorithm.operations
    }
    assert best.seconds == min(each.values())
    assert each[best.algorithm] == best.seconds


PLUGINS = load(*((module.__name__, module) for module in MODULES), installed=False)


def test_every_operation_has_an_algorithm_for_any_number_of_ranks() -> None:
    study = Study("test", {}, PLUGINS)
    for operation in OPERATIONS:
        seconds = study.collective(operation, 1e6, one_level(7.0, 1e-6, 1e11)).seconds
        assert 0 < seconds < 1


def test_an_algorithm_that_is_asked_for_by_name_is_used_even_where_it_is_slow() -> None:
    study = Study("test", {}, PLUGINS)
    call = study.collective("all_reduce", 1e9, one_level(8.0, 1e-6, 1e11), "tree")
    assert call.algorithm == "tree"
    assert call.seconds == pytest.approx(6 * (1e-6 + 1e-2))


@pytest.mark.parametrize(
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
    call = Study("test", {}, PLUGINS).collective(operation, 1e12, one_level(P, 1e-9, 1e11))
    assert call.algorithm == name


def test_an_array_names_every_algorithm_that_is_fastest_somewhere() -> None:
    n = np.array([8.0, 1e9])
    call = Study("test", {}, PLUGINS).collective("all_reduce", n, one_level(8.0, 1e-6, 1e11))
    assert call.algorithm == "recursive_doubling or halving_doubling"
    assert call.seconds == pytest.approx([3e-6, 6e-6 + 2 * 7 / 8 * 1e-2], rel=1e-3)


def test_an_algorithm_is_not_asked_for_what_it_does_not_do() -> None:
    study = Study("test", {}, PLUGINS)
    with pytest.raises(SpecError) as error:
        study.collective("broadcast", 1.0, one_level(8.0, 1e-6, 1e11), "pairwise")
    assert error.value.diagnostics[0].message == (
        "the algorithm `pairwise` does not do `broadcast`"
    )


def test_the_formula_lists_the_link_that_the_algorithm_is_priced_on() -> None:
    group = two_levels(8.0, 4.0, (3e-6, 450e9), (14e-6, 50e9))
    study = Study("test", {}, PLUGINS)
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
    assert flat.text == "all_reduce by ring: 2 (P - 1) alpha + 2 n (P - 1) / P / B"
