"""Groups too large to be looked at, and what no group like them exceeds."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from parcost_plugins.topology import occupancy as occupancy_
from parcost_plugins.topology.occupancy import _bounds, occupancy

from ..rows import try_each


def most_by_hand(capacities: list[int], axes: list[tuple[int, int]], groups: int) -> list[int]:
    """Return the most units of the level below that any group has in a unit, rank by rank."""
    stride, extent = axes[-1]
    span = stride * extent
    offsets = [sum(at) for at in itertools.product(*(range(0, s * n, s) for s, n in axes))]
    starts = {r for r in range(span) if all(r // s % n == 0 for s, n in axes)}
    found = []
    for below, cap in itertools.pairwise([1, *capacities, 10**9]):
        held = 1
        for block, first in itertools.product(range(groups), starts):
            ranks = [block * span + first + offset for offset in offsets]
            units = {(rank // cap, rank // below) for rank in ranks}
            held = max(held, *(sum(u == unit for u, _ in units) for unit, _ in units))
        found.append(held)
    return found


@example(capacities=[32], axes=[(3, 10)], groups=4)  # which straddle two units of 32
@given(
    capacities=st.lists(st.integers(2, 6), min_size=1, max_size=2),
    axes=st.sampled_from(
        [[(1, 5)], [(1, 7)], [(3, 4)], [(5, 3)], [(3, 1)], [(1, 2), (6, 3)], [(2, 3), (12, 2)]]
    ),
    groups=st.integers(1, 6),
)
def test_no_group_has_more_than_its_bounds(
    capacities: list[int], axes: list[tuple[int, int]], groups: int
) -> None:
    caps = list(itertools.accumulate(capacities, lambda a, b: a * b))
    bounds = _bounds(caps, axes)
    for bound, found in zip(bounds, most_by_hand(caps, axes, groups), strict=False):
        assert bound >= found


@try_each(
    "axes, bounds",
    [
        # units of eight and of 32: two or three of a stride of three in eight, four eights in
        # 32; ten span 28 ranks, which may straddle, a hundred 298
        ([(3, 10)], (3, 4, 2)),
        ([(3, 100)], (3, 4, 11)),
        ([(3, 1)], (1, 1, 1)),
        ([(3, 2)], (2, 2, 2)),
        ([(20, 7)], (1, 2, 5)),
        ([(40, 7)], (1, 1, 7)),
        ([(3, 2), (40, 3)], (3, 4, 5)),
        ([(1, 33)], (8, 4, 2)),
        ([(1, 34)], (8, 4, 3)),  # one at the end of a unit, 32, and one
    ],
)
def test_bounds_are_those_of_a_range_of_ranks(
    axes: list[tuple[int, int]], bounds: tuple[int, ...]
) -> None:
    assert _bounds([8, 32], axes) == (*bounds, 1, 1, 1)


def test_small_groups_on_a_huge_unit_that_they_do_not_fill_straddle_it() -> None:
    """Three in a row on units of 2^20, which three does not divide."""
    shape, fewest = occupancy([2.0**20], [(1.0, 3.0)], 3 * 2.0**20)
    assert (shape, fewest) == ((3, 2), (1, 1))


def test_groups_are_counted_for_as_long_as_they_repeat() -> None:
    """2048 in a row on units of 3072: of three, one is cut in halves, however many there are."""
    shape, fewest = occupancy([3072.0], [(1.0, 2048.0)], 2.0**40)
    assert (shape, fewest) == ((2048, 2), (1024, 1))


@pytest.mark.parametrize("most_counted, fewest", [(24, (4, 1)), (23, (1, 1))])
def test_more_ranks_than_are_counted_are_bounded(
    most_counted: int, fewest: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight in a row on units of twelve, which repeat after 24 ranks: the second is 4 + 4."""
    monkeypatch.setattr(occupancy_, "_COUNTED", most_counted)
    found = occupancy_._count.__wrapped__((12, 1, 8, 240), 2)
    assert found == (8, 2, *fewest)


def test_a_sweep_of_two_dimensions_has_at_each_point_what_the_point_has() -> None:
    sizes = np.array([[2.0, 3.0, 6.0], [4.0, 5.0, 8.0]])
    strides = np.array([[1.0], [3.0]])
    shape, fewest = occupancy([8.0], [(strides, sizes)], 240.0)
    for at in np.ndindex(sizes.shape):
        alone = occupancy([8.0], [(float(strides[at[0], 0]), float(sizes[at]))], 240.0)
        assert tuple(float(np.broadcast_to(s, (2, 3))[at]) for s in shape) == alone[0]
        assert tuple(float(np.broadcast_to(s, (2, 3))[at]) for s in fewest) == alone[1]
