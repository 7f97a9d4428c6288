"""The distribution of a group of ranks over nested units of devices.

Ranks fill units in order. A group is a lattice of ranks: its members are ``r + i * stride`` along
each of its axes. Most groups have one axis. So a unit of *cap* devices holds ``cap // stride``
members of an axis, at least one and at most all. This formula applies if units and groups are
aligned. Otherwise members are counted rank by rank, once for each distinct combination of
capacities and axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd, prod
from typing import Any

from parcost import Mask, Real
from parcost.numeric import all_of, floor, maximum, minimum, where

#: Ranks that are counted one by one; groups beyond this are bounded instead.
_COUNTED = 2**20

Shape = tuple[Real, ...]
#: The stride and the size of each direction in which a group extends, narrowest first.
Axes = Sequence[tuple[Real, Real]]


def occupancy(capacities: Sequence[Real], axes: Axes, devices: Real) -> tuple[Shape, Shape]:
    """Return the largest and the smallest number of sub-units of a group per unit, by level.

    *capacities* are the devices of a unit at each level but the last, which holds all *devices*. At
    the first level the sub-units are devices. The smallest number counts only groups that extend
    beyond the unit.

    >>> occupancy([8.0], [(2.0, 8.0)], 64.0)[0]  # four in each of two nodes
    (4.0, 2.0)
    >>> occupancy([8.0], [(1.0, 6.0)], 48.0)  # six ranks in a row may straddle: 4 + 2
    ((6.0, 2.0), (2.0, 1.0))
    >>> occupancy([8.0], [(2.0, 2.0), (16.0, 4.0)], 64.0)[0]  # two in each of four nodes
    (2.0, 4.0)
    """
    even: Mask = True
    within: list[Real] = []
    size: Real = 1.0
    for _, extent in axes:
        size = size * extent
    for cap in capacities:
        held: Real = 1.0
        for stride, extent in axes:
            held = held * minimum(maximum(floor(cap / stride), 1.0), extent)
            even = even & is_aligned(cap, stride, extent, devices)
        within.append(held)
    inner = [1.0, *within]
    shape = tuple(outer / below for outer, below in zip([*within, size], inner, strict=True))
    if all_of(even):
        return shape, shape
    return _uneven_shapes(even, shape, (*capacities, *(n for axis in axes for n in axis), devices))


def is_aligned(cap: Real, stride: Real, size: Real, devices: Real) -> Mask:
    """Return whether every unit with members of a group has the same number of them."""
    span = stride * size
    whole = _divides(span, cap) | _divides(cap, span)
    return (stride >= cap) | (cap >= devices) | (_divides(stride, cap) & whole)


def is_crossed(cap: Real, stride: Real, rank: int) -> Mask:
    """Return whether *rank* of an aligned group is in another unit than the previous rank.

    >>> [is_crossed(8.0, 2.0, rank) for rank in range(1, 6)]  # four in each node
    [False, False, False, True, False]
    """
    return floor(rank * stride / cap) != floor((rank - 1) * stride / cap)


def _divides(a: Real, b: Real) -> Mask:
    """Return whether *a* divides *b*: as exact as the remainder, and faster on arrays."""
    return floor(b / a) * a == b


def _uneven_shapes(aligned: Mask, shape: Shape, key: tuple[Real, ...]) -> tuple[Shape, Shape]:
    """Return the shapes, with unaligned groups counted rank by rank."""
    if isinstance(aligned, bool):
        counted = _count(tuple(int(number) for number in key), len(shape))
        return counted[: len(shape)], counted[len(shape) :]
    import numpy as np

    keys = np.stack(np.broadcast_arrays(aligned, *key), axis=-1)[..., 1:]
    odd = np.broadcast_to(~aligned, keys.shape[:-1])
    distinct, at = np.unique(keys[odd], axis=0, return_inverse=True)
    counts = np.array(
        [_count(tuple(int(number) for number in row), len(shape)) for row in distinct]
    )
    found = np.zeros((*odd.shape, 2 * len(shape)))
    found[odd] = counts[at.reshape(-1)]
    both = [where(aligned, s, found[..., i]) for i, s in enumerate((*shape, *shape))]
    return tuple(both[: len(shape)]), tuple(both[len(shape) :])


@lru_cache(maxsize=4096)
def _count(key: tuple[int, ...], levels: int) -> tuple[float, ...]:
    """Return the most, then the fewest members per level, counted rank by rank."""
    numbers = [max(number, 1) for number in key]
    capacities, devices = numbers[: levels - 1], numbers[-1]
    axes = list(zip(numbers[levels - 1 : -1 : 2], numbers[levels:-1:2], strict=True))
    span = axes[-1][0] * axes[-1][1]
    repeat = capacities[-1] // gcd(span, capacities[-1])
    blocks = min(max(devices // span, 1), repeat)
    if blocks * span > _COUNTED:
        return _bounds(capacities, axes)
    import numpy as np

    members = lattices(axes, blocks * span)
    below = members
    most, fewest = [], []
    for unit in (*(members // cap for cap in capacities), np.zeros_like(members)):
        counts, leaving = _counts(below, unit)
        most.append(float(counts.max()))
        fewest.append(float((counts[leaving] if leaving.any() else counts).min()))
        below = unit
    return (*most, *fewest)


def lattices(axes: Sequence[tuple[int, int]], ranks: int) -> Any:
    """Return the members of every group on *axes* among *ranks*, one row per group.

    >>> lattices([(2, 2)], 8).tolist()
    [[0, 2], [1, 3], [4, 6], [5, 7]]
    >>> lattices([(1, 2), (4, 2)], 8).tolist()
    [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    import numpy as np

    dimensions: list[int] = []
    outer = ranks
    for stride, extent in reversed(axes):
        dimensions += [outer // (stride * extent), extent]
        outer = stride
    grid = np.arange(ranks).reshape(*dimensions, outer)
    apart = range(0, grid.ndim, 2)
    size = prod(extent for _, extent in axes)
    return grid.transpose(*apart, *range(1, grid.ndim, 2)).reshape(-1, size)


def _counts(below: Any, unit: Any) -> tuple[Any, Any]:
    """Return the number of units *below* of a group in each *unit* with members of the group.

    The second array says whether the group has members in other units too.
    """
    import numpy as np

    new = np.ones(below.shape, dtype=bool)
    new[:, 1:] = below[:, 1:] != below[:, :-1]
    group = np.arange(len(below))[:, None]
    label = group * (unit.max() + 1) + unit
    _, first, counts = np.unique(label[new], return_index=True, return_counts=True)
    leaves = np.broadcast_to((unit[:, :1] != unit[:, -1:]), unit.shape)
    return counts, leaves[new][first]


def _bounds(capacities: Sequence[int], axes: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """Return upper bounds of the occupied units of each level, and 1 as their lower bounds.

    The bounds are used instead of exact counts for groups with too many ranks.
    """
    size = prod(extent for _, extent in axes)
    span = axes[-1][0] * axes[-1][1]
    most, below = [], 1
    for cap in capacities:
        most.append(min(-(-cap // max(axes[0][0], below)), size))
        below = cap
    # A range of ranks, from the first member to the last, begins anywhere in its first unit.
    most.append(min((span - axes[0][0] - 1) // max(axes[0][0], below) + 2, size))
    return (*map(float, most), *(1.0 for _ in most))
