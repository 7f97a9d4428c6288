"""Phases of the algorithms on a torus, dimension by dimension, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from parcost import Group
from parcost_plugins.collectives.torus import Bucket, Torus
from parcost_plugins.topology.links import AlphaBeta
from parcost_plugins.vocabulary import Level

from ..rows import try_each


def torus(*dimensions: int, wrap: bool = True) -> Any:
    level = Level(bandwidth=1.0, latency=1.0, kind="torus", dimensions=dimensions, wrap=wrap)
    return AlphaBeta(name="pod", latency=1.0, bandwidth=1.0, level=level)


NET = AlphaBeta(name="net", latency=1.0, bandwidth=1.0)


def group(*parts: tuple[float, Any]) -> Group:
    ranks = 1.0
    for g, _ in parts:
        ranks *= g
    shape, links = zip(*parts, strict=True)
    return Group(name="g", ranks=ranks, shape=shape, links=links)


def phases(algorithm: Any, operation: str, n: float, *parts: tuple[float, Any]) -> Any:
    return [tuple(phase[1:]) for phase in algorithm.phases(operation, n, group(*parts))]


def test_a_bucket_goes_through_one_dimension_after_another() -> None:
    """24 B on 4 x 6: 3 / 4 of 24, then 5 / 6 of the 6 that are left."""
    grid = (24.0, torus(4, 6))
    assert phases(Bucket(), "all_gather", 24.0, grid) == [(3, 18, 0), (5, 5, 0)]
    assert phases(Bucket(), "reduce_scatter", 24.0, grid) == [(3, 18, 18), (5, 5, 5)]
    assert phases(Bucket(), "all_reduce", 24.0, grid) == [(6, 36, 18), (10, 10, 5)]
    two = phases(Bucket(), "all_gather", 24.0, (4.0, torus(4)), (3.0, torus(3)))
    assert two == [(3, 18, 0), (2, 4, 0)]


@try_each(
    "ranks, dimensions, wrap, rounds, bytes_",
    [
        (24.0, (4, 6), True, 2 + 3, 23 / (2 * 2)),  # of 24 B, by two dimensions both ways
        (24.0, (4, 6), False, 3 + 5, 23 / 2),
        (12.0, (4, 6), True, 2 + 2, 22 / 2),  # half of the second has no way around
        (8.0, (4, 6), True, 2 + 1, 21 / 2),  # two of six are no ring
        (4.0, (4, 6), True, 2, 18 / 2),
        (4.0, (4, 6), False, 3, 18),
        (5.0, (5,), True, 2, 24 * 4 / 5 / 2),
        (8.0, (2, 2, 2), True, 3, 21 / 6),
        (1.0, (4,), True, 0, 0),
    ],
)
def test_a_torus_uses_all_of_its_links(
    ranks: float, dimensions: tuple[int, ...], wrap: bool, rounds: float, bytes_: float
) -> None:
    part = (ranks, torus(*dimensions, wrap=wrap))
    added = 24 * (ranks - 1) / ranks
    for operation, passes, reduced in (
        ("all_gather", 1, 0.0),
        ("reduce_scatter", 1, added),
        ("all_reduce", 2, added),
    ):
        (found,) = phases(Torus(), operation, 24.0, part)
        assert found == pytest.approx((passes * rounds, passes * bytes_, reduced), rel=1e-12)


def test_a_torus_of_tori_leaves_a_share_of_the_bytes_to_the_outer() -> None:
    found = phases(Torus(), "all_gather", 24.0, (4.0, torus(4)), (3.0, torus(3)))
    assert found == [(2, 9, 0), (1, 2, 0)]  # 6 B are left, of which a third stays


@try_each(
    "ranks, wrap, rounds",
    [(32.0, True, 4), (32.0, False, 7), (8.0, True, 2), (4.0, True, 2), (1.0, True, 0)],
)
def test_an_exchange_waits_for_its_longest_way(ranks: float, wrap: bool, rounds: int) -> None:
    """On 4 x 8: half of a ring of 4 or 8, or all of a line; two of eight are a line."""
    (found,) = phases(Torus(), "all_to_all", 32.0, (ranks, torus(4, 8, wrap=wrap)))
    assert found[:2] == pytest.approx((rounds, 32 * (ranks - 1) / ranks))


def test_an_odd_ring_has_two_ways_of_the_same_length() -> None:
    assert phases(Torus(), "all_to_all", 30.0, (15.0, torus(5, 3))) == [(2, 28, 0)]


@try_each(
    "parts, able",
    [
        ([(24.0, torus(4, 6))], True),
        ([(12.0, torus(4, 6))], True),
        ([(2.0, torus(4, 6))], True),
        ([(10.0, torus(4, 6))], False),  # ten are no rows of four
        ([(48.0, torus(4, 6))], False),
        ([(4.0, torus(4)), (1.0, NET)], True),
        ([(4.0, torus(4)), (2.0, NET)], False),
        ([(1.0, NET), (4.0, torus(4))], True),
        ([(2.0, NET), (4.0, torus(4))], False),
        ([(6.0, torus(4, 6))], False),
    ],
)
def test_groups_that_fill_dimensions_can_run(parts: Any, able: bool) -> None:
    for algorithm in (Bucket(), Torus()):
        assert bool(algorithm.able("all_gather", group(*parts))) is able
