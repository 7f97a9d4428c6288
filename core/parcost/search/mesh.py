"""Mesh arrays: numbers over all structures and degrees, with size 1 where they do not vary.

The first dimension has the structures, followed by one dimension for each degree. A number that
depends on two degrees has size 1 in all other dimensions. Plugins are called once, on the mesh.
Legal layouts are selected from their answers at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray


@frozen(eq=False, slots=False)
class Mesh:
    """The grid of degrees of the structures: *sizes* has the number of values of each degree.

    *used* are the positions of the values that occur; empty means all of them.
    """

    sizes: tuple[int, ...]
    used: Sequence[NDArray[np.intp]] = ()

    @staticmethod
    def from_axes(axes: Sequence[tuple[str, Any]]) -> Mesh:
        """Return the mesh of flattened *axes*; one dimension only if they are not a full grid."""
        values = [np.asarray(numbers) for _, numbers in axes]
        count = len(values[0]) if values else 1
        sizes = tuple(len(set(numbers.tolist())) for numbers in values)
        if prod(sizes) != count:
            return Mesh((count,))
        for k, numbers in enumerate(values):
            alone = (1,) * k + sizes[k : k + 1] + (1,) * (len(sizes) - k - 1)
            if squeeze(numbers.reshape(sizes)).shape not in (alone, (1,) * len(sizes)):
                return Mesh((count,))
        return Mesh(sizes)

    @property
    def count(self) -> int:
        """The number of points of a structure."""
        return prod(self.sizes)

    def expand(self, flat: NDArray[Any]) -> NDArray[Any]:
        """Return a flat array over a structure's points in mesh shape, squeezed.

        Its size is 1 in each dimension in which it is constant.
        """
        whole = flat.reshape(self.sizes)
        return squeeze(whole[np.ix_(*self.used)] if self.used else whole)

    def restrict(self, points: Sequence[NDArray[np.intp]]) -> Mesh:
        """Return the mesh of the degree values that occur at *points* of structures."""
        if not self.sizes:
            return self
        occurs = np.zeros(self.count, dtype=bool)
        for kept in points:
            occurs[kept] = True
        where = np.unravel_index(np.flatnonzero(occurs), self.sizes)
        return Mesh(self.sizes, [np.flatnonzero(np.bincount(axis)) for axis in where])

    def places(self, structure: int, points: NDArray[np.intp]) -> Places:
        """Return the mesh indices of *points* of a structure."""
        where = np.unravel_index(points, self.sizes) if self.sizes else ()
        if self.used:
            where = tuple(
                np.searchsorted(used, axis) for used, axis in zip(self.used, where, strict=True)
            )
        return Places((np.full(len(points), structure), *where))


@frozen(eq=False, slots=False)
class Places:
    """Points of a mesh: *index* has one array of positions for each dimension."""

    index: Sequence[NDArray[np.intp]]
    _flat: dict[tuple[int, ...], NDArray[np.intp]] = field(factory=dict, init=False)

    @cached_property
    def count(self) -> int:
        """The number of points."""
        return len(self.index[0])

    def pick(self, value: Any) -> Any:
        """Return the values of a mesh array at each point, as the last dimension.

        Dimensions before those of the mesh stay. If the array is constant over the mesh, the last
        dimension has size 1.
        """
        rank = len(self.index)
        if getattr(value, "ndim", 0) < 1:
            return value
        if value.ndim < rank:
            value = value.reshape((1,) * (rank - value.ndim) + value.shape)
        lead, shape = value.shape[: value.ndim - rank], value.shape[value.ndim - rank :]
        flat = value.reshape((*lead, -1))
        if flat.shape[-1] == 1:
            return flat
        if shape not in self._flat:
            found = np.zeros(self.count, dtype=np.intp)
            for size, at in zip(shape, self.index, strict=True):
                found = found * size + (at if size > 1 else 0)
            self._flat[shape] = found
        return flat.take(self._flat[shape], axis=-1)


def join_places(places: Sequence[Places]) -> Places:
    """Return the points of all *places*, concatenated."""
    return Places([np.concatenate(axis) for axis in zip(*(p.index for p in places), strict=True)])


def squeeze(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array with size 1 in each dimension in which it is constant.

    >>> squeeze(np.array([[1, 1], [2, 2]])).tolist()
    [[1], [2]]
    """
    for axis in range(values.ndim):
        first = values.take([0], axis=axis)
        if values.shape[axis] > 1 and (values == first).all():
            values = first
    return values
